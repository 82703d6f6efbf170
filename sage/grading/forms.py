r"""What a statement says: a value, a list or set, a tuple, named values, a set of reals and so on.

Whether two say the same is settled by `sage.grading.sameness`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from operator import and_, gt, or_
from typing import Any

from sage.grading.reading import Chain, Tree, read
from sage.grading.sameness import (
    NO_REALS,
    REALS,
    Form,
    Region,
    agreeing,
    changed,
    common,
    distinct,
    either,
    region_of,
)
from sage.grading.tokens import Unreadable
from sage.grading.values import KINDS, Number, nodes, real_value, root, slope, symbols

_NOTHING: Form = ("nothing",)  # a contradiction, which is the same as nothing
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


@lru_cache(maxsize=4_096)
def form_of(text: str) -> Form:
    """What a tidy `text` says; raises Unreadable, or TooLarge where it has to be solved."""
    groups: list[list[Chain]] = [[]]
    for chain in read(text):
        if chain.joint == "or":
            groups.append([])
        groups[-1].append(chain)
    return _gathered(distinct(map(_clauses, groups)), "or")


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
            return ("region", REALS) if tree[1] == "R" else tree
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


def _equation(sides: tuple[Tree, ...]) -> Form:
    first, last = sides[0], sides[-1]
    if len(sides) == 2 and last[0] in ("sym", "opaque") and _label(first) is None:
        first, last = last, first
    if first[0] == "tuple" or (_label(first) and first not in nodes(last)):
        if not agreeing(sides[1:]):
            return _NOTHING
        return _named(first, _form(last))
    return ("equation", tuple(map(_expression, sides)))


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
            region = reduce(either if joint == "or" else common, [value[1] for value in values])
            if region == NO_REALS and joint == ",":  # `x<1, x>3` may mean either
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
            return _named(("sym", name), ("region", reduce(common, solved, REALS)))
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
        return REALS if (infinity > 0) == (relation[0] == "<") and relation != "!=" else None
    if left[:2] == ("call", "abs") and not symbols(right) and relation != "!=":
        inside = left[2][0]
        while inside[:2] == ("call", "abs"):  # ||x|| is |x|
            inside = inside[2][0]
        below = _solved(inside, relation, right, name)
        above = _solved(inside, _TURNED[relation], ("-", right), name)
        if below is None or above is None:
            return None
        return common(below, above) if relation[0] == "<" else either(below, above)
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


def _operation(name: str, left: Form, right: Form) -> Form:
    one, other = region_of(left), region_of(right)
    if one is None or other is None:
        return ("sets", name, left, right)
    change = {"cup": or_, "cap": and_, "minus": gt}[name]  # True is more than False
    return ("region", changed(one, other, change))
