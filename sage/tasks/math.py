"""The tasks of data sets of mathematics: an expression, or a number that has to be worked out.

Where answers are few, many are right for other problems as well. These are found by a key that
equal answers share, which knows less than the grader: two forms of one expression that only the
grader sees to be equal count as different, so a chance level may be a little too low.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import ClassVar

from sage.grading import Status
from sage.grading.exact import settle, settle_number, spaced
from sage.grading.quantities import read_quantity
from sage.grading.tidy import tidy
from sage.tasks.task import ByKey


class Math(ByKey):
    """An answer is right if it says the same as the gold answer."""

    kind: ClassVar[str] = "math"
    is_mathematics: ClassVar[bool] = True

    @staticmethod
    def settle(gold: str, answer: str) -> Status:
        return settle(gold, answer)

    @classmethod
    def gold_key(cls, gold: str) -> Hashable:
        return _value(gold[: cls.longest])


class Number(Math):
    """As `math`, but what leaves something to work out, such as `5+6`, is no answer."""

    kind: ClassVar[str] = "number"

    @staticmethod
    def settle(gold: str, answer: str) -> Status:
        return settle_number(gold, answer)


@lru_cache(maxsize=100_000)
def _value(answer: str) -> Hashable:
    """A number's value and unit, else the tidy text."""
    text = spaced(tidy(answer))
    quantity = read_quantity(text)
    return text if quantity is None else (quantity.value, quantity.unit)
