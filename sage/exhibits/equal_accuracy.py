"""Coverage at equal accuracy: methods against mixtures of the base and a baseline."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name, about
from sage.rendering.numbers import interval_of_points, percent, points
from sage.rendering.table import Cell, Head, TableDocument, algorithm_row, algorithm_table
from sage.results import Results
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows


class EqualAccuracyTable(ExhibitOfRows, Kind):
    """pass@k of every method minus that of a mixture of base and baseline with the same pass@1."""

    kind: Literal["equal_accuracy"]
    baseline: Annotated[Name, about("the method that is mixed with the base")] = "grpo"
    benchmark: Annotated[Name, about("the problem set")]

    needs: ClassVar[tuple[str, ...]] = ()
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.mixtures",)
    contents: ClassVar[str] = (
        "pass@1 and pass@k of every method, and pass@k of a mixture of the base's completions and "
        "the baseline's that has the same pass@1. A method keeps coverage only if it is above the "
        "mixture."
    )

    def named(self) -> list[str]:
        return [*super().named(), self.baseline]

    def evaluated(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """Its model on its benchmark."""
        return [(self.model, self.benchmark)]

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """The counts of its benchmark."""
        return {"evaluated": [results.evaluated(self.model, self.benchmark)]}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """The methods, k and the bootstrap."""
        return {
            "rows": [row for row in self.rows_of(study) if row != BASE],
            "k": study.evaluation(self.model).primary_k,
            "bootstrap": study.study.evaluation.bootstrap,
        }

    def measure(self, job: Measuring) -> None:
        """Write `equal_accuracy`."""
        from sage.evaluation.mixtures import equal_accuracy
        from sage.runtime.tables import read_frame

        rows, settings = job.settings["rows"], job.settings
        counts = read_frame(job.file("evaluated") / "counts.parquet")
        counts = counts[counts["algorithm"].isin({BASE, self.baseline, *rows})]
        table = equal_accuracy(counts, self.baseline, rows, settings["k"], settings["bootstrap"])
        job.write(equal_accuracy=table)

    def table(self, display: Display) -> TableDocument:
        """A row for each method."""
        frame = display.ordered(display.frame("equal_accuracy"))
        k = int(frame["k"].iloc[0])
        rows = []
        for record in frame.to_dict("records"):
            none = math.isnan(record["value"])
            bounds = "" if none else interval_of_points(record["low"], record["high"])
            cells = [
                Cell(percent(record["accuracy"])),
                Cell(percent(record["coverage"])),
                Cell("–") if none else Cell(percent(record["base_share"])),
                Cell("–") if none else Cell(percent(record["mixture"])),
                Cell("–") if none else Cell(points(record["value"]), bounds),
            ]
            rows.append(algorithm_row(display.study, record["algorithm"], cells))
        counted = "correct working" if frame["worked"].all() else "correct answers"
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: pass@1 and pass@{k} of "
            f"{counted}, in percent, beside a mixture of the base's completions and those of "
            f"{display.title(self.baseline)} that is as accurate, and the difference in points "
            "with its 95 % interval. A method keeps coverage only above the mixture, which needs "
            "no training of its own. No mixture is as accurate as a method that is more accurate "
            f"than {display.title(self.baseline)} (–)."
        )
        heads = [
            Head("", ("pass@1", f"pass@{k}")),
            Head("Mixture", ("from the base", f"pass@{k}")),
            Head("", ("method − mixture",)),
        ]
        return TableDocument(frame, algorithm_table(heads, rows), caption)
