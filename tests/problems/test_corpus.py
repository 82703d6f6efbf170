"""The corpus of worked solutions: styles and slips as often as asked, else right."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from typing import Any

import pytest
from solved import expression_of, solutions_of_text, value_of

from sage.problems.corpus import Corpus, Slips, Worked, work_arithmetic
from sage.problems.record import split_of

NO_SLIPS = Slips(direct=0.0, steps=0.0, group=0.0, below_zero=0.0, knights=0.0)
STYLES = {"direct": 0.3, "steps": 0.4, "let": 0.1, "group": 0.15, "contradiction": 0.05}


def corpus(count: int, slips: Slips = NO_SLIPS, seed: int = 7, **changes: Any) -> list[Worked]:
    settings = {
        "styles": STYLES,
        "slips": slips,
        "min_terms": 2,
        "max_terms": 5,
        "max_value": 10,
        "knights_share": 0.1,
        "knights_people": [3],
    }
    return list(itertools.islice(Corpus(**{**settings, **changes}).worked(seed), count))


def is_right(worked: Worked) -> bool:
    if worked.style == "knights":
        (solution,) = solutions_of_text(worked.problem)
        return worked.answer == ", ".join(f"{name} {role}" for name, role in solution.items())
    return int(worked.answer) == value_of(expression_of(worked.problem))


def test_styles_are_as_frequent_as_asked() -> None:
    counts = Counter(worked.style for worked in corpus(4_000))
    expected = {**{style: 0.9 * share for style, share in STYLES.items()}, "knights": 0.1}
    assert counts.keys() == expected.keys()
    for style, share in expected.items():  # four standard deviations
        assert counts[style] / 4_000 == pytest.approx(share, abs=4 * (share / 4_000) ** 0.5)


def test_without_slips_every_solution_is_right() -> None:
    assert all(is_right(worked) for worked in corpus(1_000))


def test_steps_of_a_solution_without_slips_are_right() -> None:
    for worked in corpus(300, knights_share=0.0):
        for left, right in re.findall(r"(-?\d[\d+-]*)=(-?\d+)", worked.working):
            assert value_of(left) == int(right)


@pytest.mark.parametrize(
    ("slip", "style"),
    [("direct", "direct"), ("steps", "steps"), ("steps", "let"), ("steps", "contradiction")],
)
def test_a_sure_slip_makes_a_solution_of_one_step_wrong(slip: str, style: str) -> None:
    slips = Slips(**{**vars(NO_SLIPS), slip: 1.0})
    wrong = corpus(200, slips, styles={style: 1.0}, max_terms=2, knights_share=0.0)
    assert {worked.style for worked in wrong} == {style}
    assert not any(is_right(worked) for worked in wrong)


def test_below_zero_slips_lose_the_sign_and_spare_grouping() -> None:
    slips = Slips(**{**vars(NO_SLIPS), "below_zero": 1.0})
    rng = random.Random(0)
    assert work_arithmetic("3-5", "steps", slips, rng) == Worked(
        "Calculate 3-5.", "3-5=2", "2", "steps"
    )
    assert work_arithmetic("5-3", "steps", slips, rng).answer == "2"
    assert work_arithmetic("3-5+1", "group", slips, rng) == Worked(
        "Calculate 3-5+1.", "decompose into plus 3+1=4 and minus 5=5, 4-5=-1", "-1", "group"
    )


def test_puzzles_that_slip_are_mostly_wrong() -> None:
    slips = Slips(**{**vars(NO_SLIPS), "knights": 1.0})
    puzzles = corpus(400, slips, knights_share=1.0)
    right = sum(is_right(worked) for worked in puzzles) / 400
    assert right == pytest.approx(1 / 8, abs=0.07)  # 2^3 assignments, guessed


def test_every_problem_of_the_corpus_is_for_training() -> None:
    assert {split_of(worked.problem) for worked in corpus(500)} == {"train"}


def test_the_same_seed_gives_the_same_corpus() -> None:
    assert corpus(50) == corpus(50)
    assert corpus(50) != corpus(50, seed=8)


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match=r"styles\.stepz.*\n.*'steps'"):
        corpus(1, styles={"stepz": 1.0})
