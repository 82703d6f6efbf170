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
    first, *words = re.sub(r"(?<=[a-z])-", " ", text.lower()).split() or [""]
    if first in ("minus", "negative"):
        opposite = number_in_words(" ".join(words))
        return None if opposite is None else -opposite
    if words[-3:-1] in (["and", "a"], ["and", "an"]) and words[-1] in _PARTS:  # two and a half
        whole = _cardinal([first, *words[:-3]])
        return None if whole is None else whole + Fraction(1, _PARTS[words[-1]])
    if first in ("a", "an") and words and (words[0] in SCALES or words[0] in _PARTS):
        first = "one"
    parts = _PARTS[words.pop()] if words and words[-1] in _PARTS else 1
    value = Fraction(1, 2) if (first, words) == ("half", []) else _cardinal([first, *words])
    return None if value is None else Fraction(value) / parts


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


ENDLESS = (  # 0.1\\overline{6}, or 0.1666...
    r"[0-9]*\.[0-9]*(?:\\(?:overline|bar|dot) ?(?:\{ ?[0-9]+ ?\}|[0-9])"
    r"|[0-9](?:\.\.\.|\\[lc]?dots(?![a-zA-Z])))"
)
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
        "decimal": rf"(?P<mantissa>{_DECIMAL})(?:[eE](?P<exponent>[+-]?[0-9]{{1,4}}))?"
        rf"(?: ?(?:\\text ?\{{ ?)?(?P<scale>{'|'.join(SCALES)})s?(?: ?\}})?)?",
        "power": rf"(?:(?P<mantissa>{_DECIMAL}) ?(?:\\times|\\cdot|\*) ?)?"
        r"10 ?\^ ?(?:\{ ?(?P<exponent>[+-]?[0-9]{1,4}) ?\}|(?P<exponent1>[0-9]))",
        "fraction": _FRACTION.format(_SIGNED),
        "slash": rf"(?P<top>{_DECIMAL}) ?/ ?(?P<bottom>{_DECIMAL})",
        "mixed": r"(?P<whole>[0-9]+) ?" + _FRACTION.format("[0-9]+"),
        "mixed slash": r"(?P<whole>[0-9]+) (?P<top>[0-9]+) ?/ ?(?P<bottom>[0-9]+)",
        "endless": rf"(?P<whole>{ENDLESS})",
    }.items()
}

_LARGEST = 3_000  # exponent; Python writes no integer of more than 4,300 digits

# Units that can be compared: dimension, then each unit's names and its size in the first.
_DIMENSIONS = {
    "share": "%,percent,pct,percentage", "angle": "degree,deg,度", "arc": "radian,rad",
    "minutes or feet": "'", "seconds or inches": "''", "things": "unit,个,個,人,次,种",
    "celsius": "celsius,c", "fahrenheit": "fahrenheit,f", "temperature": "K,kelvin",
    "length": "m,meter,metre,米; kilometer,kilometre,公里,千米 1000; "
    "centimeter,centimetre,厘米 1/100; millimeter,millimetre,毫米 1/1000",
    "imperial length": "in,inch,inche; foot,feet,ft 12; yard,yd 36; mile,mi 63360",
    "time": "s,second,sec,秒; minute,min,分钟 60; hour,hr,h,小时 3600; day,天 86400; week 604800",
    "mass": "g,gram,克; kilogram,千克,公斤 1000", "imperial mass": "oz,ounce; lb,lbs,pound 16",
    "volume": "l,L,liter,litre; milliliter,millilitre 1/1000", "amount": "mol,mole",
    "force": "N,newton", "energy": "J,joule", "power": "W,watt", "pressure": "Pa,pascal",
    "frequency": "Hz,hertz", "voltage": "V,volt", "current": "A,ampere,amp", "charge": "eV",
    "money": "cent,¢; dollar,usd 100", "euros": "euro,eur,€", "sterling": "gbp,£",
    "yen": "yen,jpy,¥,円", "yuan": "yuan,rmb,元", "morning": "am,a.m", "afternoon": "pm,p.m",
}  # fmt: skip
_UNITS = {
    name: (dimension, Fraction(size or "1"))
    for dimension, units in _DIMENSIONS.items()
    for names, _, size in (unit.partition(" ") for unit in units.split("; "))
    for name in names.split(",")
}
_PREFIXES = {"G": 9, "M": 6, "k": 3, "d": -1, "c": -2, "m": -3, "n": -9}
for _name in ("m", "g", "s", "l", "L", "N", "J", "W", "Pa", "Hz", "V", "A", "mol", "eV"):
    for _prefix, _power in _PREFIXES.items():
        _dimension, _size = _UNITS[_name]
        _UNITS.setdefault(_prefix + _name, (_dimension, _size * Fraction(10) ** _power))
