"""Sums and differences of small integers."""

from __future__ import annotations

import itertools
import random
import re

_TERM = re.compile(r"([+-]?)\s*(\d+)")


def draw_expression(rng: random.Random, min_terms: int, max_terms: int, max_value: int) -> str:
    """A sum or difference such as ``5-3-6``, its terms from 0 to `max_value`."""
    count = rng.randint(min_terms, max_terms)
    expression = str(rng.randint(0, max_value))
    for _ in range(count - 1):
        expression += rng.choice("+-") + str(rng.randint(0, max_value))
    return expression


def signed_terms(expression: str) -> list[int]:
    """``"5-3-6"`` as ``[5, -3, -6]``."""
    return [int(sign + digits) for sign, digits in _TERM.findall(expression)]


def running_totals(terms: list[int]) -> list[int]:
    """Partial sums from left to right, the first term included."""
    return list(itertools.accumulate(terms))
