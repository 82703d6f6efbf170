"""Patterns in correct solutions: which phrases count, and statistics worked by hand."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from graded import samples

from sage.evaluation.intervals import interval_of_mean
from sage.exhibits import kind_of, load_study
from sage.exhibits.kind import Measuring
from sage.exhibits.patterns import detect, frequency, pattern_table, shares_compared
from sage.exhibits.perplexity_of_responses import tail_shares
from sage.exhibits.phrases import BREAK, compile_phrases, load_patterns, plain_text
from sage.problems.corpus import Slips, work_arithmetic
from sage.prompting import completion
from sage.runtime.manifest import Manifest

PATTERNS = load_patterns(ROOT / "config/patterns.yaml")
NAMES = [pattern.name for pattern in PATTERNS]


def shown(text: str) -> list[str]:
    return [name for name, found in zip(NAMES, detect([text], PATTERNS)[0], strict=True) if found]


TEXTS = {
    "constraint_setup": [
        "Let x be the total.",
        "LET\n  $x$ be",
        r"\text{Let } x_{1} = 2",
        r"**Let** \(\alpha\) be an angle",
        r"let\; n \in \mathbb{N}",
        "Let the number of nines in the list be $n$.",
        "Let's denote it by n.",
        r"Here $x=2k \quad\text{must be}$ even",
        "let a = 3",
    ],
    "structural_reasoning": [
        "so n is Of The Form 4k+1",
        "decomposes\ninto two sums",
        "we break the sum up into parts",
    ],
    "proof_by_contradiction": [
        "Assume for contradiction that it is even",
        "suppose, for the sake of contradiction, otherwise",
        r"which leads to a \emph{contradiction}",
        "1 = 2 , a contradiction .",
    ],
    "": [  # what only looks like a pattern, or denies it
        "Let's think step by step.",
        "Let us see. It must be so.",
        "Let me be clear",
        "outlet x, pallet y",
        r"\let x",
        "Let go. It will be 4",
        "let it go\n\nto be",
        r"let it go \\ to be",
        "the denominator is 3",
        "let a triangle have sides",
        "let " + "very " * 20 + "long gaps be",
        "There is no contradiction.",
        "This doesn’t lead to a contradiction",
        "uniform of it",
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in TEXTS.items() for text in texts]
)
def test_a_text_shows_a_pattern_or_none(name: str, text: str) -> None:
    assert shown(text) == [name] * bool(name)


def test_the_toy_corpus_shows_the_patterns_of_its_styles() -> None:
    slips = Slips(direct=0.5, steps=0.1, group=0.1, below_zero=0.3, knights=0.3)
    expected: dict[str, list[str]] = {
        "direct": [],
        "steps": [],
        "let": ["constraint_setup"],
        "group": ["structural_reasoning"],
        "contradiction": ["proof_by_contradiction"],
    }
    rng = random.Random(0)
    for style, names in expected.items():
        for _ in range(20):
            worked = work_arithmetic("5-3-6+2", style, slips, rng)
            assert shown(completion(worked.working, worked.answer)) == names


def test_plain_text_takes_marks_off_and_keeps_sentences_apart() -> None:
    text = "Let  $x_{1}:=3.5$ , then.\n\nSo <SOLUTION>1</SOLUTION>"
    assert plain_text(text) == f"let x_1 = 3.5, then{BREAK}{BREAK}so {BREAK}1{BREAK}"


@pytest.mark.parametrize("phrase", ["... be", "let ...", "let <number>", "le*t x", "", "a.b"])
def test_a_faulty_phrase_is_named(phrase: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="phrase"):
        compile_phrases([phrase])
    faulty = tmp_path / "patterns.yaml"
    faulty.write_text(json.dumps({"mine": {"title": "Mine", "phrases": [phrase]}}))
    with pytest.raises(ValueError, match=r"patterns\.yaml, pattern mine"):
        load_patterns(faulty)


def test_a_file_with_unknown_keys_is_refused(tmp_path: Path) -> None:
    faulty = tmp_path / "patterns.yaml"
    faulty.write_text('{"mine": {"title": "Mine", "words": ["let"]}}')
    with pytest.raises(ValueError, match=r"mine.words: unknown key; .*phrases"):
        load_patterns(faulty)


@pytest.mark.parametrize("unit", ["let ", "x = ", "assume ", "contradicts ", "\n ", "\\text", "x_"])
def test_the_cost_is_linear_in_the_text(unit: str) -> None:
    """Twenty times the text may not take much more than twenty times as long."""

    def seconds(repeats: int) -> float:
        text = unit * repeats
        start = time.process_time()
        detect([text], PATTERNS)
        return time.process_time() - start

    assert seconds(20_000) < 60 * (min(seconds(1_000) for _ in range(3)) + 1e-3)


def test_gaps_are_not_tried_again_and_again() -> None:
    several = compile_phrases(["a ... a ... a ... b"])
    assert several.search("a cat, a dog, a fly and b")
    start = time.process_time()
    assert not several.search("a " * 2_000)
    assert time.process_time() - start < 0.5


def ends(found: dict[str, float], start: str = "") -> tuple[float, float]:
    return found[f"{start}low"], found[f"{start}high"]


def test_frequency_pools_and_averages() -> None:
    """Problems with 3 of 4, none of 0 and 1 of 2: pooled 4/6, averaged (3/4 + 1/2) / 2; and two
    runs of two problems."""
    found = frequency(np.array([[3, 0, 1]]), np.array([[4, 0, 2]]), draws=2_000)
    assert found["pooled"] == pytest.approx(4 / 6)
    assert found["per_problem"] == pytest.approx(0.625)
    for name, start in (("pooled", ""), ("per_problem", "per_problem_")):
        low, high = ends(found, start)
        assert 0.0 <= low < found[name] < high <= 1.0
    two = frequency(np.array([[1, 0], [2, 1]]), np.array([[1, 1], [3, 1]]), draws=200)
    assert two["pooled"] == pytest.approx(4 / 6)
    assert two["per_problem"] == pytest.approx((1 + 0 + 2 / 3 + 1) / 4)


def test_with_equal_counts_the_interval_is_that_of_the_mean() -> None:
    shown = np.array([[3, 0, 1, 2, 4, 1], [2, 0, 1, 1, 4, 2]])
    found = frequency(shown, np.full((2, 6), 8), draws=500)
    low, high = interval_of_mean(shown[..., None] / 8, 500)
    assert ends(found) == pytest.approx((max(low[0], 0.0), high[0]))
    assert ends(found, "per_problem_") == pytest.approx(ends(found))


def pattern_row(algorithm: str, seeds: list[int], correct: list, shown: list) -> dict[str, Any]:
    """A row of the pattern table, as far as two rows are compared by it."""
    counts = {"correct": np.ravel(correct).tolist(), "shown": np.ravel(shown).tolist()}
    problems = [f"p{i}" for i in range(len(correct[0]))]
    return {"algorithm": algorithm, "train_seeds": seeds, "problems": problems, **counts}


def test_patterns_are_compared_on_problems_that_both_solve() -> None:
    """Both solve p0 and p2 (and nobody p3): (2/4 - 1/2 + 3/3 - 0/5) / 2 = 0.5; p1 is no match."""
    row = pattern_row("a", [1], [[4, 9, 3, 0]], [[2, 9, 3, 0]])
    other = pattern_row("c", [1], [[2, 0, 5, 0]], [[1, 0, 0, 0]])
    compared = shares_compared(row, other, draws=500)
    assert compared is not None
    estimate, problems, runs = compared
    assert (float(estimate.value[0]), problems, runs) == (pytest.approx(0.5), 2, 1)
    assert shares_compared(row, pattern_row("c", [1], [[2, 0, 0, 0]], [[1, 0, 0, 0]]), 500) is None
    with pytest.raises(ValueError, match="no training seed in common"):
        shares_compared(row, {**other, "train_seeds": [2]}, 500)


def test_a_pattern_that_nobody_shows_still_has_an_interval() -> None:
    """Ten problems without it allow a difference of 1 - 0.025^(1/10) = 0.308 either way."""
    correct, none = [[4] * 10], [[0] * 10]
    rows = (pattern_row(name, [1], correct, none) for name in ("a", "c"))
    compared = shares_compared(*rows, draws=20_000)
    assert compared is not None
    low, high = compared[0].interval()
    assert (low[0], high[0]) == pytest.approx((-0.308, 0.308), abs=0.01)


def test_every_run_meets_the_one_base() -> None:
    row = pattern_row("a", [1, 2], [[1, 1], [1, 1]], [[1, 1], [0, 0]])
    base = pattern_row("base", [0], [[1, 1]], [[0, 0]])
    compared = shares_compared(row, base, draws=500)
    assert compared is not None
    assert (float(compared[0].value[0]), compared[2]) == (0.5, 2)


def test_shares_beyond_the_base_are_of_each_run_and_problem() -> None:
    """The base's 0.5 quantile of 1, 2, 3 is 2; runs have one and two of two above it."""
    rows = [("base", 0, 1.0), ("base", 0, 2.0), ("base", 0, 3.0)]
    rows += [("a", 1, 2.0), ("a", 1, 9.0), ("a", 2, 2.1), ("a", 2, 9.0)]
    frame = pd.DataFrame(rows, columns=["algorithm", "train_seed", "perplexity"])
    shares = tail_shares(frame.assign(problem_id="p"), level=0.5)
    shares = shares.set_index(["algorithm", "train_seed"])["share"]
    assert shares.to_dict() == {("a", 1): 0.5, ("a", 2): 1.0, ("base", 0): pytest.approx(1 / 3)}


