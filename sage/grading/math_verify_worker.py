"""Math-Verify in a process of its own: `python -m sage.grading.math_verify_worker`.

Math-Verify bounds its time by SIGALRM, which works on a main thread only; off it every
answer would silently be worth nothing. Here its own limits are off, for those of
`sage.grading.serving`.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

from sage.grading.serving import Judge, Outcome, serve_standard_streams

_DECIMALS = 12  # Math-Verify's own 6 would take 1.414214 for the square root of 2
_TRANSPOSED = re.compile(r"\^ ?(?:T|\\top|\\intercal|\{ ?(?:T|\\top|\\intercal) ?\})(?![a-zA-Z])")


def compare(gold: str, answer: str) -> Outcome:
    """Math-Verify's verdict with both sides boxed, without any time limit of its own.

    Both are texts that `sage.grading.exact.settle` has prepared. What sympy cannot compare
    is not equal; what it has no memory for is a timeout.
    """
    from math_verify import verify

    parsed_gold = _parse(gold)
    if not parsed_gold:
        return "gold_unparsed"
    parsed = [_with_constant_of(parsed_gold[0], side) for side in _parse(answer)]
    if not parsed:
        return "unparsed"
    try:
        same = verify(
            parsed_gold,
            parsed,
            float_rounding=_DECIMALS,
            allow_set_relation_comp=True,  # x > 2 is the interval from 2 on
            timeout_seconds=None,
            raise_on_error=True,
        )
        same = same or _same_where_both_are_real(parsed_gold, parsed)
    except MemoryError:
        return "timeout"
    except Exception:
        return "wrong"
    return "correct" if same else "wrong"


def _same_where_both_are_real(gold: list[Any], answer: list[Any]) -> bool:
    r"""Whether two expressions with roots or logarithms agree wherever either is real.

    Sympy will not write `\sqrt{1/n}` as `1/\sqrt{n}`, for on another branch they differ.
    Here both are evaluated to 30 digits at fixed points of both signs: they must be real at the
    same points, at three or more, and equal there. `\sqrt{x^2}` is not `x`.
    """
    from sympy import Expr, Float, Pow, log

    if len(gold) != 1 or len(answer) != 1:
        return False
    pair = gold[0], answer[0]
    if not all(isinstance(side, Expr) for side in pair):
        return False
    symbols = sorted(pair[0].free_symbols, key=str)
    if not symbols or len(symbols) > 6 or pair[0].free_symbols != pair[1].free_symbols:
        return False
    if not any(
        side.has(log) or any(not power.exp.is_integer for power in side.atoms(Pow)) for side in pair
    ):
        return False
    real = 0
    for point in range(_POINTS):
        values = {symbol: Float(_value(point, place), 30) for place, symbol in enumerate(symbols)}
        left, right = (side.evalf(30, subs=values) for side in pair)
        if left.is_real is not True and right.is_real is not True:
            continue
        if left.is_real is not True or right.is_real is not True:
            return False
        if abs(left - right) > 1e-20 * abs(left):
            return False
        real += 1
    return real >= 3


_POINTS = 10


def _value(point: int, place: int) -> str:
    """A coordinate of a point: all positive in the first half, of mixed signs in the second."""
    size = (37 * point + 101 * place) % 89 / 16 + 0.3271
    is_negative = (point >= _POINTS // 2 and (point + place) % 2 == 0) or point == _POINTS - 1
    return str(-size if is_negative else size)


def _with_constant_of(gold: Any, answer: Any) -> Any:
    """`answer` with its constant of integration, `c` or `C`, written as in `gold`.

    Only where each side has one of the two letters, and is linear in it: `mC^2` stays.
    """
    from sympy import Eq, Expr

    found = []
    for side in (gold, answer):
        parts = side.args if isinstance(side, Eq) else (side,)
        letters = [s for s in getattr(side, "free_symbols", ()) if s.name in ("c", "C")]
        if len(letters) != 1 or not all(isinstance(part, Expr) for part in parts):
            return answer
        if any(part.diff(*letters).has(*letters) for part in parts):
            return answer
        found += letters
    return answer.subs(found[1], found[0])


def _parse(text: str) -> list[Any]:
    """The expression in `text`, if sympy can read one; never a mere string."""
    from math_verify import parse

    text = _TRANSPOSED.sub(r"^{\\text{T}}", text)  # `A^T` alone would be read as `A`
    parsed = parse(f"\\boxed{{{text}}}", _reading(), parsing_timeout=None)
    return [expression for expression in parsed if not isinstance(expression, str)]


@cache
def _reading() -> list[Any]:
    """Math-Verify's defaults but for units: it takes the t of `12t` for one."""
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
    from math_verify import LatexExtractionConfig

    _mend_math_verify()
    normal = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last"
    )
    return [LatexExtractionConfig(normalization_config=normal)]


