"""What each guide does to the gradient under each estimator of the KL, computed exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from sage.exhibits.kind import Shown, Shows, TableMaker
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Group, Head, PageTable, Row, Table, TableDocument
from sage.study import Algorithm

NAME = "estimators"
"""Under which every report has this table."""

_EFFECTS = {
    "own": "own direction",
    "other beta": "changes β only",
    "none": "none: it cancels",
    "no guide": NONE,
}


class EstimatorsTable(Shows):
    """Exact gradients of guides and estimators beside that of the paper's objective (Eq. 4)."""

    category: ClassVar[str] = "Theory"
    contents: ClassVar[str] = (
        "The exact expected gradient of each guide under each estimator on a small token tree, "
        "beside the gradient of the paper's objective (Eq. 4): `cosine` and `relative_distance` "
        "compare the two; `guide_norm` and `guide_cosine` compare what the guide alone changes; "
        "`effect` says whether the guide has a direction of its own."
    )

    def tables(self) -> Mapping[str, TableMaker]:
        """See `Shows`."""
        return {"": _document}


def _document(shown: Shown) -> TableDocument:
    from sage.theory.credit import guide_gradients

    frame = guide_gradients()
    caption = (
        "What each guide does under each estimator of the KL term, computed exactly on a token "
        "tree of 64 completions, on policy. Distance: of the expected gradient from that of the "
        "paper’s objective (Eq. 4) with the same guide, relative to the latter. Guide’s share: "
        "the size of what the guide alone changes, relative to what it changes in Eq. 4; 1 is as "
        "the theory says. Direction: the cosine of these two changes. Only with the KL in the "
        "reward (k1_reward) is Eq. 4 what is followed."
    )
    return TableDocument(frame, estimators_view(frame), caption)


def estimators_view(frame: pd.DataFrame) -> Table:
    """A group of rows per guide, a row per estimator."""
    groups = []
    for guide, of in frame.groupby("guide", sort=False):
        rows = tuple(
            Row(
                str(row["estimator"]),
                (
                    Cell(_small(row["relative_distance"])),
                    Cell(_number(row["guide_norm"])),
                    Cell(_number(row["guide_cosine"])),
                    Cell(_EFFECTS[row["effect"]]),
                ),
            )
            for row in of.to_dict("records")
        )
        groups.append(Group("No guide" if guide == "none" else f"Guide {guide}", rows))
    columns = ("Distance from Eq. 4", "Guide’s share", "Direction", "Guide’s effect")
    return Table("Estimator", tuple(Head("", (name,)) for name in columns), tuple(groups))


def guide_effects(table: PageTable | None, rows: Mapping[str, Algorithm]) -> list[str]:
    """What the guides of some rows do under their estimators, a line per row title.

    Rows without a guide, and guides or estimators that the table does not have, are left out.
    """
    if table is None:
        return []
    effects = {
        (group.title.removeprefix("Guide "), row.title): row.cells[-1].text
        for group in table.table.groups
        for row in group.rows
    }
    lines = []
    for algorithm in rows.values():
        if algorithm.guide and algorithm.estimator:
            effect = effects.get((algorithm.guide.kind, algorithm.estimator.kind))
            if effect:
                lines.append(f"{algorithm.title} ({algorithm.estimator.kind}): {effect}")
    return lines


def _small(value: float) -> str:
    return "0 (rounding)" if value < 1e-10 else f"{value:.3f}"


def _number(value: float) -> str:
    if math.isnan(value):
        return NONE
    return "0" if abs(value) < 1e-10 else f"{value:.2f}".replace("-", "\u2212")
