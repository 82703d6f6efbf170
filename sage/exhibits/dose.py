"""The effect of a guide over its measured dose, on accuracy and on coverage."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name, PositiveFloat, about, nearest
from sage.rendering.lines import PALETTE
from sage.rendering.numbers import interval_of_points, percent, points
from sage.rendering.table import (
    Cell,
    Columns,
    Group,
    Head,
    Record,
    Row,
    Table,
    TableDocument,
    columns_table,
)
from sage.results import Results
from sage.study import REGISTRIES, Algorithm, ResolvedStudy
from sage.study.exhibit import Surroundings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = "osD^vP"


class DoseFigure(Kind):
    """What a guide changes in pass@1 and pass@k, over the dose that was measured in training."""

    kind: Literal["dose"]
    algorithms: Annotated[
        list[Name], Field(min_length=1), about("methods with a guide, which is varied")
    ]
    kl_coefficients: Annotated[
        list[PositiveFloat], Field(min_length=1), about("weights of the KL term", unit="per nat")
    ]
    setting: Annotated[str, about("the setting of the guides that is varied")] = "ratio"
    values: Annotated[
        list[float], Field(min_length=1), about("its values", unit="values of the setting")
    ]
    clamp: Annotated[
        list[PositiveFloat],
        Field(min_length=2, max_length=2),
        about("least and largest factor of the guides", unit="factors"),
    ] = Field(default_factory=lambda: [0.25, 4.0])
    benchmark: Annotated[Name, about("the problem set")]

    needs: ClassVar[tuple[str, ...]] = ("policies",)
    needs_rl: ClassVar[bool] = True
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.dose",)
    contents: ClassVar[str] = (
        "For each weight of the KL term and strength of the guide: pass@1 and pass@k minus those "
        "of the same method without a guide, with 95 % intervals, beside the dose that was "
        "measured in training."
    )
    caption: ClassVar[str] = (
        "Effect of the guide (same method and KL weight, with it minus without it) over its dose: "
        "the standard deviation of β log q within a group, in standard deviations of the "
        "advantages, averaged over training. Each mark is a cell, with its 95 % interval; filled "
        "where that excludes 0. Left of the dotted line a guide counts as untested."
    )

    def named(self) -> list[str]:
        return []

    def varied(self) -> list[str]:
        return list(self.algorithms)

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        """For each method and KL weight the control, then a method for each strength."""
        return [self._name(*cell) for cell in self._grid()]

    def _grid(self) -> Iterator[tuple[str, float, float | None]]:
        """Method, KL weight and strength of each cell; None is the control."""
        return itertools.product(self.algorithms, self.kl_coefficients, (None, *self.values))

    def evaluated(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """Its model on its benchmark."""
        return [(self.model, self.benchmark)]

    def variants(self, algorithms: Mapping[str, Algorithm]) -> dict[str, Algorithm]:
        """A method for each cell, and one without a guide for each KL weight."""
        rows = {}
        for algorithm, beta, value in self._grid():
            parent = algorithms[algorithm]
            assert parent.guide is not None  # a fault otherwise
            guide, words = None, f"β {beta:g}, no guide"
            if value is not None:
                settings = {**parent.guide.settings, self.setting: value}
                guide = parent.guide.model_copy(update={"settings": settings, "clamp": self.clamp})
                words = f"β {beta:g}, {self.setting} {value:g}"
            rows[self._name(algorithm, beta, value)] = parent.model_copy(
                update={
                    "guide": guide,
                    "kl_coefficient": beta,
                    "title": f"{parent.title} ({words})",
                }
            )
        return rows

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """Methods without a guide, and a setting that a guide does not have."""
        for place, name in enumerate(self.algorithms):
            row = around.algorithms.get(name)
            if row is not None and row.guide is None:
                yield f"algorithms[{place}]", f"{name!r} has no guide to be varied"
            elif row is not None and row.guide is not None:
                known = REGISTRIES["guide"].settings(row.guide.kind).model_fields
                if self.setting not in known:
                    what = f"a setting of the guide {row.guide.kind!r}"
                    yield "setting", f"{self.setting!r} is not {what}{nearest(self.setting, known)}"

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Histories of training, and counts."""
        evaluated = [results.evaluated(self.model, self.benchmark)]
        return {**super().inputs(study, results, name), "evaluated": evaluated}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """The cells, and how they are compared."""
        estimators = {
            row: study.algorithms[self._name(row, self.kl_coefficients[0], None)].estimator
            for row in self.algorithms
        }
        cells = [
            {
                "estimator": str(getattr(estimators[algorithm], "kind", "")),
                "kl_coefficient": beta,
                "setting": value,
                "guided": self._name(algorithm, beta, value),
                "plain": self._name(algorithm, beta, None),
            }
            for algorithm, beta, value in self._grid()
            if value is not None
        ]
        ks = [1, study.evaluation(self.model).primary_k]
        return {"cells": cells, "ks": ks, "bootstrap": study.study.evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        """Write `effects` and `slopes`."""
        from sage.analysis.dose import Cell as DoseCell
        from sage.analysis.dose import dose_tables
        from sage.analysis.dynamics import read_histories
        from sage.runtime.tables import read_frame

        counts = read_frame(job.file("evaluated") / "counts.parquet")
        cells = [DoseCell(**cell) for cell in job.settings["cells"]]
        named = {name for cell in cells for name in (cell.guided, cell.plain)}
        effects, slopes = dose_tables(
            counts[counts["algorithm"].isin(named)],
            read_histories(job.files["policies"]),
            cells,
            job.settings["ks"],
            job.settings["bootstrap"],
        )
        job.write(effects=effects, slopes=slopes)

    def table(self, display: Display) -> TableDocument:
        """A row for each cell."""
        frame = display.frame("effects")
        counted = "with correct working" if frame["worked"].all() else "by answers"
        runs = sorted(set(frame["n_seeds"]))
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: pass@1 and "
            f"pass@{frame['k'].max()} {counted}, in percent, and the guide's effect in points with "
            f"its 95 % interval, over {' or '.join(map(str, runs))} training runs and problems. "
            "Doses are standard deviations within a group over that of the advantages."
        )
        return TableDocument(frame, self._view(frame), caption)

    def slopes(self, display: Display) -> TableDocument:
        """What ten times the dose adds, for each estimator and k."""
        frame = display.frame("slopes")
        columns: Columns = {
            "Cells": lambda row: str(row["n_cells"]),
            "Ten times the dose, points": lambda row: Cell(
                points(row["value"]), interval_of_points(row["low"], row["high"])
            ),
        }

        def row(record: Record, cells: list[Cell]) -> Row:
            return Row(f"KL as {record['estimator']}, pass@{record['k']}", tuple(cells))

        caption = (
            f"{display.heading}: what ten times the dose adds to the guide's effect, the slope of "
            "the line through the cells over log10 of their doses, with its 95 % interval."
        )
        return TableDocument(frame, columns_table("Slope", columns, [("", frame)], row), caption)

    def tables(self) -> Mapping[str, Callable[[Display], TableDocument]]:
        """The cells, and their slopes."""
        return {"": self.table, "_slopes": self.slopes}

    def figure(self, display: Display) -> Figure:
        """Effects over the dose: a column for each estimator, pass@1 above pass@k."""
        from matplotlib.figure import Figure

        from sage.analysis.dose import LEAST_DOSE

        frame = display.frame("effects")
        frame = frame[frame["guide_dose"] > 0]
        estimators, ks = list(frame["estimator"].unique()), sorted(frame["k"].unique())
        figure = Figure(
            figsize=(4.2 * max(1, len(estimators)), 2.5 * len(ks)), layout="constrained"
        )
        panels = figure.subplots(len(ks), max(1, len(estimators)), squeeze=False, sharex=True)
        for row, k in zip(panels, ks, strict=True):
            for axes, estimator in zip(row, estimators, strict=False):
                here = frame[(frame["k"] == k) & (frame["estimator"] == estimator)]
                self._draw(axes, here)
                axes.axvline(LEAST_DOSE, color=PALETTE["grey"][0], lw=0.8, ls=":")
                axes.axhline(0, color=PALETTE["grey"][0], lw=0.8)
                axes.set(xscale="log", ylabel=f"pass@{k} (points)", title=f"KL as {estimator}")
        for axes in panels[-1]:
            axes.set_xlabel("dose of the guide")
        if estimators:
            panels[0, 0].legend(title="KL weight", fontsize=7, title_fontsize=7)
        return figure

    def _draw(self, axes: Axes, cells: pd.DataFrame) -> None:
        """The cells of one panel; colour and mark by the weight of the KL term."""
        colours = [PALETTE[name][0] for name in ("blue", "rust", "green", "plum", "ochre")]
        for place, beta in enumerate(self.kl_coefficients):
            own = cells[cells["kl_coefficient"] == beta]
            look: dict[str, Any] = {"color": colours[place % len(colours)], "lw": 0.9}
            for number, cell in enumerate(own.to_dict("records")):
                sure = cell["low"] > 0 or cell["high"] < 0
                axes.errorbar(
                    cell["guide_dose"],
                    100 * cell["value"],
                    yerr=[
                        [100 * (cell["value"] - cell["low"])],
                        [100 * (cell["high"] - cell["value"])],
                    ],
                    marker=_MARKS[place % len(_MARKS)],
                    ms=5,
                    mfc=look["color"] if sure else PALETTE["paper"][0],
                    label=f"{beta:g}" if number == 0 else None,
                    **look,
                )

    def _view(self, frame: pd.DataFrame) -> Table:
        """Estimators as groups, cells down, doses and both k across."""
        ks = sorted(frame["k"].unique())
        groups = []
        for estimator, of_estimator in frame.groupby("estimator", sort=False):
            rows = []
            for (beta, value), cell in of_estimator.groupby(
                ["kl_coefficient", "setting"], sort=False
            ):
                first = cell.iloc[0]
                cells = [Cell(f"{first['guide_dose']:.3f}"), Cell(f"{first['kl_dose']:.3f}")]
                for k in ks:
                    at = cell[cell["k"] == k].iloc[0]
                    cells.append(Cell(percent(at["without"])))
                    bounds = interval_of_points(at["low"], at["high"])
                    cells.append(Cell(points(at["value"]), bounds))
                rows.append(Row(f"β {beta:g}, {self.setting} {value:g}", tuple(cells)))
            groups.append(Group(f"KL as {estimator}", tuple(rows)))
        heads = [Head("Dose", ("guide", "KL term"))]
        heads += [Head(f"pass@{k}", ("no guide", "guide − none")) for k in ks]
        return Table("Cell", tuple(heads), tuple(groups))

    def _name(self, algorithm: str, beta: float, value: float | None) -> str:
        end = "unguided" if value is None else f"{self.setting}{value:g}"
        return f"{algorithm}-kl{beta:g}-{end}"
