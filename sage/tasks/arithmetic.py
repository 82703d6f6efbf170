"""The task of sums and differences of small integers, of which the small studies are made.

A set can be restricted by whether the running total, read from left to right, falls below zero:
solving such problems step by step is harder than grouping them (see `sage.problems.corpus`), which
gives a benchmark something that training on the easy kind can lose.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import Faults, Positive
from sage.problems.arithmetic import draw_expression, running_totals, signed_terms
from sage.problems.fields import Generated, Hints, check_order
from sage.problems.record import Draft, split_of
from sage.tasks.math import Number

_COUNTED = 200_000  # more expressions than this are not counted: that would take seconds
_EQUATION = re.compile(r"(-?\d{1,9}(?:[+-]\d{1,9}){0,15})=(-?\d{1,9})(?!\d)")


class ArithmeticSet(Generated, Number):
    """Sums and differences from this project's generator."""

    source: Literal["arithmetic"]
    """generated sums and differences"""
    min_terms: Annotated[int, Field(ge=2, le=100)]
    """fewest terms of a sum [terms]"""
    max_terms: Annotated[int, Field(ge=2, le=100)]
    """most terms of a sum [terms]"""
    max_digits: Positive = 1
    """terms go from 0 to 10^max_digits [digits]"""
    running_total: Literal["any", "nonnegative", "negative"] = "any"
    """whether the partial sums from left to right never (`nonnegative`) or at some point
    (`negative`) fall below zero"""
    hints: Hints = False

    @model_validator(mode="after")
    def _as_many_exist(self) -> ArithmeticSet:
        check_order(self.min_terms, self.max_terms)
        if (there := self._existing()) is not None and self.count > there:
            raise Faults(
                [
                    f"count: {self.count}, but only {there} different problems exist (min_terms "
                    f"{self.min_terms}, max_terms {self.max_terms}, max_digits {self.max_digits}, "
                    f"running_total {self.running_total}, split {self.split}); lower it, or widen "
                    "these"
                ]
            )
        return self

    def _existing(self) -> int | None:
        """How many different problems its settings allow; None where there are enough by far, or
        too many to count."""
        terms = [str(term) for term in range(10 ** min(self.max_digits, 5) + 1)]
        lengths = range(self.min_terms, self.max_terms + 1)
        if sum(len(terms) ** n * 2 ** (n - 1) for n in lengths) > min(_COUNTED, 10 * self.count):
            return None
        signed = [sign + term for sign in "+-" for term in terms]
        drawn = (each for n in lengths for each in itertools.product(terms, *[signed] * (n - 1)))
        return sum(
            split_of(f"Calculate {expression}.") == self.split
            and self._is_asked(signed_terms(expression))
            for expression in map("".join, drawn)
        )

    def _is_asked(self, terms: list[int]) -> bool:
        """Whether a sum has its kind of running total."""
        kind = "negative" if min(running_totals(terms)) < 0 else "nonnegative"
        return self.running_total in ("any", kind)

    @staticmethod
    def working(problem: str, working: str, answer: str) -> bool:
        """Whether `working` solves ``Calculate 5-3-6.`` step by step and `answer` is its result.

        Its equations, whatever stands between them, must all be true and either take the terms one
        by one from left to right, or add up the positive and the negative ones and subtract. An
        answer without working is not correct.
        """
        terms = signed_terms(problem)
        if not terms or answer != str(sum(terms)):
            return False
        equations = [(signed_terms(left), int(right)) for left, right in _EQUATION.findall(working)]
        if not equations or any(sum(left) != right for left, right in equations):
            return False
        before = [terms[0], *(right for _, right in equations[:-1])]
        step_by_step = [[total, term] for total, term in zip(before, terms[1:], strict=False)]
        if [left for left, _ in equations] == step_by_step and len(equations) == len(terms) - 1:
            return True
        if len(equations) != 3:
            return False
        (plus, plus_total), (minus, minus_total), (last, _) = equations
        grouped = [t for t in terms if t >= 0] or [0], [-t for t in terms if t < 0] or [0]
        return (plus, minus) == grouped and last == [plus_total, -minus_total]

    def draft(self, rng: random.Random, made: int) -> Draft | None:
        """A sum with terms from 0 to 10^d, d drawn from 1 to `max_digits`.

        Its hint is the first step of its solution.
        """
        highest = 10 ** rng.randint(1, self.max_digits)
        expression = draw_expression(rng, self.min_terms, self.max_terms, highest)
        if not self._is_asked(terms := signed_terms(expression)):
            return None
        hint = f"{terms[0]}{terms[1]:+d}={terms[0] + terms[1]}" if self.hints else ""
        level = f"{len(terms)} terms"
        return Draft(f"Calculate {expression}.", str(sum(terms)), level, hint)
