"""Numbers as text for readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

NONE = "–"
"""The text for a missing number."""


def percent(share: float) -> str:
    """A share as percent with one decimal, without the sign."""
    return NONE if math.isnan(share) else f"{100 * share:.1f}"


def interval(low: float, high: float) -> str:
    """An interval of shares in percent; empty if it is unknown."""
    return "" if math.isnan(low + high) else f"{percent(low)}–{percent(high)}"


def minus(text: str) -> str:
    """The text of numbers with minus signs in place of hyphens."""
    return text.replace("-", "\u2212")


def number_text(value: float, form: str = ".3g") -> str:
    """A number in one of Python's formats; NONE if it is unknown."""
    return NONE if math.isnan(value) else minus(f"{value:{form}}")


def points(value: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return minus(f"{round(100 * value, 1) or 0.0:+.1f}")  # no minus sign before 0


def interval_of_points(low: float, high: float) -> str:
    """An interval of a difference of shares, in points; empty if it is unknown."""
    return "" if math.isnan(low + high) else f"{points(low)} to {points(high)}"


def p_text(p: float) -> str:
    """A p-value, rounded."""
    if math.isnan(p):
        return NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


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
