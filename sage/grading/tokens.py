r"""The signs, names, numbers and letters of mathematics, in LaTeX or plain, for `reading`."""

from __future__ import annotations

import re
from typing import Any

from sage.grading.quantities import ENDLESS, vocabulary
from sage.grading.statements import is_word


class Unreadable(ValueError):
    """The text is no mathematics that is understood as a whole."""


CIRCULAR, _HYPERBOLIC = vocabulary("sin cos tan cot sec csc"), vocabulary("sinh cosh tanh")
FUNCTIONS = {
    *(prefix + name for name in CIRCULAR | _HYPERBOLIC for prefix in ("", "arc")),
    *vocabulary("exp ln log max min gcd lcm abs floor ceil sqrt cbrt"),
}
_OTHER_NAMES = {
    **{"a" + name: "arc" + name for name in CIRCULAR | _HYPERBOLIC},
    **{"ar" + name: "arc" + name for name in _HYPERBOLIC},
    **{"Abs": "abs", "infinity": "infty", "inf": "infty"},
}
GREEK = vocabulary(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "omicron rho varrho sigma varsigma tau upsilon phi varphi chi psi omega hbar ell "
    "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
CONSTANTS: dict[str, tuple[Any, ...]] = {
    **{"pi": ("pi",), "infty": ("inf",), "emptyset": ("set", ()), "imath": ("i",)},
    "R": ("literal", "R"),
}
_NAMES = FUNCTIONS | GREEK | CONSTANTS.keys()
_PLAIN_NAMES = {"pi", "ln"} | {name for name in _NAMES - {"imath"} if len(name) > 2}
_NO_PRODUCTS = vocabulary("no or if is of to so be do")
CLOSING = {"(": ")", "[": "]", r"\{": r"\}", r"\langle": r"\rangle"}
ENDS = {*CLOSING.values(), "stop", "end"}

_WORDED = r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|math(?:rm|sf|it|tt)|mbox|operatorname\*?) ?"
_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_GROUPED = r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?![0-9])(?:\.[0-9]+)?"
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,3}(?![0-9a-zA-Z^(\\.]))?"
_OTHERS = (
    rf"|(?P<space> +)|{_WORDED}\{{(?P<text>[^{{}}]*)\}}"
    r"|\\(?P<edge>begin|end) ?\{(?P<place>[a-z]+\*?)\}(?: ?\{[lcr| ]*\})?"
    r"|(?P<sign>\\(?:[a-zA-Z]+|.)|<=|>=|==|[-+*/^_=<>(),;:|!%'{}\[\]&])|(?P<run>[a-zA-Z]+)"
)
_TOKENS = [
    re.compile(rf"(?P<endless>{ENDLESS})|(?P<number>{number}{_EXPONENT}){_OTHERS}")
    for number in (rf"(?:{_GROUPED}|{_DECIMAL})", _DECIMAL)
]


class Tokens:
    """The tokens of a text, read from left to right; raises Unreadable where one does not fit."""

    def __init__(self, text: str) -> None:
        self._tokens, self._at = _tokens(text), 0

    @property
    def _next(self) -> str:
        """The text of the next token if it is a sign, else its kind."""
        kind, text = self._tokens[self._at]
        return text if kind == "sign" else kind

    def _take(self) -> str:
        self._require(self._next != "stop")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _skip(self, *signs: str) -> bool:
        is_there = self._next in signs and self._tokens[self._at][0] == "sign"
        self._at += is_there
        return is_there

    def _require(self, condition: object) -> None:
        if not condition:
            raise Unreadable(self._tokens[self._at][1] or "the end")

    def _written(self, start: int, end: int) -> str:
        return "".join("\\" * (kind == "name") + text for kind, text in self._tokens[start:end])

    def _raw(self) -> str:
        """The text of a subscript, without its braces."""
        if not self._skip("{"):
            self._require(self._next not in ENDS)
            return self._take()
        start, depth = self._at, 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self._take(), 0)
        return self._written(start, self._at - 1)

    def _marks(self) -> str:
        """The subscripts and primes behind a letter."""
        marks = ""
        prime = [("sign", "^"), ("sign", "{"), ("sign", r"\prime")]
        while True:
            if self._skip("_"):
                marks += "_" + self._raw()
            elif self._skip("'"):
                marks += "'"
            elif self._tokens[self._at : self._at + 3] == prime:
                self._at += 1
                marks += "'" * self._raw().count("prime")
            else:
                return marks


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
            depth += (token in CLOSING) - (token in CLOSING.values())
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
    if (
        len(run) > 3
        or (run.lower() in _NO_PRODUCTS and run != "NO")
        or (len(run) == 3 and is_word(run))
    ):
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