def test_a_frequency_of_0_or_1_has_the_interval_of_its_problems() -> None:
    """Five problems, as Clopper and Pearson: 1 - 0.025^(1/5) = 0.5218; as far from 1."""
    none = frequency(np.zeros((1, 5)), np.full((1, 5), 4), draws=100)
    assert ends(none) == ends(none, "per_problem_") == pytest.approx((0.0, 0.5218), abs=1e-4)
    every = frequency(np.full((1, 5), 4), np.full((1, 5), 4), draws=100)
    assert ends(every) == pytest.approx((0.4782, 1.0), abs=1e-4)
    # one problem of five has twice the mean of solutions, so its share counts twice as much
    uneven = frequency(np.zeros((1, 5)), np.array([[6, 6, 12, 3, 3]]), draws=100)
    assert ends(uneven)[1] == pytest.approx(1.0)
    assert ends(uneven, "per_problem_")[1] == pytest.approx(0.5218, abs=1e-4)


def test_the_interval_grows_with_the_likeness_of_solutions() -> None:
    """Whole problems are drawn: solutions that agree within a problem tell less."""
    correct = np.full((1, 40), 16)
    alike, mixed = np.repeat([[16, 0]], 20, axis=0).reshape(1, 40), np.full((1, 40), 8)
    mixed[0, ::2] += 1
    widths = [np.diff(ends(frequency(counts, correct, 2_000)))[0] for counts in (alike, mixed)]
    assert widths[0] == pytest.approx(4 * math.sqrt(0.25 / 40), rel=0.15)
    assert widths[1] < 0.03


