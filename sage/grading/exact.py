"""What can be settled exactly and at once: numbers, quantities, bases, words and letters.

Everything else is handed back, prepared for a computer algebra system. Conventions: the
question states the unit, so a unit or a percent or degree sign may be missing on one side;
two that are given must agree. A base that the gold states must be stated. Words around an
answer are read by `sage.grading.statements`. Answers are untrusted, of bounded length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from sage.grading.quantities import Quantity, read_both, read_quantity, split_unit, unit_ratio
from sage.grading.statements import speaks, stated
from sage.grading.tidy import is_balanced, tidy
from sage.grading.writing import same_cross_product, same_joints, same_letters, same_parts

Settled = Literal["correct", "wrong", "unparsed"]

_BASES = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
_BASED = re.compile(
    r"(?:(?P<digits>[0-9A-F]+)|\((?P<enclosed>[0-9A-F]+)\))_ ?"
    r"(?:(?P<one>[2-9])|\{ ?(?P<more>[0-9]{1,2}) ?\}|"
    rf"(?:\{{ ?)?\\text ?\{{ ?(?P<word>{'|'.join(_BASES)}) ?\}}(?: ?\}})?)"
)
_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|rm|it)|mbox) ?\{([^{}]*)\}")
_IN_TEXT = r"[^\W\d_\u0370-\u03ff]"  # a letter of any script but Greek, which is mathematics
_WORDS = re.compile(rf"(?:[tT]he |[tT]here (?:is|are) )?(?P<words>{_IN_TEXT}(?:{_IN_TEXT}|[' -])*)")
_TRUTHS = ("yes", "no", "true", "false")
_ALTERNATIVES = re.compile(r"\b(?:and|or)\b")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_SMALL_LETTER = re.compile(r"\(?([a-h])\)?")
_LABELLED = re.compile(r"(?:\((?P<a>[A-E])\)|(?P<b>[A-E])[).:]) ?(?P<value>[-+0-9\\$].*)")
_SIGNS = (
    r"[-+*/^(){}|%.0-9]|(?<![0-9]) | (?![0-9])|(?<=[0-9]),(?=[0-9]{3})|"
    r"\\(?:times|cdot|div|frac)(?![a-zA-Z])"
)
_WORKING = re.compile(  # 20+6, or x=20+6
    rf"(?:{_SIGNS}|_|(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z]))*(?:=(?:{_SIGNS})*)*"
)
_IDLE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")
_LIST = re.compile(r"(?P<open>[(\[]|\\\{)?(?P<elements>[^()\[\]]+?)(?P<close>[)\]]|\\\})?")
_LISTED_THOUSANDS = re.compile(r"([0-9]), (?=[0-9]{3}(?![0-9]))")
_THOUSANDS = re.compile(r"[0-9],[0-9]{3}(?![0-9])")
_INFINITE = {r"\infty": "+", r"+\infty": "+", r"-\infty": "-"}
_ORDERED = re.compile(r"[(\[].*,.*[)\]]")
_APPROXIMATELY = re.compile(r"\\(?:approx|simeq)(?![a-zA-Z])")
_GREATER = re.compile(r"(>|\\geq?(?![a-zA-Z]))")
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?\^\\circ ?")


def settle(gold: str, answer: str) -> Settled | tuple[str, str]:
    """The verdict on `answer`, or both sides prepared for Math-Verify if it takes more."""
    raw, gold, answer = answer, spaced(tidy(gold)), tidy(answer)
    verdict = _compare(gold, spaced(answer))
    if verdict == "correct" or not speaks(answer):
        return verdict
    if read_both(gold, spaced(answer))[1] is not None or (
        isinstance(verdict, tuple) and speaks(gold)
    ):
        return verdict
    if (claim := stated(raw)) is None:
        return "wrong" if _says_something(answer) else "unparsed"
    return _compare(gold, spaced(tidy(claim)))


def settle_number(gold: str, answer: str) -> Settled:
    """The verdict where a number is asked for; of `5+6=11` the right side counts.

    An answer that leaves something to work out, such as the problem itself, is wrong.
    """
    verdict = settle(gold, answer)
    said = tidy(answer)
    if speaks(said):
        said = stated(answer) or ""
    left, equals, right = said.rpartition("=")
    is_working = equals and _WORKING.fullmatch(tidy(left)) and not _contradicts_itself(said)
    if verdict != "correct" and is_working:
        verdict = settle(gold, right)
    return "wrong" if isinstance(verdict, tuple) else verdict


def spaced(text: str) -> str:
    """`text` without idle spaces; `32, 349` stays a list of two and becomes no 32,349."""
    return _IDLE_SPACE.sub("", _LISTED_THOUSANDS.sub(r"\1,+", _exact_side(text)))


def _compare(gold: str, answer: str) -> Settled | tuple[str, str]:
    """The verdict on a tidy answer without words around it."""
    answer = _without_label(gold, answer)
    if not is_balanced(answer) or not _says_something(answer):
        return "unparsed"
    if gold == answer:
        return "correct"
    gold_quantity, quantity = read_both(gold, answer)
    if gold_quantity is not None and quantity is not None:
        return "correct" if gold_quantity.agrees(quantity) else "wrong"
    if unit_ratio(split_unit(gold)[1], split_unit(answer)[1]) != 1 and not (
        _is_angle(gold, answer) or _is_angle(answer, gold)
    ):
        return "wrong"
    for compare in _COMPARISONS:
        if (same := compare(gold, answer)) is not None:
            return "correct" if same else "wrong"
    if _contradicts_itself(answer) or (gold.startswith(r"\{") and _ORDERED.fullmatch(answer)):
        return "wrong"
    if gold_quantity is not None and gold_quantity.value == 0 and _is_equation(answer):
        return "wrong"
    return _prepare(gold, gold_quantity, answer), _prepare(answer, quantity, gold)


def _says_something(text: str) -> bool:
    return any(c.isalnum() for c in text) or text == r"\{\}"


def _exact_side(text: str) -> str:
    """Of `1/3 \\approx 0.33` the left; of `x \\approx 0.33`, which has no more, the right."""
    sides = [side.strip() for side in _APPROXIMATELY.split(text)]
    return sides[-1] if len(sides[0]) < 2 else sides[0]


def _same_list(gold: str, answer: str) -> bool | None:
    """Points, intervals and sets of numbers; None if either is none or they are hard to tell."""
    gold_list, given = _read_list(gold), _read_list(answer)
    if gold_list is None or given is None:
        return None
    (brackets, elements), (other_brackets, other_elements) = gold_list, given
    if (brackets == "") != (other_brackets == "") and r"\{\}" not in (brackets, other_brackets):
        return None  # `1,2` may be the point (1,2) or the two values
    if brackets in ("", r"\{\}") and other_brackets in ("", r"\{\}"):
        return set(elements) == set(other_elements)
    return brackets == other_brackets and elements == other_elements


def _read_list(text: str) -> tuple[str, list[Fraction | str]] | None:
    """The brackets (none is "") and the numbers between them, two or more."""
    match = _LIST.fullmatch(text)
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    brackets = (match["open"] or "") + (match["close"] or "")
    if (r"\{" in brackets) != (r"\}" in brackets) or _THOUSANDS.search(text):
        return None
    elements: list[Fraction | str] = []
    for element in match["elements"].split(","):
        quantity = read_quantity(element.strip())
        if element.strip() in _INFINITE:
            elements.append(_INFINITE[element.strip()])
        elif quantity is None or quantity.unit is not None:
            return None
        else:
            elements.append(quantity.value)
    return (brackets, elements) if len(elements) > 1 else None


def _same_base(gold: str, answer: str) -> bool | None:
    """Numerals such as `1011_2`; None if neither side has a base.

    A base that the gold states must be stated, but for ten; where the gold has none, the
    question names it, and the digits decide.
    """
    sides = [_read_base(text) for text in (gold, answer)]
    if sides[0] is None or sides[1] is None:
        return None
    (gold_digits, gold_base), (digits, base) = sides[0], sides[1]
    if gold_base is None and base is None:
        return None
    if gold_base is None or {gold_base, base} == {None, 10}:
        return gold_digits == digits
    return gold_base == base and gold_digits == digits


def _read_base(text: str) -> tuple[str, int | None] | None:
    """The digits of a numeral and the base it states, if any; None for anything else."""
    match = _BASED.fullmatch(text)
    if match is None:
        return (text, None) if re.fullmatch("[0-9A-F]+", text) else None
    word = match["word"]
    base = _BASES.index(word) + 2 if word else int(match["one"] or match["more"])
    digits = match["digits"] or match["enclosed"]
    return None if any(int(digit, 16) >= base for digit in digits) else (digits, base)


def _words(text: str) -> str | None:
    """What a text answer says, in lower case; None for mathematics."""
    match = _WORDS.fullmatch(" ".join(_WRAPPER.sub(r"\1", text).split()).rstrip("."))
    return None if match is None else match["words"].strip().casefold()


def _same_words(gold: str, answer: str) -> bool | None:
    """Text answers; None if the gold is none. `ab` is a product, `\\text{ab}` and `even` text."""
    words = _words(gold)
    if words is None or words in ("infinity", "infty"):
        return None
    long = r"[a-z]{2}" if _WRAPPER.search(gold) else r"[a-z]{4}"
    if words not in _TRUTHS and words.isascii() and not re.search(long, words):
        return None
    same = words == _words(answer)
    return None if not same and _ALTERNATIVES.search(words) else same


def _same_letter(gold: str, answer: str) -> bool | None:
    """Choices such as `(A)` and `\\text{A}`, also answered by `a`; None if either is none."""
    plain_gold, plain = (_WRAPPER.sub(r"\1", side).strip() for side in (gold, answer))
    if plain_gold != gold or "(" in gold:
        plain = plain.upper() if _SMALL_LETTER.fullmatch(plain) else plain
    gold_letter, letter = _LETTER.fullmatch(plain_gold), _LETTER.fullmatch(plain)
    return None if gold_letter is None or letter is None else gold_letter[1] == letter[1]


def _without_label(gold: str, answer: str) -> str:
    """Of `(C) 42` the letter if the gold is one, else what the letter stands for."""
    match = _LABELLED.fullmatch(_WRAPPER.sub(r"\1", answer))
    if match is None:
        return answer
    gold_is_letter = _LETTER.fullmatch(_WRAPPER.sub(r"\1", gold).strip())
    return match["a"] or match["b"] if gold_is_letter else match["value"]


_COMPARISONS = (
    *(same_parts, _same_list, _same_base, _same_words, _same_letter),
    *(same_letters, same_joints, same_cross_product),
)


def _is_equation(text: str) -> bool:
    """Whether a text that ends in `=0` is an equation to be solved, unlike `a+b=0` or `P(3)=0`."""
    left, sign, right = text.partition("=")
    quantity = read_quantity(right.strip())
    if not sign or quantity is None or quantity.value != 0:
        return False
    letters = re.findall(r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])", left)
    plain = re.sub(r"\([^()]*\)", "", left)
    return len(letters) > len(set(letters)) or any(c.isdigit() for c in plain)


def _contradicts_itself(text: str) -> bool:
    """Whether it equates different numbers, as `42 = 43` does."""
    if any(sign in text for sign in "<>!"):
        return False
    sides = [read_quantity(side.strip()) for side in text.split("=")]
    return len({side.value for side in sides if side is not None and side.unit is None}) > 1


def _is_angle(degrees: str, radians: str) -> bool:
    """Whether one is in degrees and the other seems to be in radians."""
    return r"\pi" in radians and r"^\circ" in degrees


def _prepare(text: str, quantity: Quantity | None, other: str) -> str:
    """`text` as Math-Verify reads it best: numbers as fractions, no unit, no `>` chains."""
    in_radians = _is_angle(text, other)
    if quantity is not None and not in_radians:
        return _latex(quantity.value / 100 if quantity.is_percent else quantity.value)
    body, unit = split_unit(text)
    if in_radians or unit is None:
        text = _DEGREES.sub(r"\\frac{\1 \\pi}{180}", text)
    elif unit != "%":
        text = body
    parts = _GREATER.split(text)
    if len(parts) == 5 and "<" not in text and "=" not in text:  # 2 > x > 1 is 1 < x < 2
        parts = [{">": "<"}.get(p, r"\le " if _GREATER.fullmatch(p) else p) for p in parts]
        text = " ".join(reversed(parts))
    return text


def _latex(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
