"""Exact rational numbers as answers write them, with the unit behind them; numbers in words.

Reads tidy text only (`sage.grading.tidy`). Decimals, fractions, mixed numbers, scientific
notation and repeating decimals become fractions, so 1e-8 is not 2e-8 and 0.333333 is not
1/3. In words only cardinal numbers are read, such as `forty-two`, `one hundred and five` and `two
dozen`: no fractions and no ordinals. What is not a number is left to others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


def vocabulary(text: str) -> frozenset[str]:
    """The words of `text` as a set."""
    return frozenset(text.split())


_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_FROM_TWENTY = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: value for value, word in enumerate(_UP_TO_NINETEEN.split())}
_TENS = {word: 10 * tens for tens, word in enumerate(_FROM_TWENTY.split(), start=2)}
SCALES = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Words that multiply the number before them."""


def is_numeral(word: str) -> bool:
    """Whether `word`, in any case, is a part of a number in words; `forty-two` is."""
    parts = word.lower().split("-")
    return all(part in _SMALL or part in _TENS or part in SCALES for part in parts)


def number_in_words(text: str) -> int | None:
    """The number that `text` spells out and nothing else; None if it is anything else."""
    words = text.lower().replace("-", " ").split()
    total = group = 0
    before = ""
    for index, word in enumerate(words):
        if word == "and" and before in ("hundred", "thousand") and index + 1 < len(words):
            continue
        if word in _SMALL:
            value = _SMALL[word]
            if before in _SMALL or (before in _TENS and not 0 < value < 10):
                return None
            group += value
        elif word in _TENS:
            if before in _SMALL or before in _TENS:
                return None
            group += _TENS[word]
        elif word in ("hundred", "dozen"):
            if not 0 < group < 100 or before in ("hundred", "dozen"):
                return None
            group *= SCALES[word]
        elif word in SCALES:
            if not group or (total and total < SCALES[word] * 1000):
                return None
            total, group = total + group * SCALES[word], 0
        else:
            return None
        before = word
    return total + group if before else None


_DIGITS = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]{0,2}(?: [0-9]{3})+|[0-9]+)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)"
_SIGNED = rf"[+-]? ?{_DECIMAL}"
_FRACTION = (
    r"\\frac ?(?:\{{ ?(?P<top>{0}) ?\}}|(?P<top1>[0-9])) ?"
    r"(?:\{{ ?(?P<bottom>{0}) ?\}}|(?P<bottom1>[0-9]))"
)
_FORMS = {
    name: re.compile(rf"(?P<sign>[+-]?) ?(?:{pattern})")
    for name, pattern in {
        "decimal": rf"(?P<mantissa>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,3}}))?",
        "power": rf"(?:(?P<mantissa>{_DECIMAL}) ?(?:\\times|\\cdot|\*) ?)?"
        r"10 ?\^ ?(?:\{ ?(?P<exponent>[+-]?[0-9]{1,3}) ?\}|(?P<exponent1>[0-9]))",
        "fraction": _FRACTION.format(_SIGNED),
        "slash": rf"(?P<top>{_DECIMAL}) ?/ ?(?P<bottom>{_DECIMAL})",
        "mixed": r"(?P<whole>[0-9]+) ?" + _FRACTION.format("[0-9]+"),
        "mixed slash": r"(?P<whole>[0-9]+) (?P<top>[0-9]+) ?/ ?(?P<bottom>[0-9]+)",
        "repeating": r"(?P<head>[0-9]*)\.(?P<tail>[0-9]*)\\(?:overline|bar|dot) ?"
        r"(?:\{ ?(?P<period>[0-9]+) ?\}|(?P<period1>[0-9]))",
    }.items()
}

