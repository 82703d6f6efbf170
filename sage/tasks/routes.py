"""The task of routes through small mazes: an answer is right if it can be walked to the goal.

The gold answer holds the maze (`sage.problems.routes.gold_answer`); of the answer nothing but the
names of cells is read, in linear time. Answers are untrusted, of bounded length.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal

from sage.grading import Status
from sage.problems.fields import Generated
from sage.problems.record import Draft
from sage.problems.route_sets import Terrain, draw_trip
from sage.problems.routes import (
    Cell,
    Trip,
    around,
    cell_name,
    detour,
    gold_answer,
    named_cell,
    read_gold,
    render,
    turned_alike,
)
from sage.prompting import solution_text
from sage.tasks.task import Task

_BETWEEN = re.compile(r"[\s,;>→–-]+")
_NAME = re.compile(r"[a-z]{2}")


def settle_route(gold: str, answer: str) -> Status:
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


class RoutesSet(Terrain, Generated, Task):
    """Routes through small mazes with eight ways to go, from this project's generator.

    An answer is graded by walking it: at most so many moves, no cell twice, none that is closed.
    The two splits share no maze with start and goal, not even turned or mirrored.
    """

    source: Literal["routes"]
    """generated mazes"""

    kind: ClassVar[str] = "route"

    @staticmethod
    def settle(gold: str, answer: str) -> Status:
        return settle_route(gold, answer)

    @classmethod
    def counts_right(cls, answers: Mapping[str, int], golds: Sequence[str]) -> list[int]:
        return counts_arriving(answers, golds)

    @staticmethod
    def working(problem: str, working: str, answer: str) -> bool:
        """True: a right route has been walked, and there is no other working."""
        return True

    @staticmethod
    def strategy(problem: str, written: str) -> str:
        """The cells that `written` answers with, "" without an answer."""
        return " ".join((solution_text(written) or "").split())

    @classmethod
    def readable(cls, gold: str) -> str:
        return str(json.loads(gold)["answer"])

    def draft(self, rng: random.Random, made: int) -> Draft:
        """A trip; no two of a set are alike up to turning and mirroring."""
        trip = draw_trip(self, rng)
        far = trip.moves - self.spare
        level = f"{far} moves, detour {detour(self.side, trip.start, trip.goal, far)}"
        return Draft(render(trip), gold_answer(trip), level, key=turned_alike(trip))
