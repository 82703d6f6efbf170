"""Routes through small mazes: an answer is right if it can be walked from start to goal.

The gold answer holds the maze (`sage.problems.routes.gold_answer`); of the answer nothing but the
names of cells is read, in linear time. Answers are untrusted, of bounded length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from sage.problems.routes import Cell, Trip, around, cell_name, named_cell, read_gold

Walked = Literal["correct", "wrong", "unparsed", "gold_unparsed"]

_BETWEEN = re.compile(r"[\s,;>→–-]+")
_NAME = re.compile(r"[a-z]{2}")


def settle_route(gold: str, answer: str) -> Walked:
    """The verdict on `answer`, such as ``ab bc cd``; commas and arrows may stand between cells.

    What holds anything but words of two small letters is `unparsed`.
    """
    try:
        trip = _trip(gold)
    except ValueError:
        return "gold_unparsed"
    if (route := read_route(answer, trip.side)) is None:
        return "unparsed"
    return "correct" if arrives(trip, route) else "wrong"


def read_route(answer: str, side: int) -> list[Cell | None] | None:
    """The cells that `answer` names, None for one outside of the maze; None if it is no route."""
    names = _BETWEEN.split(answer.strip())
    if not all(_NAME.fullmatch(name) for name in names):
        return None
    return [named_cell(name, side) for name in names]


def arrives(trip: Trip, route: Sequence[Cell | None]) -> bool:
    """Whether `route` leads from start to goal in at most `moves` moves, no cell twice."""
    return (
        0 < len(route) <= trip.moves + 1
        and (route[0], route[-1]) == (trip.start, trip.goal)
        and len(set(route)) == len(route)
        and all(allowed_moves(trip, route))
    )


def allowed_moves(trip: Trip, route: Sequence[Cell | None]) -> list[bool]:
    """Of each move of `route`, whether it follows an edge: both its cells are open and touch.

    A step into a closed cell and the one out of it both fail.
    """
    return [
        here is not None and there in around(trip.side)[here] and not trip.closed & {here, there}
        for here, there in pairwise(route)
    ]


def counts_arriving(answers: Mapping[str, int], golds: Sequence[str]) -> list[int]:
    """How many of `answers`, each with its count, are right for each of `golds`; `[J]`.

    Raises ValueError for a gold answer that is none.
    """
    by_ends: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for answer, count in answers.items():
        names = _BETWEEN.split(answer.strip())
        by_ends.setdefault((names[0], names[-1]), []).append((answer, count))
    counts = []
    for gold in golds:
        trip = _trip(gold)
        ends = cell_name(trip.start, trip.side), cell_name(trip.goal, trip.side)
        tried = by_ends.get(ends, [])
        counts.append(sum(n for answer, n in tried if settle_route(gold, answer) == "correct"))
    return counts


@lru_cache(maxsize=4_096)
def _trip(gold: str) -> Trip:
    return read_gold(gold)
