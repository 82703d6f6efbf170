"""What each guide does to the gradient under each estimator of the KL, computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

from sage.exhibits.kind import Shown, Shows
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Group, Head, PageTable, Record, Row, Table, TableDocument
from sage.study import Algorithm

NAME = "estimators"
"""Under which every report has this table."""

MEANS = ("grpo", "sapo")
"""Losses that take the mean over each completion's tokens; the others add them up."""

_EFFECTS = {
    "own": "own direction",
    "other beta": "changes β only",
    "none": "none: it cancels",
    "no guide": NONE,
}

_CAPTION = (
    "What each guide does under each estimator of the KL term, computed exactly on policy, on "
    "a tree of completions of one to three tokens. Sum: losses that add up the tokens of a "
    "batch and divide by a constant (dr_grpo; bnpo, dapo and the others as far as the number "
    "of tokens of a batch is constant). Mean: losses that take the mean over each completion "
    "(grpo, sapo), scaled here to the same size; they weigh a token by the length of its "
    "completion. Distance: of the expected gradient from that of the paper’s objective "
    "(Eq. 4) with the same guide, relative to the latter. Guide’s share: the size of what the "
    "guide alone changes, relative to what it changes in Eq. 4; 1 is as the theory says. "
    "Direction: the cosine of these two changes. Only with the KL in the reward (k1_reward) "
    "and a sum is Eq. 4 what is followed. Shares under a mean depend on how much lengths "
    "vary, which is much in this tree."
)


def _small(value: float) -> str:
    return "0 (rounding)" if value < 1e-10 else f"{value:.3f}"


def _number(value: float) -> str:
    if math.isnan(value):
        return NONE
    return "0" if abs(value) < 1e-10 else f"{value:.2f}".replace("-", "\u2212")


_COLUMNS: dict[str, Callable[[Record], str]] = {
    "Distance from Eq. 4": lambda row: _small(row["relative_distance"]),
    "Guide’s share": lambda row: _number(row["guide_norm"]),
    "Direction": lambda row: _number(row["guide_cosine"]),
    "Guide’s effect": lambda row: _EFFECTS[row["effect"]],
}


class EstimatorsTable(Shows):
    """Exact gradients of guides and estimators beside that of the paper's objective (Eq. 4)."""

    category: ClassVar[str] = "Theory"
    contents: ClassVar[str] = (
        "The exact expected gradient of each guide under each estimator on a small token tree, "
        "beside the gradient of the paper's objective (Eq. 4): `cosine` and `relative_distance` "
        "compare the two; `guide_norm` and `guide_cosine` compare what the guide alone changes; "
        "`effect` says whether the guide has a direction of its own. `loss` is `sum` for losses "
        "that add up tokens and `mean` for means over each completion."
    )

    def table(self, shown: Shown) -> TableDocument:
        """A group of rows per guide, a row per estimator, a group of columns per kind of loss."""
        from sage.theory.credit import guide_gradients

        frame, groups = guide_gradients(), []
        for guide, of_guide in frame.groupby("guide", sort=False):
            rows = []
            for estimator, found in of_guide.groupby("estimator", sort=False):
                cells = [
                    Cell(read(row))
                    for row in found.to_dict("records")
                    for read in _COLUMNS.values()
                ]
                rows.append(Row(str(estimator), tuple(cells)))
            groups.append(Group("No guide" if guide == "none" else f"Guide {guide}", tuple(rows)))
        losses = dict.fromkeys(frame["loss"])
        heads = tuple(Head(loss.capitalize(), tuple(_COLUMNS)) for loss in losses)
        return TableDocument(frame, Table("Estimator", heads, tuple(groups)), _CAPTION)


def guide_effects(table: PageTable | None, rows: Mapping[str, Algorithm]) -> list[str]:
    """What the guides of some rows do under their own estimator and loss: a text per effect.

    Rows with the same effect share a text. Rows without a guide, and guides or estimators that the
    table does not have, are left out.
    """
    if table is None:
        return []
    losses = [head.title.lower() for head in table.table.heads]
    lines = {
        (group.title.removeprefix("Guide "), row.title): row.cells
        for group in table.table.groups
        for row in group.rows
    }
    titles: dict[str, list[str]] = {}
    for algorithm in rows.values():
        if not (algorithm.guide and algorithm.estimator):
            continue
        cells = lines.get((algorithm.guide.kind, algorithm.estimator.kind))
        if not cells:
            continue
        loss = "mean" if algorithm.loss in MEANS else "sum"
        width = len(cells) // len(losses)
        start = losses.index(loss) * width
        _, share, direction, effect = (cell.text for cell in cells[start : start + width])
        text = f"({algorithm.estimator.kind}, {loss}): {effect}"
        if effect == _EFFECTS["own"]:
            text += f", {share} of Eq. 4’s size, cosine {direction}"
        titles.setdefault(text, []).append(algorithm.title)
    return [f"{', '.join(names)} {text}" for text, names in titles.items()]
