"""Overlap of training and evaluation problems: what counts, how it is counted, what is dropped."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from sage.problems.benchmarks import benchmark_problems
from sage.problems.contamination import (
    contamination,
    overlaps,
    without_overlap,
    words,
    write_contamination,
)
from sage.problems.entries import Benchmark
from sage.problems.record import Problem
from sage.runtime.tables import read_frame

ROOT = Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("SAGE_MIRROR")


def problems(*texts: str, name: str = "p") -> list[Problem]:
    return [Problem(f"{name}-{n}", text, "1", "math", "", "", "") for n, text in enumerate(texts)]


LONG = "Ann has three apples and Bob has five pears , how many pieces of fruit do both have now"


def test_layout_does_not_hide_an_equal_problem() -> None:
    said = ["what", "is", "frac", "1", "2", "+", "x"]
    assert words(r"What is $\dfrac{1}{2} + \left( x \right)$?") == said
    assert words("what is\n\\[\\frac{1}{2}+x\\]") == said
    train = problems(r"Find  $x+1$ where $x = 2$.", "Find $x-1$ where $x = 2$.")
    ((found, _, match, share),) = overlaps(train, problems("find x+1 where x=2"), 13, 0.5)
    assert (found.problem_id, match, share) == ("p-0", "exact", 1.0)


def test_n_grams_are_counted_by_hand() -> None:
    # The benchmark problem has 18 words and so 18 - 13 + 1 = 6 n-grams; the training problem
    # repeats the first 15 words and so 3 of them.
    assert len(words(LONG)) == 18
    (benchmark,) = problems(LONG)
    train = problems(" ".join(LONG.replace(",", "").split()[:15]) + " in all")
    ((_, _, match, share),) = overlaps(train, [benchmark], 13, 0.5)
    assert (match, share) == ("ngram", 0.5)
    assert overlaps(train, [benchmark], 13, 0.51) == []
    assert overlaps(train, [benchmark], 16, 0.01) == []


def test_a_shared_closing_phrase_alone_is_no_overlap() -> None:
    phrase = (
        "can be written as m / n where m and n are relatively prime positive integers find m + n"
    )
    first = (
        f"The chance that a fair coin tossed nine times shows heads first and tails last {phrase}"
    )
    other = (
        f"The area of the triangle with the sides three and four and a right angle there {phrase}"
    )
    assert overlaps(problems(first), problems(other), 13, 0.5) == []
    assert len(overlaps(problems(first), problems(other), 13, 0.01)) == 1


def test_the_table_counts_each_problem_of_a_benchmark_once() -> None:
    near = LONG.replace("now", "today")
    training = {"train": problems(LONG, LONG, near, "Something else."), "both": problems("Odd?")}
    benchmarks = {"test": problems(LONG, "Odd?", "Even?"), "both": training["both"]}
    table, pairs = contamination(training, benchmarks, 13, 0.5)
    rows = {(row.training, row.benchmark): row for row in table.itertuples()}
    assert set(rows) == {("train", "test"), ("train", "both"), ("both", "test")}
    row = rows["train", "test"]
    assert (row.training_problems, row.problems, row.exact, row.ngram) == (4, 3, 1, 0)
    assert (row.overlapping, row.training_overlapping, row.share) == (1, 3, pytest.approx(1 / 3))
    assert rows["both", "test"].exact == 1
    assert rows["train", "both"].overlapping == 0
    assert list(pairs["match"]) == ["exact", "exact", "ngram", "exact"]


def test_overlapping_training_problems_are_dropped_and_none_left_is_an_error() -> None:
    benchmarks = {"test": problems(LONG, "Odd?")}
    training = problems("odd?", "Even?", LONG)
    assert [p.problem for p in without_overlap(training, benchmarks, 13, 0.5)] == ["Even?"]
    with pytest.raises(ValueError, match="all 1 training problems occur in the benchmarks test"):
        without_overlap(training[:1], benchmarks, 13, 0.5)


def test_the_table_and_the_pairs_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "contamination"
    write_contamination({"NA": problems(LONG)}, {"test": problems(LONG)}, 13, 0.5, folder)
    (row,) = read_frame(folder / "contamination.parquet").to_dict("records")
    assert (row["training"], row["exact"], row["share"]) == ("NA", 1, 1.0)
    assert list(pd.read_csv(folder / "pairs.csv")["problem_id"]) == ["p-0"]


@pytest.mark.skipif(
    not MIRROR, reason="the environment variable SAGE_MIRROR names no folder with the public files"
)
def test_overlaps_of_the_public_files_are_the_known_ones_and_found_fast() -> None:
    entries = yaml.safe_load((ROOT / "config/benchmarks.yaml").read_text())
    names = ("aime", "amc23", "math500", "minerva", "dapo_math_17k")
    sets = {
        name: benchmark_problems(name, Benchmark.model_validate(entries[name]), Path(str(MIRROR)))
        for name in names
    }
    training = sets.pop("dapo_math_17k")
    started = time.monotonic()
    table, _ = contamination({"all": training, "first": training[:2000]}, sets, 13, 0.5)
    assert time.monotonic() - started < 30.0  # some 3 s on an idle machine
    rows = table.set_index(["training", "benchmark"])
    assert [rows.loc[("all", name), "exact"] for name in sets] == [0, 8, 7, 0]
    assert rows.loc["first", "overlapping"].sum() == 0
