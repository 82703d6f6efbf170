"""Answers that algebra would work out or reorder although they are no terms.

A date is no difference, an address no product, `BAC` and `No` no products of letters; `or` is not
`and`, and vectors in a cross product have an order. Each function says whether two tidy texts are
the same, None where they are not of its kind. Texts are untrusted and of bounded length.
"""

from __future__ import annotations

import re
from math import gcd

from sage.grading.quantities import split_unit
from sage.grading.statements import speaks

_PARTS = re.compile(r"[0-9]+(?P<mark>[-:./])[0-9]+(?:(?P=mark)[0-9]+)+")
_CLOCK = re.compile(r"(?:1?[0-9]|2[0-4]):[0-5][0-9]")
_PAIR = re.compile(r"[0-9]+:[0-9]+")
_RUN = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z])")
_JOINT = re.compile(r"\b(?:and|or)\b|\\(?:land|lor|wedge|vee)(?![a-zA-Z])")
_ORS = ("or", r"\lor", r"\vee")
_UNEQUAL = re.compile(r"[<>]|\\[lg]eq?(?![a-zA-Z])")
_NAMED = re.compile(r"(?<![A-Za-z\\])([A-Za-z])(?:_[^=]*)? ?=")
_VECTOR = re.compile(r"\\(?:vec|mathbf|boldsymbol|overrightarrow|hat)(?![a-zA-Z])")


def same_parts(gold: str, answer: str) -> bool | None:
    """Dates, addresses, clock times and ratios of three or more parts; their units are compared."""
    gold, answer = split_unit(gold)[0], split_unit(answer)[0]
    parts, given = ([int(p) for p in re.findall("[0-9]+", text)] for text in (gold, answer))
    if match := _PARTS.fullmatch(gold):
        other = _PARTS.fullmatch(answer)
        if other is None or len(parts) != len(given):
            return False
        if match["mark"] == other["mark"] == ":":
            return all(p * given[0] == q * parts[0] for p, q in zip(parts, given, strict=True))
        return parts == given and {match["mark"], other["mark"]} != {".", ":"}
    if _CLOCK.fullmatch(gold):
        if _PAIR.fullmatch(answer):
            return parts == given
        return False if gcd(*parts) != 1 else None  # 3:10 may be a ratio
    return None


def same_letters(gold: str, answer: str) -> bool | None:
    """False if the answer has the letters of one of the gold's words or names in another order.

    True if both are one word, such as `May` and `may`.
    """
    if _RUN.fullmatch(gold) and speaks(gold) and gold.lower() == answer.lower():
        return True
    runs = set(_RUN.findall(answer)) - set(_RUN.findall(gold))
    for word in _RUN.findall(gold):
        if speaks(word) or (word.isupper() and len(word) > 2):
            letters = sorted(word.lower())
            if any(sorted(run.lower()) == letters and run.lower() != word.lower() for run in runs):
                return False
    return None


def same_joints(gold: str, answer: str) -> bool | None:
    """False if one joins by `or` what the other joins by `and`, but for values of one letter."""
    joints, given = ({j in _ORS for j in _JOINT.findall(text)} for text in (gold, answer))
    if not joints or not given or joints == given:
        return None
    both = f"{gold} {answer}"
    return False if _UNEQUAL.search(both) or len(set(_NAMED.findall(both))) > 1 else None


def same_cross_product(gold: str, answer: str) -> bool | None:
    """Cross products of vectors, letter by letter but for braces and spaces."""
    if not (_VECTOR.search(gold) and r"\times" in gold):
        return None
    plain, other = (re.sub(r"[{} ]", "", text) for text in (gold, answer))
    return plain == other
