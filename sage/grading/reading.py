r"""Mathematics as answers write it, in LaTeX or plain, as a tree: all of a text is read, or none.

A statement is a list of chains such as `x=1` or `0<x<1` with what joins them; the sides of a chain
are trees, tuples whose first element names their kind. What can be read in two ways (`1/2x`,
`\sin x(y+1)`, `x2`) and what is not known (`\implies`, words) is not read. The text is untrusted:
it is tidy (`sage.grading.tidy`) and of bounded length; brackets nest no deeper than `_DEEPEST`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from sage.grading.quantities import ENDLESS, endless_number, plain_number
from sage.grading.statements import is_word

Tree = tuple[Any, ...]


class Unreadable(ValueError):
    """The text is no mathematics that is understood as a whole."""


class Chain(NamedTuple):
    """Sides with the relations between them; a single side has none."""

    sides: tuple[Tree, ...]
    relations: tuple[str, ...]
    joint: str
    """What joins it to the chain before: `,`, `and` or `or`."""


_DEEPEST = 40

_CIRCULAR, _HYPERBOLIC = ("sin", "cos", "tan", "cot", "sec", "csc"), ("sinh", "cosh", "tanh")
FUNCTIONS = {
    *_CIRCULAR,
    *_HYPERBOLIC,
    *("arc" + name for name in (*_CIRCULAR, *_HYPERBOLIC)),
    *("exp", "ln", "log", "max", "min", "gcd", "lcm", "abs", "floor", "ceil", "sqrt", "cbrt"),
}
_OTHER_NAMES = {
    **{"a" + name: "arc" + name for name in (*_CIRCULAR, *_HYPERBOLIC)},
    **{"ar" + name: "arc" + name for name in _HYPERBOLIC},
    **{"Abs": "abs", "infinity": "infty", "inf": "infty"},
}
_GREEK = set(
    ["alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa", "lambda", "mu", "nu", "xi", "omicron", "rho", "varrho", "sigma", "varsigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega", "hbar", "ell"]
)
_CONSTANTS: dict[str, Tree] = {
    **{"pi": ("pi",), "infty": ("inf",), "emptyset": ("set", ()), "imath": ("i",)},
    **{"R": ("literal", "R"), "mathbb": ("literal",)},
}
_NAMES = FUNCTIONS | _GREEK | _CONSTANTS.keys()
_PLAIN_NAMES = {"pi"} | {n for n in _NAMES if len(n) > 2 and n not in ("mathbb", "imath")} | {"ln"}
_WORDS = {"no", "or", "if", "is", "of", "to", "so", "be", "do", "any", "all", "for", "but"}
_RELATIONS = {
    **{"=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!="},
    **{r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=", r"\in": "in"},
    **{r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", r"\ne": "!=", r"\neq": "!="},
}
_TIMES = {"*", r"\cdot", r"\times", r"\ast"}
_OVER = {"/", r"\div"}
_SIGNS = {"+": "+", "-": "-", r"\pm": "pm", r"\mp": "mp"}
_SET_OPERATIONS = {r"\cup": "cup", r"\cap": "cap", r"\setminus": "minus", r"\backslash": "minus"}
_JOINTS = {
    **{",": ",", ";": ",", r"\quad": ",", r"\qquad": ",", "and": "and", "or": "or"},
    **{r"\land": "and", r"\wedge": "and", r"\lor": "or", r"\vee": "or"},
}
_CLOSING = {"(": ")", "[": "]", r"\{": r"\}", r"\langle": r"\rangle"}
_VECTORS = {"vec", "mathbf", "boldsymbol", "overrightarrow"}
_MARKS = _VECTORS | {
    *("hat", "widehat"),
    *("bar", "overline", "tilde", "widetilde", "dot", "ddot", "mathcal", "mathscr", "angle"),
    "triangle",
}
_MATRICES = {"pmatrix", "bmatrix", "matrix", "array", "smallmatrix"}
_SYSTEMS = {"cases", "aligned", "align", "align*", "array", "gathered"}

_WORDED = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|math(?:rm|sf|it|tt)|mbox|operatorname\*?) ?"
_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_GROUPED = r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?![0-9])(?:\.[0-9]+)?"
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,3}(?![0-9a-zA-Z^(\\.]))?"
_OTHERS = (
    rf"|(?P<space> +)|{_WORDED}\{{(?P<text>[^{{}}]*)\}}"
    r"|\\(?P<edge>begin|end) ?\{(?P<place>[a-z]+\*?)\}(?: ?\{[lcr| ]*\})?"
    r"|(?P<sign>\\(?:[a-zA-Z]+|.)|<=|>=|!=|==|[-+*/^_=<>(),;:|!%'{}\[\]&])|(?P<run>[a-zA-Z]+)"
)
_TOKENS = [
    re.compile(rf"(?P<endless>{ENDLESS})|(?P<number>{number}{_EXPONENT}){_OTHERS}")
    for number in (rf"(?:{_GROUPED}|{_DECIMAL})", _DECIMAL)
]
_DERIVATIVE = re.compile(
    r"(?P<d>d|\\partial)(?:\^\{?[0-9]\}?)?(?:\\?[a-zA-Z].*)? by (?P=d)\\?[a-zA-Z]+(?:_.+)?(?:\^\{?[0-9]\}?)?"
)


@lru_cache(maxsize=4_096)
def read(text: str) -> tuple[Chain, ...]:
    """The statement that a tidy `text` makes; raises Unreadable if it is none as a whole."""
    return _Reader(_tokens(text)).statement()


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kinds and texts; a comma groups digits only where no bracket makes it a separator."""
    found: list[tuple[str, str]] = []
    place = depth = 0
    while place < len(text):
        match = _TOKENS[depth > 0].match(text, place)
        if match is None:
            raise Unreadable(text[place])
        place, kind = match.end(), str(match.lastgroup)
        token = match[kind]
        if kind == "place":
            found.append((match["edge"], token))
        elif kind == "run":
            found += _run(token)
        elif kind == "text":
            found += _worded(token)
        elif kind == "sign":
            depth += (token in _CLOSING) - (token in _CLOSING.values())
            found.append(("name", token[1:]) if token[1:] in _NAMES else ("sign", token))
        elif kind != "space":
            found.append((kind, token))
    return [*found, ("stop", "")]