_SPELLED = {"mph": "mile / h", "kph": "km / h", "kmh": "km / h"}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_PLAIN_UNITS = (
    "unit degree deg radian percent percentage pct dollar cent point minute second hour day week "
    "month year meter metre centimeter centimetre millimeter millimetre kilometer kilometre gram "
    "kilogram liter litre cm mm km kg inch inche foot feet ft yard mile mph pound euro USD EUR GBP "
    r"€ £ ¥ ¢ AM PM am pm [Aa]\.[Mm] [Pp]\.[Mm] "
    "元 円 米 公里 千米 厘米 克 千克 公斤 秒 分钟 小时 天 度 个 個 人 次 种"
).replace(" ", "|")

OPERATIONS = vocabulary(
    "half halve halves third thirds fourth fourths quarter quarters fifth fifths sixth sixths "
    "seventh sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth "
    "thousandths squared cubed factorial plus minus times divided over choose mod modulo base "
    "power root less greater tens hundreds thousands millions billions point th nd rd st below "
    "above under short score gross"
) | {
    part + s
    for part in (
        *("eleventh", "twelfth", "millionth", "billionth", "trillionth"),
        *(word + "th" for word in _UP_TO_NINETEEN.split()[13:]),
        *(word[:-1] + "ieth" for word in _FROM_TWENTY.split()),
    )
    for s in ("", "s")
}
"""Words behind a number that make another number of it."""

_NO_UNITS = vocabulary(
    "and but for from the not nor with without more most many than then when where while if too "
    "least fewer only about around nearly almost approximately maybe perhaps possibly except sin "
    "cos tan cot sec csc log exp max gcd lcm each other others both either neither all any none "
    "some"
)
_BEHIND_NUMBERS = vocabulary(
    "repeating recurring repeated remainder prime inverse infinite conjugate bar negative double"
)
_NAMED_UNIT = re.compile(r"(?P<name>/|[^\W\d_]+(?:\.[a-z])?|[%¢€£¥]|'{1,2})(?:\^-?[0-9])?")
_CONNECTING = vocabulary("/ of in a")
_WORDED = r"\\(?:text(?:normal|rm)?|mathrm|mbox) ?\{[^{}]*\}"
_EXPONENT = r"(?: ?\^ ?(?:\{ ?-?[0-9] ?\}|[0-9]))?"
_UNIT = re.compile(
    r"(?<=[0-9a-zA-Z})!.]) ?"
    rf"(?:\\?%|'{{1,2}}|\^\\circ(?: ?(?:{_WORDED}|[CF](?![a-zA-Z])))?|"
    rf"{_WORDED}{_EXPONENT}(?: ?(?:/|\\cdot)? ?{_WORDED}{_EXPONENT})*|"
    rf"(?<![a-zA-Z\\])(?:(?:square|cubic|sq|cu) )?(?:{_PLAIN_UNITS})s?{_EXPONENT}) ?$"
)
_LETTERS = [name for name in _UNITS if name.isascii() and name.isalpha()]
_SYMBOL = rf"(?:{'|'.join(sorted(_LETTERS, key=len, reverse=True))}){_EXPONENT}"
_SHORT_UNIT = re.compile(rf"(?P<body>.*[0-9)}}]) ?(?P<unit>{_SYMBOL}(?: ?[/*] ?{_SYMBOL})*)")
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


