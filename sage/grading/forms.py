r"""What a statement says: a value, a list or set, a tuple, named values, a set of reals and so on.

Two statements are the same if they say the same of the same names; names count only where both
have some (`x=5` is 5). A list in no brackets has no order, but counts what is said twice; a set
does not. Beside a point, the order of a list counts: `(3,4)` is `3, 4` and `x=3, y=4`, not `4, 3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from operator import and_, gt, itemgetter, or_
from typing import Any

from sage.grading.reading import Chain, Tree, Unreadable, read
from sage.grading.values import (
    KINDS,
    Number,
    is_multiple,
    nodes,
    real_value,
    replaced,
    root,
    same_value,
    slope,
    symbols,
)

Form = tuple[Any, ...]
Region = tuple[tuple[Number, ...], tuple[bool, ...]]
"""A set of reals: ends in order, and whether what is before, at and behind each is in it."""

Entry = tuple[str, Tree, Form]
"""A name as a text and as a tree, and what it is."""

_NOTHING: Form = ("nothing",)  # a contradiction, which is the same as nothing
_REALS: Region = ((), (True,))
_NONE: Region = ((), (False,))
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


@lru_cache(maxsize=4_096)
def form_of(text: str) -> Form:
    """What a tidy `text` says; raises Unreadable, or TooLarge where it has to be solved."""
    groups: list[list[Chain]] = [[]]
    for chain in read(text):
        if chain.joint == "or":
            groups.append([])
        groups[-1].append(chain)
    return _gathered(_distinct(map(_clauses, groups)), "or")


def same_form(gold: Form, answer: Form) -> bool:
    """Whether both say the same; raises TooLarge."""
    return _same(_single(gold), _single(answer))


def scaled(form: Form, factor: Tree) -> Form:
    """A value times a number; raises Unreadable for any other form."""
    if form[0] == "named" and len(form[1]) == 1:
        ((key, tree, value),) = form[1]
        return ("named", ((key, tree, scaled(value, factor)),))
    if form[0] != "value":
        raise Unreadable("only a value has a unit")
    return ("value", ("*", (form[1], factor)))


def number_of(form: Form) -> Number | None:
    """The real number that a form says, perhaps under a name."""
    if form[0] == "named" and len(form[1]) == 1:
        form = form[1][0][2]
    return real_value(form[1]) if form[0] == "value" else None


# From chains to forms


def _clauses(chains: Sequence[Chain]) -> Form:
    joints = {chain.joint for chain in chains[1:]}
    return _gathered([_clause(chain) for chain in chains], "and" if joints == {"and"} else ",")


def _clause(chain: Chain) -> Form:
    if not chain.relations:
        return _form(chain.sides[0])
    if chain.relations == ("in",):
        return _named(chain.sides[0], _form(chain.sides[1]))
    if set(chain.relations) == {"="}:
        return _equation(chain.sides)
    if set(chain.relations) <= _TURNED.keys():
        return _order(chain)
    raise Unreadable("relations of several kinds")


def _form(tree: Tree) -> Form:
    signs = [node[0] for node in nodes(tree) if node[0] in ("pm", "mp")]
    if signs and tree[0] not in ("set", "where", "cup", "cap", "minus"):
        if len(signs) > 1 and "mp" not in signs:
            raise Unreadable("several signs that may differ")
        return ("many", False, tuple(_form(_with_sign(tree, sign)) for sign in (True, False)))
    match tree[0]:
        case "set":
            return ("many", True, tuple(_flat(map(_form, tree[1]))))
        case "tuple":
            return ("tuple", tree[1], tree[2], tuple(map(_form, tree[3])))
        case "where":
            condition = _clauses(tree[2])
            if condition[0] != "named" or [entry[1] for entry in condition[1]] != [tree[1]]:
                raise Unreadable("a condition on another symbol")
            return condition[1][0][2]
        case "cup" | "cap" | "minus":
            return _operation(tree[0], _form(tree[1]), _form(tree[2]))
        case "literal":
            return ("region", _REALS) if tree[1] == "R" else tree
        case "ratio":
            return ("ratio", tuple(map(_expression, tree[1])))
    if infinity := _infinity(tree):
        return ("infinity", infinity)
    if _has(tree, "matrix"):
        return ("matrix", _matrix(tree))
    return ("value", _expression(tree))


def _has(tree: Tree, kind: str) -> bool:
    return any(node[0] == kind for node in nodes(tree))


def _expression(tree: Tree) -> Tree:
    if any(node[0] not in KINDS for node in nodes(tree)):
        raise Unreadable("no expression")
    return tree


def _with_sign(tree: Any, upper: bool) -> Any:
    if isinstance(tree, Chain):
        raise Unreadable("a sign within a condition that has one outside")
    if isinstance(tree, tuple) and tree:
        if tree[0] in ("pm", "mp"):
            inside = _with_sign(tree[1], upper)
            return inside if (tree[0] == "pm") == upper else ("-", inside)
        return tuple(_with_sign(part, upper) for part in tree)
    return tree


def _infinity(tree: Tree) -> int:
    """1, -1, or 0 for anything else."""
    return 1 if tree == ("inf",) else -1 if tree == ("-", ("inf",)) else 0


def _matrix(tree: Tree) -> tuple[tuple[Tree, ...], ...]:
    """The elements of a matrix that is written, or worked out from others and numbers."""
    if tree[0] == "matrix":
        return tuple(tuple(map(_expression, row)) for row in tree[1])
    if tree[0] not in ("+", "*", "-", "/") or not _has(tree, "matrix"):
        raise Unreadable("no matrix")
    if tree[0] == "+":
        matrices = map(_matrix, tree[1])
        return tuple(tuple(("+", e) for e in _zipped(*rows)) for rows in _zipped(*matrices))
    if tree[0] == "*":
        product = reduce(_product, (_matrix(part) for part in tree[1] if _has(part, "matrix")))
        numbers = tuple(_expression(part) for part in tree[1] if not _has(part, "matrix"))
        return tuple(tuple(("*", (*numbers, e)) for e in row) for row in product)
    others = tuple(map(_expression, tree[2:]))
    return tuple(tuple((tree[0], e, *others) for e in row) for row in _matrix(tree[1]))


def _product(left: Any, right: Any) -> tuple[tuple[Tree, ...], ...]:
    columns = list(_zipped(*right))
    return tuple(
        tuple(("+", tuple(("*", pair) for pair in _zipped(row, column))) for column in columns)
        for row in left
    )


def _zipped(*rows: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    if len(set(map(len, rows))) != 1:
        raise Unreadable("matrices that do not fit")
    return zip(*rows, strict=True)


def _flat(forms: Iterable[Form]) -> list[Form]:
    """Lists in no brackets are taken apart."""
    return [
        part
        for form in forms
        for part in (form[2] if form[0] == "many" and not form[1] else (form,))
    ]


def _label(tree: Tree) -> str | None:
    """How a thing is called that has a value: `x`, `f(2)`, `|v|`, `m+n`, `AB`, `a:b`."""
    if tree[0] in ("sym", "opaque"):
        return repr(tree)
    if tree[0] == "call" and _label(tree[2][0]) and len(tree[2]) == 1:
        return repr(tree)
    if tree[0] in ("+", "*"):
        parts = [part[1] if part[0] == "-" else part for part in tree[1]]
        if len(set(parts)) == len(parts) and all(part[0] == "sym" for part in parts):
            return repr((tree[0], sorted(tree[1])))
    of_parts = tree[1] if tree[0] == "ratio" else tree[1:] if tree[0] == "/" else ()
    return repr(tree) if of_parts and all(map(_label, of_parts)) else None


def _named(tree: Tree, form: Form) -> Form:
    """A form under its name; the parts of a tuple under theirs."""
    if tree[0] == "tuple" and all(part[0] == "sym" for part in tree[3]):
        if form[0] == "many" and not form[1]:
            return _gathered([_named(tree, part) for part in form[2]], "or")
        is_point = form[0] == "tuple" and form[1:3] == tree[1:3] == ("(", ")")
        if not is_point or len(form[3]) != len(tree[3]):
            raise Unreadable("another number of values than names")
        pairs = zip(tree[3], form[3], strict=True)
        return ("named", tuple((repr(name), name, value) for name, value in pairs))
    key = _label(tree)
    if key is None:
        raise Unreadable("a value of no name")
    return ("named", ((key, tree, form),))


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=itemgetter(0)))


def _equation(sides: tuple[Tree, ...]) -> Form:
    first, last = sides[0], sides[-1]
    if len(sides) == 2 and last[0] in ("sym", "opaque") and _label(first) is None:
        first, last = last, first
    if first[0] == "tuple" or (_label(first) and first not in nodes(last)):
        if not _agreeing(sides[1:]):
            return _NOTHING
        return _named(first, _form(last))
    return ("equation", tuple(map(_expression, sides)))


def _agreeing(sides: Sequence[Tree]) -> bool:
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


def _gathered(forms: list[Form], joint: str) -> Form:
    """One form for several that are joined by `and`, a comma, or `or`."""
    if len(forms) == 1:
        return forms[0]
    if _NOTHING in forms:
        return _NOTHING
    forms = _with_names(_flat(forms))
    if any(form[0] != "named" for form in forms):
        return ("many", False, tuple(forms))
    first = forms[0][1][0]
    if all(len(form[1]) == 1 and form[1][0][0] == first[0] for form in forms):  # x=1, x=2
        values = [form[1][0][2] for form in forms]
        if all(value[0] == "region" for value in values):
            region = reduce(_either if joint == "or" else _common, [value[1] for value in values])
            if region == _NONE and joint == ",":  # `x<1, x>3` may mean either
                raise Unreadable("conditions that exclude each other")
            return ("named", ((*first[:2], ("region", region)),))
        return ("named", ((*first[:2], ("many", False, tuple(_flat(values)))),))
    keys = [entry[0] for form in forms for entry in form[1]]
    if joint != "or" and len(set(keys)) == len(keys):  # x=1, y=2
        return ("named", tuple(entry for form in forms for entry in form[1]))
    size = len(set(keys))
    if (
        joint != "or"
        and len(keys) == len(forms) > size
        and keys == keys[:size] * (len(keys) // size)
    ):
        parts = [forms[i : i + size] for i in range(0, len(forms), size)]  # p=5, q=2; p=7, q=2
        forms = [_gathered(part, joint) for part in parts]
    return ("many", False, tuple(forms))


def _with_names(forms: list[Form]) -> list[Form]:
    """What has no name has that of the one before: `x=1, 2`."""
    found: list[Form] = []
    for form in forms:
        before = found[-1] if found else form
        if before[0] == "named" and form[0] in ("value", "tuple", "many"):
            names = [entry[1] for entry in before[1]]
            if len(names) == 1 and form[0] != "tuple":
                form = _named(names[0], form)
            elif form[0] == "tuple" and len(names) == len(form[3]):
                form = _named(("tuple", "(", ")", tuple(names)), form)
        found.append(form)
    return found


# Sets of reals


def _order(chain: Chain) -> Form:
    """Inequalities: of one symbol, in which they are linear, a set of reals; else as they are."""
    sides = [("sym", repr(s)) if s[0] == "opaque" else s for s in chain.sides]  # 0<f(x)<1
    names = {name for side in sides for name in symbols(side)}
    pairs = list(zip(pairwise(sides), chain.relations, strict=True))
    if len(names) == 1:
        (name,) = names
        solved = [_solved(left, relation, right, name) for (left, right), relation in pairs]
        if None not in solved:
            return _named(("sym", name), ("region", reduce(_common, solved, _REALS)))  # type: ignore[arg-type]
    differences = []
    for (left, right), relation in pairs:
        if relation in (">", ">="):
            left, right, relation = right, left, _TURNED[relation]
        differences.append((relation, ("+", (_expression(left), ("-", _expression(right))))))
    if not all(symbols(difference) for _, difference in differences):
        raise Unreadable("a relation of numbers")
    return ("order", tuple(differences))


def _solved(left: Tree, relation: str, right: Tree, name: str) -> Region | None:
    """For which values of a symbol a linear inequality, or one of `|x|`, holds; None for others."""
    if symbols(right) and not symbols(left):
        left, right, relation = right, left, _TURNED[relation]
    if infinity := _infinity(right):
        return _REALS if (infinity > 0) == (relation[0] == "<") and relation != "!=" else None
    if left[:2] == ("call", "abs") and not symbols(right) and relation != "!=":
        inside = left[2][0]
        while inside[:2] == ("call", "abs"):  # ||x|| is |x|
            inside = inside[2][0]
        below = _solved(inside, relation, right, name)
        above = _solved(inside, _TURNED[relation], ("-", right), name)
        if below is None or above is None:
            return None
        return _common(below, above) if relation[0] == "<" else _either(below, above)
    difference = ("+", (_expression(left), ("-", _expression(right))))
    steepness = slope(difference, name)
    if steepness is None:
        return None
    end, direction = real_value(root(difference, name, steepness)), real_value(steepness)
    if end is None or direction is None:
        return None
    if relation == "!=":
        return (end,), (True, False, True)
    is_below = (relation[0] == "<") == (direction > 0)
    return (end,), (is_below, relation.endswith("="), not is_below)


def _region(form: Form) -> Region | None:
    """A set of reals, also of one or of some; None for anything else."""
    if form[0] == "region":
        region: Region = form[1]
        return region
    if form[0] in ("many", "value"):
        items = form[2] if form[0] == "many" else (form,)
        points = [real_value(item[1]) if item[0] == "value" else None for item in items]
        if None in points:
            return None
        return reduce(_either, [((point,), (False, True, False)) for point in points], _NONE)
    if form[0] != "tuple" or len(form[3]) != 2:
        return None
    above = _half(form[3][0], (False, form[1] == "[", True), ("infinity", -1))
    below = _half(form[3][1], (True, form[2] == "]", False), ("infinity", 1))
    if above is None or below is None:
        return None
    is_interval = all(low < high for low in above[0] for high in below[0])
    return _common(above, below) if is_interval else None


def _half(end: Form, flags: tuple[bool, ...], endless: Form) -> Region | None:
    """The reals on one side of an end, or all."""
    value = real_value(end[1]) if end[0] == "value" else None
    if end == endless and not flags[1]:
        return _REALS
    return None if value is None else ((value,), flags)


def _operation(name: str, left: Form, right: Form) -> Form:
    one, other = _region(left), _region(right)
    if one is None or other is None:
        return ("sets", name, left, right)
    change = {"cup": or_, "cap": and_, "minus": gt}[name]  # True is more than False
    return ("region", _changed(one, other, change))


def _changed(one: Region, other: Region, change: Callable[[bool, bool], Any]) -> Region:
    """The reals for which `change` of their being in one and in the other holds."""
    ends: list[Number] = []
    flags = [bool(change(one[1][0], other[1][0]))]
    for end in sorted(one[0] + other[0]):
        if not ends or not _equal(ends[-1], end):
            ends.append(end)
            flags += [
                bool(change(_holds(one, end, is_behind), _holds(other, end, is_behind)))
                for is_behind in (False, True)
            ]
    for place in reversed(range(len(ends))):
        if len(set(flags[2 * place : 2 * place + 3])) == 1:
            del ends[place], flags[2 * place : 2 * place + 2]
    return tuple(ends), tuple(flags)


def _holds(region: Region, value: Number, is_behind: bool) -> bool:
    """Whether a number, or what follows right behind it, is in a set of reals."""
    ends, flags = region
    for place, end in enumerate(ends):
        if _equal(value, end):
            return flags[2 * place + 1 + is_behind]
        if value < end:
            return flags[2 * place]
    return flags[-1]


def _either(one: Region, other: Region) -> Region:
    return _changed(one, other, or_)


def _common(one: Region, other: Region) -> Region:
    return _changed(one, other, and_)


def _equal(one: Number, other: Number) -> bool:
    return bool(abs(one - other) <= min(max(abs(one), 1), max(abs(other), 1)) * 1e-30)


# Comparing forms


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
        one, other = _region(gold), _region(answer)
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
    is_said = len(symbols(sides[0])) > 1 and not symbols(sides[-1]) and _agreeing(sides[1:])
    return sides[-1] if is_said and real_value(sides[-1]) else None


def _same_values(gold: Form, answer: Form) -> bool:
    return same_value(gold[1], _with_constant_of(gold[1], answer[1]))


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
        mine, theirs = _distinct(mine), _distinct(theirs)
    return len(mine) == len(theirs) and _matched(mine, theirs, _same)


def _distinct(forms: Iterable[Form]) -> list[Form]:
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
    "value": _same_values,
    "infinity": lambda gold, answer: gold == answer,
    "literal": lambda gold, answer: gold == answer,
    "many": _same_items,
    "tuple": lambda gold, answer: gold[1:3] == answer[1:3] and _each_same(gold[3], answer[3]),
    "region": lambda gold, answer: _same_regions(gold[1], answer[1]),
    "matrix": lambda gold, answer: (
        [len(row) for row in gold[1]] == [len(row) for row in answer[1]]
        and all(
            same_value(*pair)
            for rows in zip(gold[1], answer[1], strict=True)
            for pair in zip(*rows, strict=True)
        )
    ),
    "order": _same_order,
    "sets": lambda gold, answer: gold[1] == answer[1] and _each_same(gold[2:], answer[2:]),
    "ratio": _same_ratios,
}
