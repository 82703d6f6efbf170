"""Coverage over accuracy of methods and of what costs no training: early stopping, temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits.equal_accuracy import EqualAccuracyTable
from sage.exhibits.kind import Display, Files, Findings, Measuring
from sage.exhibits.pass_at_k import PARTS
from sage.fields import Positive, PositiveFloat, about
from sage.rendering.labels import row_title
from sage.rendering.lines import PALETTE, line_styles
from sage.rendering.numbers import interval_of_points, percent, points
from sage.rendering.table import Column, TableDocument, points_cell, table_of, titled
from sage.results import Results
from sage.study import BASE, ResolvedStudy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FreeRivals(EqualAccuracyTable):
    """The baseline stopped early and sampled at other temperatures, beside methods and mixtures.

    pass@k over pass@1 of what needs no training beyond the baseline's: mixtures of its completions
    with the base's, the baseline stopped early, and the baseline sampled at other temperatures;
    beside them the methods. Up and to the right is better: a method keeps coverage only above all
    three lines.
    """

    kind: Literal["free_rivals"]  # type: ignore[assignment]
    snapshots: Annotated[
        Positive,
        about("moments of the baseline's training, the end among them", unit="moments"),
    ] = 5
    temperatures: Annotated[
        list[PositiveFloat],
        Field(min_length=1),
        about("at which the trained baseline is sampled", unit="factors"),
    ] = Field(default_factory=lambda: [1.25, 1.5, 2.0])

    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    tells: ClassVar[tuple[str, ...]] = ("",)
    measured_by: ClassVar[tuple[str, ...]] = (
        "sage.evaluation.mixtures",
        "sage.evaluation.free_rivals",
    )

    def snapshots_kept(self) -> int:
        return self.snapshots

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """The counts of its benchmark, and what the baseline's policies are sampled with."""
        return {
            **super().inputs(study, results, name),
            "base": [results.parent(self.model)],
            "problems": [results.problems(self.benchmark)],
            "policies": [results.policy(run) for run in study.runs_of(self.model, self.baseline)],
        }

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """Those of equal accuracy, and the draws."""
        draws = study.evaluation(self.model).draws()
        return {**super().settings(study, name), "evaluation": draws}

    def measure(self, job: Measuring) -> None:
        """Write `free_rivals`, a row for each method and rival; `mixtures`; and counts, `drawn`."""
        from sage.evaluation.free_rivals import rival_counts
        from sage.evaluation.mixtures import equal_accuracy, mixture_line
        from sage.runtime.tables import read_frame

        sampler = job.snapshot_sampler(self.model, self.benchmark)
        drawn, tokens = rival_counts(
            sampler, job.files["policies"], self.snapshots, self.temperatures
        )
        settings, counts = job.settings, read_frame(job.file("evaluated") / "counts.parquet")
        kept = counts["algorithm"].isin({BASE, self.baseline, *settings["rows"]})
        counts = pd.concat([counts[kept], drawn], ignore_index=True)
        rows = [*settings["rows"], *dict.fromkeys(drawn["algorithm"])]
        k = settings["k"]
        job.write(
            free_rivals=equal_accuracy(counts, self.baseline, rows, k, settings["bootstrap"]),
            mixtures=mixture_line(counts, self.baseline, k),
            drawn=drawn,
        )
        job.write_manifest(tokens)

    def findings(self, study: ResolvedStudy, *frames: pd.DataFrame) -> Findings:
        """How many methods and rivals are above the mixture, and the largest difference."""
        (frame,) = frames
        frame = frame[(frame["algorithm"] != self.baseline) & frame["value"].notna()]
        if frame.empty:
            return Findings()
        first, above = row_title(study, self.baseline), int((frame["low"] > 0).sum())
        one = max(frame.to_dict("records"), key=lambda row: float(row["value"]))
        rival = str(one["algorithm"])
        name = self._titles(frame, first).get(rival) or row_title(study, rival)
        said = (
            f"{above or 'None'} of {len(frame)} alternatives to {first} (methods, early stops, "
            f"temperatures) {'has' if above < 2 else 'have'} significantly more pass@{one['k']} "
            f"than a mixture of the base and {first} that is as accurate; the largest difference "
            f"is {name} ({percent(one['mixture'])} to {percent(one['coverage'])} %, "
            f"{points(one['value'])} points, 95 % interval "
            f"{interval_of_points(one['low'], one['high'])}, not adjusted)."
        )
        return Findings([said])

    def table(self, display: Display) -> TableDocument:
        """A row for each rival: what it is worth beside a mixture that is as accurate."""
        frame = display.frame("free_rivals")
        first = display.title(self.baseline)
        titles, k = self._titles(frame, first), int(frame["k"].iloc[0])
        columns: list[Column] = [
            ("", "pass@1", lambda row: percent(row["accuracy"])),
            ("", f"pass@{k}", lambda row: percent(row["coverage"])),
            ("", "rival − mixture", lambda row: points_cell(*(row[end] for end in PARTS))),
        ]
        rows = [(titles[name], row) for name, row in titled(frame) if name in titles]
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: {first} stopped early and "
            f"sampled at other temperatures than {display.evaluation.sampling.temperature:g}. "
            f"Pass@1 and pass@{k} in percent, and pass@{k} minus that of a mixture of {first}'s "
            "completions with the base's that is as accurate, in points with its 95 % interval "
            "(– where no mixture is)."
        )
        return TableDocument(frame, table_of("Rival", columns, [("", rows)]), caption)

    def figure(self, display: Display) -> Figure:
        """pass@k over pass@1: a line for each rival, a mark for each method."""
        from matplotlib.ticker import FuncFormatter

        from sage.rendering.style import add_legend, grid_of_panels

        frame, mixtures = display.frame("free_rivals"), display.frame("mixtures")
        styles, names = line_styles(display.study), [BASE, *display.rows_in(frame)]
        figure, (axes,) = grid_of_panels(1, (5.6, 4.2))
        start = frame[frame["algorithm"] == self.baseline]
        lines = {
            "mixtures": (mixtures, "-"),
            "stopped early": (self._line(frame, "step-", start, last=True), "--"),
            "temperatures": (self._line(frame, "temperature-", start), ":"),
        }
        for number, (label, (line, dash)) in enumerate(lines.items()):
            axes.plot(line["accuracy"], line["coverage"], dash, color=PALETTE["ink"][0], lw=1.2)
            end = line.iloc[[len(line) // 2, len(line) // 2, -1][number]]
            place = (end["accuracy"], end["coverage"])
            axes.annotate(label, place, (4, 4), textcoords="offset points", fontsize=7)
        for name in names:
            own = mixtures.tail(1) if name == BASE else frame[frame["algorithm"] == name]
            look = styles[name]
            places = own["accuracy"], own["coverage"]
            axes.scatter(*places, marker=look.marker, color=look.hex, s=46, zorder=3)
        share = FuncFormatter(lambda value, _: f"{100 * value:g}%")
        axes.xaxis.set_major_formatter(share)
        axes.yaxis.set_major_formatter(share)
        axes.set(xlabel="pass@1", ylabel=f"pass@{int(frame['k'].iloc[0])}")
        axes.margins(0.08)
        add_legend(figure, names, display.study, markers=True)
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

    @staticmethod
    def _line(
        frame: pd.DataFrame, prefix: str, end: pd.DataFrame, last: bool = False
    ) -> pd.DataFrame:
        """The rivals of one sort in order, with the finished baseline at one end."""
        own = frame[frame["algorithm"].str.startswith(prefix)]
        return pd.concat([own, end] if last else [end, own])
