"""How many of a problem's answers would be right for other problems, without grading each pair.

Answers of a kind get a key that equal answers share, so that hundreds of answers and hundreds of
right ones are compared at once; routes are walked instead, where start and goal fit. A key knows
less than the grader: two forms of one expression that only Math-Verify can see to be equal count as
different, so a chance level may be a little too low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache

from sage.grading.assignments import names_in, parse_assignment
from sage.grading.exact import spaced
from sage.grading.quantities import read_quantity
from sage.grading.tidy import tidy
from sage.grading.walks import counts_arriving
from sage.problems.record import Kind

_LONGEST = 500
"""Characters of an answer that are looked at, as in grading."""


def counts_right(answers: Mapping[str, int], golds: Sequence[str], kind: Kind) -> list[int]:
    """How many of `answers`, each with its count, equal each of `golds`; `[J]`."""
    if kind == "route":
        return counts_arriving(answers, golds)
    counts: Counter[Hashable] = Counter()
    for answer, count in answers.items():
        counts[answer_key(answer, kind)] += count
    return [counts[answer_key(gold, kind)] for gold in golds]


@lru_cache(maxsize=100_000)
def answer_key(answer: str, kind: Kind) -> Hashable:
    """What equal answers share: a number's value, an assignment, else the tidy text."""
    answer = answer[:_LONGEST]
    if kind == "knights":
        roles = parse_assignment(answer, names_in(answer))
        return None if roles is None else frozenset(roles.items())
    text = spaced(tidy(answer))
    quantity = read_quantity(text)
    return text if quantity is None else (quantity.value, quantity.unit)
