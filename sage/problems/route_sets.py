"""Which mazes are drawn, and the corpus of a base that walks.

Walls with gaps cross a maze, so that heading straight for the goal is not always the way. What
a route is, and how it is written, says `sage.problems.routes`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import Distinct, Positive, Share, Strict
from sage.problems.corpus import Worked
from sage.problems.routes import (
    MAX_SIDE,
    Cell,
    Route,
    Trip,
    detour,
    moves_to,
    render,
    render_cells,
    split_of_trip,
    ways_on,
)


class Terrain(Strict):
    """What mazes and the trips through them are like."""

    side: Annotated[int, Field(ge=3, le=MAX_SIDE)]
    """rows, and columns, of a maze [cells]"""
    walls: Annotated[int, Field(ge=0)]
    """walls of a maze, in half of the mazes rows, in the others columns; at most half of `side`,
    for walls do not touch [walls]"""
    gaps: Annotated[list[Positive], Field(min_length=1), Distinct]
    """open cells of a wall; all numbers are equally likely [cells]"""
    boulders: Annotated[int, Field(ge=0)]
    """further cells that are closed, anywhere; at most `side` [cells]"""
    distances: Annotated[list[Positive], Field(min_length=1), Distinct]
    """lengths of the shortest route; all are equally likely [moves]"""
    detours: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1), Distinct]
    """by how much closed cells make the shortest route longer [moves]"""
    spare: Annotated[int, Field(ge=0)]
    """moves allowed above those of the shortest route [moves]"""

    @model_validator(mode="after")
    def _fits(self) -> Terrain:
        if 2 * self.walls > self.side:
            raise ValueError(
                f"walls {self.walls}: a maze of side {self.side} holds at most {self.side // 2}"
            )
        if max(self.gaps) > self.side:
            raise ValueError(f"gaps must be at most the side {self.side}, not {self.gaps}")
        if self.boulders > self.side:
            raise ValueError(f"boulders must be at most the side {self.side}, not {self.boulders}")
        return self


def draw_trip(terrain: Terrain, rng: random.Random) -> Trip:
    """A random maze with a start and a goal as the terrain asks, which is solvable.

    Raises ValueError if 10,000 mazes have none.
    """
    distance = rng.choice(terrain.distances)
    for _ in range(10_000):
        closed = _draw_closed(terrain, rng)
        goal = rng.choice([cell for cell in range(terrain.side**2) if cell not in closed])
        starts = [
            cell
            for cell, moves in moves_to(terrain.side, closed, goal).items()
            if moves == distance and detour(terrain.side, cell, goal, moves) in terrain.detours
        ]
        if starts:
            start = rng.choice(starts)
            return Trip(terrain.side, closed, start, goal, distance + terrain.spare)
    raise ValueError(
        f"no route of {distance} moves in 10,000 mazes of {terrain}; lower `distances`, allow "
        "other `detours`, or raise `side` or `walls`"
    )


def _draw_closed(terrain: Terrain, rng: random.Random) -> frozenset[Cell]:
    side, lines = terrain.side, range(terrain.side)
    while True:
        walls = sorted(rng.sample(lines, terrain.walls))
        if all(second - first > 1 for first, second in pairwise(walls)):
            break
    cells = []
    for wall in walls:
        gaps = rng.sample(lines, rng.choice(terrain.gaps))
        cells += [(wall, place) for place in lines if place not in gaps]
    if rng.random() < 0.5:
        cells = [(place, wall) for wall, place in cells]
    closed = {side * row + column for row, column in cells}
    others = [cell for cell in range(side**2) if cell not in closed]
    return frozenset(closed | set(rng.sample(others, terrain.boulders)))


def walk(trip: Trip, toward: float, rng: random.Random) -> Route:
    """A route as the corpus walks it, which may miss the goal.

    Each move is, with probability `toward`, to one of the cells nearest to the goal, else to any
    that may follow. The walk ends at the goal, after the allowed moves, or where no way goes on.
    """
    left = moves_to(trip.side, trip.closed, trip.goal)
    route = [trip.start]
    while route[-1] != trip.goal and len(route) <= trip.moves:
        onward = ways_on(trip, route)
        if not onward:
            break
        if rng.random() < toward:
            nearest = min(left[cell] for cell in onward)
            onward = [cell for cell in onward if left[cell] == nearest]
        route.append(rng.choice(onward))
    return tuple(route)


class RoutesCorpus(Terrain):
    """Walks through mazes, many of which miss the goal.

    The solution is the walk alone, without working, so `tagged_share` should be 1. All mazes are of
    the split `train`.
    """

    source: Literal["routes"]
    """walks through mazes"""
    toward: Share
    """how often a move goes to one of the cells nearest to the goal; otherwise all cells that may
    follow are equally likely [probability]"""

    def worked(self, seed: int) -> Iterator[Worked]:
        """Walks through training mazes, without end; the answer is the walk.

        It opens with a space, so that the first cell is the same token as elsewhere.
        """
        rng = random.Random(f"corpus/{seed}")
        while True:
            trip = draw_trip(self, rng)
            if split_of_trip(trip) == "train":
                route = render_cells(walk(trip, self.toward, rng), trip.side)
                yield Worked(render(trip), "", route, "route")
