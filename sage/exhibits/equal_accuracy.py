"""Coverage at equal accuracy: methods against mixtures of the base and a baseline."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.exhibits.pass_at_k import PARTS
from sage.fields import Name, about
from sage.rendering.numbers import NONE, percent
from sage.rendering.table import Column, Record, TableDocument, points_cell, table_of, titled
from sage.results import Results
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows


class EqualAccuracyTable(ExhibitOfRows, Kind):
    """pass@k of every method minus that of a mixture of base and baseline with the same pass@1.

    pass@1 and pass@k of every method, and pass@k of a mixture of the base's completions and the
    baseline's that has the same pass@1. A method keeps coverage only if it is above the mixture.
    """

    kind: Literal["equal_accuracy"]
    baseline: Annotated[Name, about("the method that is mixed with the base")] = "grpo"
    benchmark: Annotated[Name, about("the problem set")]

    needs: ClassVar[tuple[str, ...]] = ()
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.mixtures",)

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
        columns: list[Column] = [
            ("", "pass@1", lambda row: percent(row["accuracy"])),
            ("", f"pass@{k}", lambda row: percent(row["coverage"])),
            ("Mixture", "from the base", lambda row: _mixed("base_share", row)),
            ("Mixture", f"pass@{k}", lambda row: _mixed("mixture", row)),
            ("", "method − mixture", lambda row: points_cell(*(row[end] for end in PARTS))),
        ]
        table = table_of("Method", columns, [("", titled(frame))], display.study)
        counted = "correct working" if frame["worked"].all() else "correct answers"
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: pass@1 and pass@{k} of "
            f"{counted}, in percent, beside a mixture of the base's completions and those of "
            f"{display.title(self.baseline)} that is as accurate, and the difference in points "
            "with its 95 % interval. A method keeps coverage only above the mixture, which needs "
            "no training of its own. No mixture is as accurate as a method that is more accurate "
            f"than {display.title(self.baseline)} (–)."
        )
        return TableDocument(frame, table, caption)


def _mixed(name: str, row: Record) -> str:
    """A share of the mixture, where there is one."""
    return NONE if pd.isna(row["value"]) else percent(row[name])
