"""Knights and Knaves: compact puzzles with exactly one solution.

Knights always tell the truth, knaves always lie; each person makes one statement. A
puzzle is kept only if an exhaustive check of all 2^n assignments leaves one. Answers are read
by `sage.grading.assignments`.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

NAMES = ("Ann", "Bob", "Cat", "Dan", "Eve", "Fay", "Gus", "Hal")
ROLES = ("knave", "knight")

Statement = tuple
"""Nested: ("is", person, truthful), or one of FORMS with two statements, as in ("if", s, t)."""

FORMS = {
    "and": ("{} and {}", lambda left, right: left and right),
    "or": ("{} or {}", lambda left, right: left or right),
    "if": ("if {} then {}", lambda left, right: not left or right),
    "iff": ("{} exactly if {}", lambda left, right: left == right),
}
"""Compound statements: how each is written, and when it is true."""


@dataclass(frozen=True)
class Puzzle:
    """`statements[i]` is what person i says; `solution[i]` is True for a knight."""

    statements: tuple[Statement, ...]
    solution: tuple[bool, ...]


def holds(statement: Statement, truthful: tuple[bool, ...]) -> bool:
    """Whether `statement` is true under the assignment `truthful`."""
    match statement:
        case ("is", person, value):
            return truthful[person] == value
        case (form, left, right):
            return FORMS[form][1](holds(left, truthful), holds(right, truthful))
    raise ValueError(f"not a statement: {statement!r}")


def solutions(statements: tuple[Statement, ...]) -> list[tuple[bool, ...]]:
    """Every assignment under which each knight's statement is true and each knave's false."""
    return [
        assignment
        for assignment in itertools.product((False, True), repeat=len(statements))
        if all(
            holds(said, assignment) == truthful
            for said, truthful in zip(statements, assignment, strict=True)
        )
    ]


def draw_puzzle(people: int, rng: random.Random) -> Puzzle:
    """A random puzzle for `people` persons that has exactly one solution."""
    if not 2 <= people <= len(NAMES):
        raise ValueError(f"people must be from 2 to {len(NAMES)}, not {people}")
    while True:
        statements = tuple(_draw_statement(person, people, rng) for person in range(people))
        solved = solutions(statements)
        if len(solved) == 1:
            return Puzzle(statements, solved[0])


def render(puzzle: Puzzle) -> str:
    """The puzzle as text."""
    said = (f"{NAMES[i]}: {_render_statement(s)}." for i, s in enumerate(puzzle.statements))
    return "Knights tell the truth, knaves lie. " + " ".join(said) + " Who is what?"


def render_answer(solution: tuple[bool, ...]) -> str:
    """An assignment as text: ``Ann knight, Bob knave``."""
    return ", ".join(f"{NAMES[i]} {ROLES[value]}" for i, value in enumerate(solution))


def _draw_statement(speaker: int, people: int, rng: random.Random) -> Statement:
    def person(exclude: int | None = None) -> int:
        others = [i for i in range(people) if i not in (speaker, exclude)]
        return rng.choice(others or [speaker])  # of two people, a compound needs both

    def atom(about: int) -> Statement:
        return ("is", about, rng.random() < 0.5)

    form = rng.choice(("is", "is", *FORMS))
    first = person()
    left = atom(first)
    return left if form == "is" else (form, left, atom(person(exclude=first)))


def _render_statement(statement: Statement) -> str:
    match statement:
        case ("is", person, value):
            return f"{NAMES[person]} is a {ROLES[value]}"
        case (form, left, right):
            return FORMS[form][0].format(_render_statement(left), _render_statement(right))
    raise ValueError(f"not a statement: {statement!r}")
