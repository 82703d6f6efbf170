"""Sheets of small sums: problems whose answer cannot be guessed, in six visible strata.

A sheet asks several sums of two digits at once, as `Add a4+3 b6+3 c5+3`; the answer is the number
that the sums make, here 798. All sums of a sheet have the same small number, 1, 2 or 3, at the same
place, first or second: these six kinds are the strata. Six strategies rewrite a sum before it is
added (`STRATEGIES`), and each makes the small number a second KNOWN on one stratum alone; sums with
such a second number are the only ones that the corpus gets right (`sage.problems.sum_sets`).
Sums stay below ten, so each is a digit of the answer.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

StrategyName = Literal["plain", "turn", "raise", "lower", "upturn", "downturn"]

LABELS = "abcdefgh"
"""Names of the parts of a sheet."""

KNOWN = 2
"""The second number of the sums that the corpus gets right."""

SMALLEST = 4
"""What the other number of a sum is at least, so that no sum belongs to two strata."""

_TEXT = re.compile(r"Add ((?:[a-h][1-9]\+[1-9] ?){2,8})")
_PART = re.compile(r"([a-h])([1-9])\+([1-9])")
_LONGEST = 200


@dataclass(frozen=True)
class Strategy:
    """The form of a rewritten part: turned or not, then `shift` handed to the first number."""

    mark: str
    turned: bool
    shift: int

    def rewritten(self, x: int, y: int) -> tuple[int, int]:
        """The part x+y in this form."""
        first, second = (y, x) if self.turned else (x, y)
        return first + self.shift, second - self.shift

    def pays(self, x: int, y: int) -> bool:
        """Whether this form of x+y is a sum that the corpus gets right."""
        return self.rewritten(x, y)[1] == KNOWN


STRATEGIES: dict[StrategyName, Strategy] = {
    "plain": Strategy("P", turned=False, shift=0),
    "turn": Strategy("T", turned=True, shift=0),
    "raise": Strategy("R", turned=False, shift=1),
    "lower": Strategy("L", turned=False, shift=-1),
    "upturn": Strategy("U", turned=True, shift=1),
    "downturn": Strategy("D", turned=True, shift=-1),
}
"""The strategies by name; a stratum has the name of the strategy that pays there."""

MARKS = {strategy.mark: name for name, strategy in STRATEGIES.items()}
"""Names of the strategies by the letter that opens their working."""

STRATA = tuple(STRATEGIES)


@dataclass(frozen=True)
class Sheet:
    """A problem: the two numbers that each part adds."""

    parts: tuple[tuple[int, int], ...]

    @property
    def labels(self) -> str:
        """The parts' labels, in order."""
        return LABELS[: len(self.parts)]

    @property
    def text(self) -> str:
        """The problem as the prompt asks it."""
        parts = zip(self.labels, self.parts, strict=True)
        return "Add " + " ".join(f"{name}{x}+{y}" for name, (x, y) in parts)

    @property
    def answer(self) -> str:
        """The sums, one digit each."""
        return "".join(str(x + y) for x, y in self.parts)

    @property
    def stratum(self) -> StrategyName | None:
        """The strategy that pays on every part; None where there is none."""
        for name, strategy in STRATEGIES.items():
            if all(strategy.pays(*part) for part in self.parts):
                return name
        return None


def addends(stratum: StrategyName) -> list[tuple[int, int]]:
    """What a part of a stratum may add."""
    strategy = STRATEGIES[stratum]
    small = KNOWN + strategy.shift
    others = range(SMALLEST, 10 - small)
    return [(small, other) if strategy.turned else (other, small) for other in others]


def draw_sheet(rng: random.Random, stratum: StrategyName, parts: int) -> Sheet:
    """A sheet of `parts` sums of the stratum."""
    return Sheet(tuple(rng.choices(addends(stratum), k=parts)))


def read_sheet(text: str) -> Sheet | None:
    """The sheet that a problem's text asks for; None where it is no sheet."""
    if len(text) > _LONGEST or (whole := _TEXT.fullmatch(text.strip())) is None:
        return None
    parts = _PART.findall(whole[1])
    if [name for name, _, _ in parts] != list(LABELS[: len(parts)]):
        return None
    return Sheet(tuple((int(x), int(y)) for _, x, y in parts))