def read_both(gold: str, answer: str) -> tuple[Quantity | None, Quantity | None]:
    """What two tidy texts write.

    The symbol of a unit in no wrapper, as in `5 N` or `5000 g`, is one where the gold is a number,
    or the other side states a unit of its kind; by itself it is a letter.
    """
    found = [read_quantity(text) for text in (gold, answer)]
    for mine, (text, other) in enumerate([(gold, found[1]), (answer, found[0])]):
        match = _SHORT_UNIT.fullmatch(text) if found[mine] is None and other else None
        if not match or not other or (not other.unit and (mine == 0 or "^" in match["body"])):
            continue
        if not other.unit and (match["body"] + match["unit"]) in text:
            continue  # `5N`, or the `12t` of algebra
        written = read_quantity(rf"{match['body']}\text{{ {match['unit']}}}")
        if written and unit_ratio(written.unit, other.unit) is not None:
            found[mine] = written
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
    unit = _unit_name(re.sub(r"\\[a-zA-Z]+", " ", re.sub(r"\^ ?\\circ", " degree ", match[0])))
    return (text[: match.start()], unit) if _is_unit(unit) else (text, None)


def _is_unit(unit: str) -> bool:
    """Whether it is known, or names what is counted: no letter, nothing that limits a number."""
    parts = [_NAMED_UNIT.fullmatch(part) for part in unit.split()]
    words = [part["name"] for part in parts if part]
    if None in parts or not words or words[0] in _CONNECTING - _UNITS.keys():
        return False
    limits = _NO_UNITS | OPERATIONS
    if words[-1].lower() in _BEHIND_NUMBERS:
        return False
    if limits.intersection(map(str.lower, words)) or any(map(is_numeral, words)):
        return False
    if {"c", "f"}.intersection(words) and words[0] != "degree":
        return False
    return all(
        word in _UNITS or word in _CONNECTING or len(word) > 2 or not word.isascii()
        for word in words
    )


def _unit_name(text: str) -> str:
    """One spelling for a unit: `square feet` is `feet^2`, `kph` is `km / h`."""
    text = re.sub(r" ?\^ ?", "^", re.sub(r"[{}\\~]", "", text))
    names, power = [], ""
    for word in re.sub(r"/|\bper\b", " / ", text.replace("*", " ")).split():
        if word.lower() in _POWERS:
            power = _POWERS[word.lower()]
            continue
        name, caret, exponent = word.rstrip(".").partition("^")
        if name not in _UNITS and name.lower() not in _UNITS and len(name) > 2:
            name = name.removesuffix("s")
        if name not in _UNITS and (name.lower() in _UNITS or len(name) > 3):
            name = name.lower()
        names.append(_SPELLED.get(name, name) + (caret + exponent or power))
        power = ""
    return " ".join(names)


def plain_number(text: str) -> Fraction:
    """A decimal, its digits in groups or not, perhaps with a power of ten behind an `e`."""
    return Fraction(re.sub(r"[ ,+]", "", text).rstrip("."))


def endless_number(text: str) -> Fraction | None:
    r"""`0.1\overline{6}`, or `0.1666...` if its digits repeat plainly, one of them thrice."""
    match = re.fullmatch(r"([0-9]*)\.([0-9]*)\\[a-z]+ ?\{? ?([0-9]+) ?\}?", text)
    if match is None:
        match = re.fullmatch(r"([0-9]*)\.([0-9]*?)(?:([0-9])\3\3+|([0-9]{2,}?)\4+)[.\\a-z]+", text)
    if match is None:
        return None
    head, tail, *periods = match.groups()
    period = next(filter(None, periods))
    digits = int(head + tail or "0") + Fraction(int(period), 10 ** len(period) - 1)
    return Fraction(digits) / 10 ** len(tail)


def _value(form: str, parts: dict[str, str]) -> Fraction | None:
    """The value of a matched form; None where it has none."""
    sign = -1 if parts["sign"] == "-" else 1
    if form in ("decimal", "power"):
        exponent = int(parts.get("exponent", "0"))
        if abs(exponent) > _LARGEST:
            return None
        scale = Fraction(10) ** exponent * SCALES.get(parts.get("scale", ""), 1)
        return sign * plain_number(parts.get("mantissa", "1")) * scale
    if form == "endless":
        value = endless_number(parts["whole"])
        return None if value is None else sign * value
    top, bottom = plain_number(parts["top"]), plain_number(parts["bottom"])
    return sign * (plain_number(parts.get("whole", "0")) + top / bottom) if bottom else None