# Units that can be compared: dimension, then each unit's names and its size in the first.
_DIMENSIONS = {
    "share": "%,percent,pct,percentage",
    "angle": "degree,deg",
    "arc": "radian,rad",
    "length": "m,meter,metre; km,kilometer,kilometre 1000; cm,centimeter,centimetre 1/100; "
    "mm,millimeter,millimetre 1/1000",
    "imperial length": "inch,inche,in; foot,feet,ft 12; yard,yd 36; mile,mi 63360",
    "time": "s,second,sec; minute,min 60; hour,hr,h 3600; day 86400; week 604800",
    "mass": "g,gram; kg,kilogram 1000; mg,milligram 1/1000",
    "volume": "l,liter,litre; ml,milliliter,millilitre 1/1000",
    "money": "cent; dollar 100",
    "morning": "am,a.m.",
    "afternoon": "pm,p.m.",
}
_UNITS = {
    name: (dimension, Fraction(size or "1"))
    for dimension, units in _DIMENSIONS.items()
    for names, _, size in (unit.partition(" ") for unit in units.split("; "))
    for name in names.split(",")
}
_BARE_UNITS = (
    "unit degree radian percent percentage dollar cent point meter metre centimeter centimetre "
    "millimeter millimetre kilometer kilometre gram kilogram liter litre cm mm km kg inch inche "
    "foot feet ft yard mile mph second minute hour day week month year"
)
_TEXT = r"\\(?:text(?:normal)?|mathrm|mbox) ?\{[^{}]*\}"
_UNIT = re.compile(
    r"(?<=[0-9a-zA-Z})!.]) ?"
    rf"(?:\\?%|\^\\circ(?: ?(?:{_TEXT}|[CF]))?|{_TEXT}(?: ?/ ?{_TEXT})*|"
    rf"(?<![a-zA-Z\\])(?:(?:square|cubic|sq|cu) )?(?:{_BARE_UNITS.replace(' ', '|')})s?)"
    r"(?: ?\^ ?(?:\{ ?-?[0-9] ?\}|[0-9]))? ?$"
)
OPERATIONS = vocabulary(
    "half halves third thirds fourth fourths quarter quarters fifth fifths sixth sixths seventh "
    "sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth "
    "thousandths squared cubed factorial plus minus times divided over choose mod modulo base "
    "power root less greater negative hundreds thousands millions point th nd rd st"
)
"""Words behind a number that make another number of it."""

_NO_UNITS = OPERATIONS | set(SCALES) | vocabulary("and or not if more than")
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")


@dataclass(frozen=True)
class Quantity:
    """An exact rational number and the unit written behind it, if any."""

    value: Fraction
    unit: str | None = None

    @property
    def is_percent(self) -> bool:
        """Whether the unit is a percent sign or word."""
        return _UNITS.get(self.unit or "", ("",))[0] == "share"

    def agrees(self, other: Quantity) -> bool:
        """Whether both state the same amount; a unit may be missing on one side.

        A percentage equals its hundredth and, its sign left out, itself. Units that are not
        known (apples) are not compared.
        """
        if self.is_percent != other.is_percent:
            share, plain = (self, other) if self.is_percent else (other, self)
            return plain.value in (share.value, share.value / 100)
        mine, theirs = (_UNITS.get(quantity.unit or "") for quantity in (self, other))
        if mine is None or theirs is None:
            return self.value == other.value
        return mine[0] == theirs[0] and self.value * mine[1] == other.value * theirs[1]


def read_quantity(text: str) -> Quantity | None:
    """The number that a tidy `text` writes, with its unit; None if it is anything else."""
    body, unit = split_unit(text)
    for form, pattern in _FORMS.items():
        if match := pattern.fullmatch(body):
            parts = {k.rstrip("1"): v for k, v in match.groupdict().items() if v is not None}
            value = _value(form, parts)
            return None if value is None else Quantity(value, unit)
    return None


def split_unit(text: str) -> tuple[str, str | None]:
    """A tidy `text` without the unit at its end, and the name of that unit."""
    match = None if _ANGLE_FUNCTION.search(text) else _UNIT.search(text)
    if match is None:
        return text, None
    if _NO_UNITS.intersection(re.findall("[a-z]+", match[0].lower())):
        return text, None
    if r"^\circ" in match[0]:
        return text[: match.start()], "degree"
    plain = re.sub(r"\\[a-zA-Z]+|[{}\\ ]", "", match[0]).lower()
    name, power, exponent = plain.partition("^")
    return text[: match.start()], (name.removesuffix("s") or name) + power + exponent


def _number(text: str) -> Fraction:
    return Fraction(re.sub(r"[ ,+]", "", text).rstrip("."))


def _value(form: str, parts: dict[str, str]) -> Fraction | None:
    """The value of a matched form; None where it divides by zero."""
    sign = -1 if parts["sign"] == "-" else 1
    if form in ("decimal", "power"):
        scale = Fraction(10) ** int(parts.get("exponent", "0"))
        return sign * _number(parts.get("mantissa", "1")) * scale
    if form == "repeating":
        digits = int(parts["head"] + parts["tail"] or "0")
        repeated = Fraction(int(parts["period"]), 10 ** len(parts["period"]) - 1)
        return sign * (digits + repeated) / 10 ** len(parts["tail"])
    top, bottom = _number(parts["top"]), _number(parts["bottom"])
    return sign * (_number(parts.get("whole", "0")) + top / bottom) if bottom else None
