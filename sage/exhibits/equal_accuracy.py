"""Coverage at equal accuracy: methods against mixtures of the base and a baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pandas as pd
from pydantic import Field, model_validator

from sage.exhibits.kind import Display, Files, Findings, Kind, Measuring
from sage.exhibits.pooled_pass_at_k import PARTS
from sage.fields import Name, Positive, PositiveFloat
from sage.rendering.labels import listed, method_title
from sage.rendering.lines import PALETTE, line_styles
from sage.rendering.numbers import NONE, interval_of_points, percent, points
from sage.rendering.table import Column, Record, TableDocument, points_cell, table_of, titled
from sage.results import Results
from sage.study import BASE, ResolvedStudy, StudyError
from sage.study.exhibit import ExhibitOfRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 3
"""The most alternatives that a sentence names; their table has all."""


class EqualAccuracyTable(ExhibitOfRows, Kind):
    """pass@k of every method minus that of a mixture of base and baseline with the same pass@1.

    pass@1 and pass@k of every method, and pass@k of a mixture of the base's completions and the
    baseline's that has the same pass@1: where there are strata, on those that RL trains on, for
    over all of them it mixes what is learned with what is forgotten. A method keeps coverage only
    if it is above the mixture.
    """

    kind: Literal["equal_accuracy"]
    baseline: Name = "grpo"
    """the method that is mixed with the base"""
    benchmark: Name
    """the problem set"""

    needs: ClassVar[tuple[str, ...]] = ("evaluated",)
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.mixtures",)

    def named(self) -> list[str]:
        return [*super().named(), self.baseline]

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """Raises StudyError where the baseline is not trained."""
        if self.baseline not in (there := study.trained(self.model)):
            fault = f"{self.baseline!r} is not trained for {self.model}; it can be"
            raise StudyError(f"exhibits: {name}: baseline: {fault} {', '.join(there)}")
        return {
            "rows": [row for row in self.methods_of(study) if row != BASE],
            "k": study.evaluation(self.model).primary_k,
            "bootstrap": study.study.evaluation.bootstrap,
            "trained": study.trained_strata(self.model),
        }

    def measure(self, job: Measuring) -> None:
        counts = job.counts({BASE, self.baseline, *job.settings["rows"]})
        job.write(**self.of_counts(job.settings, counts))

    def of_counts(
        self, settings: Mapping[str, Any], counts: pd.DataFrame, drawn: pd.DataFrame | None = None
    ) -> dict[str, pd.DataFrame]:
        """The frames that it shows, from the counts of its model and benchmark."""
        from sage.evaluation.mixtures import equal_accuracy

        asked = (settings[name] for name in ("rows", "k", "bootstrap", "trained"))
        return {"equal_accuracy": equal_accuracy(counts, self.baseline, *asked)}

    def table(self, display: Display) -> TableDocument:
        frame = display.ordered(display.frame("equal_accuracy"))
        k = int(frame["k"].iloc[0])
        columns: list[Column] = [
            *_accuracy(frame),
            ("", f"pass@{k}", lambda row: percent(row["coverage"])),
            ("Mixture", "from the base", lambda row: _mixed("base_share", row)),
            ("Mixture", f"pass@{k}", lambda row: _mixed("mixture", row)),
            ("", "method − mixture", lambda row: points_cell(*(row[end] for end in PARTS))),
        ]
        counted = "correct working" if frame["worked"].all() else "correct answers"
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: pass@1 and pass@{k} of "
            f"{counted}, in percent, beside a mixture of completions of the base and of "
            f"{display.title(self.baseline)} that is as accurate{_where(frame)}. Differences are "
            "in points with their 95 % intervals. A method keeps coverage only above the mixture, "
            "which needs no training of its own. –: no mixture is as accurate, for the method is "
            "more than "
            f"{display.title(self.baseline)} (same seeds), or less than the base."
        )
        return display.document(frame, columns, caption)


def _accuracy(frame: pd.DataFrame) -> list[Column]:
    """The columns of pass@1: that which is made equal, and that of all strata where it differs."""
    if not _where(frame):
        return [("", "pass@1", lambda row: percent(row["accuracy"]))]
    return [
        ("pass@1", "where RL trains", lambda row: percent(row["accuracy"])),
        ("pass@1", "all strata", lambda row: percent(row["accuracy_all"])),
    ]


def _where(frame: pd.DataFrame) -> str:
    """Where accuracy is made equal, if not on all problems; kept frames may not say it."""
    apart = "accuracy_all" in frame and not frame["accuracy"].equals(frame["accuracy_all"])
    return " where RL trains" if apart else ""


def _mixed(name: str, row: Record) -> str:
    """A share of the mixture, where there is one."""
    return NONE if pd.isna(row["value"]) else percent(row[name])


class CostFreeBaselines(EqualAccuracyTable):
    """The baseline stopped early and sampled at other temperatures, beside methods and mixtures.

    pass@k over pass@1 of what needs no training beyond the baseline's: mixtures of its completions
    with the base's, the baseline stopped early, and the baseline sampled at other temperatures;
    beside them the methods. Up and to the right is better: a method keeps coverage only above all
    three lines.
    """

    kind: Literal["cost_free_baselines"]  # type: ignore[assignment]
    snapshots: Positive = 5
    """moments of the baseline's training, the end among them [moments]"""
    temperatures: list[PositiveFloat] = Field(default_factory=lambda: [1.25, 1.5, 2.0])
    """at which the trained baseline is sampled; may be empty [factors]"""

    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("samples", "base", "problems")
    tells: ClassVar[tuple[str, ...]] = ("",)
    measured_by: ClassVar[tuple[str, ...]] = (
        "sage.evaluation.mixtures",
        "sage.evaluation.snapshots",
    )

    @model_validator(mode="after")
    def _has_a_rival(self) -> Self:
        if self.snapshots == 1 and not self.temperatures:
            raise ValueError("nothing to draw: set snapshots to 2 or more, or give a temperature")
        return self

    def snapshots_kept(self) -> int:
        return self.snapshots

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """The policies are the baseline's; its samples are among those of the methods."""
        own = [results.policy(run) for run in study.runs_of(self.model, self.baseline)]
        rows = {*self.methods_of(study), self.baseline}
        drawn = [
            results.samples(run, benchmark)
            for run, benchmark in study.evaluated_runs(self.model)
            if benchmark == self.benchmark and run.algorithm in rows
        ]
        return {**super().inputs(study, results, name), "policies": own, "samples": drawn}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        draws = study.evaluation(self.model).draws()
        return {**super().settings(study, name), "evaluation": draws}

    def measure(self, job: Measuring) -> None:
        """Write `cost_free_baselines` (a row for each of them and of the methods), `mixtures`, and
        the counts that were `drawn`."""
        from sage.evaluation.snapshots import rival_counts

        sampler = job.snapshot_sampler(self.model, self.benchmark)
        drawn, tokens = rival_counts(
            sampler, job.files["policies"], self.snapshots, self.temperatures
        )
        counts = job.counts_of_samples()
        job.write(**self.of_counts(job.settings, counts, drawn), drawn=drawn)
        job.write_manifest(tokens)

    def of_counts(
        self, settings: Mapping[str, Any], counts: pd.DataFrame, drawn: pd.DataFrame | None = None
    ) -> dict[str, pd.DataFrame]:
        from sage.evaluation.mixtures import equal_accuracy, mixture_line

        rows, k, draws, trained = (settings[name] for name in ("rows", "k", "bootstrap", "trained"))
        counts = pd.concat([counts, drawn], ignore_index=True)
        rows = [*rows, *({} if drawn is None else dict.fromkeys(drawn["algorithm"]))]
        return {
            "cost_free_baselines": equal_accuracy(counts, self.baseline, rows, k, draws, trained),
            "mixtures": mixture_line(counts, self.baseline, k, trained=trained),
        }

    def findings(self, study: ResolvedStudy, *frames: pd.DataFrame) -> Findings:
        """Which methods and rivals are above the mixture, and the largest difference."""
        (frame,) = frames
        frame = frame[(frame["algorithm"] != self.baseline) & frame["value"].notna()]
        if frame.empty:
            return Findings()
        first = method_title(study, self.baseline)
        own = self._titles(frame, first)
        rows = sorted(frame.to_dict("records"), key=lambda row: -float(row["value"]))
        names = [
            (own.get(name) or method_title(study, name)).removeprefix(f"{first}, ")
            for name in (str(row["algorithm"]) for row in rows)
        ]
        above = [name for name, row in zip(names, rows, strict=True) if row["low"] > 0]
        left = len(above) - NAMED
        told = [*above[:NAMED], *([f"{left} more in its table"] if left > 0 else [])]
        sorts = "methods, early stops" + (", temperatures" if self.temperatures else "")
        one = rows[0]
        limits = interval_of_points(one["low"], one["high"])
        known = f", 95 % interval {limits}, not adjusted" if limits else ""
        said = (
            f"{study.model(self.model).title}: "
            f"{listed(told or [f'no alternative to {first} ({sorts})'])} "
            f"{'have' if len(above) > 1 else 'has'} clearly more pass@{one['k']} than its mixture "
            f"with the base that is as accurate{_where(frame)}; the largest difference: {names[0]} "
            f"({percent(one['mixture'])} to {percent(one['coverage'])} %, "
            f"{points(one['value'])} points{known})."
        )
        return Findings([said])

    def table(self, display: Display) -> TableDocument:
        """A row for each rival: what it is worth beside a mixture that is as accurate."""
        frame = display.frame("cost_free_baselines")
        first = display.title(self.baseline)
        titles, k = self._titles(frame, first), int(frame["k"].iloc[0])
        columns: list[Column] = [
            *_accuracy(frame),
            ("", f"pass@{k}", lambda row: percent(row["coverage"])),
            ("", "rival − mixture", lambda row: points_cell(*(row[end] for end in PARTS))),
        ]
        rows = [(titles[name], row) for name, row in titled(frame) if name in titles]
        own = f"{display.evaluation.sampling.temperature:g}"
        hotter = f" and sampled at other temperatures than {own}" if self.temperatures else ""
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: {first} stopped "
            f"early{hotter}. "
            f"Pass@1 and pass@{k} in percent, and pass@{k} minus that of a mixture of {first}'s "
            f"completions with the base's that is as accurate{_where(frame)}, in points with its "
            "95 % interval (– where no mixture is)."
        )
        return TableDocument(frame, table_of("Rival", columns, [("", rows)]), caption)

    def figure(self, display: Display) -> Figure:
        """pass@k over pass@1: a line for each sort of rival, a mark for each method."""
        from sage.rendering.style import add_legend, grid_of_panels, in_percent, of_method

        frame, mixtures = display.frame("cost_free_baselines"), display.frame("mixtures")
        styles, names = line_styles(display.study), [BASE, *display.rows_in(frame)]
        figure, (axes,) = grid_of_panels(1, (4.6, 3.9))
        finished, usual = mixtures.head(1), display.evaluation.sampling.temperature
        lines = {
            "mixtures with the base": (mixtures, "-"),
            "stopped early": (_line(frame, "step", finished, math.inf), ".--"),
        }
        if self.temperatures:
            lines["other temperatures"] = (_line(frame, "temperature", finished, usual), ".:")
        look: dict[str, Any] = {"color": PALETTE["ink"][0], "lw": 1.2, "ms": 4}
        for label, (line, dash) in lines.items():
            axes.plot(line["accuracy"], line["coverage"], dash, label=label, **look)
        axes.legend(fontsize=8)
        for name in names:
            own = mixtures.tail(1) if name == BASE else frame[frame["algorithm"] == name]
            style, places = styles[name], (own["accuracy"], own["coverage"])
            with of_method(axes, name):
                axes.scatter(*places, marker=style.marker, color=style.hex, s=46, zorder=3)
        in_percent(axes.xaxis, axes.yaxis)
        counted = " with correct working" if frame["worked"].all() else ""
        k = int(frame["k"].iloc[0])
        axes.set(xlabel=f"pass@1{_where(frame)}{counted} (%)", ylabel=f"pass@{k}{counted} (%)")
        axes.margins(0.08)
        add_legend(figure, names, display.study)
        return figure

    @staticmethod
    def _titles(frame: pd.DataFrame, first: str) -> Mapping[str, str]:
        """The titles of the baseline's (`first`) rivals, by their names in the frame."""
        titles = {}
        for name in frame["algorithm"]:
            how, _, value = str(name).partition("-")
            if how == "step":
                titles[name] = f"{first}, stopped after {value} steps"
            elif how == "temperature":
                titles[name] = f"{first}, temperature {value}"
        return titles


def _line(frame: pd.DataFrame, sort: str, finished: pd.DataFrame, at: float) -> pd.DataFrame:
    """The rivals of one sort by their step or temperature, the `finished` baseline at its own."""
    names = frame["algorithm"].str.extract(rf"^{sort}-([\d.]+)$")[0].astype(float)
    own = pd.concat([frame.assign(at=names).dropna(subset="at"), finished.assign(at=at)])
    return own.sort_values("at")
