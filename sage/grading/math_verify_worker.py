"""Math-Verify in a process of its own: `python -m sage.grading.math_verify_worker`.

Math-Verify bounds its time by SIGALRM, which works on a main thread only; off it every
answer would silently be worth nothing. Here its own limits are off, for those of
`sage.grading.serving`.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from sage.grading.serving import Judge, Outcome, serve_standard_streams

_DECIMALS = 12  # Math-Verify's own 6 would take 1.414214 for the square root of 2


def compare(gold: str, answer: str) -> Outcome:
    """Math-Verify's verdict with both sides boxed, without any time limit of its own.

    Both are texts that `sage.grading.exact.settle` has prepared. What sympy cannot compare
    is not equal; what it has no memory for is a timeout.
    """
    from math_verify import verify

    parsed_gold = _parse(gold)
    if not parsed_gold:
        return "gold_unparsed"
    parsed = _parse(answer)
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
        if abs(left - right) > 1e-20 * (1 + abs(left)):
            return False
        real += 1
    return real >= 3


_POINTS = 10


def _value(point: int, place: int) -> str:
    """A coordinate of a point: all positive in the first half, of mixed signs in the second."""
    size = (37 * point + 101 * place) % 89 / 16 + 0.3271
    is_negative = (point >= _POINTS // 2 and (point + place) % 2 == 0) or point == _POINTS - 1
    return str(-size if is_negative else size)


def _parse(text: str) -> list[Any]:
    """The expression in `text`, if sympy can read one; never a mere string."""
    from math_verify import parse

    parsed = parse(f"\\boxed{{{text}}}", _reading(), parsing_timeout=None)
    return [expression for expression in parsed if not isinstance(expression, str)]


@cache
def _reading() -> list[Any]:
    """Math-Verify's defaults but for units: it takes the t of `12t` for one."""
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
    from math_verify import LatexExtractionConfig

    normal = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last"
    )
    return [LatexExtractionConfig(normalization_config=normal)]


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


if __name__ == "__main__":
    serve_standard_streams(lambda: answer_one(r"\frac{1}{2}", r"\sqrt{2}+1"), _prepare)
