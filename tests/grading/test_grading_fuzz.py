"""A search for wrong answers that pass for right: right ones, changed in one place.

Each answer that the pairs and benchmarks hold to be right is changed: a digit, a sign, a name, an
operator; or something is put before or behind it: an equation, a clause, a unit. None may be right
then but those in `grading_survivors.yaml`, each with its reason.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from test_grading import MIRROR, PAIRS, golds

from sage.grading.exact import settle, settle_number
from sage.grading.statements import speaks, stated
from sage.grading.tidy import tidy

SURVIVORS = Path(__file__).with_name("grading_survivors.yaml")

_SWAPPED = {
    **{"+": "-", "-": "+", "<": r"\le ", ">": r"\ge ", "(": "[", "[": "(", ")": "]", "]": ")"},
    **{"*": "+", "/": "*", r"\cup": r"\cap", r"\cap": r"\cup", r"\le": "<", r"\ge": ">"},
    **{r"\leq": "<", r"\geq": ">", r"\sin": r"\cos", r"\cos": r"\sin", r"\ln": r"\log"},
    **{r"\cdot": "+", r"\times": "+", r"\pi": "e", r"\sqrt": r"\sqrt[3]", r"\frac": r"\binom"},
    **{r"\pm": "+", r"\ne": "=", r"\neq": "="},
}
_BEHIND = [
    *(", 7919", r" \quad 7919", ", x=7919", r" \quad x=7919", " = 7919", r" \text{ or } 7919"),
    *("; 7919", r" \implies 7919", r" \to 7919", "/7919", " 7919", r"\cdot 7919", "+7919"),
    *("^{7919}", "x", r"\mathrm{x}", r"\text{ dozen}", r"\text{ thousand}", " < 7919", r"\\7919"),
    *(r" \text{ if } n>3", " if n is even", " or not", " at most", " plus 1", " and 7919", "?"),
    *(" but I am not sure", " is wrong", ", maybe", " or so", r" \text{ or more}", r" \ldots"),
    *(r"\text{ is not right}", r" \approx 7919", ". It may be 7919.", ". No, it is 7919."),
]
_BEFORE = [
    *("7919, ", "x=7919, ", r"7919 \quad ", "7919 = ", "not ", "-", "7919 ", r"7919 \to ", "2"),
    *("at most ", "either 7919 or ", "half of ", "twice ", "no ", "<", r"\ne ", "if n=1, "),
    *("all but ", "minus ", "It is not true that ", "I doubt that "),
]


_WITH_WORKING = re.compile(r"####|[.\n]\s|, so |^(?:so|thus|hence|therefore)\b", re.IGNORECASE)


def right_answers() -> list[tuple[str, str]]:
    """Golds with right answers; the letters of choices, which stand for anything, are left out."""
    table = yaml.safe_load(PAIRS.read_text(encoding="utf-8"))
    found = [
        (gold, answer)
        for name, group in table.items()
        if name != "disagreements"
        for gold, answer in group.get("equal", [])
    ]
    if MIRROR is not None:
        found += [(gold, gold) for name in ("math500", "minerva") for gold in golds(name)]
    letter = re.compile(r"(?:\\text\w*\{)?\(?[A-Z]\)?\}?")
    return [pair for pair in dict.fromkeys(found) if not letter.fullmatch(pair[0])]


def mutants(gold: str, answer: str) -> Iterator[str]:
    """Answers that say something else; names that the gold does not have are not changed."""
    for match in re.finditer(r"\\[a-zA-Z]+|[0-9]|[a-zA-Z]+|[^\\]", answer):
        found, (start, end) = match[0], match.span()
        others = []
        if found in "0123456789":
            others = [str((int(found) + 1) % 10), found + "7"]
        elif found in _SWAPPED:
            others = [_SWAPPED[found] + " "]
        elif found.isalpha() and len(found) == 1 and found in gold:
            others = ["q" if found != "q" else "w"]
        yield from (answer[:start] + other + answer[end:] for other in others)
    yield from (answer + end for end in _BEHIND)
    yield from (start + answer for start in _BEFORE)


def is_working(answer: str, mutant: str) -> bool:
    """Whether the change is in the working of an answer in words, which still states the same."""
    is_before = mutant.endswith(answer) and not _WITH_WORKING.search(answer)
    if mutant.startswith(answer) or is_before or not speaks(tidy(mutant)):
        return False
    return stated(mutant) == stated(answer)


@pytest.mark.slow
def test_no_change_of_a_right_answer_is_right_but_for_those_with_a_reason() -> None:
    statuses: Counter[str] = Counter()
    survivors: set[tuple[str, str]] = set()
    for gold, answer in right_answers():
        for mutant in mutants(gold, answer):
            status = settle(gold, mutant)
            if status == "correct" and is_working(answer, mutant):
                status = "working"  # type: ignore[assignment]
            elif status == "correct":
                survivors.add((gold, mutant))
            statuses[status] += 1
    reasons = yaml.safe_load(SURVIVORS.read_text(encoding="utf-8"))
    explained = {(gold, mutant) for pairs in reasons.values() for gold, mutant in pairs}
    print(statuses)
    assert survivors - explained == set()
    assert sum(statuses.values()) > 30_000
    assert len(explained) < 250
    if MIRROR is not None:
        assert explained - survivors == set()


SUMS = ["26", r"\boxed{26}", "The answer is 26.", "Answer: **26**", "x=26", "20+6=26"]


def test_where_a_number_is_asked_for_only_the_working_may_change() -> None:
    for answer in SUMS:
        for mutant in mutants("26", answer):
            if settle_number("26", mutant) == "correct":
                assert answer.endswith("=26")
                assert mutant.endswith("=26")


def written(rng: random.Random, depth: int) -> tuple[str, str, Callable[[float], float]]:
    """A random expression in LaTeX and as a keyboard writes it, and its value at an x above 1."""
    kind = rng.choice("nnx" if depth == 0 else "+-*/^rfs")
    if kind == "n":
        number = rng.randint(2, 20)
        return str(number), str(number), lambda x: number
    if kind == "x":
        return "x", "x", lambda x: x
    latex, plain, value = written(rng, depth - 1)
    if kind == "^":
        power = rng.randint(2, 3)
        return (
            rf"\left({latex}\right)^{{{power}}}",
            f"({plain})^{power}",
            lambda x: value(x) ** power,
        )
    if kind == "r":
        return (
            rf"\sqrt{{({latex})^2+1}}",
            f"sqrt(({plain})**2+1)",
            lambda x: math.hypot(value(x), 1),
        )
    if kind == "f":
        name = rng.choice(["sin", "cos"])
        call = getattr(math, name)
        return rf"\{name}\left({latex}\right)", f"{name}({plain})", lambda x: call(value(x))
    if kind == "s":
        return rf"\frac{{{latex}}}{{7\pi}}", f"({plain})/(7*pi)", lambda x: value(x) / 7 / math.pi
    other_latex, other_plain, other = written(rng, depth - 1)
    if kind == "/":
        both = rf"\frac{{{latex}}}{{{other_latex}}}"
        return both, f"({plain})/({other_plain})", lambda x: value(x) / other(x)
    sign = {"+": "+", "-": "-", "*": r"\cdot"}[kind]
    both = rf"\left({latex}\right) {sign} \left({other_latex}\right)"
    function = {"+": operator.add, "-": operator.sub, "*": operator.mul}[kind]
    return both, f"({plain}) {kind} ({other_plain})", lambda x: function(value(x), other(x))


def test_two_writings_are_equal_and_two_values_are_not() -> None:
    rng = random.Random(0)
    expressions = [written(rng, rng.randint(1, 3)) for _ in range(400)]
    for latex, plain, _ in expressions:
        assert settle(latex, plain) in ("correct", "unparsed" if "/(0" in plain else "timeout")
    for (gold, _, value), (_, answer, other) in itertools.pairwise(expressions):
        try:
            differ = any(abs(value(x) - other(x)) > 1e-6 for x in (1.37, 2.61, 3.99))
        except (ZeroDivisionError, OverflowError):
            continue
        assert settle(gold, answer) in (("wrong", "timeout") if differ else ("correct",))