def _run(run: str) -> list[tuple[str, str]]:
    """A run of letters: a name, a word that joins, one symbol in capitals, or letters."""
    run = _OTHER_NAMES.get(run, run)
    if run in ("and", "or"):
        return [("sign", run)]
    if run in _PLAIN_NAMES:
        return [("name", run)]
    if len(run) > 2 and run.isupper():
        return [("letter", run)]
    if len(run) > 3 or run.lower() in _WORDS or (len(run) == 3 and is_word(run)):
        raise Unreadable(run)
    return [("letter", letter) for letter in run]


def _worded(text: str) -> list[tuple[str, str]]:
    """What stands in upright letters: a word that joins, a name, a letter, or a symbol."""
    said = text.strip(" ,")
    if said and not (said.isalnum() and said.isascii() and not said[0].isdigit()):
        raise Unreadable(text)
    if len(said) > 1 and said not in FUNCTIONS | {"and", "or"}:
        return [("letter", said)]
    return _run(said) if said else []


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at, self._depth, self._bars = tokens, 0, 0, 0

    @property
    def _next(self) -> str:
        """The text of the next token if it is a sign, else its kind."""
        kind, text = self._tokens[self._at]
        return text if kind == "sign" else kind

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _skip(self, sign: str) -> bool:
        found = self._tokens[self._at] == ("sign", sign)
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            self._fail()

    def _fail(self) -> NoReturn:
        raise Unreadable(self._tokens[self._at][1] or "the end")

    def statement(self) -> tuple[Chain, ...]:
        """All of it, to the last token."""
        is_braced = self._next == r"\{" and self._tokens[self._at + 1] == ("begin", "array")
        self._at += is_braced
        kind, name = self._tokens[self._at]
        is_system = kind == "begin" and name in _SYSTEMS and (name != "array" or is_braced)
        self._at += is_system
        chains = [self._chain(",")]
        while joint := self._joint(is_system):
            if self._next not in ("stop", "end"):
                chains.append(self._chain(joint))
        if is_system and (self._next != "end" or self._take() != name):
            self._fail()
        if self._next != "stop":
            self._fail()
        return tuple(chains)

    def _joint(self, is_system: bool) -> str:
        found = ""
        while self._next in _JOINTS or (is_system and self._next == "\\\\"):
            said = _JOINTS.get(self._take(), ",")
            found = found if said == "," and found else said
        return found

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
        while self._next in _SET_OPERATIONS:
            tree = (_SET_OPERATIONS[self._take()], tree, self._sum())
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
        factors = [self._power()]
        is_open = False  # behind `a/b`, where a factor without a sign may belong below or above
        while True:
            if self._next in _TIMES:
                sign = self._take()
                right = self._signed_power()
                if sign == r"\times" and _is_vector(factors[-1]) and _is_vector(right):
                    factors[-1] = ("opaque", "times", (factors[-1], right))
                else:
                    factors.append(right)
                is_open = False
            elif self._next in _OVER:
                self._take()
                left = factors[0] if len(factors) == 1 else ("*", tuple(factors))
                right = self._signed_power()
                is_open = not left[0] == right[0] == "num"
                factors = [("/", left, right)]
            elif self._begins_factor():
                is_number = self._next in ("number", "endless")
                if is_open or (is_number and factors[-1] != ("pi",)):
                    self._fail()
                factors.append(self._power())
            else:
                return factors[0] if len(factors) == 1 else ("*", tuple(factors))

    def _signed_power(self) -> Tree:
        is_negative = self._skip("-")
        return ("-", self._power()) if is_negative else self._power()

    def _begins_factor(self) -> bool:
        following = self._next
        return (
            following in ("number", "endless", "letter", "name", "begin", "(", "[", "{")
            or following in (r"\frac", r"\binom", r"\lfloor", r"\lceil", r"\lvert", r"\boxed")
            or (following[:1] == "\\" and following[1:] in _MARKS)
            or (following == "|" and not self._bars)
        )

    def _power(self) -> Tree:
        tree = self._primary()
        if self._skip("!"):
            tree = ("call", "factorial", (tree,))
        if self._skip("%") or self._skip(r"\%"):
            tree = ("/", tree, ("num", Fraction(100)))
        if self._skip("^"):
            if self._skip(r"\circ"):
                return ("/", ("*", (tree, ("pi",))), ("num", Fraction(180)))
            tree = ("^", tree, self._exponent())
        return tree

    def _exponent(self) -> Tree:
        if is_negative := self._next in ("+", "-"):
            is_negative = self._take() == "-"
        tree = self._primary(calls=False)
        if self._skip("^"):
            tree = ("^", tree, self._exponent())
        return ("-", tree) if is_negative else tree

    def _primary(self, calls: bool = True) -> Tree:
        """The smallest thing that stands by itself; `f(x)` is one if `calls`."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail()
        tree = self._unbounded_primary(calls)
        self._depth -= 1
        return tree

    def _unbounded_primary(self, calls: bool) -> Tree:
        kind, text = self._tokens[self._at]
        if kind == "number":
            return self._number()
        if kind == "endless":
            return ("num", endless_number(self._take()) or self._fail())
        if kind == "begin":
            return self._matrix()
        if kind == "letter" or (kind == "name" and text in _GREEK):
            return self._symbol(self._take(), calls)
        if kind == "name" and text in FUNCTIONS:
            return self._function(self._take(), calls)
        if kind == "name":
            return self._constant(self._take())
        if kind != "sign":
            self._fail()
        if text in _CLOSING:
            return self._bracket()
        self._at += 1
        if text == "{":
            return self._braces()
        if text == r"\frac":
            return self._fraction()
        if text == r"\boxed":
            return self._argument()
        if text == r"\binom":
            return ("call", "binom", (self._argument(), self._argument()))
        for opening, closing, name in (
            ("|", "|", "abs"),
            (r"\lvert", r"\rvert", "abs"),
            (r"\lfloor", r"\rfloor", "floor"),
            (r"\lceil", r"\rceil", "ceil"),
        ):
            if text == opening:
                self._bars += 1
                inside = self._sum()
                self._expect(closing)
                self._bars -= 1
                return ("call", name, (inside,))
        if text[:1] == "\\" and text[1:] in _MARKS:
            return self._marked(text[1:], calls)
        self._at -= 1
        self._fail()

    def _number(self) -> Tree:
        text = self._take()
        number = plain_number(text)
        if self._next == "_":
            self._fail()  # a numeral in another base
        if text.isdigit() and self._next == r"\frac":  # 3\frac{1}{2}
            start = self._at
            part = self._unbounded_primary(calls=False)
            if part[0] == "/" and part[1][0] == part[2][0] == "num" and part[2][1]:
                return ("num", number + part[1][1] / part[2][1])
            self._at = start
        return ("num", number)

    def _argument(self) -> Tree:
        """The argument of a command: in braces, or one digit, letter or command."""
        kind, text = self._tokens[self._at]
        if kind == "number":
            if not text.isdigit():
                self._fail()
            self._at += 1
            if len(text) > 1:
                self._at -= 1
                self._tokens[self._at] = ("number", text[1:])
            return ("num", Fraction(text[0]))
        return self._primary(calls=False)

    def _fraction(self) -> Tree:
        start = self._at
        top, below = self._argument(), self._argument()
        parts = self._written(start, self._at).removeprefix("{").removesuffix("}").split("}{")
        if len(parts) == 2 and _DERIVATIVE.fullmatch(" by ".join(parts)):
            return self._symbol(" by ".join(parts), calls=False)
        return ("/", top, below)

    def _written(self, start: int, end: int) -> str:
        return "".join(
            "\\" + text if kind == "name" else text for kind, text in self._tokens[start:end]
        )

    def _braces(self) -> Tree:
        if self._skip("}"):
            return ("set", ())
        items = [self._set()]
        if self._skip(r"\choose"):
            items = [("call", "binom", (items[0], self._set()))]
        is_set = self._next == ","
        while self._skip(","):
            items.append(self._set())
        self._expect("}")
        return ("set", tuple(items)) if is_set else items[0]

    def _bracket(self) -> Tree:
        opening = self._take()
        items: list[Tree] = []
        if opening == r"\{":
            self._bars += 1
        while self._next not in _CLOSING.values():
            if items and not (self._skip(",") or self._skip(";")):
                break
            items.append(self._set())
        if opening == r"\{":
            self._bars -= 1
            if len(items) == 1 and self._next in (":", "|", r"\mid", r"\in"):
                return self._builder(items[0])
        if self._next not in _CLOSING.values():
            self._fail()
        closing = self._take()
        if (opening == r"\{") != (closing == r"\}"):
            self._fail()
        if opening == r"\{":
            return ("set", tuple(items))
        if len(items) == 1 and closing == _CLOSING[opening]:
            return items[0]
        marks = [{r"\langle": "(", r"\rangle": ")"}.get(mark, mark) for mark in (opening, closing)]
        if not items or (len(items) != 2 and tuple(marks) not in _CLOSING.items()):
            self._fail()
        return ("tuple", *marks, tuple(items))

    def _builder(self, symbol: Tree) -> Tree:
        r"""`{x : x>2}` behind its first symbol."""
        if self._skip(r"\in") and self._set() != ("literal", "R"):
            self._fail()
        if not (self._skip(":") or self._skip("|") or self._skip(r"\mid")):
            self._fail()
        chains = [self._chain(",")]
        while joint := self._joint(False):
            chains.append(self._chain(joint))
        self._expect(r"\}")
        return ("where", symbol, tuple(chains))

    def _matrix(self) -> Tree:
        name = self._take()
        if name not in _MATRICES:
            self._fail()
        rows: list[list[Tree]] = [[]]
        while True:
            rows[-1].append(self._sum())
            if self._skip("\\\\"):
                if self._next == "end":
                    break
                rows.append([])
            elif not self._skip("&"):
                break
        if self._next != "end" or self._take() != name or len({len(row) for row in rows}) > 1:
            self._fail()
        return ("matrix", tuple(map(tuple, rows)))

    def _constant(self, name: str) -> Tree:
        if name == "mathbb":
            self._expect("{")
            name = self._take()
            self._expect("}")
            return ("literal", name)
        if self._next == "_":
            self._fail()
        return _CONSTANTS[name]

    def _symbol(self, name: str, calls: bool) -> Tree:
        """A letter with its subscript and primes, `e` and `i` by themselves, or `f(x)`."""
        plain = name = name.removeprefix("var")
        while True:
            if self._skip("_"):
                name += "_" + self._raw()
            elif self._skip("'"):
                name += "'"
            elif self._tokens[self._at : self._at + 2] == [("sign", "^"), ("sign", "{")] and (
                self._tokens[self._at + 2] == ("sign", r"\prime")
            ):
                self._at += 1
                name += "'" * self._raw().count("prime")
            else:
                break
        if name in ("e", "i"):
            return (name,)
        if calls and self._next == "(":
            start = self._at
            called = self._bracket()
            arguments = called[3] if called[0] == "tuple" else (called,)
            is_simple = (called[1] if called[0] == "-" else called)[0] in ("num", "sym", "pi")
            if plain in ("f", "g", "F", "G") or len(arguments) > 1 or is_simple:
                return ("opaque", name, arguments)
            self._at = start
        return ("sym", name)

    def _raw(self) -> str:
        """The text of a subscript, without its braces."""
        if not self._skip("{"):
            if self._next in ("stop", "end") or self._next in _CLOSING.values():
                self._fail()
            return self._take()
        start, depth = self._at, 1
        while depth:
            if self._next == "stop":
                self._fail()
            depth += {"{": 1, "}": -1}.get(self._take(), 0)
        return self._written(start, self._at - 1)

    def _marked(self, mark: str, calls: bool) -> Tree:
        r"""`\vec{a}` and the like, `\angle ABC`: one symbol."""
        if mark in ("angle", "triangle"):
            letters = ""
            while self._next == "letter":
                letters += self._take()
            return ("sym", f"{mark} {letters}") if letters else self._fail()
        marked = self._raw()
        if mark in _VECTORS or (mark == "hat" and marked in ("i", "j", "k")):
            mark = "vec"
        return self._symbol(f"{mark} {marked}", calls)

    def _function(self, name: str, calls: bool) -> Tree:
        if name == "sqrt" and self._skip("["):
            root = self._sum()
            self._expect("]")
            return ("call", "root", (self._argument(), root))
        if name in ("sqrt", "cbrt"):
            degree = ("num", Fraction(2 if name == "sqrt" else 3))
            return ("call", "root", (self._argument(), degree))
        if not calls:
            self._fail()
        base = exponent = None
        while self._next in ("^", "_"):
            if self._take() == "^" and exponent is None:
                exponent = self._argument() if self._next in ("{", "number") else self._exponent()
            elif name == "log" and base is None:
                base = self._argument()
            else:
                self._fail()
        arguments = self._arguments()
        if exponent in (("-", ("num", Fraction(1))), ("num", Fraction(-1))) and name in _CIRCULAR:
            name, exponent = "arc" + name, None
        tree: Tree = ("call", name, (*arguments, base) if base else arguments)
        return ("^", tree, exponent) if exponent else tree

    def _arguments(self) -> tuple[Tree, ...]:
        if self._next in ("(", "[", "{", r"\{", "|", r"\lvert"):
            inside = self._primary(calls=False)
            if inside[0] == "tuple":
                return tuple(inside[3]) if inside[1:3] == ("(", ")") else self._fail()
            return tuple(inside[1]) if inside[0] == "set" else (inside,)
        return (self._bare_argument(),)

    def _bare_argument(self) -> Tree:
        r"""Of `\sin 2x` the `2x`; where it ends must be plain."""
        is_negative = self._skip("-")
        factors = [self._power()]
        while self._next in ("letter", r"\frac", r"\sqrt") or (
            self._next == "name" and self._tokens[self._at][1] not in FUNCTIONS - {"sqrt"}
        ):
            if self._tokens[self._at] == ("letter", "e"):
                self._fail()
            factors.append(self._power())
        follows = self._next
        is_number = all(factor[0] == "num" for factor in factors)
        goes_on = self._begins_factor() and follows != "name"
        if goes_on or follows in _OVER or (is_number and follows in _TIMES):
            self._fail()
        tree = factors[0] if len(factors) == 1 else ("*", tuple(factors))
        return ("-", tree) if is_negative else tree


def _is_vector(tree: Tree) -> bool:
    return tree[0] == "sym" and tree[1].startswith("vec ")
