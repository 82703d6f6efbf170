"""Two ways of doing the same thing, measured alternately, so that a busy machine slows both.

The result is the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from scipy.stats import quantile_test

FEWEST = 6
"""Pairs from which the sign test has a 95 % interval: (1/2)^5 is below 5 %."""


@dataclass(frozen=True)
class Comparison:
    """`ratio` is the median over rounds; `limit` is its requirement: "at least 3", "at most 1.03".

    `ours` and `other` are medians, in `unit`. `low` and `high` are the 95 % interval of the ratio,
    where it is known.
    """

    name: str
    ratio: float
    limit: str
    ours: float
    other: float
    rounds: int
    unit: str = "s"
    low: float | None = None
    high: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the ratio is within its limit."""
        relation, _, bound = self.limit.rpartition(" ")
        return self.ratio <= float(bound) if relation == "at most" else self.ratio >= float(bound)

    @property
    def meaning(self) -> str:
        """What the ratio says, in a sentence."""
        if self.unit.startswith("of "):
            return f"{self.ratio:.1%} of {self.rounds:,} {self.unit.removeprefix('of ')}."
        if self.limit.startswith("at least"):
            return f"The first is {self.ratio:.3g} times as fast as the second."
        more = "more" if self.ratio >= 1.0 else "less"
        return f"The first takes {abs(self.ratio - 1.0):.0%} {more} than the second."

    def record(self) -> dict[str, Any]:
        """The comparison as plain data for the JSON file."""
        return {**asdict(self), "kept": self.kept}


def in_turn(
    one: Callable[[], object], other: Callable[[], object], rounds: int
) -> list[tuple[float, float]]:
    """Seconds of both in each round; their order alternates from round to round."""
    times = []
    for turn in range(rounds):
        first, second = (other, one) if turn % 2 else (one, other)
        seconds = _seconds(first), _seconds(second)
        times.append(seconds[::-1] if turn % 2 else seconds)
    return times


def overhead(
    name: str, pairs: Sequence[tuple[float, float]], limit: float, unit: str = "s"
) -> Comparison:
    """The overhead of the first of each pair (ours) over the second, as a factor up to `limit`.

    From FEWEST pairs on it has the interval of the sign test.
    """
    ratios = [own / other for own, other in pairs]
    found = compared(name, ratios, f"at most {limit:g}", pairs, unit)
    if len(pairs) < FEWEST:
        return found
    interval = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    return replace(found, low=float(interval.low), high=float(interval.high))


def compared(
    name: str,
    ratios: Sequence[float],
    limit: str,
    pairs: Sequence[tuple[float, ...]],
    unit: str = "s",
) -> Comparison:
    """The median of `ratios`, which were made of the `pairs` (ours, other), with their medians."""
    ours, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Comparison(name, statistics.median(ratios), limit, ours, other, len(pairs), unit)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
