"""Routes through small mazes: a start, a goal, closed cells, and at most so many moves.

A cell has up to eight neighbours. The answer is a route, graded by walking it
(`sage.tasks.routes`), so it cannot be guessed, and the working is the answer. A cell with several
ways on is a fork: a branch point that is known by construction. Several routes are right, so that
coverage can be measured of problems and of solutions. The nearest kin are the 17 x 17 mazes of
MaxRL (arXiv 2602.02710), solved by a model of 4 million parameters; there a crossing of four ways
has at most ln 3 = 1.1 nats, here one of eight at most ln 7 = 1.9. The text is short and a cell is
one word, so that a tiny model can read it; the rules of moving are not part of it.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sage.problems.record import Split, split_of

MAX_SIDE = 12

Cell = int
"""Row times the maze's side, plus column, both from 0."""

Route = tuple[Cell, ...]
"""The cells of a route, the start first."""


@dataclass(frozen=True)
class Trip:
    """A square maze of `side` x `side` cells, from where to where, and in at most how many moves.

    A move goes to one of the eight cells around, which must not be closed or visited before.
    """

    side: int
    closed: frozenset[Cell]
    start: Cell
    goal: Cell
    moves: int


@lru_cache
def around(side: int) -> tuple[tuple[Cell, ...], ...]:
    """The cells around each cell of a maze without walls: 3 to 8 of them, in order."""
    places = [(row, column) for row in range(side) for column in range(side)]
    return tuple(
        tuple(
            side * there + beside
            for there in range(max(row - 1, 0), min(row + 2, side))
            for beside in range(max(column - 1, 0), min(column + 2, side))
            if (there, beside) != (row, column)
        )
        for row, column in places
    )


def ways_on(trip: Trip, route: Sequence[Cell]) -> list[Cell]:
    """The cells that may follow `route`: next to its last one, open and not yet visited."""
    return [
        cell
        for cell in around(trip.side)[route[-1]]
        if cell not in trip.closed and cell not in route
    ]


def forks(trip: Trip, route: Sequence[Cell]) -> list[int]:
    """Positions in `route`, from 0, at which more than one cell may follow.

    There is none at the goal, nor after the last allowed move.
    """
    return [
        place
        for place, cell in enumerate(route[: trip.moves])
        if cell != trip.goal and len(ways_on(trip, route[: place + 1])) > 1
    ]


def moves_to(side: int, closed: frozenset[Cell], goal: Cell) -> dict[Cell, int]:
    """The fewest moves to `goal` from each cell from which it can be reached."""
    moves, edge = {goal: 0}, [goal]
    while edge:
        further: list[Cell] = []
        for cell in edge:
            for other in around(side)[cell]:
                if other not in moves and other not in closed:
                    moves[other] = moves[cell] + 1
                    further.append(other)
        edge = further
    return moves


def detour(side: int, start: Cell, goal: Cell, moves: int) -> int:
    """By how many moves a route of `moves` is longer than one through a maze without walls."""
    rows = abs(start // side - goal // side)
    return moves - max(rows, abs(start % side - goal % side))


def correct_routes(trip: Trip) -> Iterator[Route]:
    """Every correct route: from start to goal in at most `moves` moves, no cell twice.

    Cells from which the goal is too far are left out at once, so the time is in proportion to the
    number of routes.
    """
    left = moves_to(trip.side, trip.closed, trip.goal)

    def onward(route: Route) -> Iterator[Route]:
        if route[-1] == trip.goal:
            yield route
            return
        for cell in ways_on(trip, route):
            if len(route) + left.get(cell, trip.moves) <= trip.moves:
                yield from onward((*route, cell))

    yield from onward((trip.start,))


def cell_name(cell: Cell, side: int) -> str:
    """Row and column as letters: `cb` is in the third row and second column."""
    return string.ascii_lowercase[cell // side] + string.ascii_lowercase[cell % side]


def named_cell(name: str, side: int) -> Cell | None:
    """The cell of that name; None if the maze has none."""
    letters = string.ascii_lowercase[:side]
    if len(name) != 2 or name[0] not in letters or name[1] not in letters:
        return None
    return letters.index(name[0]) * side + letters.index(name[1])


def render_cells(cells: Sequence[Cell], side: int) -> str:
    """Cells as text, a space before each, so that a cell is one word wherever it stands."""
    return "".join(f" {cell_name(cell, side)}" for cell in cells)


def render(trip: Trip) -> str:
    """The problem as text: `From ab to fe in 6 moves, closed: ca cb cd`."""
    start, goal = cell_name(trip.start, trip.side), cell_name(trip.goal, trip.side)
    closed = render_cells(sorted(trip.closed), trip.side) or " none"
    return f"From {start} to {goal} in {trip.moves} moves, closed:{closed}"


def gold_answer(trip: Trip) -> str:
    """JSON with all that grading a route needs, and one of the shortest routes as `answer`."""
    shortest = min(correct_routes(trip), key=len)
    return json.dumps(
        {
            "answer": render_cells(shortest, trip.side).strip(),
            "side": trip.side,
            "closed": render_cells(sorted(trip.closed), trip.side).strip(),
            "start": cell_name(trip.start, trip.side),
            "goal": cell_name(trip.goal, trip.side),
            "moves": trip.moves,
        }
    )


def read_gold(answer: str) -> Trip:
    """The trip that `gold_answer` wrote; raises ValueError for other text."""
    try:
        gold = json.loads(answer)
        side, moves = int(gold["side"]), int(gold["moves"])
        if not 3 <= side <= MAX_SIDE:
            raise ValueError(f"the gold answer of a route has side {side}, not 3 to {MAX_SIDE}")
        names = [gold["start"], gold["goal"], *gold["closed"].split()]
        start, goal, *closed = [named_cell(name, side) for name in names]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the gold answer of a route: {answer[:80]!r}") from error
    if start is None or goal is None or None in closed:
        raise ValueError(f"the gold answer of a route names no cell: {answer[:80]!r}")
    return Trip(side, frozenset(cell for cell in closed if cell is not None), start, goal, moves)


def turned_alike(trip: Trip) -> str:
    """A text that is the same for mazes that differ by turning and mirroring only.

    Start and goal count, in either order; the allowed moves do not.
    """
    side = trip.side
    last = side - 1

    def seen(turn: int) -> tuple[list[Cell], list[Cell]]:
        def moved(cell: Cell) -> Cell:
            row, column = divmod(cell, side)
            row, column = (column, row) if turn & 1 else (row, column)
            return side * (last - row if turn & 2 else row) + (
                last - column if turn & 4 else column
            )

        return sorted(map(moved, trip.closed)), sorted((moved(trip.start), moved(trip.goal)))

    return f"{side}: {min(seen(turn) for turn in range(8))}"


def split_of_trip(trip: Trip) -> Split:
    """The half that a trip belongs to: the halves share none, however it is turned."""
    return split_of(turned_alike(trip))
