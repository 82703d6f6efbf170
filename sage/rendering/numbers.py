"""Numbers as text for readers: every rounding of effects, ends of intervals, shares and p-values.

A number never reads as a limit that it does not have: 0, a share of 1, p = 0.05 (`rounded`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

NONE = "–"
"""The text for a missing number."""


_MOST = 9
"""The most decimals: what is nearer to a limit is at it, but for the rounding of a computer."""


def rounded(value: float, places: int, *limits: float, sign: str = "") -> str:
    """A number with so many decimals, or as many more as keep it off `limits` that it is not at."""
    for more in range(places, _MOST):
        text = f"{value:{sign}.{more}f}"
        if float(text) not in limits:
            return text
    return f"{float(f'{value:.{places}f}') or 0.0:{sign}.{places}f}"  # no minus sign before 0


def percent(share: float) -> str:
    """A share as percent with one decimal, without the sign."""
    return NONE if math.isnan(share) else rounded(100 * share, 1, 0.0, 100.0)


def interval(low: float, high: float) -> str:
    """An interval of shares in percent; empty if it is unknown."""
    return "" if math.isnan(low + high) else f"{percent(low)}–{percent(high)}"


def minus(text: str) -> str:
    """The text of numbers with minus signs in place of hyphens."""
    return text.replace("-", "\u2212")


def number_text(value: float, form: str = ".3g") -> str:
    """A number in one of Python's formats; NONE if it is unknown."""
    if math.isnan(value):
        return NONE
    fixed = re.fullmatch(r"(\+?)\.(\d)f", form)
    return minus(rounded(value, int(fixed[2]), 0.0, sign=fixed[1]) if fixed else f"{value:{form}}")


def points(value: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return minus(rounded(100 * value, 1, 0.0, sign="+"))


def size_of(value: float) -> str:
    """The size of a difference of shares in percentage points, without a sign."""
    return points(abs(value)).removeprefix("+")


def interval_of_points(low: float, high: float) -> str:
    """An interval of a difference of shares, in points; empty if it is unknown."""
    return "" if math.isnan(low + high) else f"{points(low)} to {points(high)}"


def ends(low: float, high: float, form: str) -> str:
    """An interval in one of the forms of `number_text`; empty if it is unknown."""
    known = not math.isnan(low + high)
    return f"{number_text(low, form)} to {number_text(high, form)}" if known else ""


def p_text(p: float) -> str:
    """A p-value, rounded."""
    if math.isnan(p):
        return NONE
    return "< 0.001" if p < 0.001 else rounded(p, 3 if p < 0.1 else 2, 0.05)


def p_said(p: float) -> str:
    """A p-value as in ``p = 0.031`` or ``p < 0.001``; empty if it is unknown."""
    return "" if math.isnan(p) else f"p {'' if p < 0.001 else '= '}{p_text(p)}"


def plain_text(value: Any) -> str:
    """A value of a frame as text for readers."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def grouped(number: float) -> str:
    """A whole number in groups of three digits."""
    return f"{int(number):,}".replace(",", "\u202f")


def times(ratio: float) -> str:
    """A ratio with two digits, such as ``3.5 times`` or ``350 times``."""
    return f"{grouped(float(f'{ratio:.2g}')) if ratio >= 10 else f'{ratio:.2g}'} times"


def too_small(share: float) -> str:
    """A dose, from its share of the least one."""
    if not share:
        return "0"
    return f"{times(1 / share)} too small" if share < 0.95 else "just too small"


def duration(seconds: float | None) -> str:
    """A time in its two largest units, such as ``1 h 02 min``."""
    if seconds is None:
        return NONE
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def listing(names: Sequence[str], most: int = 12) -> str:
    """Names separated by commas, shortened to the first `most`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
