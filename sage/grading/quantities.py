"""Exact rational numbers as answers write them, with the unit behind them; numbers in words.

Reads tidy text only (`sage.grading.tidy`). Decimals, fractions, mixed numbers, scientific
notation and repeating decimals become fractions, so 1e-8 is not 2e-8 and 0.333333 is not
1/3. In words only whole numbers are read, such as `forty-two`, `one hundred and five`, `a dozen`
and `minus five`, and simple fractions such as `two thirds`: no ordinals. What is not a number is
left to others.
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


_PART_NAMES = "half third quarter fifth sixth seventh eighth ninth tenth"
_PARTS = {part + s: n for n, part in enumerate(_PART_NAMES.split(), 2) for s in ("", "s")}


def number_in_words(text: str) -> Fraction | None:
    """The number that `text` spells out and nothing else; None if it is anything else."""
    first, *words = text.lower().replace("-", " ").split() or [""]
    if first in ("minus", "negative"):
        opposite = number_in_words(" ".join(words))
        return None if opposite is None else -opposite
    if first in ("a", "an") and words and words[0] in SCALES:
        first = "one"
    parts = _PARTS[words.pop()] if words and words[-1] in _PARTS else 1
    value = _cardinal([first, *words])
    return None if value is None else Fraction(value, parts)


def _cardinal(words: list[str]) -> int | None:
    """The whole number that lower-case words spell out; None if they are anything else."""
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
        "decimal": rf"(?P<mantissa>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,4}}))?",
        "power": rf"(?:(?P<mantissa>{_DECIMAL}) ?(?:\\times|\\cdot|\*) ?)?"
        r"10 ?\^ ?(?:\{ ?(?P<exponent>[+-]?[0-9]{1,4}) ?\}|(?P<exponent1>[0-9]))",
        "fraction": _FRACTION.format(_SIGNED),
        "slash": rf"(?P<top>{_DECIMAL}) ?/ ?(?P<bottom>{_DECIMAL})",
        "mixed": r"(?P<whole>[0-9]+) ?" + _FRACTION.format("[0-9]+"),
        "mixed slash": r"(?P<whole>[0-9]+) (?P<top>[0-9]+) ?/ ?(?P<bottom>[0-9]+)",
        "repeating": r"(?P<head>[0-9]*)\.(?P<tail>[0-9]*)\\(?:overline|bar|dot) ?"
        r"(?:\{ ?(?P<period>[0-9]+) ?\}|(?P<period1>[0-9]))",
    }.items()
}

_LARGEST = 3_000  # exponent; Python writes no integer of more than 4,300 digits

# Units that can be compared: dimension, then each unit's names and its size in the first.
_DIMENSIONS = {
    "share": "%,percent,pct,percentage",
    "angle": "degree,deg",
    "arc": "radian,rad",
    "celsius": "c,celsius",
    "fahrenheit": "f,fahrenheit",
    "length": "m,meter,metre; km,kilometer,kilometre 1000; cm,centimeter,centimetre 1/100; "
    "mm,millimeter,millimetre 1/1000",
    "imperial length": "in,inch,inche; foot,feet,ft 12; yard,yd 36; mile,mi 63360",
    "time": "s,second,sec; minute,min 60; hour,hr,h 3600; day 86400; week 604800",
    "mass": "g,gram; kg,kilogram 1000; mg,milligram 1/1000",
    "imperial mass": "oz,ounce; lb,lbs,pound 16",
    "volume": "l,liter,litre; ml,milliliter,millilitre 1/1000",
    "money": "cent,¢; dollar,usd 100",
    "euros": "euro,eur,€",
    "sterling": "gbp,£",
    "yen": "yen,jpy,¥",
    "morning": "am,a.m",
    "afternoon": "pm,p.m",
}
_UNITS = {
    name: (dimension, Fraction(size or "1"))
    for dimension, units in _DIMENSIONS.items()
    for names, _, size in (unit.partition(" ") for unit in units.split("; "))
    for name in names.split(",")
}
_SPELLED = {"mph": "mile / h", "kph": "km / h", "kmh": "km / h"}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_BARE_UNITS = (
    "unit degree radian percent percentage dollar cent point meter metre centimeter centimetre "
    "millimeter millimetre kilometer kilometre gram kilogram liter litre cm mm km kg inch inche "
    "foot feet ft yard mile mph second minute hour day week month year km/h "
    r"pound euro USD EUR GBP € £ ¥ ¢ AM PM a\.m p\.m"
)
_SHORT_UNIT = re.compile(r"(?P<body>.*[0-9)}]) ?(?P<unit>m|g|s|h|l|mg|ml|in|lb|oz|min|sec|hr)")

_TEXT = r"\\(?:text(?:normal)?|mathrm|mbox) ?\{[^{}]*\}"
_UNIT = re.compile(
    r"(?<=[0-9a-zA-Z})!.]) ?"
    rf"(?:\\?%|\^\\circ(?: ?(?:{_TEXT}|[CF](?![a-zA-Z])))?|{_TEXT}(?: ?/ ?{_TEXT})*|"
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

        A percentage equals its hundredth and, its sign left out, itself.
        """
        if self.is_percent != other.is_percent:
            share, plain = (self, other) if self.is_percent else (other, self)
            return plain.unit is None and plain.value in (share.value, share.value / 100)
        ratio = unit_ratio(self.unit, other.unit)
        return ratio is not None and self.value * ratio == other.value


