"""The chance level of pass@k, by hand and against drawing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sage.evaluation.chance import chance_level, chance_table
from sage.evaluation.counts import counts_table
from sage.evaluation.curves import POOLED
from sage.evaluation.pass_at_k import pass_at_k
from sage.problems.corpus import Corpus, Slips, Style
from sage.problems.record import Problem
from sage.tasks import task_of
from sage.tasks.arithmetic import ArithmeticSet

KS = np.array([1, 2, 4])


def problems_with(*golds: str, kind: str = "number", levels: Sequence[str] = ()) -> list[Problem]:
    """Problems `p0`, `p1`, … with these answers."""
    named = levels or [""] * len(golds)
    return [
        Problem(f"p{i}", "Calculate it.", gold, kind, level, "made", "1")
        for i, (gold, level) in enumerate(zip(golds, named, strict=True))
    ]


def test_three_problems_by_hand() -> None:
    """Of 4 samples the first problem has one `7` and two `8`; golds are 6, 7, 8."""
    answers = [{"7": 1, "8": 2}, {"6": 4}, {}]
    levels = chance_level(answers, problems_with("6", "7", "8"), 4, KS)
    # One right of four: 1/4, 1/2, 1; two right of four: 1/2, 5/6, 1; the mean over both.
    np.testing.assert_allclose(levels[0], [3 / 8, 2 / 3, 1])
    np.testing.assert_allclose(levels[1], [1 / 2, 1 / 2, 1 / 2])  # always `6`: right for one of two
    np.testing.assert_allclose(levels[2], [0, 0, 0])


@pytest.mark.parametrize("again", ["1", "1.0"])
def test_an_equal_answer_is_no_other_and_weighs_as_often_as_it_occurs(again: str) -> None:
    answers = [{"1": 1, "2": 1}] * 4
    levels = chance_level(answers, problems_with("1", again, "2", "3"), 2, np.array([1]))
    np.testing.assert_allclose(levels[:, 0], [1 / 4, 1 / 4, 2 / 6, 3 / 6])


def test_puzzles_are_compared_with_those_of_their_size() -> None:
    answers = [{"Ann knight": 2, "Ann knave": 2}, {"Ann is a knight": 4}, {"Ann knave": 4}]
    golds = ("Ann knight", "Ann knave", "Ann knight, Bob knave")
    puzzles = problems_with(*golds, kind="knights", levels=["1", "1", "2"])
    levels = chance_level(answers, puzzles, 4, KS)
    np.testing.assert_allclose(levels[:2], [[1 / 2, 5 / 6, 1], [1, 1, 1]])
    assert np.isnan(levels[2]).all()


def test_one_answer_for_all_has_no_chance_level() -> None:
    assert np.isnan(chance_level([{"1": 1}, {}], problems_with("1", "1"), 4, KS)).all()


@pytest.mark.parametrize(
    ("one", "other", "kind", "same"),
    [
        ("7", "7.0", "number", True),
        (" 1,000 ", "1000", "number", True),
        ("-7", "7", "number", False),
        (r"\frac{1}{2}", "0.5", "math", True),
        ("x + 1", "x+1", "math", True),
        ("x+1", "x+2", "math", False),
        ("Ann is a knight, Bob a knave", "Bob knave, Ann knight", "knights", True),
        ("Ann knight", "Ann knave", "knights", False),
    ],
)
def test_equal_answers_share_a_key(one: str, other: str, kind: str, same: bool) -> None:
    key = task_of(kind).gold_key
    assert (key(one) == key(other)) is same


def test_a_guesser_has_its_own_score_and_a_solver_has_none() -> None:
    """Guessing among ten numbers scores by chance what it scores; always right scores 0."""
    rng = random.Random(0)
    golds = [str(rng.randrange(10)) for _ in range(400)]
    guesses = [[str(rng.randrange(10)) for _ in range(32)] for _ in golds]
    counts = [{answer: drawn.count(answer) for answer in set(drawn)} for drawn in guesses]
    ks = np.array([1, 8, 16])
    chance = chance_level(counts, problems_with(*golds), 32, ks).mean(axis=0)
    correct = np.array([c.get(gold, 0) for c, gold in zip(counts, golds, strict=True)])
    np.testing.assert_allclose(chance, pass_at_k(32, correct, ks).mean(axis=0), atol=0.03)
    solver = [{gold: 32} for gold in golds]
    assert not chance_level(solver, problems_with(*golds), 32, ks).any()


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="answers of 2 problems for 1"):
        chance_level([{}, {}], problems_with("1"), 4, KS)
    with pytest.raises(ValueError, match="from 0 to 4"):
        chance_level([{"2": 5}, {}], problems_with("1", "2"), 4, KS)
    with pytest.raises(ValueError, match="'program'"):  # never a level of 0 that was not found
        chance_level([{}], [replace(problems_with("1")[0], kind="program")], 4, KS)


def test_the_controls_of_a_run() -> None:
    """Two sums, four samples each: right by working, right without, wrong, without an answer."""
    problems = [
        Problem(f"p{i}", f"Calculate {text}.", gold, "number", "2 terms", "sage/arithmetic", "1")
        for i, (text, gold) in enumerate([("5-3", "2"), ("4+4", "8")])
    ]
    rows = [
        ("p0", "5-3=2<end_working_out><SOLUTION>2</SOLUTION>", "2", "correct"),
        ("p0", "it is clear<end_working_out><SOLUTION>2</SOLUTION>", "2", "correct"),
        ("p0", "it is clear<end_working_out><SOLUTION>8</SOLUTION>", "8", "wrong"),
        ("p0", "it is", None, "unparsed"),
        *[("p1", "it is clear<end_working_out><SOLUTION>8</SOLUTION>", "8", "correct")] * 4,
    ]
    frame = pd.DataFrame(rows, columns=["problem_id", "completion", "answer", "status"])
    table = chance_table(counts_table({("tiny", "grpo", 1, "sums"): frame}, problems), draws=200)
    assert table["train_seed"].tolist() == [1] * 3 + [POOLED] * 3
    pooled = table[table["train_seed"] == POOLED].set_index("k")
    np.testing.assert_allclose(pooled["value"], [3 / 4, (5 / 6 + 1) / 2, 1])
    np.testing.assert_allclose(pooled["chance"], [1 / 8, 1 / 4, 1 / 2])  # of p0 one `8` of four
    np.testing.assert_allclose(pooled["worked"], [1 / 8, 1 / 4, 1 / 2])  # of p0 one of four
    assert (pooled["low"] <= pooled["worked"]).all()
    assert (pooled["worked"] <= pooled["high"]).all()
    unknown = [replace(problem, source="elsewhere") for problem in problems]
    table = chance_table(counts_table({("tiny", "grpo", 1, "sums"): frame}, unknown), draws=200)
    assert table[["worked", "low", "high"]].isna().all().all()


def test_each_stratum_has_a_row_of_its_own() -> None:
    """Puzzles of two and of three people: 2 and 1 of 2 samples right, and none."""
    problems = [
        Problem(f"p{i}", "Who?", "Ann knight", "knights", level, "sage/knights", "1")
        for i, level in enumerate(["2 people", "2 people", "3 people", "3 people"])
    ]
    rows = [
        (f"p{i}", ("wrong", "correct")[j < right])
        for i, right in enumerate([2, 1, 0, 0])
        for j in (0, 1)
    ]
    frame = pd.DataFrame(rows, columns=["problem_id", "status"]).assign(answer=None, completion="")
    table = chance_table(counts_table({("tiny", "grpo", 1, "knights"): frame}, problems), draws=200)
    pooled = table[(table["train_seed"] == POOLED) & (table["k"] == 1)].set_index("stratum")
    assert pooled["value"].to_dict() == {"": 0.375, "2 people": 0.75, "3 people": 0.0}
    assert pooled["reliable"].to_dict() == {"": 0.5, "2 people": 1.0, "3 people": 0.0}
    assert pooled["n_problems"].tolist() == [4, 2, 2]
    assert set(table.loc[table["train_seed"] == 1, "stratum"]) == {""}


@pytest.mark.parametrize(
    ("working", "answer", "correct"),
    [
        ("5-3=2, 2-6=-4", "-4", True),
        ("okay 5-3=2, then 2-6=-4", "-4", True),
        ("let x be the total. 5-3=2, 2-6=-4", "-4", True),
        ("suppose it is 3. 5-3=2, 2-6=-4, contradiction, so it is -4", "-4", True),
        ("decompose into plus 5=5 and minus 3+6=9, 5-9=-4", "-4", True),
        ("it is clear", "-4", False),  # no working
        ("", "-4", False),
        ("5-3=2, 2-6=4", "4", False),  # a sign lost
        ("5-3=3, 3-6=-4", "-4", False),  # two slips that cancel
        ("5-3=2", "-4", False),  # a term left out
        ("2-6=-4", "-4", False),
        ("5-3=2, 2-6=-4, -4+1=-3", "-4", False),  # a term too many
        ("5-3=2, 2-6=-4", "4", False),  # the answer is another
        ("decompose into plus 5=5 and minus 3+5=8, 5-8=-3", "-3", False),
        ("decompose into plus 5=5 and minus 3+6=8, 5-8=-3", "-4", False),
        ("9" * 5000 + "=" + "9" * 5000, "-4", False),
        ("5-3=" * 5000, "-4", False),
    ],
)
def test_working_is_checked_step_by_step(working: str, answer: str, correct: bool) -> None:
    assert ArithmeticSet.working("Calculate 5-3-6.", working, answer) is correct


def test_worked_solutions_without_slips_have_correct_working() -> None:
    slips = Slips(direct=0.0, steps=0.0, group=0.0, below_zero=0.0, knights=0.0)
    styles: dict[Style, float] = {"steps": 0.25, "let": 0.25, "group": 0.25, "contradiction": 0.25}
    sizes = {"min_terms": 2, "max_terms": 5, "max_value": 10, "knights_people": [3]}
    corpus = Corpus(styles=styles, slips=slips, knights_share=0.0, **sizes)
    for worked in itertools.islice(corpus.worked(3), 300):
        assert ArithmeticSet.working(worked.problem, worked.working, worked.answer), worked
