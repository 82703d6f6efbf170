"""The committed figures on pairs of texts: they belong to the pairs that are here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from benchmarks.agreement import RESULTS, TRICKY, VERDICTS, pairs_of, tricky_pairs

FOUND = json.loads(RESULTS.read_text(encoding="utf-8"))


def test_the_figures_on_tricky_pairs_are_those_of_the_list() -> None:
    """The list names the grader's errors, and `test_grading` holds the grader to it."""
    known = yaml.safe_load(TRICKY.read_text(encoding="utf-8"))["disagreements"]
    found = FOUND["tricky_pairs"]
    assert found["pairs"] == len(tricky_pairs())
    assert [error[:2] for error in found["errors"]] == known
    assert found["error_rate"] == pytest.approx(len(known) / found["pairs"])


def test_every_disagreement_with_math_verifys_tests_has_a_verdict() -> None:
    found, verdicts = FOUND["math_verify"], yaml.safe_load(VERDICTS.read_text(encoding="utf-8"))
    differ = {row["place"]: row for row in found["disagreements"]}
    assert len(differ) == found["pairs"] - found["left_out"] - found["agree"]
    assert differ.keys() <= verdicts.keys()
    assert {row["right"] for row in differ.values()} <= {"ours", "theirs", "convention", "neither"}
    assert all(row["right"] == verdicts[place]["right"] for place, row in differ.items())


def test_pairs_are_read_from_tests_without_running_them(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import nowhere\n"
        "@pytest.mark.parametrize('gold, pred, expected', [('1', '2', 0), ('1/2', '0.5', 1)])\n"
        "def test_it(gold, pred, expected): raise SystemExit\n"
        "@pytest.mark.parametrize('text, other', [('1', '2')])\n"
        "def test_other(text, other): pass\n"
    )
    assert [tuple(pair) for pair in pairs_of(tmp_path)] == [
        ("test_some:2", "1", "2", False),
        ("test_some:2", "1/2", "0.5", True),
    ]
    (tmp_path / "test_some.py").write_text("")
    with pytest.raises(ValueError, match="no test file with"):
        list(pairs_of(tmp_path))


def test_the_text_has_the_figures_of_the_file() -> None:
    text = (RESULTS.parents[1] / "docs/grading.md").read_text(encoding="utf-8")
    tricky, theirs = FOUND["tricky_pairs"], FOUND["math_verify"]
    graded = theirs["pairs"] - theirs["left_out"]
    assert f"| {tricky['pairs']} | {tricky['pairs'] - len(tricky['errors'])} |" in text
    assert f"| {graded} of {theirs['pairs']} | {theirs['agree']} (" in text
    for rate in (tricky["error_rate"], theirs["error_rate"]):
        assert f"{100 * rate:.2f} %" in text