def unit_ratio(one: str | None, other: str | None) -> Fraction | None:
    """How many of the unit `other` make `one`; None if they differ in kind.

    1 where one is missing, is `unit`, or leaves out a word of the other: `way`, `different way`.
    """
    if one is None or other is None or one == other or "unit" in (one[:4], other[:4]):
        return Fraction(1)
    if "degree" in (one, other) and one.split()[0] == other.split()[0]:
        return Fraction(1)
    (dimensions, size), (other_dimensions, other_size) = _measure(one), _measure(other)
    if all(name in _DIMENSIONS for name in dimensions | other_dimensions):
        return size / other_size if dimensions == other_dimensions else None
    words, other_words = set(one.split()), set(other.split())
    says_less = words < other_words or other_words < words
    left_out = words ^ other_words
    return Fraction(1) if says_less and all(len(word) > 3 for word in left_out) else None


def _measure(unit: str) -> tuple[dict[str, int], Fraction]:
    """The dimensions of a unit with their powers, and its size; what is not known is its own."""
    powers: dict[str, int] = {}
    size, sign = Fraction(1), 1
    for word in unit.split():
        if word == "/":
            sign = -1
            continue
        name, _, exponent = word.partition("^")
        dimension, factor = _UNITS.get(name, (name, Fraction(1)))
        power = sign * int(exponent or "1")
        powers[dimension] = powers.get(dimension, 0) + power
        size *= factor**power
    return powers, size


def read_both(first: str, second: str) -> tuple[Quantity | None, Quantity | None]:
    """What two tidy texts write; `5000 g` is a mass beside another, by itself a product."""
    found = [read_quantity(text) for text in (first, second)]
    for mine, (text, other) in enumerate([(first, found[1]), (second, found[0])]):
        unit = other and _UNITS.get(other.unit or "")
        match = _SHORT_UNIT.fullmatch(text)
        if unit and match and _UNITS[match["unit"]][0] == unit[0]:
            found[mine] = read_quantity(rf"{match['body']}\text{{ {match['unit']}}}")
    return found[0], found[1]


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
    plain = re.sub(r"\^ ?\\circ", " degree ", match[0])
    return text[: match.start()], _unit_name(re.sub(r"\\[a-zA-Z]+", " ", plain))


def _unit_name(text: str) -> str:
    """One spelling for a unit: `square feet` is `feet^2`, `kph` is `km / h`."""
    text = re.sub(r" ?\^ ?", "^", re.sub(r"[{}\\]", "", text))
    names, power = [], ""
    for word in re.sub(r"/|\bper\b", " / ", text).split():
        if word.lower() in _POWERS:
            power = _POWERS[word.lower()]
            continue
        name, caret, exponent = word.rstrip(".").partition("^")
        if name.lower() not in _UNITS and len(name) > 2:
            name = name.removesuffix("s")
        if name.lower() in _UNITS or len(name) > 3:  # but mV is not MV
            name = name.lower()
        names.append(_SPELLED.get(name, name) + (caret + exponent or power))
        power = ""
    return " ".join(names)


def _number(text: str) -> Fraction:
    return Fraction(re.sub(r"[ ,+]", "", text).rstrip("."))


def _value(form: str, parts: dict[str, str]) -> Fraction | None:
    """The value of a matched form; None where it divides by zero."""
    sign = -1 if parts["sign"] == "-" else 1
    if form in ("decimal", "power"):
        exponent = int(parts.get("exponent", "0"))
        if abs(exponent) > _LARGEST:
            return None
        scale = Fraction(10) ** exponent
        return sign * _number(parts.get("mantissa", "1")) * scale
    if form == "repeating":
        digits = int(parts["head"] + parts["tail"] or "0")
        repeated = Fraction(int(parts["period"]), 10 ** len(parts["period"]) - 1)
        return sign * (digits + repeated) / 10 ** len(parts["tail"])
    top, bottom = _number(parts["top"]), _number(parts["bottom"])
    return sign * (_number(parts.get("whole", "0")) + top / bottom) if bottom else None
