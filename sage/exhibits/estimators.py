"""What each guide does to the gradient under each estimator of the KL, computed exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from sage.exhibits.kind import Display, Shows
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Group, Head, Record, Row, Table, TableDocument
from sage.study import Algorithm

if TYPE_CHECKING:
    import pandas as pd

NAME = "estimators"
"""Under which every report has this table."""

MEANS = ("grpo", "sapo")
"""Losses that take the mean over each completion's tokens; the others add them up."""

_EFFECTS = {
    "own": "own direction",
    "other beta": "changes β only",
    "none": "none: it cancels",
    "depends on the tree": "depends on the tree",
    "no guide": NONE,
}

_CAPTION = (
    "What each guide does under each estimator of the KL term: exact expected gradients, on "
    "policy, on {trees} random trees of completions of one to three tokens; the median over "
    "trees, the quartiles in brackets. Sum: losses that add up the tokens of a batch and divide "
    "by a constant (dr_grpo; bnpo, dapo and the others as far as the number of tokens of a batch "
    "is constant). Mean: losses that take the mean over each completion (grpo, sapo), scaled here "
    "to the same size. Distance: of the expected gradient from that of the paper’s objective (Eq. "
    "4) with the same guide, relative to the latter. Direction: the cosine of what the guide "
    "alone changes with what it changes in Eq. 4. Opposed: the share of trees where that cosine "
    "is negative. Share: the size of the guide’s change, relative to that in Eq. 4. Only with the "
    "KL in the reward (k1_reward) and a sum is Eq. 4 what is followed. Under a mean a token "
    "weighs one over the length of its completion. This weight is what turns the branch guide "
    "against Eq. 4: with a sum it cancels (k2, k3_corrected) or has no fixed direction (k3). "
    "Lengths vary much in these trees; where they are alike, a mean acts as a sum."
)


def _small(value: float) -> str:
    return "0 (rounding)" if value < 1e-10 else f"{value:.3f}"


def _spread(row: Record, name: str) -> str:
    """The median, and the quartiles in brackets where they differ from it."""
    value, low, high = (row[name + end] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return NONE
    if value < 1e-10 and abs(high) < 1e-10 and abs(low) < 1e-10:
        return "0"
    text = f"{value:.2f}"
    if high - low >= 0.005:
        text += f" ({low:.2f} to {high:.2f})"
    return text.replace("-", "\u2212")


def _opposed(row: Record) -> str:
    return NONE if math.isnan(row["opposed"]) else f"{100 * row['opposed']:.0f} %"


_COLUMNS: dict[str, Callable[[Record], str]] = {
    "Distance from Eq. 4": lambda row: _small(row["relative_distance"]),
    "Share": lambda row: _spread(row, "guide_norm"),
    "Direction": lambda row: _spread(row, "guide_cosine"),
    "Opposed": _opposed,
    "Guide’s effect": lambda row: _EFFECTS[row["effect"]],
}


class EstimatorsTable(Shows):
    """Exact gradients of guides and estimators beside that of the paper's objective (Eq. 4)."""

    category: ClassVar[str] = "Theory"
    contents: ClassVar[str] = (
        "The exact expected gradient of each guide under each estimator on random token trees, "
        "beside the gradient of the paper's objective (Eq. 4): medians over the trees. `cosine` "
        "and `relative_distance` compare the two; `guide_norm` and `guide_cosine`, with quartiles, "
        "compare what the guide alone changes; `opposed` is the share of trees where it points "
        "away from Eq. 4; `effect` says whether the guide has a direction of its own. `loss` is "
        "`sum` for losses that add up tokens and `mean` for means over each completion."
    )

    def table(self, display: Display) -> TableDocument:
        """A group of rows per guide, a row per estimator, a group of columns per kind of loss."""
        from sage.theory.credit import over_trees, summary

        frame, groups = summary(over_trees()), []
        for guide, guided in frame.groupby("guide", sort=False):
            rows = []
            for estimator, losses_of_it in guided.groupby("estimator", sort=False):
                cells = [
                    Cell(read(row))
                    for row in losses_of_it.to_dict("records")
                    for read in _COLUMNS.values()
                ]
                rows.append(Row(str(estimator), tuple(cells)))
            groups.append(Group("No guide" if guide == "none" else f"Guide {guide}", tuple(rows)))
        losses = dict.fromkeys(frame["loss"])
        heads = tuple(Head(loss.capitalize(), tuple(_COLUMNS)) for loss in losses)
        return TableDocument(
            frame,
            Table("Estimator", heads, tuple(groups)),
            _CAPTION.format(trees=frame["trees"].max()),
        )


def guide_effects(rows: Mapping[str, Algorithm], effects: pd.DataFrame | None) -> list[str]:
    """What the guides of some methods do under their own estimator and loss: a text per effect.

    `effects` is the exhibit's frame; without it nothing is said. Methods with the same effect share
    a text. Methods without a guide, and guides or estimators that it does not have, are left out.
    """
    if effects is None:
        return []
    effect_of = effects.set_index(["guide", "estimator", "loss"])["effect"]
    titles: dict[str, list[str]] = {}
    for algorithm in rows.values():
        if not (algorithm.guide and algorithm.estimator):
            continue
        loss = "mean" if algorithm.loss in MEANS else "sum"
        effect = effect_of.get((algorithm.guide.kind, algorithm.estimator.kind, loss))
        if effect is not None:
            text = f"({algorithm.estimator.kind}, {loss}): {_EFFECTS[effect]}"
            titles.setdefault(text, []).append(algorithm.title)
    return [f"{', '.join(names)} {text}" for text, names in titles.items()]
