"""Gradient norms in each third of training (Table 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Files, Kind, Measuring, Shown, TableMaker
from sage.exhibits.rows import titled
from sage.rendering.labels import exhibit_heading
from sage.rendering.numbers import NONE
from sage.rendering.table import (
    Cell,
    Group,
    Head,
    Table,
    TableDocument,
    algorithm_row,
    norm_cell,
)
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

COLUMNS = [
    "algorithm",
    "title",
    "stage",
    "value",
    "low",
    "high",
    "coverage",
    "n_seeds",
    "steps",
]


class GradientTable(ExhibitOfRows, Kind):
    """Mean gradient norm in each third of training (Table 5)."""

    kind: Literal["gradient_norms"]

    of_training: ClassVar[bool] = True
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.dynamics",)
    contents: ClassVar[str] = (
        "Mean gradient norm before clipping in each third of training. With several training "
        "seeds, `low` and `high` are the smallest and the largest run; `coverage` is the "
        "probability that this range contains the median run."
    )

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """The trained policies, for their histories."""
        return {"policies": [results.policy(run) for run in self.runs(study)]}

    def measure(self, job: Measuring) -> None:
        """Write `stages`."""
        from sage.analysis.dynamics import gradient_norm_table, read_histories

        job.write(stages=gradient_norm_table(read_histories(job.files["policies"])))

    def tables(self) -> Mapping[str, TableMaker]:
        """The norms."""
        return {"": gradient_document}

    def as_in_paper(self, shown: Shown) -> pd.DataFrame:
        """Norms by third of training."""
        table = gradient_table(shown.frame("stages"), shown.study, shown.name)
        return table.rename(columns={"stage": "quantity"}).assign(benchmark="")


def gradient_document(shown: Shown) -> TableDocument:
    """Table 5."""
    frame = gradient_table(shown.frame("stages"), shown.study, shown.name)
    caption = gradient_caption(frame, shown.study, shown.name)
    return TableDocument(frame, gradient_view(frame, shown.study), caption)


def gradient_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """Table 5 with COLUMNS: a row for each algorithm and third of training.

    `found` is the frame written by `sage.analysis.dynamics`.
    """
    return titled(found, COLUMNS, study, exhibit)


def gradient_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """The caption of Table 5."""
    seeds = int(table["n_seeds"].max()) if len(table) else 0
    range_ = (
        f"Beneath each value is the range of {seeds} training runs; it contains the median run "
        f"with probability {table['coverage'].max():g}."
        if seeds > 1
        else "Each method was trained once, so the variation between training runs is unknown."
    )
    return (
        f"{exhibit_heading(study, exhibit)}: norm of the gradient before clipping, mean over each "
        f"third of training. {range_}"
    )


def gradient_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A gradient frame: algorithms down, thirds of training across."""
    from sage.analysis.dynamics import STAGES

    rows = []
    for algorithm, of in table.groupby("algorithm", sort=False):
        found = of.set_index("stage").to_dict("index")
        cells = [
            norm_cell(*(found[stage][part] for part in ("value", "low", "high")))
            if stage in found
            else Cell(NONE, mark="nil")
            for stage in STAGES
        ]
        rows.append(algorithm_row(study, str(algorithm), cells))
    heads = tuple(Head("", (stage.capitalize(),)) for stage in STAGES)
    return Table("Algorithm", heads, (Group("", tuple(rows)),))
