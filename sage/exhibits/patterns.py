"""Reasoning patterns among correct solutions (Table 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name, Positive, about
from sage.rendering.numbers import grouped
from sage.rendering.table import (
    Cell,
    Head,
    Table,
    TableDocument,
    algorithm_row,
    algorithm_table,
    share_cell,
)
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

COLUMNS = ["algorithm", "title", "pattern", "pattern_title", "pooled", "low", "high"]
COLUMNS += ["per_problem", "per_problem_low", "per_problem_high", "n_correct", "n_problems"]


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
    phrases: Annotated[
        str,
        about(
            "the file with the phrases used to detect patterns, from the folder of the Snakefile",
            unit="path",
        ),
    ] = "config/patterns.yaml"

    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.patterns",)
    evidence: ClassVar[str] = "patterns"
    contents: ClassVar[str] = (
        "How often correct solutions show a reasoning pattern, as shares between 0 and 1: "
        "`pooled` over all correct solutions, and `per_problem`, the mean of the problems' "
        "shares. A pattern is detected by phrase lists."
    )

    def samples_shown(self, study: ResolvedStudy) -> int:
        drawn = study.evaluation(self.model).samples
        return min(drawn, self.samples or drawn)

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """More samples than are drawn."""
        yield from around.too_many("samples", self.samples)

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Samples, and the lists of phrases."""
        return {**super().inputs(study, results, name), "phrases": [Path(self.phrases)]}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
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
        return TableDocument(frame, _view(frame, display.study), caption)

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        """Pooled shares by pattern."""
        named = {"pattern": "quantity", "pooled": "value"}
        return self.table(display).frame.rename(columns=named).assign(benchmark=self.benchmark)


def _view(frame: pd.DataFrame, study: ResolvedStudy) -> Table:
    """Both estimates of every pattern, with their intervals."""
    titles = dict(zip(frame["pattern"], frame["pattern_title"], strict=True))
    estimates = (("pooled", "low", "high"), ("per_problem", "per_problem_low", "per_problem_high"))
    rows = []
    for algorithm, of_row in frame.groupby("algorithm", sort=False):
        shares = of_row.set_index("pattern").to_dict("index")
        cells = [
            share_cell(*(shares[name][column] for column in columns))
            for name in titles
            for columns in estimates
        ]
        cells.append(Cell(grouped(int(of_row["n_correct"].iloc[0]))))
        rows.append(algorithm_row(study, str(algorithm), cells))
    heads = [Head(str(title), ("all", "per problem")) for title in titles.values()]
    return algorithm_table([*heads, Head("", ("Correct solutions",))], rows)
