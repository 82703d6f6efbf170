"""Reasoning patterns among correct solutions (Table 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Files, Kind, Measuring, Shown, TableMaker
from sage.exhibits.rows import titled
from sage.fields import Name, Positive, about
from sage.rendering.labels import benchmark_titles, exhibit_heading
from sage.rendering.numbers import grouped
from sage.rendering.table import (
    Cell,
    Group,
    Head,
    Table,
    TableDocument,
    algorithm_row,
    share_cell,
)
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

PHRASES = Path("config/patterns.yaml")
"""The phrases used to detect patterns, relative to the folder of the Snakefile."""

COLUMNS = [
    "algorithm",
    "title",
    "pattern",
    "pattern_title",
    "pooled",
    "low",
    "high",
    "per_problem",
    "per_problem_low",
    "per_problem_high",
    "n_correct",
    "n_problems",
]


class PatternTable(ExhibitOfRows, Kind):
    """Reasoning patterns among correct solutions (Table 2)."""

    kind: Literal["patterns"]
    benchmark: Annotated[Name, about("the problem set")]
    samples: Annotated[
        Positive | None,
        about(
            "how many samples of each problem and evaluation seed count, the first ones; left "
            "out, all",
            unit="samples",
        ),
    ] = None

    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.patterns",)
    evidence: ClassVar[str] = "patterns"
    contents: ClassVar[str] = (
        "How often correct solutions show a reasoning pattern, as shares between 0 and 1: "
        "`pooled` over all correct solutions, and `per_problem`, the mean of the problems' "
        "shares. A pattern is detected by phrase lists."
    )

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`."""
        return [self.benchmark]

    def samples_shown(self, study: ResolvedStudy) -> int:
        """See `Kind`."""
        drawn = study.evaluation(self.model).samples
        return min(drawn, self.samples or drawn)

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """More samples than are drawn."""
        if self.samples and around.drawn and self.samples > around.drawn:
            yield (
                "samples",
                f"{self.samples}, but only {around.drawn} samples of a problem are drawn; lower "
                "`samples`, or raise evaluation.samples",
            )

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Samples, and the lists of phrases."""
        return {"samples": self.samples_files(study, results), "phrases": [PHRASES]}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """See `Kind`."""
        return {"bootstrap": study.study.evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        """Write `patterns`."""
        from sage.analysis.patterns import read_pattern_table

        table = read_pattern_table(
            samples=job.files["samples"],
            patterns=job.file("phrases"),
            draws=job.settings["bootstrap"],
            samples_per_problem=self.samples,
        )
        job.write(patterns=table)

    def tables(self) -> Mapping[str, TableMaker]:
        """The shares."""
        return {"": patterns_document}

    def as_in_paper(self, shown: Shown) -> pd.DataFrame:
        """Pooled shares by pattern."""
        table = patterns_table(shown.frame("patterns"), shown.study, shown.name)
        named = table.rename(columns={"pattern": "quantity", "pooled": "value"})
        return named.assign(benchmark=self.benchmark)


def patterns_document(shown: Shown) -> TableDocument:
    """Table 2."""
    frame = patterns_table(shown.frame("patterns"), shown.study, shown.name)
    caption = patterns_caption(frame, shown.study, shown.name)
    return TableDocument(frame, patterns_view(frame, shown.study), caption)


def patterns_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """Table 2 with COLUMNS: a row for each algorithm and pattern, shares in [0, 1].

    `found` is the frame written by `sage.analysis.patterns`; see there for the two estimators of
    Eq. 13.
    """
    named = found.rename(columns={"title": "pattern_title"})
    return titled(named, COLUMNS, study, exhibit)


def patterns_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """The caption of Table 2."""
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, PatternTable)
    which = f"the first {shown.samples} samples" if shown.samples else "all samples"
    return (
        f"{exhibit_heading(study, exhibit)} on {benchmark_titles(study)[shown.benchmark]}: share "
        f"of correct solutions that show a pattern, in percent, among {which} of each problem and "
        "evaluation seed. Below each value: its 95 % interval. Patterns are detected by phrase "
        "lists, so compare the numbers within this study only."
    )


def patterns_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A pattern frame as a table: both estimates of every pattern, with their intervals."""
    titles = dict(zip(table["pattern"], table["pattern_title"], strict=True))
    readings = (("pooled", "low", "high"), ("per_problem", "per_problem_low", "per_problem_high"))
    rows = []
    for algorithm, of in table.groupby("algorithm", sort=False):
        found = of.set_index("pattern").to_dict("index")
        cells = [
            share_cell(*(found[name][column] for column in columns))
            for name in titles
            for columns in readings
        ]
        cells.append(Cell(grouped(int(of["n_correct"].iloc[0]))))
        rows.append(algorithm_row(study, str(algorithm), cells))
    heads = [Head(str(title), ("all", "per problem")) for title in titles.values()]
    heads.append(Head("", ("Correct solutions",)))
    return Table("Algorithm", tuple(heads), (Group("", tuple(rows)),))
