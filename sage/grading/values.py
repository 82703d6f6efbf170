"""What a tree of `sage.grading.reading` is worth, to as many digits as it takes to compare two.

Two expressions are equal if they agree wherever they are tried: to 35 digits, then to so many that
no number in them, however large or small, is lost. Nothing is rearranged, so no form is favoured,
and the work is bounded: numbers beyond `_LARGEST` are not worked out.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath.ctx_mp import MPContext

from sage.grading.reading import Tree
from sage.grading.tokens import Unreadable

Number = Any  # mpmath's mpf or mpc


class TooLarge(ValueError):
    """It takes numbers that are too large to be worked out."""


class _Undefined(ArithmeticError):
    """It has no value at this point."""


_LARGEST = 4_000
"""Bits of a number's exponent: some 1,200 decimal places."""

_MOST_WORK = 100_000
"""Digits that are worked out for one value, of all numbers on the way."""

_LARGEST_COUNT, _MOST_DIGITS_BETWEEN = 5_000, 300
"""What factorials and binomials are taken of; and to how many digits, of what is no integer."""

_POINTS, _POSITIVE = 10, 5
_DIGITS, _SPARE = 50, 15

_CONTEXT = MPContext()
LOCK = threading.RLock()
"""To be held while values are worked out: their precision is a state of `_CONTEXT`."""


def same_value(one: Tree, other: Tree) -> bool:
    """Whether two expressions are equal, whatever numbers their symbols stand for.

    Tried at points of both signs, they must be real at the same ones and agree at three or more:
    `sqrt(1/n)` is `1/sqrt(n)`, `sqrt(x^2)` is not `x`. Where neither is real, they may lie on two
    branches. Raises TooLarge, and Unreadable where one is no expression.
    """
    if one[0] == other[0] == "num" or one == other:
        return bool(one == other)
    names = symbols(one) | symbols(other)
    is_complex = any(node == ("i",) for tree in (one, other) for node in nodes(tree))
    agreeing = 0
    for point in range(_POINTS if names else 1):
        values = [_at(tree, point, _DIGITS) for tree in (one, other)]
        if None in values:
            if any(values):
                return False
        elif _agree(one, other, point, thoroughly=agreeing < 2):
            agreeing += 1
        elif not names or is_complex or any(_is_real(value[0]) for value in values if value):
            return False
    return agreeing >= (3 if names else 1)


def is_multiple(one: Tree, other: Tree, of_same_sign: bool) -> bool:
    """Whether one expression with symbols is the other times a number, but 0."""
    if not symbols(one) or symbols(one) != symbols(other):
        return False
    ratios = [
        ("/", ("point", one, point), ("point", other, point))
        for point in range(_POINTS)
        if all((value := _at(tree, point, _DIGITS)) and value[0] for tree in (one, other))
    ]
    if len(ratios) < 3 or not all(_agree(ratios[0], ratio, 0) for ratio in ratios[1:]):
        return False
    ratio = real_value(ratios[0], has_points=True)
    return not of_same_sign or (ratio is not None and ratio > 0)


def real_value(tree: Tree, has_points: bool = False) -> Number | None:
    """A real number to 50 digits; None if `tree` is none, or holds symbols (but in points)."""
    value = None if symbols(tree) and not has_points else _at(tree, 0, _DIGITS)
    return value[0].real if value is not None and _is_real(value[0]) else None


def slope(tree: Tree, name: str) -> Tree | None:
    """How steep a tree is in one symbol, if it is linear in it and not constant."""
    at_1, at_2, at_3 = (replaced(tree, ("sym", name), ("num", Fraction(n))) for n in (1, 2, 3))
    step = ("+", (at_2, ("-", at_1)))
    is_linear = same_value(step, ("+", (at_3, ("-", at_2))))
    return step if is_linear and not same_value(at_1, at_2) else None


def root(tree: Tree, name: str, steepness: Tree) -> Tree:
    """Where a linear tree is 0."""
    return ("-", ("/", replaced(tree, ("sym", name), ("num", Fraction(0))), steepness))


@lru_cache(maxsize=4_096)
def symbols(tree: Tree) -> frozenset[str]:
    """The names of a tree's symbols."""
    return frozenset(node[1] for node in nodes(tree) if node[0] == "sym")