def _mend_math_verify() -> None:
    """Make Math-Verify tell letters apart by their case, and numbers however small they are.

    It has options for neither. Raises RuntimeError if its internals are not those of the version
    that this package asks for.
    """
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from latex2sympy2_extended.symbols import sympy_singleton_map
    from math_verify import grader, parser

    sympy_singleton_map.pop("Gamma", None)  # Euler's constant is the small letter
    try:
        cased = ConversionConfig(lowercase_symbols=False)
        parser.latex2sympy = partial(parser.latex2sympy, conversion_config=cased)
        grader.sympy_compare_symbols = partial(_same_symbols, grader.sympy_compare_symbols)
        grader.sympy_numeric_eq = partial(_same_digits, grader.sympy_numeric_eq)
        if parser.latex2sympy("T") == parser.latex2sympy("t"):
            raise AttributeError("T is still read as t")
    except (AttributeError, TypeError) as error:
        raise RuntimeError(
            f"Math-Verify is another version than in pyproject.toml: {error}"
        ) from error


def _same_symbols(judge: Any, gold: Any, answer: Any) -> bool:
    r"""Math-Verify's verdict on names, which minds no case: `\text{abc}` is `abc`, `E` is `e`."""
    from sympy import E, Mul

    def letters(side: Any) -> list[str]:
        return sorted("".join("e" if part == E else str(part) for part in Mul.make_args(side)))

    return judge(gold, answer) and (E in (gold, answer) or letters(gold) == letters(answer))


def _same_digits(judge: Any, gold: Any, answer: Any, *options: Any) -> bool:
    """Math-Verify's verdict on numbers, which takes all tiny ones to be 0, if their digits agree.

    Expressions are compared where all their letters are 0, and at one point more.
    """
    from sympy import Expr, UnevaluatedExpr

    if not judge(gold, answer, *options):
        return False
    if not all(isinstance(side, Expr) and not side.has(UnevaluatedExpr) for side in (gold, answer)):
        return True  # matrices, whose elements are asked for one by one, and percentages
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for values in (["0" for _ in symbols], [_value(0, place) for place, _ in enumerate(symbols)]):
        left, right = (
            _at(side, dict(zip(symbols, values, strict=True))) for side in (gold, answer)
        )
        if None not in (left, right) and abs(left - right) > 1e-12 * max(abs(left), abs(right)):
            return False
    return True


def _at(side: Any, values: dict[Any, str]) -> Any:
    """`side` to 30 digits where its letters have these values; None where it is no number."""
    from sympy import Float

    try:
        found = side.evalf(30, subs={symbol: Float(value, 30) for symbol, value in values.items()})
    except (ArithmeticError, TypeError, ValueError, AttributeError, NotImplementedError):
        return None
    return found if found.is_number and found.is_finite else None


def answer_one(gold: str, answer: str) -> Outcome:
    """`compare`, never an exception, and the same whatever was asked before."""
    import sympy.core.random
    from sympy.core.cache import clear_cache

    clear_cache()
    sympy.core.random.seed(0)
    try:
        return compare(gold, answer)
    except MemoryError:
        return "timeout"
    except Exception:
        return "unparsed"


def _prepare(gold: str) -> Judge:
    return partial(answer_one, gold)


def _warm_up() -> None:
    """Load everything; raises RuntimeError if Math-Verify is not the version that is asked for."""
    _reading()
    answer_one(r"\frac{1}{2}", r"\sqrt{2}+1")


if __name__ == "__main__":
    serve_standard_streams(_warm_up, _prepare)
