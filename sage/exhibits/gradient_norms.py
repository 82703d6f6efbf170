"""Gradient norms in each third of training (Table 5)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Kind, Measuring
from sage.rendering.labels import listed
from sage.rendering.numbers import NONE
from sage.rendering.table import (
    Cell,
    Record,
    Table,
    TableDocument,
    algorithm_row,
    algorithm_table,
    single_heads,
)
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

_NOTHING = Cell(NONE, mark="nil")


class GradientTable(ExhibitOfRows, Kind):
    """Mean gradient norm in each third of training (Table 5)."""

    kind: Literal["gradient_norms"]

    of_training: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("policies",)
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.dynamics",)
    contents: ClassVar[str] = (
        "Mean gradient norm before clipping in each third of training. With several training "
        "seeds, `low` and `high` are the smallest and the largest run; `coverage` is the "
        "probability that this range contains the median run."
    )

    def measure(self, job: Measuring) -> None:
        """Write `stages`."""
        from sage.analysis.dynamics import gradient_norm_table, read_histories

        job.write(stages=gradient_norm_table(read_histories(job.files["policies"])))

    def table(self, display: Display) -> TableDocument:
        """A row for each method and third of training; see `sage.analysis.dynamics`."""
        frame = display.ordered(display.frame("stages"))
        covered = {int(n): p for n, p in zip(frame["n_seeds"], frame["coverage"], strict=True)}
        once = covered.pop(1, None) is not None
        each = [f"{p:g} with {n} runs" for n, p in sorted(covered.items())]
        range_ = (
            "Beneath a value is the range of its training runs; it contains the median run with "
            f"probability {listed(each)}. " + "Methods trained once have no range." * once
            if each
            else "Each method was trained once, so the variation between training runs is unknown."
        ).strip()
        caption = (
            f"{display.heading}: norm of the gradient before clipping, mean over each third of "
            f"training. {range_}"
        )
        return TableDocument(frame, _view(frame, display.study), caption)

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        """Norms by third of training."""
        return self.table(display).frame.rename(columns={"stage": "quantity"}).assign(benchmark="")


def _view(frame: pd.DataFrame, study: ResolvedStudy) -> Table:
    """Methods down, thirds of training across."""
    from sage.analysis.dynamics import STAGES

    rows = []
    for algorithm, of_row in frame.groupby("algorithm", sort=False):
        norms = of_row.set_index("stage").to_dict("index")
        cells = [_cell(norms[stage]) if stage in norms else _NOTHING for stage in STAGES]
        rows.append(algorithm_row(study, str(algorithm), cells))
    return algorithm_table(single_heads(stage.capitalize() for stage in STAGES), rows)


def _cell(row: Record) -> Cell:
    """A norm with the range of runs, if it has one."""
    range_ = "" if math.isnan(row["low"] + row["high"]) else f"{row['low']:.3f}–{row['high']:.3f}"
    return Cell(f"{row['value']:.3f}", range_)
