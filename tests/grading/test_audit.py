"""The audit of the grader, on samples written by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sage.evaluation.audit import (
    FALSE_NEGATIVE,
    FALSE_POSITIVE,
    HOLDS_GOLD,
    audit,
    counts,
    render_audit,
    suspects,
    write_audit,
)
from sage.problems.record import Problem, write_problems

EVIL = "\x1b[31m42\u202e <script>"

SAMPLES = [  # problem, answer, the grader's verdict, how often
    ("a", "42", "correct", 3),
    ("a", "So it is 42", "correct", 1),  # the grader alone
    ("a", "41", "wrong", 2),
    ("a", r"\frac{84}{2}", "wrong", 2),  # a false negative, made up
    ("a", EVIL, "wrong", 1),
    ("a", "142", "wrong", 1),
    ("a", None, "unparsed", 4),
    ("b", "Ann knight", "correct", 1),
    ("b", "Ann knave", "wrong", 1),
    ("b", "x^{9^{9^{9^9}}}", "timeout", 1),
    ("c", "x^{9^{9^{9^9}}}", "timeout", 1),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("audit")
    rows = [(i, answer, status) for i, answer, status, n in SAMPLES for _ in range(n)]
    samples = folder / "sums.parquet"
    pd.DataFrame(rows, columns=["problem_id", "answer", "status"]).to_parquet(samples)
    problems = folder / "sums.jsonl"
    write_problems(
        [
            Problem("a", "6*7", "42", "math", "", "", ""),
            Problem("b", "Who?", "Ann knight", "knights", "", "", ""),
            Problem("c", "Which?", "x+1", "math", "", "", ""),
        ],
        problems,
    )
    return samples, problems


def test_suspects_are_counted_by_kind(files: tuple[Path, Path]) -> None:
    judged = audit({"sums": [files[0]]}, {"sums": files[1]}, limit_seconds=0.5)
    (row,) = counts(judged).to_dict("records")
    assert row["completions"] == 18
    assert row["correct"] == 5
    assert row["no_answer"] == 4
    assert row["timeout"] == 2
    assert row["math_verify_timeout"] == 1  # of a puzzle it is not asked
    assert row[FALSE_NEGATIVE] == 2
    assert row[FALSE_POSITIVE] == 1
    assert row[HOLDS_GOLD] == 0  # 142 does not hold 42
    assert set(suspects(judged)["answer"]) == {"'So it is 42'", "'\\\\frac{84}{2}'"}


def test_what_a_model_wrote_is_escaped_and_a_part_of_it_kept(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    texts = [f"{EVIL} or {n}, 42" for n in range(30)]
    rows = [("a", text, "wrong") for text in texts]
    samples = tmp_path / "sums.parquet"
    pd.DataFrame(rows, columns=["problem_id", "answer", "status"]).to_parquet(samples)
    write_audit(
        {"sums": [samples]}, {"sums": files[1]}, tmp_path / "counts.csv", tmp_path / "suspects.csv"
    )
    kept = pd.read_csv(tmp_path / "suspects.csv")
    assert list(kept["suspicion"].unique()) == [HOLDS_GOLD]
    assert len(kept) == 20
    text = render_audit(tmp_path / "counts.csv", tmp_path / "suspects.csv")
    assert f"{HOLDS_GOLD}: 30 (100.00%)" in text
    assert r"\x1b[31m42\u202e" in text
    assert text.isascii()
    assert "\x1b" not in text
