"""The paper's own tables, tested: numbers worked by hand, and the tables of its study."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

from sage.exhibits import frames_of, load_study, tables_of, write_piece
from sage.exhibits.paper_tests import (
    best_of_grid,
    contrasts,
    expected_best,
    fewest_for,
    pattern_counts,
)
from sage.rendering.documents import read_document
from sage.results import Results

PAPER = ROOT / "reports/paper"
PAIR = [("grpo_branch", "grpo")]


def cells_of(*rows: tuple[str, str, str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["benchmark", "algorithm", "quantity", "value", "std"])


def test_a_mean_and_its_benchmarks_by_hand() -> None:
    """Differences 0.02 and 0.04, all deviations 0.01 over five seeds: errors sqrt(2 x 0.01^2 / 5)
    = 0.00632 with 8 degrees of freedom, and half of sqrt(4 x 0.01^2 / 5) with 16 for the mean."""
    cells = cells_of(
        *((name, "grpo", "pass@1", 0.5, 0.01) for name in "ab"),
        *(
            (name, "grpo_branch", "pass@1", value, 0.01)
            for name, value in (("a", 0.52), ("b", 0.54))
        ),
    )
    mean, a, b = contrasts(cells, 5, PAIR).to_dict("records")
    assert [row["benchmark"] for row in (mean, a, b)] == ["", "a", "b"]
    assert [row["value"] for row in (mean, a, b)] == pytest.approx([0.03, 0.02, 0.04])
    assert mean["high"] - 0.03 == pytest.approx(2.1199 * 0.004472, abs=1e-6)
    assert a["high"] - 0.02 == pytest.approx(2.3060 * 0.006325, abs=1e-6)
    assert [mean["p"], a["p"], b["p"]] == pytest.approx([5.03e-6, 0.01335, 2.25e-4], rel=0.01)
    assert mean["p_holm"] == mean["p"]  # a family of its own
    assert [a["p_holm"], b["p_holm"]] == pytest.approx([a["p"], 2 * b["p"]])


def test_one_benchmark_has_its_mean_alone_and_no_deviation_has_no_p() -> None:
    cells = cells_of(("a", "grpo", "pass@1", 0.5, 0.0), ("a", "grpo_branch", "pass@1", 0.6, 0.0))
    (row,) = contrasts(cells, 5).to_dict("records")
    assert (row["benchmarks"], row["value"]) == (1, pytest.approx(0.1))
    assert all(math.isnan(row[name]) for name in ("low", "high", "p", "p_holm"))


def test_the_best_of_equal_cells_is_above_their_mean() -> None:
    assert expected_best(1) == pytest.approx(0.0, abs=1e-9)
    assert expected_best(2) == pytest.approx(1 / math.sqrt(math.pi))
    assert expected_best(3) == pytest.approx(1.5 / math.sqrt(math.pi))
    grid = pd.DataFrame(
        {
            "benchmark": "a",
            "threshold": [1.2, 1.2, 2.0],
            "ratio": [0.1, 0.3, 0.3],
            "quantity": "pass@1",
            "value": [0.40, 0.41, 0.45],
        }
    )
    stated = cells_of(("a", "x", "pass@1", 0.4, 0.03), ("a", "y", "pass@1", 0.4, 0.03))
    (row,) = best_of_grid(grid, stated.assign(seeds=5), 3).to_dict("records")
    assert [row["mean"], row["gain"], row["chosen"]] == pytest.approx([0.42, 0.03, -0.01])
    assert row["expected"] == pytest.approx(0.846284 * 0.03 / math.sqrt(3))
    # The cells' variance is 0.0007, that of noise 0.0003: F = 7 / 3 at 2 and 8 degrees of freedom,
    # whose upper tail is (1 + 2 F / 8) ** -4.
    assert row["p"] == pytest.approx((1 + 7 / 12) ** -4)


def test_frequencies_are_counts_of_solutions_and_of_problems() -> None:
    """0.1 of 20 right solutions against 0 of 20: Fisher's p is 2 x C(20, 2) / C(40, 2)."""
    patterns = pd.DataFrame(
        [("a", "grpo", "proof", 0.0), ("a", "grpo_branch", "proof", 0.1)],
        columns=["benchmark", "algorithm", "quantity", "value"],
    )
    stated = cells_of(
        *(("a", name, "pass@1", 0.5, 0.1) for name in ("grpo", "grpo_branch")),
        *(("a", name, "pass@256", 0.8, 0.1) for name in ("grpo", "grpo_branch")),
    )
    grpo, guided = pattern_counts(patterns, stated, {"a": 10}, 4).to_dict("records")
    assert (guided["right"], guided["having"], guided["needed"]) == (20, 2, 10)
    assert (guided["solved"], guided["worth"]) == pytest.approx((8, 0.8))
    assert grpo["p"] == pytest.approx(2 * 190 / 780)
    assert math.isnan(guided["p"])


def test_the_fewest_solutions_with_given_shares() -> None:
    assert fewest_for([0.5]) == 2
    assert fewest_for([0.333, 0.25]) == 12
    assert fewest_for([0.007]) == 134  # 1 / 134 = 0.00746
    with pytest.raises(ValueError, match="no number of solutions up to 9"):
        fewest_for([0.333, 0.25], most=9)


def test_the_papers_study_has_them_without_any_run(tmp_path: Path) -> None:
    study = load_study("paper", ROOT / "config")
    pieces = tables_of(study, "paper_tests", PAPER)
    assert frames_of(study, "paper_tests", Results(tmp_path)) == []
    for name, suffix in pieces.items():
        write_piece(study, "paper_tests", suffix, [], PAPER, tmp_path / f"{name}.csv")
    frames = {suffix: pd.read_csv(tmp_path / f"{name}.csv") for name, suffix in pieces.items()}
    means = frames[""].set_index(["table", "algorithm", "other", "quantity"]).sort_index()
    own = means.loc["table1", "grpo_branch", "grpo", "pass@256"]
    assert own["value"] == pytest.approx((0.020 + 0.005 + 0.019) / 3)
    assert (means.loc[["table1"], "p_holm"] < 0.05).sum() == 1  # pass@1 above the base
    assert own["low"] < 0 < own["high"]
    assert len(means.loc[["table3"]]) == 8  # its base is Table 1's
    grid = frames["_grid"].set_index("quantity")
    assert grid.loc["pass@1", "gain"] < grid.loc["pass@1", "expected"]
    assert frames["_patterns"]["needed"].min() > 4 * frames["_patterns"]["right"].max()
    shown = read_document(tmp_path / "paper_tests.json").table.groups[0]
    assert shown.rows[0].title == "GRPO + Branch − GRPO"
    assert [cell.text for cell in shown.rows[0].cells] == [
        "+1.7",
        "0.29",
        "0.65",
        "+1.5",
        "0.11",
        "0.44",
    ]


def test_a_model_that_the_paper_has_no_grid_for_is_named(tmp_path: Path) -> None:
    study = load_study("paper", ROOT / "config", ["exhibits.paper_tests.model=r1_distill_7b"])
    with pytest.raises(ValueError, match=r"mapping.yaml: 0 tables of kind ablation for r1_distill"):
        write_piece(study, "paper_tests", "_grid", [], PAPER, tmp_path / "x.csv")
