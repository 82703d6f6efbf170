r"""Mathematics as answers write it, in LaTeX or plain, as a tree: all of a text is read, or none.

A statement is a list of chains such as `x=1` or `0<x<1` with what joins them; the sides of a chain
are trees, tuples whose first element names their kind. What can be read in two ways (`1/2x`,
`\sin x(y+1)`, `x2`) and what is not known (`\implies`, words) is not read. The text is untrusted:
it is tidy (`sage.grading.tidy`) and of bounded length; brackets nest no deeper than `_DEEPEST`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from sage.grading.quantities import endless_number, plain_number, vocabulary
from sage.grading.tokens import CIRCULAR, CLOSING, CONSTANTS, ENDS, FUNCTIONS, GREEK, Tokens

Tree = tuple[Any, ...]


class Chain(NamedTuple):
    """Sides with the relations between them; a single side has none."""

    sides: tuple[Tree, ...]
    relations: tuple[str, ...]
    joint: str
    """What joins it to the chain before: `,`, `and` or `or`."""


_DEEPEST = 40
_RELATIONS = {
    **{"=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">="},
    **{r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=", r"\in": "in"},
    **{r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\ne": "!=", r"\neq": "!="},
}
_JOINTS = {
    **{",": ",", ";": ",", r"\quad": ",", r"\qquad": ",", "and": "and", "or": "or"},
    **{r"\land": "and", r"\wedge": "and", r"\lor": "or", r"\vee": "or"},
}
_TIMES, _OVER = {"*", r"\cdot", r"\times", r"\ast"}, {"/", r"\div"}
_SIGNS = {"+": "+", "-": "-", r"\pm": "pm", r"\mp": "mp"}
_SETS = {r"\cup": "cup", r"\cap": "cap", r"\setminus": "minus", r"\backslash": "minus"}
_AROUND = {
    **{"|": ("|", "abs"), r"\lvert": (r"\rvert", "abs")},
    **{r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil")},
}
_VECTORS = vocabulary(r"\vec \mathbf \boldsymbol \overrightarrow")
_MARKS = _VECTORS | vocabulary(
    r"\hat \widehat \bar \overline \tilde \widetilde \dot \ddot \mathcal \mathscr \angle \triangle"
)
_BEGINNING = (
    _MARKS
    | _AROUND.keys()
    | vocabulary(r"number endless letter name begin ( [ { \frac \binom \mathbb")
)
_MATRICES = vocabulary("pmatrix bmatrix matrix array smallmatrix")
_SYSTEMS = vocabulary("cases aligned align align* array gathered")
_DERIVATIVE = re.compile(  # of y by x
    r"(?P<d>d|\\partial)(?:\^\{?[0-9]\}?)?(?:\\?[a-zA-Z].*)?"
    r" by (?P=d)\\?[a-zA-Z]+(?:_.+)?(?:\^\{?[0-9]\}?)?"
)
_HUNDRED, _HALF_TURN = ("num", Fraction(100)), ("num", Fraction(180))
_MINUS_ONE = ("-", ("num", Fraction(1)))


@lru_cache(maxsize=4_096)
def read(text: str) -> tuple[Chain, ...]:
    """The statement that a tidy `text` makes; raises Unreadable if it is none as a whole."""
    return _Reader(text).statement()


class _Reader(Tokens):
    """Reads tokens from left to right, what stands in brackets once."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._bars = 0
        self._known: dict[int, tuple[Tree, int]] = {}

    def statement(self) -> tuple[Chain, ...]:
        """All of it, to the last token."""
        is_braced = self._next == r"\{" and self._tokens[self._at + 1] == ("begin", "array")
        self._at += is_braced
        kind, name = self._tokens[self._at]
        is_system = kind == "begin" and name in _SYSTEMS and (name != "array" or is_braced)
        self._at += is_system
        chains = self._chains(is_system)
        self._require(not is_system or (self._next == "end" and self._take() == name))
        self._require(self._next == "stop")
        return chains

    def _chains(self, is_system: bool = False) -> tuple[Chain, ...]:
        chains, joint = [self._chain(",")], ""
        while self._next in _JOINTS or (is_system and self._next == "\\\\"):
            said = _JOINTS.get(self._take(), ",")
            joint = joint if said == "," and joint else said
            if self._next not in ENDS | _JOINTS.keys() | {"\\\\"}:
                chains.append(self._chain(joint))
                joint = ""
        return tuple(chains)

    def _chain(self, joint: str) -> Chain:
        sides: list[Tree] = []
        relations: list[str] = []
        while True:
            self._skip("&")
            sides.append(self._side())
            self._skip("&")
            if self._next not in _RELATIONS:
                return Chain(tuple(sides), tuple(relations), joint)
            relations.append(_RELATIONS[self._take()])

    def _side(self) -> Tree:
        parts = [self._set()]
        while self._skip(":"):
            parts.append(self._set())
        return parts[0] if len(parts) == 1 else ("ratio", tuple(parts))

    def _set(self) -> Tree:
        tree = self._sum()
        while self._next in _SETS:
            tree = (_SETS[self._take()], tree, self._sum())
        return tree

    def _sum(self) -> Tree:
        terms: list[Tree] = []
        while not terms or self._next in _SIGNS:
            sign = _SIGNS[self._take()] if self._next in _SIGNS else "+"
            while self._next in ("+", "-") and sign in "+-":
                sign = "-" if (self._take() == "-") == (sign == "+") else "+"
            term = self._product()
            terms.append(term if sign == "+" else (sign, term))
        return terms[0] if len(terms) == 1 else ("+", tuple(terms))

    def _product(self) -> Tree:
        is_open = (
            self._next == r"\boxed"
        )  # a box is no factor; behind `a/b`, where does one belong?
        factors = [self._power()]
        while True:
            if self._next in _TIMES:
                sign, right = self._take(), self._signed(self._power)
                if sign == r"\times" and _is_vector(factors[-1]) and _is_vector(right):
                    factors[-1] = ("opaque", "times", (factors[-1], right))
                else:
                    factors.append(right)
                is_open = False
            elif self._next in _OVER:
                self._take()
                left, right = _times(factors), self._signed(self._power)
                is_open = not left[0] == right[0] == "num"
                factors = [("/", left, right)]
            elif self._begins_factor():
                is_number = self._next in ("number", "endless")
                may_be_followed = factors[-1] == ("pi",) or factors[-1][:2] == ("call", "factorial")
                self._require(not is_open and (may_be_followed or not is_number))
                is_group = self._next == "{"  # `2{3}` prints 23
                factors.append(self._power())
                self._require(not (is_group and factors[-1][0] == factors[-2][0] == "num"))
            else:
                return _times(factors)

    def _begins_factor(self) -> bool:
        return self._next in _BEGINNING and not (self._next == "|" and self._bars)

    def _signed(self, read_on: Callable[[], Tree]) -> Tree:
        is_negative = self._skip("-")
        return ("-", read_on()) if is_negative else read_on()

    def _power(self) -> Tree:
        tree = self._primary()
        if self._skip("!"):
            tree = ("call", "factorial", (tree,))
        if self._skip("%", r"\%"):
            tree = ("/", tree, _HUNDRED)
        if self._skip("^"):
            if self._skip(r"\circ"):
                return ("/", ("*", (tree, ("pi",))), _HALF_TURN)
            tree = ("^", tree, self._exponent())
        return tree

    def _exponent(self) -> Tree:
        self._skip("+")
        is_negative = self._skip("-")
        self._depth += 1
        self._require(self._depth <= _DEEPEST)
        tree = self._primary(calls=False)
        if self._skip("^"):
            tree = ("^", tree, self._exponent())
        self._depth -= 1
        return ("-", tree) if is_negative else tree

    def _primary(self, calls: bool = True) -> Tree:
        """The smallest thing that stands by itself; `f(x)` is one if `calls`."""
        start = self._at
        if start in self._known:
            tree, self._at = self._known[start]
            return tree
        self._depth += 1
        self._require(self._depth <= _DEEPEST)
        kind, text = self._tokens[self._at][0], self._take()
        if kind == "number":
            tree = self._number(text)
        elif kind == "endless":
            number = endless_number(text)
            self._require(number)
            tree = ("num", number)
        elif kind == "begin":
            tree = self._matrix(text)
        elif kind == "letter" or text in GREEK:
            tree = self._symbol(text, calls)
        elif kind == "name":
            tree = CONSTANTS.get(text) or self._function(text, calls)
            self._require(text not in CONSTANTS or self._next != "_")
        else:
            tree = self._signed_thing(text, calls)
            self._known[start] = tree, self._at
        self._depth -= 1
        return tree

    def _signed_thing(self, sign: str, calls: bool) -> Tree:
        """What begins with a bracket or a command."""
        if sign in CLOSING:
            return self._bracket(sign)
        if sign == "{":
            return self._braces()
        if sign == r"\frac":
            return self._fraction()
        if sign == r"\binom":
            return ("call", "binom", (self._argument(), self._argument()))
        if sign == r"\boxed":
            return self._argument()
        if sign == r"\mathbb":
            return ("literal", self._raw())
        if sign in _MARKS:
            return self._marked(sign, calls)
        self._require(sign in _AROUND)
        closing, name = _AROUND[sign]
        self._bars += 1
        inside = self._sum()
        self._require(self._skip(closing))
        self._bars -= 1
        return ("call", name, (inside,))

    def _number(self, text: str) -> Tree:
        self._require(self._next != "_")  # a numeral in another base
        number = plain_number(text)
        if text.isdigit() and self._next == r"\frac":  # 3\frac{1}{2}
            start, part = self._at, self._primary()
            if part[0] == "/" and part[1][0] == part[2][0] == "num" and part[2][1]:
                return ("num", number + part[1][1] / part[2][1])
            self._at = start
        return ("num", number)

    def _argument(self) -> Tree:
        """The argument of a command: in braces, or one digit, letter or command."""
        kind, text = self._tokens[self._at]
        if kind != "number":
            return self._primary(calls=False)
        self._require(text.isdigit())
        if len(text) > 1:
            self._tokens[self._at] = (kind, text[1:])
        else:
            self._at += 1
        return ("num", Fraction(text[0]))

    def _fraction(self) -> Tree:
        start = self._at
        top, below = self._argument(), self._argument()
        written = self._written(start, self._at).removeprefix("{").removesuffix("}")
        name = written.replace("}{", " by ", 1)
        return ("sym", name) if _DERIVATIVE.fullmatch(name) else ("/", top, below)

    def _braces(self) -> Tree:
        items: list[Tree] = []
        while not self._skip("}"):
            self._require(not items or self._skip(","))
            items.append(self._set())
            if self._skip(r"\choose"):
                items = [("call", "binom", (items[0], self._set()))]
        return items[0] if len(items) == 1 else ("set", tuple(items))

    def _bracket(self, opening: str) -> Tree:
        is_set = opening == r"\{"
        items: list[Tree] = []
        self._bars += is_set  # a bar ends the first part of `{x | x>2}`
        while self._next not in ENDS and (not items or self._skip(",", ";")):
            items.append(self._set())
        self._bars -= is_set
        if is_set and len(items) == 1 and self._next in (":", "|", r"\mid", r"\in"):
            return self._builder(items[0])
        closing = self._take()
        self._require(closing in CLOSING.values() and is_set == (closing == r"\}"))
        if is_set:
            return ("set", tuple(items))
        if len(items) == 1 and closing == CLOSING[opening]:
            return items[0]
        opening, closing = opening.replace(r"\langle", "("), closing.replace(r"\rangle", ")")
        self._require(len(items) == 2 or (len(items) > 2 and closing == CLOSING[opening]))
        return ("tuple", opening, closing, tuple(items))

    def _builder(self, symbol: Tree) -> Tree:
        r"""`{x : x>2}` behind its first symbol."""
        self._require(not self._skip(r"\in") or self._set() == ("literal", "R"))
        self._require(self._skip(":", "|", r"\mid"))
        chains = self._chains()
        self._require(self._skip(r"\}"))
        return ("where", symbol, chains)

    def _matrix(self, name: str) -> Tree:
        self._require(name in _MATRICES)
        rows: list[list[Tree]] = [[]]
        while True:
            rows[-1].append(self._sum())
            if self._skip("\\\\") and self._next != "end":
                rows.append([])
            elif not self._skip("&"):
                break
        self._require(self._next == "end" and self._take() == name)
        self._require(len({len(row) for row in rows}) == 1)
        return ("matrix", tuple(map(tuple, rows)))

    def _symbol(self, name: str, calls: bool) -> Tree:
        """A letter with its subscript and primes, `e` and `i` by themselves, or `f(x)`."""
        plain = name.removeprefix("var")
        name = plain + self._marks()
        if name in ("e", "i"):
            return (name,)
        if calls and self._next == "(":
            start, called = self._at, self._primary()
            arguments = called[3] if called[0] == "tuple" else (called,)
            is_simple = (called[1] if called[0] == "-" else called)[0] in ("num", "sym", "pi")
            if plain in ("f", "g", "F", "G") or len(arguments) > 1 or is_simple:
                return ("opaque", name, arguments)
            self._at = start
        return ("sym", name)

    def _marked(self, mark: str, calls: bool) -> Tree:
        r"""`\vec{a}` and the like, `\angle ABC`: one symbol."""
        if mark in (r"\angle", r"\triangle"):
            name = mark
            while self._next == "letter":
                name += self._take()
            self._require(name != mark)
            return ("sym", name)
        at = self._at + (self._next == "{")
        if mark in _VECTORS and self._tokens[at][0] not in ("letter", "name"):
            return self._argument()  # a number in bold type
        marked = self._raw()
        if mark in _VECTORS or (mark == r"\hat" and marked in "ijk"):
            mark = r"\vec"
        return self._symbol(f"{mark} {marked}", calls)

    def _function(self, name: str, calls: bool) -> Tree:
        if name in ("sqrt", "cbrt"):
            degree: Tree = ("num", Fraction(2 if name == "sqrt" else 3))
            if name == "sqrt" and self._skip("["):
                degree = self._sum()
                self._require(self._skip("]"))
            return ("call", "root", (self._argument(), degree))
        self._require(calls)
        base = exponent = None
        while self._next in ("^", "_"):
            if self._take() == "^":
                self._require(exponent is None)
                exponent = self._argument() if self._next in ("{", "number") else self._exponent()
            else:
                self._require(name == "log" and base is None)
                base = self._argument()
        arguments = self._arguments()
        if exponent == _MINUS_ONE and name in CIRCULAR:
            return ("call", "arc" + name, arguments)
        tree: Tree = ("call", name, (*arguments, base) if base else arguments)
        return ("^", tree, exponent) if exponent else tree

    def _arguments(self) -> tuple[Tree, ...]:
        if self._next not in ("(", "[", "{", r"\{", "|", r"\lvert"):
            return (self._signed(self._bare_argument),)
        inside = self._primary(calls=False)
        if inside[0] == "set":
            self._require(inside[1])
            return tuple(inside[1])
        self._require(inside[0] != "tuple" or inside[1:3] == ("(", ")"))
        return tuple(inside[3]) if inside[0] == "tuple" else (inside,)

    def _bare_argument(self) -> Tree:
        r"""Of `\sin 2x` the `2x`; where it ends must be plain."""
        factors = [self._power()]
        while self._next in ("letter", r"\frac") or (
            self._next == "name" and self._tokens[self._at][1] not in FUNCTIONS - {"sqrt"}
        ):
            self._require(self._tokens[self._at] != ("letter", "e"))
            factors.append(self._power())
        is_number = all(factor[0] == "num" for factor in factors)
        self._require(self._next == "name" or not self._begins_factor())
        self._require(self._next not in _OVER and not (is_number and self._next in _TIMES))
        return _times(factors)


def _times(factors: list[Tree]) -> Tree:
    return factors[0] if len(factors) == 1 else ("*", tuple(factors))


def _is_vector(tree: Tree) -> bool:
    return tree[0] == "sym" and tree[1].startswith(r"\vec")