def test_counts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="more solutions"):
        frequency(np.array([[2]]), np.array([[1]]), draws=10)
    with pytest.raises(ValueError, match="shapes"):
        frequency(np.array([1]), np.array([1]), draws=10)


def test_the_table_counts_correct_solutions_only(tmp_path: Path) -> None:
    texts = {
        "p1": ["let x be", "let y be", "of the form", "let z be"],
        "p2": ["by contradiction", "plain", "let x be", "plain"],
        "p3": ["let x be", "plain", "plain", "plain"],
    }
    frame = samples({"p1": "ccwc", "p2": "ccww", "p3": "wwww"}, texts)
    table = pattern_table({("m", "grpo", 1, "b"): frame}, PATTERNS, 200).set_index("pattern")
    assert table.loc["constraint_setup", "pooled"] == pytest.approx(3 / 5)
    assert table.loc["constraint_setup", "per_problem"] == pytest.approx((1 + 0) / 2)
    assert table.loc["structural_reasoning", "pooled"] == 0
    assert table.loc["proof_by_contradiction", "per_problem"] == pytest.approx((0 + 1 / 2) / 2)
    assert table["n_correct"].tolist() == [5, 5, 5]
    assert table["n_problems"].tolist() == [2, 2, 2]

    path = tmp_path / "samples/m/grpo/seed1/b.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path)
    kind = kind_of(load_study("smoke", ROOT / "config"), "table2").model_copy
    for samples_each, correct in ((None, 5), (2, 4)):
        files = {"samples": [path], "phrases": [ROOT / "config/patterns.yaml"]}
        job = Measuring(files, {"bootstrap": 200}, tmp_path, "cpu", tmp_path, Manifest({}, 1, 0.0))
        kind(update={"samples": samples_each}).measure(job)
        read = pd.read_parquet(tmp_path / "patterns.parquet").set_index("pattern")
        assert read["n_correct"].tolist() == [correct] * 3
        if samples_each is None:
            pd.testing.assert_series_equal(read["pooled"], table["pooled"])


def test_a_row_without_correct_solutions_stays_in_the_table() -> None:
    table = pattern_table({("m", "base", 0, "b"): samples({"p": "ww"})}, PATTERNS, 100)
    assert table["n_correct"].tolist() == [0, 0, 0]
    measured = ["pooled", "low", "high", "per_problem", "per_problem_low", "per_problem_high"]
    assert table[measured].isna().all(axis=None)


def test_seeds_of_different_problems_are_refused() -> None:
    frames = {
        ("m", "a", seed, "b"): samples({name: "c"}) for seed, name in [(1, "p"), (2, "other")]
    }
    with pytest.raises(ValueError, match="different problems"):
        pattern_table(frames, PATTERNS, 100)