def nodes(tree: Any) -> Iterator[Tree]:
    """A tree and all trees in it."""
    if isinstance(tree, tuple):
        if tree and isinstance(tree[0], str):
            yield tree
        for part in tree:
            yield from nodes(part)


def replaced(tree: Any, part: Tree, other: Tree) -> Any:
    """`tree` with `other` for each `part`."""
    if tree == part:
        return other
    return tuple(replaced(p, part, other) for p in tree) if isinstance(tree, tuple) else tree


def _is_real(value: Number) -> bool:
    return bool(abs(value.imag) <= abs(value.real) * _CONTEXT.mpf(10) ** (_SPARE - _DIGITS))


def _agree(one: Tree, other: Tree, point: int, thoroughly: bool = True) -> bool:
    """Whether both are equal at a point."""
    digits = _DIGITS
    for _ in range(1 + thoroughly):
        left, right = _at(one, point, digits), _at(other, point, digits)
        if left is None or right is None:
            return False
        with _CONTEXT.workdps(digits):
            noise = _CONTEXT.mpf(10) ** (max(left[1], right[1]) + _SPARE - digits)
            if abs(left[0] - right[0]) > noise:
                return False
        digits = 2 * (_DIGITS + max(left[2], right[2]))
    return True


@lru_cache(maxsize=16_384)
def _at(tree: Tree, point: int, digits: int) -> tuple[Number, int, int] | None:
    """The value at a point, and how many places the numbers on the way have before, and at all."""
    with _CONTEXT.workdps(digits):
        run = _Run(point)
        try:
            value = run.value(tree)
        except (Unreadable, TooLarge):
            raise
        except (_Undefined, ZeroDivisionError, ValueError, TypeError, OverflowError):
            return None
    return value, run.before, run.places


@lru_cache(maxsize=1_024)
def _coordinate(name: str, point: int) -> Fraction:
    """What a symbol is worth at a point: in the first half positive, then of both signs."""
    digest = hashlib.sha256(f"{point} {name}".encode()).digest()
    size = Fraction(int.from_bytes(digest[:8], "big"), 2**64)
    size = size * Fraction(9, 10) + Fraction(1, 10) if point % 2 else 4 * size + 1
    is_negative = point == _POINTS - 1 or (point >= _POSITIVE and digest[8] % 2)
    return -size if is_negative else size


