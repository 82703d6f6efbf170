"""The verdict on a mathematical answer: the whole of it is read, or it is `unparsed`.

Numbers, quantities, bases, words and choices are settled here, all else by what it says
(`sage.grading.forms`); words around an answer are read by `sage.grading.statements`. Conventions
(docs/grading.md): the question states the unit, so a unit or a percent or degree sign may be
missing on one side; two that are given must agree. A base that the gold states must be stated.
Answers are untrusted, of bounded length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from sage.grading.forms import form_of, number_of, scaled
from sage.grading.quantities import read_both, read_quantity, split_unit, unit_ratio
from sage.grading.reading import read
from sage.grading.sameness import same_form
from sage.grading.statements import hedges, is_word, limits, speaks, stated
from sage.grading.tidy import is_balanced, tidy
from sage.grading.tokens import Unreadable
from sage.grading.values import LOCK, TooLarge
from sage.grading.writing import same_ordinal, same_parts

Settled = Literal["correct", "wrong", "unparsed", "timeout", "gold_unparsed"]

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
_EMPTY = {"no solution", "no solutions", "empty set", r"\emptyset", r"\{\}"}
_ALTERNATIVES = re.compile(r"\b(?:and|or)\b")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_SMALL_LETTER = re.compile(r"\(?([a-h])\)?")
_LABELLED = re.compile(r"(?:\((?P<a>[A-Z])\)|(?P<b>[A-Z])[).:]) *(?P<value>[^ =].*)")
_DASHED = re.compile(
    r"\(?([A-Z])\)? (?:-{1,3}|—|\|) (?=[A-Za-z])"
)  # before what a letter stands for
_OTHER_LABEL = re.compile(
    r"(?<![A-Za-z\\])(?:[A-Z](?=[).:,]|$| (?:or|and)\b)|(?:or|and|not|but)\b)"
)
_SIGNS = (
    r"[-+*/^(){}|%.0-9]|(?<![0-9]) | (?![0-9])|(?<=[0-9]),(?=[0-9]{3})|"
    r"\\(?:times|cdot|div|frac)(?![a-zA-Z])"
)
_WORKING = re.compile(  # 20+6, or x=20+6
    rf"(?:{_SIGNS}|_|(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z]))*(?:=(?:{_SIGNS})*)*"
)
_BOX = re.compile(r"\\f?box(?:ed)?(?![a-zA-Z])")
_BOXED = re.compile(r"\\f?box(?:ed)? ?\{([^{}]*)\}")
_IDLE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])")
_LISTED_THOUSANDS = re.compile(r"([0-9]), (?=[0-9]{3}(?![0-9]))")
_APPROXIMATELY = re.compile(r"\\(?:approx|simeq)(?![a-zA-Z])")
_TO = re.compile(r" ?\\text ?\{ ?to ?\} ?|(?<=[0-9a-z]) to (?=[0-9a-z])")
_COUNTED = re.compile(r"(?<=[0-9}]) ?(?=[^\W\d_])|(?<=[a-z]) (?=[^\W\d_])")
_IN_ALL = re.compile(r" (?:in (?:all|total)|altogether|total)$")
_DEGREE = ("/", ("pi",), ("num", Fraction(180)))
_HUNDRED, _HUNDREDTH = ("num", Fraction(100)), ("num", Fraction(1, 100))


def settle(gold: str, answer: str, works_out: bool = True) -> Settled:
    """The verdict on `answer`; where nothing is worked out, a formula is wrong."""
    gold, said = _with_unit(spaced(_exact_side(tidy(gold)) or "")), tidy(answer)
    verdict = _compare(gold, said, works_out)
    if verdict == "correct" or not (speaks(said) or _BOX.search(said)):
        return verdict
    if read_both(gold, _counted_like(gold, spaced(said)))[1] is not None:
        return verdict
    if (claim := stated(answer)) is None:
        return "wrong" if _says_something(said) else "unparsed"
    return _compare(gold, tidy(claim), works_out)


def settle_number(gold: str, answer: str) -> Settled:
    """The verdict where a number is asked for; of `5+6=11` the right side counts.

    An answer that leaves something to work out, such as the problem itself, is wrong.
    """
    verdict = settle(gold, answer, works_out=False)
    said = tidy(answer)
    if speaks(said):
        said = stated(answer) or ""
    said = _BOXED.sub(r"{\1}", said)
    left, equals, right = said.rpartition("=")
    is_working = equals and _WORKING.fullmatch(tidy(left)) and not _contradicts_itself(said)
    return settle(gold, right, works_out=False) if verdict != "correct" and is_working else verdict


def ends_in_word(gold: str) -> bool:
    """Whether a correct answer is a number with words behind it, which are read as its unit."""
    return gold.strip()[-1:].isalpha() and bool(split_unit(_with_unit(spaced(tidy(gold))))[1])


def spaced(text: str) -> str:
    """`text` without idle spaces; `32, 349` stays a list of two and becomes no 32,349."""
    return _IDLE_SPACE.sub("", _LISTED_THOUSANDS.sub(r"\1,+", text))


def _compare(gold: str, answer: str, works_out: bool) -> Settled:
    """The verdict on a tidy answer without words around it."""
    if (label := _DASHED.match(answer)) and speaks(answer[label.end() :]):
        answer = f"{label[1]}. {answer[label.end() :]}"
    if (exact := _exact_side(answer)) is None:
        return "wrong"
    answer = _without_label(gold, spaced(exact))
    if ":" in gold:
        answer = _TO.sub(":", answer)
    if not is_balanced(answer) or not _says_something(answer):
        return "unparsed"
    if gold == answer or {gold, answer} == {"e", "E"}:
        return "correct"
    answer = _counted_like(gold, answer)
    gold_quantity, quantity = read_both(gold, answer)
    if gold_quantity is not None and quantity is not None:
        return "correct" if gold_quantity.agrees(quantity) else "wrong"
    for compare in _COMPARISONS:
        if (same := compare(gold, answer)) is not None:
            return "correct" if same else "wrong"
    return _same_mathematics(gold, answer) if works_out else "wrong"


def _with_unit(text: str) -> str:
    r"""`12 ways` as `12\text{ ways}`: words behind a number that mathematics cannot read."""
    if not text[-1:].isalpha() or text[0].isalpha():
        return text
    if read_quantity(text) is not None or _is_readable(text):
        return text
    text = _IN_ALL.sub("", text)
    for place in _COUNTED.finditer(text):
        body, words = text[: place.start()], text[place.end() :]
        counted = read_quantity(rf"{body}\text{{ {words}}}")
        if (
            counted is not None
            and counted.unit
            and (speaks(words) or not words.isascii())
            and "\\" not in words
        ):
            return rf"{body}\text{{ {words}}}"
    return text


def _counted_like(gold: str, answer: str) -> str:
    """`answer` with its words as a unit, where the gold has one: both must agree."""
    return _with_unit(answer) if answer[-1:].isalpha() and split_unit(gold)[1] else answer


def _is_readable(text: str) -> bool:
    try:
        return bool(read(text))
    except Unreadable:
        return False


def _same_mathematics(gold: str, answer: str) -> Settled:
    """The verdict by what both sides say, their units taken off."""
    (gold, unit), (answer, given) = split_unit(gold), split_unit(answer)
    gold_form = None
    with LOCK:
        try:
            gold_form = form_of(gold)
            form = form_of(answer)
            if "degree" in (unit, given) and r"\pi" in (gold if given else answer):
                sides = [
                    scaled(side, _DEGREE) if name == "degree" else side
                    for side, name in ((gold_form, unit), (form, given))
                ]
                return "correct" if same_form(*sides) else "wrong"
            ratio = unit_ratio(given, unit)
            if ratio is None:
                return "wrong"
            if same_form(gold_form, form if ratio == 1 else scaled(form, ("num", ratio))):
                return "correct"
            if (unit == "%") == (given == "%"):
                return "wrong"
            factor = _HUNDREDTH if given == "%" else _HUNDRED
            return "correct" if same_form(gold_form, scaled(form, factor)) else "wrong"
        except TooLarge:
            return "timeout"
        except Unreadable:
            if gold_form is not None:
                return "unparsed"
            return "wrong" if speaks(gold) else "gold_unparsed"


def _says_something(text: str) -> bool:
    return any(c.isalnum() for c in text) or text == r"\{\}"


def _exact_side(text: str) -> str | None:
    """Of `1/3 \\approx 0.33` the left; of `x \\approx 0.33`, which has no more, the right.

    None where what is said to be about equal is not, or is no number.
    """
    sides = [spaced(side.strip()) for side in _APPROXIMATELY.split(text)]
    if len(sides) > 1 and len(sides[0]) < 2:
        del sides[0]
    if len(sides) < 2:
        return sides[0]
    with LOCK:
        try:
            first, *others = (number_of(form_of(side)) for side in sides)
        except (Unreadable, TooLarge):
            return None
    is_near = first is not None and all(
        other is not None and abs(other - first) <= abs(first) / 20 for other in others
    )
    return sides[0] if is_near else None


def _same_base(gold: str, answer: str) -> bool | None:
    """Numerals such as `1011_2`; None for a gold without a base and an answer without one.

    A base that the gold states must be stated, but for ten; where the gold has none, the
    question names it, and the digits decide.
    """
    mine, theirs = _read_base(gold), _read_base(answer)
    if mine is None or theirs is None:
        return False if mine and mine[1] else None
    (gold_digits, gold_base), (digits, base) = mine, theirs
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
    if {words or gold, _words(answer) or answer} <= _EMPTY:
        return True
    if words is None or words in ("infinity", "infty"):
        return None
    long = r"[a-z]{2}" if _WRAPPER.search(gold) else r"[a-z]{4}"
    is_text = words in _TRUTHS or not words.isascii() or re.search(long, words) or is_word(gold)
    if not is_text:
        return None
    same = words == _words(answer)
    return None if not same and _ALTERNATIVES.search(words) else same


def _same_letter(gold: str, answer: str) -> bool | None:
    """Choices such as `(A)` and `\\text{A}`, also answered by `a`; None if either is none."""
    plain_gold, plain = (_WRAPPER.sub(r"\1", side).strip() for side in (gold, answer))
    if plain_gold != gold or "(" in gold:
        plain = plain.upper() if _SMALL_LETTER.fullmatch(plain) else plain
    gold_letter, letter = _LETTER.fullmatch(plain_gold), _LETTER.fullmatch(plain)
    if gold_letter is None or letter is None:
        return False if gold_letter and plain_gold != gold else None
    return gold_letter[1] == letter[1]


def _same_choice(gold: str, answer: str) -> bool | None:
    """A gold with both, `(D) 12`, is answered by either; None for other golds."""
    match, other = _labelled(gold), _labelled(answer)
    if match is None:
        return None
    letter = match["a"] or match["b"]
    if other is not None:
        return letter == (other["a"] or other["b"]) and _settles(match["value"], other["value"])
    return (_LETTER.fullmatch(answer) is not None and letter in answer) or _settles(
        match["value"], answer
    )


def _is_option(text: str) -> bool:
    """Whether it may be what a letter stands for: words without doubt, or mathematics."""
    if _OTHER_LABEL.search(text) or hedges(text) or limits(text.split()[0]):
        return False
    if speaks(text) or text[0] in "+*/^!":
        return text[0].isalnum()
    try:
        with LOCK:
            return bool(form_of(spaced(text)))
    except (Unreadable, TooLarge):
        return False


def _labelled(text: str) -> re.Match[str] | None:
    """The letter and the value of `(C) 42`."""
    return _LABELLED.fullmatch(_WRAPPER.sub(r" \1 ", text).strip())


def _settles(gold: str, answer: str) -> bool:
    return _compare(gold, answer, works_out=True) == "correct"


def _without_label(gold: str, answer: str) -> str:
    """Of `(C) 42` the letter if the gold is one, else what the letter stands for."""
    match = _labelled(answer)
    if match is None or _labelled(gold) or not _is_option(match["value"]):
        return answer
    gold_is_letter = _LETTER.fullmatch(_WRAPPER.sub(r"\1", gold).strip())
    return match["a"] or match["b"] if gold_is_letter else match["value"]


_COMPARISONS = (same_parts, same_ordinal, _same_base, _same_choice, _same_words, _same_letter)


def _contradicts_itself(text: str) -> bool:
    """Whether it equates different numbers, as `42 = 43` does."""
    if any(sign in text for sign in "<>!"):
        return False
    sides = [read_quantity(tidy(side)) for side in text.split("=")]
    return len({side.value for side in sides if side is not None and side.unit is None}) > 1
