"""Worked solutions in several reasoning styles: what the tiny base model is trained on.

The corpus is made so that reinforcement learning has something to gain and something to
lose. Styles differ in frequency and in reliability: answering directly is common and
mostly wrong; working from left to right is common and good until the running total
falls below zero; grouping the positive and the negative terms is rare and slips a little
more often. It was meant to solve sums with negative totals; the small model does not learn
to, so what RL loses there is guessing (reports/mini/first_world).
Every problem drawn here belongs to the training split, so no benchmark problem occurs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import NonNegativeFloat, Positive, Share, Strict, about
from sage.problems.arithmetic import draw_expression, signed_terms
from sage.problems.fields import People, check_order
from sage.problems.knights import draw_puzzle, holds, render, render_answer
from sage.problems.record import split_of

Style = Literal["direct", "steps", "let", "group", "contradiction"]


@dataclass(frozen=True)
class Worked:
    """A problem with one worked solution, which may be wrong."""

    problem: str
    working: str
    answer: str
    style: str


class Slips(Strict):
    """How often the worked solutions of the corpus contain a mistake."""

    direct: Share
    """a direct answer is wrong [probability]"""
    steps: Share
    """a step from left to right is wrong [probability]"""
    group: Share
    """an addition or subtraction of grouped terms is wrong [probability]"""
    below_zero: Share
    """a step from or to a negative total loses its sign [probability]"""
    knights: Share
    """a puzzle is answered at random [probability]"""


def work_arithmetic(expression: str, style: str, slips: Slips, rng: random.Random) -> Worked:
    """A solution of `expression` in `style`, with that style's errors."""
    terms = signed_terms(expression)
    if style == "direct":
        total = _slip(sum(terms), slips.direct, rng)
        steps = ["it is clear"]
    elif style == "group":
        steps, total = _grouped(terms, slips, rng)
    else:
        steps, total = _left_to_right(terms, slips, rng)
    working = ", ".join(steps)
    if style == "let":
        working = f"let x be the total. {working}"
    elif style == "contradiction":
        guess = _slip(total, 1.0, rng)
        working = f"suppose it is {guess}. {working}, contradiction, so it is {total}"
    return Worked(f"Calculate {expression}.", working, str(total), style)


def work_knights(rng: random.Random, people: list[int], slips: Slips) -> Worked:
    """A puzzle solved by checking each statement, or answered at random when it slips."""
    puzzle = draw_puzzle(rng.choice(people), rng)
    solution = puzzle.solution
    if rng.random() < slips.knights:
        solution = tuple(rng.random() < 0.5 for _ in solution)
    checks = (
        f"{render_answer(solution).split(', ')[i]} {'true' if holds(said, solution) else 'false'}"
        for i, said in enumerate(puzzle.statements)
    )
    return Worked(render(puzzle), "check " + ", ".join(checks), render_answer(solution), "knights")


class Corpus(Strict):
    """Worked solutions in several reasoning styles.

    They stand in for the web text that a real base model has read. All problems are of the
    split `train`.
    """

    source: Literal["styles"] = "styles"
    """worked solutions in several styles"""
    styles: Annotated[
        dict[Style, Annotated[NonNegativeFloat, about("how often", unit="weight")]],
        Field(min_length=1),
    ]
    """how often a sum is solved in each style; need not add up to 1 [weights]"""
    slips: Slips
    """how often solutions are wrong"""
    min_terms: Annotated[Positive, Field(ge=2)]
    """fewest terms of a sum [terms]"""
    max_terms: Annotated[Positive, Field(ge=2)]
    """most terms of a sum [terms]"""
    max_value: Positive
    """largest term [integer]"""
    knights_share: Share
    """share of puzzles among the documents [share, 0 to 1]"""
    knights_people: People
    """numbers of people in the puzzles [people]"""

    @model_validator(mode="after")
    def _drawable(self) -> Corpus:
        check_order(self.min_terms, self.max_terms)
        if not any(self.styles.values()):
            raise ValueError("styles: at least one must have a frequency above 0")
        return self

    def worked(self, seed: int) -> Iterator[Worked]:
        """Worked solutions of problems of the training split, without end."""
        rng = random.Random(f"corpus/{seed}")
        names, weights = list(self.styles), list(self.styles.values())
        while True:
            if rng.random() < self.knights_share:
                worked = work_knights(rng, self.knights_people, self.slips)
            else:
                expression = draw_expression(rng, self.min_terms, self.max_terms, self.max_value)
                style = rng.choices(names, weights)[0]
                worked = work_arithmetic(expression, style, self.slips, rng)
            if split_of(worked.problem) == "train":
                yield worked


def _slip(value: int, probability: float, rng: random.Random) -> int:
    if rng.random() >= probability:
        return value
    return value + rng.choice((-10, -2, -1, 1, 2, 10))


def _left_to_right(terms: list[int], slips: Slips, rng: random.Random) -> tuple[list[str], int]:
    total, steps = terms[0], []
    for term in terms[1:]:
        before, total = total, total + term
        if before < 0 or total < 0:
            total = -total if rng.random() < slips.below_zero else total
        total = _slip(total, slips.steps, rng)
        steps.append(f"{before}{term:+d}={total}")
    return steps, total


def _grouped(terms: list[int], slips: Slips, rng: random.Random) -> tuple[list[str], int]:
    sides = []
    for side in ([t for t in terms if t >= 0], [-t for t in terms if t < 0]):
        total = _slip(sum(side), slips.group * max(len(side) - 1, 0), rng)
        sides.append(("+".join(map(str, side)) or "0", total))
    (plus, plus_total), (minus, minus_total) = sides
    total = _slip(plus_total - minus_total, slips.group, rng)
    return [
        f"decompose into plus {plus}={plus_total} and minus {minus}={minus_total}",
        f"{plus_total}-{minus_total}={total}",
    ], total
