"""Numbers that are no terms: dates, addresses, ratios, times of day, ordinals.

A date is no difference and an address no product. Each function says whether two tidy texts are the
same, None where they are not of its kind. Texts are untrusted and of bounded length.
"""

from __future__ import annotations

import re
from math import gcd

from sage.grading.quantities import split_unit, unit_ratio

_PARTS = re.compile(r"[0-9]+(?P<mark>[-:./])[0-9]+(?:(?P=mark)[0-9]+)+")
_TIME = re.compile(r"(?P<hour>[01]?[0-9]|2[0-4]):(?P<minute>[0-5][0-9])")
_PAIR = re.compile(r"[0-9]+:[0-9]+")
_NAMES = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ORDINAL = re.compile(
    r"(?P<number>[0-9]+) ?(?:\^ ?)?(?:\{ ?)?(?:\\(?:text|mathrm) ?\{ ?)?(?:st|nd|rd|th)(?: ?\})*"
)


def same_parts(gold: str, answer: str) -> bool | None:
    """Dates, addresses and ratios of three or more parts, and times of day."""
    parts, given = ([int(p) for p in re.findall("[0-9]+", text)] for text in (gold, answer))
    if match := _PARTS.fullmatch(gold):
        other = _PARTS.fullmatch(answer)
        if other is None or len(parts) != len(given):
            return False
        if match["mark"] == other["mark"] == ":":
            return all(p * given[0] == q * parts[0] for p, q in zip(parts, given, strict=True))
        return parts == given and {match["mark"], other["mark"]} != {".", ":"}
    (gold, unit), (answer, other_unit) = split_unit(gold), split_unit(answer)
    if not _TIME.fullmatch(gold):
        return None
    if _PAIR.fullmatch(answer):
        return _same_time(gold, unit, answer, other_unit)
    return False if gcd(*parts) != 1 or unit else None  # 3:10 may be a ratio


def _same_time(gold: str, unit: str | None, answer: str, other_unit: str | None) -> bool:
    """Times of 12 or 24 hours; `8:34` beside `8:34 PM` leaves out the half of the day."""
    if unit_ratio(other_unit, unit) is None:
        return False
    times, others = _minutes(gold, unit), _minutes(answer, other_unit)
    is_said = unit is not None or other_unit is not None
    return bool(times & others) if is_said else gold.lstrip("0") == answer.lstrip("0")


def _minutes(time: str, unit: str | None) -> set[int]:
    """The minutes of the day that a time may mean; none if it is no time."""
    match = _TIME.fullmatch(time)
    if match is None:
        return set()
    hour, minute = int(match["hour"]), int(match["minute"])
    if unit is None and (hour > 12 or hour == 0):
        return {60 * hour + minute}
    halves = [("a", 0), ("p", 720)]
    return {60 * (hour % 12) + minute + more for half, more in halves if half in (unit or "ap")}


def same_ordinal(gold: str, answer: str) -> bool | None:
    """`2nd`, `2^{nd}` and `second`; None if the gold is none."""
    number = _place(gold)
    return None if number is None else number == _place(answer)


def _place(text: str) -> int | None:
    if match := _ORDINAL.fullmatch(text):
        return int(match["number"])
    names = _NAMES.split()
    return names.index(text.lower()) + 1 if text.lower() in names else None
