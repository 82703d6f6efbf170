"""Which problem sets can check the working of a solution, and how.

A checker says of a problem's text, the working and the answer whether every step is right and leads
to the answer. Of some sources the strategy of a completion is known as well. Both must take any
text, for working is written by a model.
"""

from __future__ import annotations

from collections.abc import Callable

from sage.problems import arithmetic, routes, sums_working
from sage.prompting import solution_text

Checker = Callable[[str, str, str], bool]
"""From the problem's text, the working and the answer; True if all of it is correct."""

CHECKERS: dict[str, Checker] = {
    "sage/arithmetic": arithmetic.correct_working,
    "sage/sums": sums_working.correct_working,
    "sage/routes": routes.working_is_the_answer,
}
"""By the `source` of a problem's record."""


def route_taken(problem: str, written: str) -> str:
    """The cells that `written` answers with, "" without an answer."""
    return " ".join((solution_text(written) or "").split())


STRATEGIES: dict[str, Callable[[str, str], str]] = {
    "sage/sums": sums_working.strategy_of,
    "sage/routes": route_taken,
}
"""By source: from the problem's text and the completion to what its strategy is called."""
