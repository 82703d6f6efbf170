"""Sheets of sums: problems, strategies, working checked step by step, slips and branch points."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sage.grading.exact import settle_number
from sage.problems.corpora import AnyCorpus
from sage.problems.corpus import Corpus, Worked
from sage.problems.record import Problem, split_of
from sage.problems.sum_sets import SumsCorpus, SumsSlips, work_sheet
from sage.problems.sums import STRATA, STRATEGIES, Sheet, addends, read_sheet
from sage.prompting import WORK_OPEN, completion
from sage.tasks import draw_problems
from sage.tasks.sums import SumsSet, check_working

SHEET = Sheet(((4, 4), (2, 6), (3, 3)))
NO_SLIPS = SumsSlips(small=0.0, large=0.0, other=0.0)
SHARES = {"plain": 0.4, "turn": 0.25, "raise": 0.2, "lower": 0.1, "upturn": 0.04, "downturn": 0.01}


def solutions(count: int, **changes: Any) -> list[Worked]:
    settings = {"source": "sums", "shares": SHARES, "slips": NO_SLIPS, "alignment": "zero"}
    return list(itertools.islice(SumsCorpus(**{**settings, **changes}).worked(5), count))


def problems_of(name: str, count: int, **changes: Any) -> list[Problem]:
    settings = {"source": "sums", "title": "", "count": count, "seed": 2, "split": "test"}
    return SumsSet(**{**settings, **changes}).problems(name)


def sheet_of(text: str) -> Sheet:
    sheet = read_sheet(text)
    assert sheet is not None
    return sheet


def middles(worked: Worked) -> list[str]:
    """What stands between form and result of each step."""
    return [step[4:8] for step in worked.working.split(" ")[1:]]


def test_a_sheet_is_asked_and_answered() -> None:
    assert SHEET.text == "Add a4+4 b2+6 c3+3"
    assert SHEET.answer == "886"
    assert read_sheet(SHEET.text) == SHEET


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Add b4+5 a2+7",
        "Add a4+5",
        "Add a4+55 b2+7",
        "Add a0+5 b2+7",
        "Calculate 4+5.",
        "Add " + "a4+5 " * 10_000,
    ],
)
def test_what_is_no_sheet_reads_as_none(text: str) -> None:
    assert read_sheet(text) is None


def test_each_stratum_has_sums_on_which_one_strategy_alone_pays() -> None:
    """It makes the second number a 2; `raise` makes 4+3 into 5+2."""
    assert addends("plain") == [(4, 2), (5, 2), (6, 2), (7, 2)]
    assert addends("turn") == [(2, 4), (2, 5), (2, 6), (2, 7)]
    assert addends("raise") == [(4, 3), (5, 3), (6, 3)]
    assert addends("lower") == [(4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]
    assert addends("upturn") == [(3, 4), (3, 5), (3, 6)]
    assert addends("downturn") == [(1, 4), (1, 5), (1, 6), (1, 7), (1, 8)]
    for stratum in STRATA:
        for part in addends(stratum):
            assert [name for name in STRATA if STRATEGIES[name].pays(*part)] == [stratum]
            assert Sheet((part, part)).stratum == stratum
    assert Sheet(((4, 2), (4, 3))).stratum is None


def test_every_part_is_one_digit_in_every_form() -> None:
    for part in itertools.chain.from_iterable(addends(stratum) for stratum in STRATA):
        for strategy in STRATEGIES.values():
            first, second = strategy.rewritten(*part)
            assert first + second == sum(part) <= 9
            assert 0 <= min(first, second) < max(first, second) <= 9 or first == second


def test_problems_are_different_of_their_split_and_take_the_strata_in_turn() -> None:
    problems = problems_of("sheets", 30, strata=["plain", "lower"], parts=7)
    assert problems == problems_of("sheets", 30, strata=["plain", "lower"], parts=7)
    assert len({p.problem for p in problems}) == 30
    assert {split_of(p.problem) for p in problems} == {"test"}
    assert [p.level for p in problems[:3]] == ["plain", "lower", "plain"]
    for problem in problems:
        assert sheet_of(problem.problem).answer == problem.answer
        assert settle_number(problem.answer, problem.answer) == "correct"


def test_too_many_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="of 2000 different problems"):
        problems_of("few", 2_000, strata=["plain"], parts=2)


def test_the_study_draws_sheets() -> None:
    settings = {"source": "sums", "title": "Sheets", "count": 6, "seed": 2}
    settings |= {"strata": list(STRATA), "parts": 5, "split": "test"}
    assert [p.level for p in draw_problems("sheets", settings)] == list(STRATA)


@pytest.mark.parametrize(
    ("working", "strategy"),
    [
        ("P a4+4=3+5=8 b2+6=1+7=8 c3+3=4+2=6", "plain"),
        ("T a4+4=7+1=8 b6+2=4+4=8 c3+3=3+3=6", "turn"),
        ("R a5+3=1+7=8 b3+5=2+6=8 c4+2=5+1=6", "raise"),
        ("L a3+5=1+7=8 b1+7=1+7=8 c2+4=1+5=6", "lower"),
        ("U a5+3=1+7=8 b7+1=1+7=8 c4+2=1+5=6", "upturn"),
        ("D c2+4=1+5=6 b5+3=1+7=8 a3+5=1+7=8", "downturn"),
    ],
)
def test_right_working_of_each_strategy(working: str, strategy: str) -> None:
    checked = check_working(SHEET, completion(working, "886"))
    assert checked.right
    assert [step.right for step in checked.steps] == [True, True, True]
    assert checked.strategy == strategy
    assert SumsSet.strategy(SHEET.text, WORK_OPEN + completion(working, "886")) == (strategy or "")


A, B, C = "a4+4=3+5=8", "b2+6=1+7=8", "c3+3=1+5=6"


@pytest.mark.parametrize(
    "step",
    [
        "a4+4=3+5=7",  # the pair makes 8
        "a4+4=3+6=9",  # the pair makes 9, the part 8
        "a4+4=3+6=8",
        "a4+5=3+5=8",  # the part is 4+4
        "a2+6=3+5=8",  # b2+6 makes 8 too, but is another part
        "a4+4=3+5=18",
    ],
)
def test_a_wrong_step_is_seen_where_it_is(step: str) -> None:
    results = step.rpartition("=")[2] + "86"
    checked = check_working(SHEET, completion(f"P {step} {B} {C}", results))
    assert [each.right for each in checked.steps] == [False, True, True]
    assert (checked.leads, checked.right) == (True, False)


@pytest.mark.parametrize(
    ("working", "answer"),
    [
        (f"P {A} {B}", "886"),  # a part is missing
        (f"P {A} {A} {C}", "886"),  # one is done twice
        (f"P {A} {B} {C}", "868"),  # the answer is another
        (f"P {A} {B} {C}", "8860"),
        (f"P {A} {B} {C} d1+1=1+1=2", "886"),  # there is no such part
        (f"P {A} {B} {C} ", "886"),
        (f"P {A}  {B} {C}", "886"),
        (f"P a4+4=8 {B} {C}", "886"),
        (f"{A} {B} {C}", "886"),  # no strategy is named
        ("", "886"),
    ],
)
def test_working_that_does_not_lead_to_the_answer(working: str, answer: str) -> None:
    checked = check_working(SHEET, completion(working, answer))
    assert not checked.leads
    assert not checked.right


def test_a_cut_off_working_leads_nowhere() -> None:
    assert not check_working(SHEET, f"P {A} {B} {C}").leads
    assert not check_working(SHEET, f"P {A} {B} {C}<SOLUTION>996</SOLUTION>").leads


def test_numbers_without_meaning_are_not_checked() -> None:
    checked = check_working(SHEET, completion("P a4+4,7.7=8 b2+6,1.1=8 c3+3,2.2=6", "886"))
    assert checked.right
    assert [step.pair for step in checked.steps] == [None] * 3


def test_a_working_that_leaves_its_strategy_has_none() -> None:
    checked = check_working(SHEET, completion(f"P a5+3=3+5=8 {B} {C}", "886"))
    assert checked.strategy is None
    assert checked.right


def test_hostile_completions_are_read_at_once_and_without_error() -> None:
    rng = random.Random(3)
    letters = "abcpqPTR0123456789+= \n<>/éß٣\x00\ud800"
    tags = ["<end_working_out>", "<SOLUTION>", "</SOLUTION>", " a4+4=3+5=8", "P"]
    pieces = [*letters, *tags]
    hostile = ["".join(rng.choices(pieces, k=rng.randint(0, 80))) for _ in range(500)]
    hostile += [" " * 10**6, "P" + " a4+4=3+5=8" * 10**5, "9" * 10**6, "<SOLUTION>" * 10**5]
    started = time.perf_counter()
    for text in hostile:
        assert not check_working(SHEET, text).right
    assert time.perf_counter() - started < 5.0


def test_without_slips_every_solution_is_right_and_of_its_strategy() -> None:
    for worked in solutions(300):
        sheet = sheet_of(worked.problem)
        checked = check_working(sheet, completion(worked.working, worked.answer))
        assert checked.right
        assert checked.strategy == worked.style
        assert worked.answer == sheet.answer
        assert split_of(worked.problem) == "train"


def test_strategies_are_as_frequent_as_asked_on_every_stratum() -> None:
    counts = Counter((sheet_of(w.problem).stratum, w.style) for w in solutions(12_000))
    for stratum in STRATA:
        every = sum(counts[stratum, name] for name in SHARES)
        for name, share in SHARES.items():  # four standard deviations
            expected = pytest.approx(share, abs=4 * (share / every) ** 0.5)
            assert counts[stratum, name] / every == expected


def test_what_goes_wrong_depends_on_strategy_stratum_and_sum() -> None:
    """Where a strategy pays large sums slip here, by one too few; elsewhere all pairs make one
    too few. The answer holds what came out."""
    slips = SumsSlips(small=0.0, large=1.0, other=1.0)
    sheet = Sheet(((6, 2), (4, 2), (7, 2)))
    rng = random.Random(1)
    own = work_sheet(sheet, "plain", slips, rng, "pairs", choosing=False)
    steps = own.working.split(" ")[1:]
    assert [step[:4] + step[-2:] for step in steps] == ["a6+2=7", "b4+2=6", "c7+2=8"]
    assert own.answer == "768"
    for _ in range(50):
        other = work_sheet(sheet, "turn", slips, rng, "pairs", choosing=False)
        assert other.answer == "758"
        pairs = [middle[1:] for middle in middles(other)]
        assert [int(pair[0]) + int(pair[2]) for pair in pairs] == [7, 5, 8]
    placebo = work_sheet(sheet, "turn", slips, rng, "numbers", choosing=False)
    assert placebo.answer == "758"
    shift = [work_sheet(sheet, "raise", slips, rng, "pairs", choosing=True) for _ in range(200)]
    assert {w.answer for w in shift} == {"758"}
    assert {middles(w)[1] for w in shift} == {"=1+4", "=2+3", "=3+2", "=4+1", "=5+0"}


@pytest.mark.parametrize(
    ("alignment", "choosing"),
    [
        ("plus", {"raise", "lower", "upturn", "downturn"}),
        ("zero", set(STRATEGIES)),
        ("minus", {"plain", "turn"}),
    ],
)
@pytest.mark.parametrize("branches", ["pairs", "numbers"])
def test_alignment_says_which_strategies_choose(
    alignment: str, choosing: set[str], branches: str
) -> None:
    first: dict[str, set[str]] = {}
    for worked in solutions(2_000, alignment=alignment, branches=branches):
        first.setdefault(worked.style, set()).update(middle[1] for middle in middles(worked))
    assert {name for name, seen in first.items() if seen != {"1", "2", "3"}} == choosing
    assert all(seen >= {"1", "2", "3"} for seen in first.values())


def test_all_pairs_of_a_sum_are_equally_likely() -> None:
    """A six has five pairs: 1+5 to 5+1."""
    steps = [step for worked in solutions(4_000) for step in worked.working.split(" ")[1:]]
    counts = Counter(step[5:8] for step in steps if step.endswith("=6"))
    assert set(counts) == {"1+5", "2+4", "3+3", "4+2", "5+1"}
    for count in counts.values():  # four standard deviations
        assert count / counts.total() == pytest.approx(0.2, abs=4 * (0.16 / counts.total()) ** 0.5)


def test_the_placebo_has_as_many_numbers_and_characters() -> None:
    pairs, numbers = solutions(500), solutions(500, branches="numbers")
    assert [m[1] for w in pairs for m in middles(w)] == [m[1] for w in numbers for m in middles(w)]
    assert all(m[0] + m[2] == ",." and m[1] == m[3] for w in numbers for m in middles(w))
    assert {len(w.working) for w in pairs + numbers} == {1 + 5 * len(" a4+4=3+5=8")}
    for worked in numbers:
        checked = check_working(sheet_of(worked.problem), completion(worked.working, worked.answer))
        assert checked.right


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shares\.guess"):
        solutions(1, shares={"guess": 1.0})


def test_a_corpus_is_of_sums_or_of_styles() -> None:
    slips = {"small": 0.05, "large": 0.1, "other": 0.6}
    given = {"source": "sums", "shares": {"plain": 1.0}, "slips": slips}
    corpus = TypeAdapter(AnyCorpus).validate_python(given)
    assert isinstance(corpus, SumsCorpus)
    assert next(corpus.worked(1)).style == "plain"
    assert not isinstance(corpus, Corpus)
    with pytest.raises(ValidationError, match="shares"):
        TypeAdapter(AnyCorpus).validate_python({**given, "shares": {"plain": 0.0}})
