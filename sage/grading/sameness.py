r"""Whether two forms (`sage.grading.forms`) say the same, and sets of reals.

Two statements are the same if they say the same of the same names; names count only where both
have some (`x=5` is 5). A list in no brackets has no order, but counts what is said twice; a set
does not. Beside a point, the order of a list counts: `(3,4)` is `3, 4` and `x=3, y=4`, not `4, 3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from operator import and_, eq, itemgetter, or_
from typing import Any

from sage.grading.reading import Tree
from sage.grading.values import (
    KINDS,
    Number,
    is_multiple,
    real_value,
    replaced,
    same_value,
    slope,
    symbols,
)

Form = tuple[Any, ...]
Region = tuple[tuple[Number, ...], tuple[bool, ...]]
"""A set of reals: ends in order, and whether what is before, at and behind each is in it."""

Entry = tuple[str, Tree, Form]
"""A name as a text and as a tree, and what it is."""

REALS: Region = ((), (True,))
NO_REALS: Region = ((), (False,))


# Sets of reals


def region_of(form: Form) -> Region | None:
    """A set of reals, also of one or of some; None for anything else."""
    if form[0] == "region":
        return form[1]
    if form[0] in ("many", "value"):
        items = form[2] if form[0] == "many" else (form,)
        points = [real_value(item[1]) if item[0] == "value" else None for item in items]
        if None in points:
            return None
        return _of_points(points)
    if form[0] != "tuple" or len(form[3]) != 2:
        return None
    above = _half(form[3][0], (False, form[1] == "[", True), ("infinity", -1))
    below = _half(form[3][1], (True, form[2] == "]", False), ("infinity", 1))
    if above is None or below is None:
        return None
    is_interval = all(low < high for low in above[0] for high in below[0])
    return common(above, below) if is_interval else None


def _of_points(points: Iterable[Number]) -> Region:
    ends: list[Number] = []
    for point in sorted(points):
        if not ends or not _equal(ends[-1], point):
            ends.append(point)
    return tuple(ends), (False, *(True, False) * len(ends))


def _half(end: Form, flags: tuple[bool, ...], endless: Form) -> Region | None:
    """The reals on one side of an end, or all."""
    value = real_value(end[1]) if end[0] == "value" else None
    if end == endless and not flags[1]:
        return REALS
    return None if value is None else ((value,), flags)


def changed(one: Region, other: Region, change: Callable[[bool, bool], Any]) -> Region:
    """The reals for which `change` of their being in one and in the other holds, in one pass."""
    regions, places = (one, other), [0, 0]
    ends: list[Number] = []
    flags = [bool(change(one[1][0], other[1][0]))]
    for end in sorted(one[0] + other[0]):
        if ends and _equal(ends[-1], end):
            continue
        here = [r[0][i : i + 1] for r, i in zip(regions, places, strict=True)]
        places = [
            2 * i + any(_equal(e, end) for e in own) for i, own in zip(places, here, strict=True)
        ]
        at = bool(change(*(r[1][i] for r, i in zip(regions, places, strict=True))))
        places = [(i + 1) // 2 for i in places]
        behind = bool(change(*(r[1][2 * i] for r, i in zip(regions, places, strict=True))))
        if not flags[-1] == at == behind:
            ends.append(end)
            flags += [at, behind]
    return tuple(ends), tuple(flags)


either, common = partial(changed, change=or_), partial(changed, change=and_)


def _equal(one: Number, other: Number) -> bool:
    return bool(abs(one - other) <= min(max(abs(one), 1), max(abs(other), 1)) * 1e-30)


# Forms


def same_form(gold: Form, answer: Form) -> bool:
    """Whether both say the same; raises TooLarge."""
    return _same(_single(gold), _single(answer))


def _single(form: Form) -> Form:
    """A set or list of one is that one."""
    return form[2][0] if form[0] == "many" and len(form[2]) == 1 else form


def _same(gold: Form, answer: Form) -> bool:
    kinds = gold[0], answer[0]
    if "nothing" in kinds:
        return False
    if "named" in kinds or "equation" in kinds:
        return _same_named(gold, answer)
    if kinds[0] == kinds[1]:
        return _SAME[kinds[0]](gold, answer)
    if kinds in (("tuple", "many"), ("many", "tuple")):
        point, values = (gold, answer) if kinds[0] == "tuple" else (answer, gold)
        return not values[1] and point[1:3] == ("(", ")") and _each_same(gold[-1], answer[-1])
    if "ratio" in kinds and "value" in kinds:
        sides = [
            ("/", *f[1]) if f[0] == "ratio" and len(f[1]) == 2 else f[1] for f in (gold, answer)
        ]
        return all(side[0] in KINDS for side in sides) and same_value(*sides)
    if "region" in kinds:
        one, other = region_of(gold), region_of(answer)
        return one is not None and other is not None and _same_regions(one, other)
    return False


def _each_same(gold: Sequence[Form], answer: Sequence[Form]) -> bool:
    return len(gold) == len(answer) and all(map(_same, gold, answer))


def _same_named(gold: Form, answer: Form) -> bool:
    if gold[0] == answer[0] == "named":
        mine, theirs = _sorted(gold[1]), _sorted(answer[1])
        if [entry[0] for entry in mine] == [entry[0] for entry in theirs]:
            return _each_same([e[2] for e in mine], [e[2] for e in theirs])
    if gold[0] in ("named", "equation") and answer[0] in ("named", "equation"):
        sides = _difference(gold), _difference(answer)
        return None not in sides and is_multiple(*sides, of_same_sign=False)  # type: ignore[arg-type]
    if answer[0] == "equation":
        value = _stated(answer[1])
        return value is not None and _same(gold, ("value", value))
    if gold[0] == "equation":
        return False
    named, other = (gold, answer) if gold[0] == "named" else (answer, gold)
    is_point = other[0] != "many"  # whose coordinates are in the order of the alphabet
    values = tuple(entry[2] for entry in (_sorted(named[1]) if is_point else named[1]))
    if len(values) > 1:
        if not is_point and named is answer:
            return False
        values = (("tuple", "(", ")", values),)
    pair = (_single(values[0]), other)
    return _same(*pair) if named is gold else _same(*pair[::-1])


def agreeing(sides: Sequence[Tree]) -> bool:
    """Whether the sides of a chain are equal, but for formulas in letters alone: `A=bh=12`."""
    return all(
        (symbols(side) and not _has_numerals(side)) or same_value(side, sides[-1])
        for side in sides[:-1]
    )


def _has_numerals(tree: Any) -> bool:
    """Whether a tree holds a number, but in exponents."""
    if not isinstance(tree, tuple):
        return False
    return tree[:1] == ("num",) or any(map(_has_numerals, tree[:2] if tree[:1] == ("^",) else tree))


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=itemgetter(0)))


def _difference(form: Form) -> Tree | None:
    """Left minus right of an equation that still has something to be solved for."""
    if form[0] == "equation":
        left, right = form[1][0], form[1][-1]
        return ("+", (left, ("-", right))) if len(form[1]) == 2 else None
    ((_, left, value), *others) = form[1]
    if others or value[0] != "value" or not symbols(value[1]):
        return None
    return ("+", (left, ("-", value[1])))


def _stated(sides: tuple[Tree, ...]) -> Tree | None:
    """The last side of a chain if that is its value: all are equal, or `2a+b=7` says what is 7."""
    if all(same_value(side, sides[-1]) for side in sides[:-1]):
        return sides[-1]
    is_said = len(symbols(sides[0])) > 1 and not symbols(sides[-1]) and agreeing(sides[1:])
    return sides[-1] if is_said and real_value(sides[-1]) else None


def _with_constant_of(gold: Tree, answer: Tree) -> Tree:
    """`answer` with its constant of integration, `c` or `C`, as in `gold`; both linear in it."""
    (mine, theirs) = (symbols(tree) & {"c", "C"} for tree in (gold, answer))
    if len(mine) == len(theirs) == 1 and mine != theirs:
        (name,), (other,) = mine, theirs
        if slope(gold, name) and slope(answer, other):
            return replaced(answer, ("sym", other), ("sym", name))
    return answer


def _same_items(gold: Form, answer: Form) -> bool:
    """Lists of values count what is said twice, sets and lists of points do not."""
    mine, theirs = list(gold[2]), list(answer[2])
    names = [{tuple(e[0] for e in f[1]) for f in fs if f[0] == "named"} for fs in (mine, theirs)]
    if len(names[0]) != len(names[1]) and max(map(len, names)) > 1:
        return False  # values of several names beside values of none
    if gold[1] or answer[1] or any(form[0] != "value" for form in mine):
        mine, theirs = distinct(mine), distinct(theirs)
    return len(mine) == len(theirs) and _matched(mine, theirs, _same)


def distinct(forms: Iterable[Form]) -> list[Form]:
    found: list[Form] = []
    for form in forms:
        if not any(_same(form, other) for other in found):
            found.append(form)
    return found


def _matched(mine: list[Any], theirs: list[Any], same: Callable[[Any, Any], bool]) -> bool:
    """Whether each of `mine` has one of `theirs` to itself."""
    left = list(theirs)
    for item in mine:
        place = next((i for i, other in enumerate(left) if same(item, other)), None)
        if place is None:
            return False
        del left[place]
    return not left


def _same_regions(one: Region, other: Region) -> bool:
    return one[1] == other[1] and all(map(_equal, one[0], other[0]))


def _same_order(gold: Form, answer: Form) -> bool:
    def same(one: tuple[str, Tree], other: tuple[str, Tree]) -> bool:
        return one[0] == other[0] and is_multiple(one[1], other[1], of_same_sign=one[0] != "!=")

    return _matched(list(gold[1]), list(answer[1]), same)


def _same_ratios(gold: Form, answer: Form) -> bool:
    return len(gold[1]) == len(answer[1]) and all(
        same_value(("*", (mine, answer[1][0])), ("*", (theirs, gold[1][0])))
        for mine, theirs in zip(gold[1], answer[1], strict=True)
    )


_SAME: dict[str, Callable[[Form, Form], bool]] = {
    "value": lambda gold, answer: same_value(gold[1], _with_constant_of(gold[1], answer[1])),
    "infinity": eq,
    "literal": eq,
    "many": _same_items,
    "tuple": lambda gold, answer: gold[1:3] == answer[1:3] and _each_same(gold[3], answer[3]),
    "region": lambda gold, answer: _same_regions(gold[1], answer[1]),
    "matrix": lambda gold, answer: (
        [*map(len, gold[1])] == [*map(len, answer[1])]
        and all(map(same_value, chain(*gold[1]), chain(*answer[1])))
    ),
    "order": _same_order,
    "sets": lambda gold, answer: gold[1] == answer[1] and _each_same(gold[2:], answer[2:]),
    "ratio": _same_ratios,
}
