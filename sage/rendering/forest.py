"""A forest: differences with their intervals, a line each, on one scale.

The page draws it as a table, so that it is read on a phone and by a screen reader alike
(`reports/partials/macros.html.j2`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sage.evaluation.curves import LEVEL
from sage.rendering.numbers import interval_of_points, minus, p_said, points


@dataclass(frozen=True)
class Line:
    """A difference with its 95 % interval, as shares; NaN for an interval that is unknown.

    `note` says what was measured and where, `measure` the former alone, `claim` what the paper
    says, `claimed` on which side of 0 it lies (`up`, `down` or empty), `margin` what difference
    would not matter. `kind` is the CSS class of the verdict, `link` the id of the part of the page
    about it.
    """

    title: str
    note: str
    effect: float
    low: float
    high: float
    verdict: str = ""
    kind: str = ""
    claim: str = ""
    claimed: str = ""
    margin: float = math.nan
    link: str = ""
    hollow: bool = False
    measure: str = ""

    @property
    def text(self) -> str:
        """The effect in points."""
        return points(self.effect)

    @property
    def interval(self) -> str:
        """The interval in points."""
        return interval_of_points(self.low, self.high)


@dataclass(frozen=True)
class Forest:
    """Lines with their common scale."""

    lines: tuple[Line, ...]
    low: float
    high: float

    def at(self, value: float) -> str:
        """Where a difference is, in percent of the width; its end where it is outside."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}%"

    def width(self, low: float, high: float) -> str:
        """The width between two differences, in percent."""
        return f"{float(self.at(high)[:-1]) - float(self.at(low)[:-1]):.2f}%"

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Two to five round differences: (place, text)."""
        raw = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        for size in (10, 5, 2, 1, 0.5):  # the largest step that gives three ticks
            step = size * power
            places = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
            if len(places) >= 3:
                break
        numbers = [(place * step, round(100 * place * step, 6)) for place in places]
        return [(self.at(at), minus(f"{n:+g}") if n else "0") for at, n in numbers]


def forest(lines: Sequence[Line]) -> Forest | None:
    """Lines on one scale around 0 and all intervals; None if there are none."""
    if not lines:
        return None
    ends = [0.0, *(line.effect for line in lines)]
    ends += [end for line in lines for end in (line.low, line.high) if not math.isnan(end)]
    room = 0.05 * (max(ends) - min(ends)) or 0.01
    return Forest(tuple(lines), min(ends) - room, max(ends) + room)


def difference_line(
    title: str, note: str, ends: Mapping[Any, Any], p: float, runs: int | None
) -> Line:
    """A line of a forest: a difference with its 95 % interval (`ends`: effect, low and high) and
    its adjusted p."""
    effect, low, high = (float(ends[end]) for end in ("effect", "low", "high"))
    clear = p < LEVEL and not math.isnan(low)
    kind = "inconclusive" if not clear else "higher" if effect > 0 else "lower"
    return Line(title, note, effect, low, high, p_said(p), kind, hollow=runs == 1)
