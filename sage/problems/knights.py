"""Knights and Knaves: compact puzzles with exactly one solution.

Knights always tell the truth, knaves always lie; each person makes one statement. A
puzzle is kept only if an exhaustive check of all 2^n assignments leaves one. Answers are read
by `sage.grading.assignments`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import Distinct, Positive, Seed, Strict, about
from sage.problems.fields import Hints, People, Split, Title
from sage.problems.record import Problem, split_of

NAMES = ("Ann", "Bob", "Cat", "Dan", "Eve", "Fay", "Gus", "Hal")
ROLES = ("knave", "knight")

# A statement is a nested tuple: ("is", person, truthful), ("not", s), ("and", s, t),
# ("or", s, t), ("if", s, t), ("iff", s, t).
Statement = tuple
Form = Literal["not", "and", "or", "if", "iff"]
FORMS: tuple[Form, ...] = ("and", "or", "if", "iff")


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
        case ("not", inner):
            return not holds(inner, truthful)
        case ("and", left, right):
            return holds(left, truthful) and holds(right, truthful)
        case ("or", left, right):
            return holds(left, truthful) or holds(right, truthful)
        case ("if", left, right):
            return not holds(left, truthful) or holds(right, truthful)
        case ("iff", left, right):
            return holds(left, truthful) == holds(right, truthful)
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


def draw_puzzle(people: int, rng: random.Random, forms: Sequence[Form] = FORMS) -> Puzzle:
    """A random puzzle for `people` persons that has exactly one solution.

    Besides plain statements there are those of `forms`; with ``not``, a plain statement is
    denied now and then, alone or as a part of others. Raises ValueError without a compound
    form: of plain statements, turning every role into its opposite makes another solution.
    """
    if not set(forms) & set(FORMS):
        raise ValueError(f"forms must hold at least one of {', '.join(FORMS)}, not {list(forms)}")
    if not 2 <= people <= len(NAMES):
        raise ValueError(f"people must be from 2 to {len(NAMES)}, not {people}")
    while True:
        statements = tuple(_draw_statement(person, people, rng, forms) for person in range(people))
        solved = solutions(statements)
        if len(solved) == 1:
            return Puzzle(statements, solved[0])


def render(puzzle: Puzzle) -> str:
    """The puzzle as text."""
    lines = [
        f"{NAMES[person]}: {_render_statement(said)}."
        for person, said in enumerate(puzzle.statements)
    ]
    return "Knights tell the truth, knaves lie. " + " ".join(lines) + " Who is what?"


def render_answer(solution: tuple[bool, ...]) -> str:
    """An assignment as text: ``Ann knight, Bob knave``."""
    return ", ".join(f"{NAMES[i]} {ROLES[value]}" for i, value in enumerate(solution))


class KnightsSet(Strict):
    """Knights and Knaves puzzles with exactly one solution, from this project's generator."""

    source: Annotated[Literal["knights"], about("generated Knights and Knaves puzzles")]
    title: Title
    people: Annotated[
        People,
        Distinct,
        about("numbers of people; each number is a level of difficulty", unit="people"),
    ]
    per_size: Annotated[Positive, about("puzzles of each number of people", unit="puzzles")]
    seed: Annotated[Seed, about("seed of the generator", unit="integer")]
    split: Split
    forms: Annotated[
        list[Form],
        Distinct,
        about("what statements may be besides plain ones; at least one besides `not`"),
    ] = Field(default_factory=lambda: list(FORMS))
    hints: Hints = False

    @model_validator(mode="after")
    def _solvable(self) -> KnightsSet:
        if not set(self.forms) & set(FORMS):
            raise ValueError(
                f"forms must hold at least one of {', '.join(FORMS)}: a puzzle of plain statements "
                "never has a single solution"
            )
        return self

    def size(self) -> int:
        """How many problems it has."""
        return self.per_size * len(self.people)

    def problems(self, name: str) -> list[Problem]:
        """The set, called `name`: different puzzles of one split for each number of people.

        With `hints` each carries what its first person is. Raises ValueError if a number of people
        does not admit that many.
        """
        rng = random.Random(f"{name}/{self.seed}")
        problems: list[Problem] = []
        seen: set[str] = set()
        for size in self.people:
            made, draws = 0, max(100 * self.per_size, 2_000)
            for _ in range(draws):
                puzzle = draw_puzzle(size, rng, self.forms)
                text = render(puzzle)
                if text in seen or split_of(text) != self.split:
                    continue
                seen.add(text)
                problems.append(
                    Problem(
                        problem_id=f"{name}-{size}ppl-{made:03d}",
                        problem=text,
                        answer=render_answer(puzzle.solution),
                        kind="knights",
                        level=f"{size} people",
                        source="sage/knights",
                        revision=f"seed {self.seed}",
                        hint=render_answer(puzzle.solution[:1]) if self.hints else "",
                    )
                )
                made += 1
                if made == self.per_size:
                    break
            else:
                raise ValueError(
                    f"problem set {name!r}: only {made} of {self.per_size} different puzzles for "
                    f"{size} people in {draws} draws (split {self.split}); ask for fewer, or for "
                    f"more forms than {', '.join(self.forms)}"
                )
        return problems


def _draw_statement(
    speaker: int, people: int, rng: random.Random, forms: Sequence[Form]
) -> Statement:
    def person(exclude: int | None = None) -> int:
        others = [i for i in range(people) if i not in (speaker, exclude)]
        return rng.choice(others or [speaker])  # of two people, a compound needs both

    def atom(about: int) -> Statement:
        plain = ("is", about, rng.random() < 0.5)
        return ("not", plain) if "not" in forms and rng.random() < 0.3 else plain

    form = rng.choice(("is", "is", *(form for form in forms if form != "not")))
    first = person()
    left = atom(first)
    return left if form == "is" else (form, left, atom(person(exclude=first)))


def _render_statement(statement: Statement) -> str:
    match statement:
        case ("is", person, value):
            return f"{NAMES[person]} is a {ROLES[value]}"
        case ("not", ("is", person, value)):  # the one statement that is denied: no scope to doubt
            return f"{NAMES[person]} is not a {ROLES[value]}"
        case ("if", left, right):
            return f"if {_render_statement(left)} then {_render_statement(right)}"
        case ("iff", left, right):
            return f"{_render_statement(left)} exactly if {_render_statement(right)}"
        case (joiner, left, right):
            return f"{_render_statement(left)} {joiner} {_render_statement(right)}"
    raise ValueError(f"not a statement: {statement!r}")
