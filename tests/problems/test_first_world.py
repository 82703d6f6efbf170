"""The first world's tables in docs/measurements.md, from the counts that are kept of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from report_frames import ROOT

from benchmarks.chance import count_answers, difference, scores, summary, tables
from sage.problems.record import Problem, write_problems

TEXT = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")


def test_the_page_has_the_tables_of_the_kept_counts() -> None:
    printed = list(tables())
    assert len(printed) == 4
    for table in printed:
        assert table in TEXT


def test_what_is_said_of_them_holds() -> None:
    base, grpo = scores("base", "harder"), scores("grpo", "harder")
    assert base.bare.mean() > 0.35 > 0.05 > grpo.bare.mean()
    assert difference(grpo.answered, base.answered)[2] < -0.15
    worked, low, high = difference(grpo.worked, base.worked)
    assert low < 0 < high
    assert abs(worked) < 0.03
    numbers = summary()
    assert numbers["guesses_and_answered"] > 0.9
    assert numbers["mixture_pass_at_64"] > grpo.answered.mean() - 0.01
    knights = scores("base", "knights")
    assert knights.answered.mean() < knights.chance.mean() + 0.02
    assert np.isnan(knights.worked).all()


def test_answers_are_counted_by_what_led_to_them(tmp_path: Path) -> None:
    sums = [Problem("h-0", "Calculate 5-3-6.", "-4", "number", "3 terms", "made", "seed 1")]
    for name in ("harder", "arithmetic_train"):
        write_problems(sums, tmp_path / f"problems/{name}.jsonl")
    path = tmp_path / "samples/tiny/grpo/seed1/harder.parquet"
    path.parent.mkdir(parents=True)
    steps, grouped = "5-3=2, 2-6=-4", "decompose into plus 5=5 and minus 3+6=9, 5-9=-4"
    written = [
        (f"{steps}<end_working_out><SOLUTION>-4</SOLUTION>", "-4", "correct"),
        (f"{grouped}<end_working_out><SOLUTION>-4</SOLUTION>", "-4", "correct"),
        ("it is clear<end_working_out><SOLUTION>-4</SOLUTION>", "-4", "correct"),
        ("it is clear<end_working_out><SOLUTION>7</SOLUTION>", "7", "wrong"),
        ("5-3=", None, "unparsed"),
    ]
    frame = pd.DataFrame(written, columns=["completion", "answer", "status"])
    frame.assign(problem_id="h-0").to_parquet(path)
    problems, counts = count_answers(tmp_path)
    assert problems["benchmark"].tolist() == ["harder"]
    got = counts.set_index(["answer", "bare", "grouped", "worked", "correct"])["count"].to_dict()
    assert got == {
        ("-4", False, False, True, True): 1,
        ("-4", False, True, True, True): 1,
        ("-4", True, False, False, True): 1,
        ("7", True, False, False, False): 1,
        ("", False, False, False, False): 1,
    }
