"""The effect of a guide over its measured dose, on accuracy and on coverage."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pandas as pd
from pydantic import Field

from sage.evaluation.histories import IN_REWARD, LEAST_DOSE, History, read_histories
from sage.exhibits.ablation import faults_of_varied, occurring_twice
from sage.exhibits.kind import Display, Findings, Kind, Measuring
from sage.fields import Name, PositiveFloat
from sage.rendering.forest import Line
from sage.rendering.labels import benchmark_titles
from sage.rendering.lines import PALETTE
from sage.rendering.numbers import interval_of_points, number_text, percent, points
from sage.rendering.table import (
    Column,
    Record,
    TableDocument,
    cell_of,
    points_cell,
    table_of,
    titled,
    titled_by,
)
from sage.study import Algorithm, ResolvedStudy
from sage.study.exhibit import Surroundings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = "osD^vP"
_TITLES = {
    IN_REWARD: "KL term in the reward (k1)",
    "k3": "KL term in the loss (k3)",
    "k3_corrected": "KL term in the loss (k3, corrected)",
}
_COLOURS = ("blue", "rust", "green", "plum", "ochre")
_OF_TRAINING = ["guide_dose", "kl_dose", "guide_dose_first", "kl", "truncated"]
"""Columns of the table that come from histories."""

_DIRECTIONS = {0: "inconclusive", 1: "higher", -1: "lower"}


class DoseFigure(Kind):
    """What a guide changes in pass@1 and pass@k, over the dose that was measured in training.

    For each weight of the KL term and strength of the guide: pass@1 and pass@k minus those of the
    same method without a guide, with 95 % intervals, beside the dose that was measured in training.
    """

    algorithms: Annotated[list[Name], Field(min_length=1)]
    """methods with a guide, which is varied"""
    kl_coefficients: Annotated[list[PositiveFloat], Field(min_length=1)]
    """weights of the KL term [per nat]"""
    setting: str = "ratio"
    """the setting of the guides that is varied"""
    values: Annotated[list[float], Field(min_length=1)]
    """its values [values of the setting]"""
    clamp: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.25, 4.0]
    )
    """least and largest factor of the guides [factors]"""
    benchmark: Name
    """the problem set"""

    needs: ClassVar[tuple[str, ...]] = ("policies", "evaluated")
    needs_rl: ClassVar[bool] = True
    tells: ClassVar[tuple[str, ...]] = ("_slopes", "")
    measured_by: ClassVar[tuple[str, ...]] = ("reports.dose.dose_effects",)
    caption: ClassVar[str] = (
        "Effect of adding the guide, against its dose. Method and β are the same with it and "
        "without. Dose: that in the reward, the standard deviation of β log q within a group, in "
        "standard deviations of the advantages, averaged over training; also where the KL term is "
        "in the loss, which has a dose of its own. Each mark is a cell, with its 95 % interval; "
        "filled where that excludes 0. Left of the dotted line a guide in the reward counts as "
        "untested."
    )

    def named(self) -> list[str]:
        return []

    def varied(self) -> list[str]:
        return list(self.algorithms)

    def methods_of(self, study: ResolvedStudy) -> list[str]:
        """For each method and KL weight the control, then a method for each strength."""
        return [self._name(*cell) for cell in self._grid()]

    def _grid(self) -> Iterator[tuple[str, float, float | None]]:
        """Method, KL weight and strength of each cell; None is the control."""
        return itertools.product(self.algorithms, self.kl_coefficients, (None, *self.values))

    def variants(self, algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
        """A method for each cell, and one without a guide for each KL weight."""
        rows = {}
        for algorithm, beta, value in self._grid():
            parent = algorithms[algorithm]
            assert parent.guide is not None  # a fault otherwise
            guide, words = None, "no guide"
            if value is not None:
                settings = {**parent.guide.settings, self.setting: value}
                guide = parent.guide.varied(settings=settings, clamp=self.clamp)
                words = f"{self.setting} {value:g}"
            title = f"{parent.title} (β {beta:g}, {words})"
            own = {"guide": guide, "kl_coefficient": beta, "title": title}
            rows[self._name(algorithm, beta, value)] = parent.model_copy(update=own)
        return rows

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        written, cells = {"setting": self.setting}, [{self.setting: value} for value in self.values]
        for place, name in enumerate(self.algorithms):
            key = f"algorithms[{place}]"
            yield from faults_of_varied(around, name, key, written, "values", cells)
        yield from occurring_twice("values", self.values)
        yield from occurring_twice("kl_coefficients", self.kl_coefficients)
        if self.clamp[0] > self.clamp[1]:
            yield "clamp", f"must be [lowest, highest], not {self.clamp}"

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        cells = [
            {
                "estimator": getattr(study.algorithms[plain].estimator, "kind", ""),
                "kl_coefficient": beta,
                "setting": value,
                "guided": self._name(algorithm, beta, value),
                "plain": plain,
            }
            for algorithm, beta, value in self._grid()
            for plain in [self._name(algorithm, beta, None)]
            if value is not None
        ]
        ks = [1, study.evaluation(self.model).primary_k]
        return {"cells": cells, "ks": ks, "bootstrap": study.study.evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        from reports.dose.dose_effects import Cell, dose_tables  # with scipy, slow to import

        cells = [Cell(**cell) for cell in job.settings["cells"]]
        effects, slopes = dose_tables(
            job.counts({name for cell in cells for name in (cell.guided, cell.plain)}),
            read_histories(job.files["policies"]),
            cells,
            job.settings["ks"],
            job.settings["bootstrap"],
        )
        job.write(effects=effects, slopes=slopes)

    def recomputed(
        self, study: ResolvedStudy, name: str, counts: pd.DataFrame, kept: pd.DataFrame
    ) -> dict[str, pd.DataFrame]:
        """See `Kind`. What comes from histories stays as it was kept."""
        from reports.dose.dose_effects import Cell, dose_tables

        own, rows = self.settings(study, name), {*kept["algorithm"], *kept["other"]}
        doses = kept.drop_duplicates("algorithm").set_index("algorithm")["guide_dose"]
        runs = counts[["algorithm", "train_seed"]].drop_duplicates().itertuples(index=False)
        histories: dict[tuple[str, int], History] = {
            (row, seed): [{"guide_dose": float(doses.get(row, math.nan))}] for row, seed in runs
        }
        here = (counts["model"] == self.model) & (counts["benchmark"] == self.benchmark)
        effects, slopes = dose_tables(
            counts[here & counts["algorithm"].isin(rows)],
            histories,
            [Cell(**cell) for cell in own["cells"]],
            own["ks"],
            own["bootstrap"],
        )
        effects[_OF_TRAINING] = kept[_OF_TRAINING]
        return {"": effects, "_slopes": slopes}

    def table(self, display: Display) -> TableDocument:
        """Estimators as groups, cells down, doses and both k across."""
        frame = display.frame("effects")
        counted = "with correct working" if frame["worked"].all() else "by answers"
        runs = sorted(set(frame["n_seeds"]))
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: pass@1 and "
            f"pass@{frame['k'].max()} {counted}, in percent, and the guide's effect in points with "
            f"its 95 % interval, over {' or '.join(map(str, runs))} training runs and problems. "
            "Doses are standard deviations within a group over that of the advantages."
        )
        columns: list[Column] = [
            ("Dose", "guide", partial(_dose, "guide_dose")),
            ("Dose", "KL term", partial(_dose, "kl_dose")),
        ]
        for k in sorted(frame["k"].unique()):
            columns.append((f"pass@{k}", "no guide", cell_of(percent, k, ends=["without"])))
            columns.append((f"pass@{k}", "guide − none", cell_of(points_cell, k)))
        cells = frame.assign(
            cell=[
                f"β {beta:g}, {self.setting} {value:g}"
                for beta, value in zip(frame["kl_coefficient"], frame["setting"], strict=True)
            ]
        )
        if cells.duplicated(["estimator", "cell", "k"]).any():  # methods of the same estimator
            cells["cell"] = frame["algorithm"].map(display.title)
        groups = (
            (_title(estimator), titled_by(rows, "k", "cell"))
            for estimator, rows in cells.groupby("estimator", sort=False)
        )
        return TableDocument(frame, table_of("Cell", columns, groups), caption)

    def slopes(self, display: Display) -> TableDocument:
        """What ten times the dose adds, for each estimator and k."""
        frame = display.frame("slopes")
        columns: list[Column] = [
            ("", "Cells", lambda row: str(row["n_cells"])),
            ("", "Ten times the dose, points", cell_of(points_cell)),
        ]
        rows = [
            (f"{_title(row['estimator'])}, pass@{row['k']}", row) for _, row in titled(frame, "k")
        ]
        caption = (
            f"{display.heading}: what ten times the dose adds to the guide's effect, the slope of "
            "the line through the cells over log10 of their doses, with its 95 % interval."
        )
        return TableDocument(frame, table_of("Slope", columns, [("", rows)]), caption)

    def findings(self, study: ResolvedStudy, *frames: pd.DataFrame) -> Findings:
        """The slope of pass@k for each estimator, and pass@k of the cell with the largest dose."""
        slopes, effects = frames
        title, k = study.model(self.model).title, slopes["k"].max()
        counted = f"pass@{k}" + " with correct working" * bool(slopes["worked"].all())
        what = f"{counted} of the model “{title}”"
        sentences, lines = [], []
        for slope in slopes[slopes["k"] == k].to_dict("records"):
            cells = effects[(effects["estimator"] == slope["estimator"]) & (effects["k"] == k)]
            cell = cells.loc[cells["guide_dose"].idxmax()]
            which = f" ({_title(slope['estimator'])})"
            which *= slopes["estimator"].nunique() > 1
            ends = slope["value"], slope["low"], slope["high"]
            weak = slope["estimator"] == IN_REWARD and bool(cell["guide_dose"] < LEAST_DOSE)
            untested = f" That dose is below {LEAST_DOSE:g}: the guide was hardly tested." * weak
            sentences.append(
                f"Ten times the dose of the guide{which} {_adds(what, *ends)}. At the largest "
                f"dose, {cell['guide_dose']:.2f}, it is {percent(cell['with_guide'])} % "
                f"with the guide and {percent(cell['without'])} % without.{untested}"
            )
            kind = _DIRECTIONS[int(slope["low"] > 0) - int(slope["high"] < 0)]
            note = f"{counted}, {benchmark_titles(study)[self.benchmark]}{which}"
            one_run = slope["n_seeds"] == 1
            lines.append(Line(title, note, *ends, kind=kind, hollow=one_run))
        caption = (
            "What ten times the dose adds to the effect of the guide, in points, with 95 % "
            "intervals over training runs and problems."
        )
        return Findings(sentences, lines, caption)

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        return {"": self.table, "_slopes": self.slopes}

    def figure(self, display: Display) -> Figure:
        """Effects over the dose: a column for each estimator, pass@1 above pass@k."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator

        from sage.rendering.style import plain_ticks

        frame = display.frame("effects")
        ks, frame = sorted(frame["k"].unique()), frame[frame["guide_dose"] > 0]
        estimators = list(frame["estimator"].unique())
        across = max(1, len(estimators))
        figure = Figure(figsize=(4.2 * across, 2.5 * len(ks)), layout="constrained")
        panels = figure.subplots(len(ks), across, squeeze=False, sharex=True)
        for row, k in zip(panels, ks, strict=True):
            for axes, estimator in zip(row, estimators, strict=False):
                here = frame[(frame["k"] == k) & (frame["estimator"] == estimator)]
                self._draw(axes, here)
                if estimator == IN_REWARD:
                    axes.axvline(LEAST_DOSE, color=PALETTE["grey"][0], lw=0.8, ls=":")
                axes.axhline(0, color=PALETTE["grey"][0], lw=0.8)
                axes.set(xscale="log", xlabel="dose in the reward (SDs of the advantages)")
                axes.set(ylabel=f"Δ pass@{k} (points)", title=_title(estimator))
                plain_ticks(axes.xaxis, LogLocator(subs=(1.0, 2.0, 5.0)))
                axes.tick_params(labelbottom=True)  # the page shows each panel by itself
        if estimators:
            legend = panels[0, 0].get_legend_handles_labels()
            figure.legend(*legend, title="KL coefficient", loc="outside lower center", ncols=4)
        return figure

    def _draw(self, axes: Axes, cells: pd.DataFrame) -> None:
        """The cells of one panel; colour and mark by the weight of the KL term."""
        for place, beta in enumerate(self.kl_coefficients):
            own = cells[cells["kl_coefficient"] == beta]
            colour = PALETTE[_COLOURS[place % len(_COLOURS)]][0]
            for number, cell in enumerate(own.to_dict("records")):
                below, above = cell["value"] - cell["low"], cell["high"] - cell["value"]
                sure = cell["low"] > 0 or cell["high"] < 0
                axes.errorbar(
                    cell["guide_dose"],
                    100 * cell["value"],
                    yerr=[[100 * below], [100 * above]],
                    marker=_MARKS[place % len(_MARKS)],
                    ms=5,
                    mfc=colour if sure else PALETTE["paper"][0],
                    label=f"{beta:g}" if number == 0 else None,
                    color=colour,
                    lw=0.9,
                )

    def _name(self, algorithm: str, beta: float, value: float | None) -> str:
        end = "unguided" if value is None else f"{self.setting}{value:g}"
        return f"{algorithm}-kl{beta:g}-{end}"


def _title(estimator: Any) -> str:
    return _TITLES.get(estimator, str(estimator))


def _adds(what: str, value: float, low: float, high: float) -> str:
    """``adds 11.6 points of pass@16 (95 % interval +2.5 to +20.8)``."""
    limits = f"95 % interval {interval_of_points(low, high)}"
    if low > 0 or high < 0:
        verb = "adds" if low > 0 else "takes"
        return f"{verb} {percent(abs(value))} points of {what} ({limits})"
    known = ", ".join([f"{points(value)} points", *[limits] * (low <= high)])
    return f"does not change {what} significantly ({known})"


def _dose(name: str, row: Record) -> str:
    return number_text(next(iter(row.values()))[name], ".3f")
