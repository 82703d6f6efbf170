"""Reasoning patterns among correct solutions (Table 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name, Positive
from sage.rendering.numbers import NONE, grouped
from sage.rendering.table import (
    Cell,
    Column,
    Record,
    TableDocument,
    share_cell,
    table_of,
    titled_by,
)
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

COLUMNS = ["algorithm", "title", "pattern", "pattern_title", "pooled", "low", "high"]
_PER_PROBLEM = ("per_problem", "per_problem_low", "per_problem_high")
COLUMNS += [*_PER_PROBLEM, "n_correct", "n_problems"]


class PatternTable(ExhibitOfRows, Kind):
    """Reasoning patterns among correct solutions (Table 2).

    How often correct solutions show a reasoning pattern, as shares between 0 and 1: `pooled` over
    all correct solutions, and `per_problem`, the mean of the problems' shares. A pattern is
    detected by phrase lists.
    """

    kind: Literal["patterns"]
    benchmark: Name
    """the problem set"""
    samples: Positive | None = None
    """how many samples of each problem and evaluation seed count, the first ones; left out, all
    [samples]"""
    phrases: str = "config/patterns.yaml"
    """the file with the phrases used to detect patterns, from the folder of the Snakefile [path]"""

    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.patterns",)
    evidence: ClassVar[str] = "patterns"

    def samples_shown(self, study: ResolvedStudy) -> int:
        drawn = study.evaluation(self.model).samples
        return min(drawn, self.samples or drawn)

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        yield from around.too_many("samples", self.samples)

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        return {**super().inputs(study, results, name), "phrases": [Path(self.phrases)]}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"bootstrap": study.study.evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        from sage.analysis.patterns import read_pattern_table

        table = read_pattern_table(
            samples=job.files["samples"],
            patterns=job.file("phrases"),
            draws=job.settings["bootstrap"],
            samples_per_problem=self.samples,
        )
        job.write(patterns=table)

    def table(self, display: Display) -> TableDocument:
        """A row for each method and pattern; see `sage.analysis.patterns` for both estimators of
        Eq. 13."""
        measured = display.frame("patterns").rename(columns={"title": "pattern_title"})
        frame = display.ordered(measured)[COLUMNS]
        which = f"the first {self.samples} samples" if self.samples else "all samples"
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: share of correct solutions "
            f"that show a pattern, in percent, among {which} of each problem and evaluation seed. "
            "Below each value: its 95 % interval. Patterns are detected by phrase lists, so "
            "compare the numbers within this study only."
        )
        columns: list[Column] = []
        for pattern, title in dict(
            zip(frame["pattern"], frame["pattern_title"], strict=True)
        ).items():
            columns.append((title, "all", partial(_share, pattern, ("pooled", "low", "high"))))
            columns.append((title, "per problem", partial(_share, pattern, _PER_PROBLEM)))
        columns.append(("", "Correct solutions", _correct))
        table = table_of("Method", columns, [("", titled_by(frame, "pattern"))], display.study)
        return TableDocument(frame, table, caption)

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        """The means of the problems' shares, which the paper's numbers must be."""
        named = {"pattern": "quantity", "per_problem": "value"}
        return self.table(display).frame.rename(columns=named).assign(benchmark=self.benchmark)


def _share(pattern: str, ends: tuple[str, ...], row: Record) -> Cell:
    """A share of correct solutions; none where the method has no correct solution."""
    value, low, high = (row[pattern][end] for end in ends)
    return Cell(NONE, mark="nil") if math.isnan(value) else share_cell(value, low, high)


def _correct(row: Record) -> str:
    return grouped(next(iter(row.values()))["n_correct"])
