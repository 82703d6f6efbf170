"""The task of Knights and Knaves: an answer is right if it says of everyone what they are."""

from __future__ import annotations

import random
from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from sage.fields import Distinct, Positive, Seed, Strict
from sage.grading import Status
from sage.grading.assignments import names_in, parse_assignment, same_assignment
from sage.problems.fields import Hints, People, Split, Title
from sage.problems.knights import draw_puzzle, render, render_answer
from sage.problems.record import Draft, Problem, draw_different
from sage.tasks.task import ByKey


class Knights(ByKey):
    """Puzzles whose gold answer is such as `Ann knight, Bob knave`."""

    kind: ClassVar[str] = "knights"

    @staticmethod
    def settle(gold: str, answer: str) -> Status:
        same = same_assignment(gold, answer)
        return "unparsed" if same is None else "correct" if same else "wrong"

    @classmethod
    def peers(cls, problem: Problem) -> str:
        """Puzzles of another size have answers of another form."""
        return problem.level

    @classmethod
    def gold_key(cls, gold: str) -> Hashable:
        return _roles(gold[: cls.longest])


@lru_cache(maxsize=100_000)
def _roles(answer: str) -> Hashable:
    roles = parse_assignment(answer, names_in(answer))
    return None if roles is None else frozenset(roles.items())


class KnightsSet(Strict, Knights):
    """Knights and Knaves puzzles with exactly one solution, from this project's generator."""

    source: Literal["knights"]
    """generated Knights and Knaves puzzles"""
    title: Title
    people: Annotated[People, Distinct]
    """numbers of people; each number is a level of difficulty [people]"""
    per_size: Positive
    """puzzles of each number of people [puzzles]"""
    seed: Seed
    """seed of the generator [integer]"""
    split: Split
    hints: Hints = False

    stratified: ClassVar[bool] = True

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
        for people in self.people:

            def draw(_: int, people: int = people) -> Draft:
                puzzle = draw_puzzle(people, rng)
                hint = render_answer(puzzle.solution[:1]) if self.hints else ""
                answer = render_answer(puzzle.solution)
                return Draft(render(puzzle), answer, f"{people} people", hint)

            problems += draw_different(
                f"{name}-{people}ppl",
                draw,
                self.per_size,
                self.split,
                digits=3,
                kind=self.kind,
                source="sage/knights",
                revision=f"seed {self.seed}",
            )
        return problems
