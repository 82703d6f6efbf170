r"""What a statement says: a value, a list or set, a tuple, named values, a set of reals, an equation.

Two statements are the same if they say the same of the same names; names count only where both have
some (`x=5` is 5). A list in no brackets has no order, but counts what is said twice; a set does not.
Beside a point, the order of a list counts: `(3,4)` is `3, 4` and `x=3, y=4`, not `4, 3`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Any

from sage.grading.reading import Chain, Tree, Unreadable, read
from sage.grading.values import (
    KINDS,
    Number,
    is_multiple,
    nodes,
    real_value,
    renamed,
    root,
    same_value,
    slope,
    symbols,
)

Form = tuple[Any, ...]
Piece = tuple[Number, bool, Number, bool]
"""An interval: its ends, each with whether it belongs to it."""

_NOTHING: Form = ("nothing",)  # a contradiction, which is the same as nothing
_REALS: list[Piece] = [(-inf, False, inf, False)]
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


@lru_cache(maxsize=4_096)
def form_of(text: str) -> Form:
    """What a tidy `text` says; raises Unreadable, or TooLarge where it has to be solved."""
    chains = read(text)
    groups: list[list[Chain]] = [[]]
    for chain in chains:
        if chain.joint == "or":
            groups.append([])
        groups[-1].append(chain)
    return _gathered(_distinct([_clauses(group) for group in groups]), "or")


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
    relations = set(chain.relations)
    if not relations:
        return _form(chain.sides[0])
    if relations == {"="}:
        return _equation(chain.sides)
    if chain.relations == ("in",):
        return _named(chain.sides[0], _form(chain.sides[1]))
    if relations <= _TURNED.keys():
        return _order(chain)
    raise Unreadable("relations of several kinds")


def _form(tree: Tree) -> Form:
    signs = [node[0] for node in nodes(tree) if node[0] in ("pm", "mp")]
    if signs and tree[0] != "set":
        if len(signs) > 1 and "mp" not in signs:
            raise Unreadable("several signs that may differ")
        return ("many", False, tuple(_form(_with_sign(tree, sign)) for sign in (True, False)))
    match tree[0]:
        case "set":
            return ("many", True, tuple(_flat(map(_form, tree[1]))))
        case "tuple":
            return ("tuple", tree[1], tree[2], tuple(map(_form, tree[3])))
        case "where":
            (entry,) = _clauses(tree[2])[1]
            if entry[1] != tree[1]:
                raise Unreadable("a condition on another symbol")
            return entry[2]
        case "cup" | "cap" | "minus":
            return _operation(tree[0], _form(tree[1]), _form(tree[2]))
        case "literal":
            return ("region", _REALS) if tree[1] == "R" else tree
        case "ratio":
            return ("ratio", tuple(map(_expression, tree[1])))
    if infinity := _infinity(tree):
        return ("infinity", infinity)
    if any(node[0] == "matrix" for node in nodes(tree)):
        return ("matrix", _matrix(tree))
    return ("value", _expression(tree))


def _expression(tree: Tree) -> Tree:
    if any(node[0] not in KINDS for node in nodes(tree)):
        raise Unreadable("no expression")
    return tree


def _with_sign(tree: Any, upper: bool) -> Any:
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
    """The elements of a matrix, of one times numbers, or of a sum of such."""
    if tree[0] == "matrix":
        return tuple(tuple(map(_expression, row)) for row in tree[1])
    if tree[0] == "-":
        return _each(_matrix(tree[1]), lambda element: ("-", element))
    if tree[0] == "/":
        return _each(_matrix(tree[1]), lambda element: ("/", element, _expression(tree[2])))
    parts = [part for part in tree[1] if any(node[0] == "matrix" for node in nodes(part))]
    if tree[0] == "*" and len(parts) == 1:
        factors = tuple(_expression(part) for part in tree[1] if part not in parts)
        return _each(_matrix(parts[0]), lambda element: ("*", (*factors, element)))
    if tree[0] == "+" and len(parts) == len(tree[1]):
        matrices = [_matrix(part) for part in parts]
        if len({(len(m), len(m[0])) for m in matrices}) == 1:
            rows = (zip(*same_row, strict=True) for same_row in zip(*matrices, strict=True))
            return tuple(tuple(("+", terms) for terms in row) for row in rows)
    raise Unreadable("a product of matrices")


def _each(
    rows: Iterable[Iterable[Tree]], change: Callable[[Tree], Tree]
) -> tuple[tuple[Tree, ...], ...]:
    return tuple(tuple(map(change, row)) for row in rows)


def _flat(forms: Iterable[Form]) -> list[Form]:
    """Lists in no brackets are taken apart."""
    return [
        part
        for form in forms
        for part in (form[2] if form[0] == "many" and not form[1] else (form,))
    ]


def _label(tree: Tree) -> str | None:
    """How a thing is called that has a value: `x`, `f(2)`, `|v|`, `m+n`, `AB`."""
    if tree[0] in ("sym", "opaque"):
        return repr(tree)
    if tree[0] == "call" and _label(tree[2][0]) and len(tree[2]) == 1:
        return repr(tree)
    if tree[0] in ("+", "*"):
        parts = [part[1] if part[0] == "-" else part for part in tree[1]]
        if len(set(parts)) == len(parts) and all(part[0] == "sym" for part in parts):
            return repr((tree[0], sorted(tree[1])))
    return None


def _named(tree: Tree, form: Form) -> Form:
    """A form under its name; the parts of a tuple under theirs."""
    if tree[0] == "tuple" and all(part[0] == "sym" for part in tree[3]):
        if form[0] == "many" and not form[1]:
            return _gathered([_named(tree, part) for part in form[2]], "or")
        is_point = form[0] == "tuple" and form[1:3] == tree[1:3] == ("(", ")")
        if not is_point or len(form[3]) != len(tree[3]):
            raise Unreadable("another number of values than names")
        pairs = zip(tree[3], form[3], strict=True)
        return ("named", tuple(sorted((repr(name), name, value) for name, value in pairs)))
    key = _label(tree)
    if key is None:
        raise Unreadable("a value of no name")
    return ("named", ((key, tree, form),))


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
            return ("named", ((*first[:2], _combined(values, joint)),))
        return ("named", ((*first[:2], ("many", False, tuple(_flat(values)))),))
    keys = [entry[0] for form in forms for entry in form[1]]
    if joint != "or" and len(set(keys)) == len(keys):  # x=1, y=2
        return ("named", tuple(sorted(entry for form in forms for entry in form[1])))
    size = len(set(keys))
    if joint != "or" and all(len(form[1]) == 1 for form in forms) and len(forms) % size == 0:
        parts = [forms[i : i + size] for i in range(0, len(forms), size)]  # x=1, y=2, x=3, y=4
        if all(len({form[1][0][0] for form in part}) == size for part in parts):
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
    names = {name for side in chain.sides for name in symbols(side)}
    pairs = list(zip(pairwise(chain.sides), chain.relations, strict=True))
    if len(names) == 1:
        (name,) = names
        pieces: list[Piece] | None = _REALS
        for (left, right), relation in pairs:
            part = _solved(left, relation, right, name)
            pieces = None if part is None or pieces is None else _common(pieces, part)
        if pieces is not None:
            return _named(("sym", name), ("region", pieces))
    differences = []
    for (left, right), relation in pairs:
        if relation in (">", ">="):
            left, right, relation = right, left, _TURNED[relation]
        differences.append((relation, ("+", (_expression(left), ("-", _expression(right))))))
    if not all(symbols(difference) for _, difference in differences):
        raise Unreadable("a relation of numbers")
    return ("order", tuple(differences))


def _solved(left: Tree, relation: str, right: Tree, name: str) -> list[Piece] | None:
    """For which values of a symbol a linear inequality, or one of `|x|`, holds; None for others."""
    if symbols(right) and not symbols(left):
        left, right, relation = right, left, _TURNED[relation]
    if infinity := _infinity(right):
        return _REALS if relation in "<=>=" and (infinity > 0) == (relation[0] == "<") else None
    if left[:2] == ("call", "abs") and not symbols(right) and relation != "!=":
        below = _solved(left[2][0], relation, right, name)
        above = _solved(left[2][0], _TURNED[relation], ("-", right), name)
        if below is None or above is None:
            return None
        return _common(below, above) if relation[0] == "<" else _union(below + above)
    difference = ("+", (_expression(left), ("-", _expression(right))))
    steepness = slope(difference, name)
    if steepness is None:
        return None
    end, direction = real_value(root(difference, name, steepness)), real_value(steepness)
    if end is None or direction is None:
        return None
    if relation == "!=":
        return [(-inf, False, end, False), (end, False, inf, False)]
    is_closed = relation.endswith("=")
    if (relation[0] == "<") == (direction > 0):
        return [(-inf, False, end, is_closed)]
    return [(end, is_closed, inf, False)]


def _pieces(form: Form) -> list[Piece] | None:
    """A set of reals as intervals; None for anything else."""
    if form[0] == "region":
        return list(form[1])
    if form[0] in ("many", "value"):
        points = [
            real_value(item[1]) if item[0] == "value" else None
            for item in (form[2] if form[0] == "many" else [form])
        ]
        return None if None in points else _union([(p, True, p, True) for p in points])
    if form[0] != "tuple" or len(form[3]) != 2:
        return None
    ends = [
        item[1] * inf
        if item[0] == "infinity"
        else real_value(item[1])
        if item[0] == "value"
        else None
        for item in form[3]
    ]
    if None in ends or not ends[0] < ends[1]:
        return None
    return [(ends[0], form[1] == "[", ends[1], form[2] == "]")]


def _operation(name: str, left: Form, right: Form) -> Form:
    pieces, others = _pieces(left), _pieces(right)
    if pieces is None or others is None:
        return ("sets", name, left, right)
    if name == "minus":
        return ("region", _common(pieces, _others(others)))
    return ("region", _common(pieces, others) if name == "cap" else _union(pieces + others))


def _combined(regions: list[Form], joint: str) -> Form:
    pieces = list(regions[0][1])
    for region in regions[1:]:
        pieces = _union(pieces + region[1]) if joint == "or" else _common(pieces, region[1])
    if not pieces and joint == ",":  # `x<1, x>3` may mean either
        raise Unreadable("conditions that exclude each other")
    return ("region", pieces)


def _equal(one: Number, other: Number) -> bool:
    return bool(
        one == other or abs(one - other) <= min(max(abs(one), 1), max(abs(other), 1)) * 1e-30
    )


def _union(pieces: list[Piece]) -> list[Piece]:
    """The same reals in intervals that are apart, in order."""
    found: list[Piece] = []
    for low, has_low, high, has_high in sorted(pieces, key=lambda piece: (piece[0], not piece[1])):
        if found:
            start, has_start, end, has_end = found[-1]
            if (_equal(low, end) and (has_low or has_end)) or (low < end and not _equal(low, end)):
                if _equal(low, start):
                    has_start = has_start or has_low
                if _equal(high, end):
                    has_end = has_end or has_high
                elif high > end:
                    end, has_end = high, has_high
                found[-1] = (start, has_start, end, has_end)
                continue
        found.append((low, has_low, high, has_high))
    return found


def _others(pieces: list[Piece]) -> list[Piece]:
    """All other reals."""
    found, low, has_low = [], -inf, False
    for start, has_start, end, has_end in pieces:
        found.append((low, has_low, start, not has_start))
        low, has_low = end, not has_end
    return [p for p in [*found, (low, has_low, inf, False)] if _is_piece(p)]


def _common(pieces: list[Piece], others: list[Piece]) -> list[Piece]:
    found = []
    for low, has_low, high, has_high in pieces:
        for start, has_start, end, has_end in others:
            if _equal(low, start):
                left, has_left = low, has_low and has_start
            else:
                left, has_left = (low, has_low) if low > start else (start, has_start)
            if _equal(high, end):
                right, has_right = high, has_high and has_end
            else:
                right, has_right = (high, has_high) if high < end else (end, has_end)
            found.append((left, has_left, right, has_right))
    return _union([piece for piece in found if _is_piece(piece)])


def _is_piece(piece: Piece) -> bool:
    low, has_low, high, has_high = piece
    if low in (inf, -inf) or high in (inf, -inf) or not _equal(low, high):
        return bool(low < high)
    return has_low and has_high


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
        pieces, others = _pieces(gold), _pieces(answer)
        return pieces is not None and others is not None and _same_pieces(pieces, others)
    return False


def _each_same(gold: Sequence[Form], answer: Sequence[Form]) -> bool:
    return len(gold) == len(answer) and all(map(_same, gold, answer))


def _same_named(gold: Form, answer: Form) -> bool:
    if gold[0] == answer[0] == "named":
        if [entry[0] for entry in gold[1]] == [entry[0] for entry in answer[1]]:
            return _each_same([e[2] for e in gold[1]], [e[2] for e in answer[1]])
    if gold[0] in ("named", "equation") and answer[0] in ("named", "equation"):
        sides = _difference(gold), _difference(answer)
        return None not in sides and is_multiple(*sides, of_same_sign=False)  # type: ignore[arg-type]
    if answer[0] == "equation":
        value = _stated(answer[1])
        return value is not None and _same(gold, ("value", value))
    if gold[0] == "equation":
        return False
    named, other = (gold, answer) if gold[0] == "named" else (answer, gold)
    values = tuple(entry[2] for entry in named[1])
    if len(values) > 1:
        if other[0] == "many" and named is answer:
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
            return renamed(answer, other, name)
    return answer


def _same_items(gold: Form, answer: Form) -> bool:
    """Lists count what is said twice, sets do not."""
    mine, theirs = list(gold[2]), list(answer[2])
    names = [{tuple(e[0] for e in f[1]) for f in fs if f[0] == "named"} for fs in (mine, theirs)]
    if len(names[0]) != len(names[1]) and max(map(len, names)) > 1:
        return False  # values of several names beside values of none
    if gold[1] or answer[1]:
        mine, theirs = _distinct(mine), _distinct(theirs)
    return len(mine) == len(theirs) and _matched(mine, theirs, _same)


def _distinct(forms: list[Form]) -> list[Form]:
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


def _same_pieces(pieces: list[Piece], others: list[Piece]) -> bool:
    return len(pieces) == len(others) and all(
        _equal(a[0], b[0]) and _equal(a[2], b[2]) and (a[1], a[3]) == (b[1], b[3])
        for a, b in zip(pieces, others, strict=True)
    )


def _same_order(gold: Form, answer: Form) -> bool:
    def same(one: tuple[str, Tree], other: tuple[str, Tree]) -> bool:
        return one[0] == other[0] and is_multiple(one[1], other[1], of_same_sign=one[0] != "!=")

    return _matched(list(gold[1]), list(answer[1]), same)


def _same_sets(gold: Form, answer: Form) -> bool:
    if gold[1] != answer[1]:
        return False
    if _each_same(gold[2:], answer[2:]):
        return True
    return gold[1] != "minus" and _each_same(gold[2:], answer[:1:-1])


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
    "region": lambda gold, answer: _same_pieces(gold[1], answer[1]),
    "matrix": lambda gold, answer: (
        [len(row) for row in gold[1]] == [len(row) for row in answer[1]]
        and all(
            same_value(*pair)
            for rows in zip(gold[1], answer[1], strict=True)
            for pair in zip(*rows, strict=True)
        )
    ),
    "order": _same_order,
    "sets": _same_sets,
    "ratio": _same_ratios,
}