class _Run:
    """The evaluation of a tree at a point, at the precision that `_CONTEXT` has."""

    def __init__(self, point: int) -> None:
        self._point = point
        self.before = self.places = self._work = 0

    def value(self, tree: Tree) -> Number:
        """A finite number; raises _Undefined, TooLarge, Unreadable, or what mpmath does."""
        kind = tree[0]
        self._work += _CONTEXT.dps
        if self._work > _MOST_WORK:
            raise TooLarge
        if kind == "sym":
            tree = ("num", _coordinate(tree[1], self._point))
        if kind in ("num", "sym"):
            top, below = tree[1].numerator, tree[1].denominator
            self.places = max(self.places, max(abs(top), below).bit_length() * 3 // 10)
            return self._seen(_CONTEXT.mpf(top) / below)
        if kind == "point":
            self._point = tree[2]
            return self.value(tree[1])
        if kind not in _OPERATIONS:
            raise Unreadable(kind)
        return self._seen(_OPERATIONS[kind](self, tree))

    def _look(self, bits: int) -> None:
        if abs(bits) > _LARGEST:
            raise TooLarge
        self.before = max(self.before, bits * 3 // 10)
        self.places = max(self.places, abs(bits) * 3 // 10)

    def _seen(self, value: Number) -> Number:
        if not _CONTEXT.isfinite(value):
            raise _Undefined
        if value:
            self._look(int(_CONTEXT.mag(value)))
        return value

    def product(self, tree: Tree) -> Number:
        """A product of any number of factors."""
        value = _CONTEXT.mpf(1)
        for factor in tree[1]:
            value = self._seen(value * self.value(factor))
        return value

    def power(self, tree: Tree) -> Number:
        """A power; of a negative number to a fraction with an odd denominator the real one."""
        base, exponent, exact = self.value(tree[1]), self.value(tree[2]), _exact(tree[2])
        if not base:
            if _is_real(exponent) and exponent.real > 0:
                return base
            raise _Undefined
        if abs(exponent * _CONTEXT.log(abs(base))) > _LARGEST:
            raise TooLarge
        if exact is not None and exact.denominator == 1:
            return _CONTEXT.power(base, exact.numerator)
        if exact is not None and exact.denominator % 2 and _is_real(base) and base.real < 0:
            return (-1) ** exact.numerator * _CONTEXT.power(-base.real, exponent)
        return _CONTEXT.power(base, exponent)

    def call(self, tree: Tree) -> Number:
        """A function that is known by its name."""
        return _CALLS[tree[1]](*map(self.value, tree[2]))

    def opaque(self, tree: Tree) -> Number:
        """A function of which nothing is known: it has another value for other arguments."""
        arguments = [_CONTEXT.nstr(self.value(argument), 20) for argument in tree[2]]
        return self.value(("num", _coordinate(f"{tree[1]} {arguments}", self._point)))


_OPERATIONS: dict[str, Callable[[_Run, Tree], Number]] = {
    "pi": lambda run, tree: +_CONTEXT.pi,
    "e": lambda run, tree: +_CONTEXT.e,
    "i": lambda run, tree: _CONTEXT.mpc(0, 1),
    "-": lambda run, tree: -run.value(tree[1]),
    "+": lambda run, tree: _CONTEXT.fsum(map(run.value, tree[1])),
    "*": _Run.product,
    "/": lambda run, tree: run.value(tree[1]) / run.value(tree[2]),
    "^": _Run.power,
    "call": _Run.call,
    "opaque": _Run.opaque,
}

KINDS = _OPERATIONS.keys() | {"num", "sym"}
"""What an expression is made of."""


def _exact(tree: Tree) -> Fraction | None:
    """A number or a fraction of two; None for any other tree."""
    if tree[0] == "num":
        return Fraction(tree[1])
    if tree[0] == "-":
        inside = _exact(tree[1])
        return None if inside is None else -inside
    top, below = map(_exact, tree[1:]) if tree[0] == "/" else (None, None)
    return top / below if top is not None and below else None


def _real(value: Number) -> Number:
    if not _is_real(value):
        raise _Undefined
    return value.real


def _whole(value: Number) -> int:
    nearest = int(_CONTEXT.nint(_real(value)))
    if abs(value - nearest) > _CONTEXT.mpf(10) ** (-_CONTEXT.dps // 2):
        raise _Undefined
    return nearest


def _floor(value: Number) -> Number:
    try:
        return _CONTEXT.mpf(_whole(value))
    except _Undefined:
        return _CONTEXT.floor(_real(value))


def _root(value: Number, degree: Number) -> Number:
    if degree == 2:
        return _CONTEXT.sqrt(value)
    if _is_real(value) and value.real < 0 and _whole(degree) % 2:
        return -_CONTEXT.power(-value.real, 1 / degree)
    return _CONTEXT.power(value, 1 / degree)


def _counted(name: str) -> Callable[..., Number]:
    def count(*values: Number) -> Number:
        if any(abs(value) > _LARGEST_COUNT for value in values):
            raise TooLarge
        if _CONTEXT.dps > _MOST_DIGITS_BETWEEN and not all(map(_CONTEXT.isint, values)):
            raise TooLarge
        return getattr(_CONTEXT, name)(*values)

    return count


_CALLS: dict[str, Callable[..., Number]] = {
    **{name: getattr(_CONTEXT, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "exp")},
    **{name: getattr(_CONTEXT, name) for name in ("sinh", "cosh", "tanh", "ln")},
    **{f"arc{name}": getattr(_CONTEXT, f"a{name}") for name in ("sin", "cos", "tan", "cot", "sec")},
    **{f"arc{name}": getattr(_CONTEXT, f"a{name}") for name in ("csc", "sinh", "cosh", "tanh")},
    "log": lambda value, base=10: _CONTEXT.log(value) / _CONTEXT.log(base),
    "abs": abs,
    "floor": _floor,
    "ceil": lambda value: -_floor(-value),
    "root": _root,
    "factorial": _counted("factorial"),
    "binom": _counted("binomial"),
    "max": lambda *values: max(map(_real, values)),
    "min": lambda *values: min(map(_real, values)),
    "gcd": lambda *values: _CONTEXT.mpf(math.gcd(*map(_whole, values))),
    "lcm": lambda *values: _CONTEXT.mpf(math.lcm(*map(_whole, values))),
}
