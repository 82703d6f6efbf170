"""The paper's own tables, tested."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from reports.paper.paper_tests import (
    MEAN,
    best_of,
    contrasts,
    highest_of_normals,
    pooled,
    smallest_total,
    welch,
)
from sage.exhibits import load_study, shows
from sage.exhibits.kind import Display


def test_differences_are_on_each_benchmark_and_on_their_mean() -> None:
    """On `a` the error is sqrt((0.03² + 0.04²) / 5) = 0.05 / sqrt(5) at (9 + 16)² / ((81 + 256) /
    4) = 7.418 degrees of freedom, on `b` 0; on the mean of both it is half of that on `a`."""
    rows = [("a", "x", 0.5, 0.03), ("a", "y", 0.4, 0.04), ("b", "x", 0.5, 0.0), ("b", "y", 0.6, 0)]
    cells = pd.DataFrame(rows, columns=["benchmark", "algorithm", "value", "std"])
    frame = contrasts(cells.assign(quantity="pass@1", seeds=5), [("x", "y")])
    assert frame["benchmark"].tolist() == [MEAN, "a", "b"]
    assert frame["value"].tolist() == pytest.approx([0.0, 0.1, -0.1])
    half = 2.3379 * 0.05 / math.sqrt(5)  # t of 7.418 degrees of freedom
    assert (frame["high"] - frame["value"]).tolist() == pytest.approx([half / 2, half, 0], abs=1e-5)
    assert frame["p"].tolist() == pytest.approx([1.0, 0.00254, 0.0], abs=1e-4)


def test_a_difference_without_noise_has_an_interval_of_no_width() -> None:
    assert welch(0.0, np.zeros(2), np.full(2, 4))[:4] == (0.0, 0.0, 0.0, 1.0)


def test_a_pool_is_weighted_by_precision_or_equally() -> None:
    """By hand: weights 4 : 1 of 0.01 and 0.06 give 0.02 at an error of 1 / sqrt(1e4 + 2.5e3)."""
    rows = pd.DataFrame({"value": [0.01, 0.06], "error": [0.01, 0.02], "df": [10.0, 10.0]})
    by_precision, equal = pooled(rows, precision=True), pooled(rows, precision=False)
    assert by_precision["value"] == pytest.approx(0.02)
    assert by_precision["error"] == pytest.approx(12500**-0.5)
    assert by_precision["df"] == pytest.approx(10 * 25 / 17)  # (4 + 1)² / ((4² + 1²) / 10)
    assert by_precision["p"] > by_precision["p_normal"] == pytest.approx(0.02535, abs=1e-5)
    assert (equal["value"], equal["error"]) == pytest.approx((0.035, math.sqrt(5e-4) / 2))


def test_the_best_of_several_gains_by_chance() -> None:
    """The highest of two is 1/sqrt(pi) expected, of three 3/(2 sqrt(pi)). Cells 1, 2 and 3 with an
    error of 1 spread as by chance: F = 1 with 2 and 4 degrees of freedom, p = (1 + 2/4)^-2."""
    assert highest_of_normals(1) == pytest.approx(0.0, abs=1e-9)
    assert highest_of_normals(2) == pytest.approx(1 / math.sqrt(math.pi))
    row = best_of(np.array([1.0, 3.0, 2.0]), 1.0, 4)
    assert row["gain"] == pytest.approx(1.0)
    assert row["by_chance"] == pytest.approx(1.5 / math.sqrt(math.pi))
    assert row["p"] == pytest.approx(1.5**-2)


@pytest.mark.parametrize(
    ("shares", "total"), [((0.5,), 2), ((0.333, 0.5), 6), ((0.007,), 134), ((0.0, 1.0), 1)]
)
def test_shares_are_fractions_of_a_smallest_number(shares: tuple[float], total: int) -> None:
    assert smallest_total(np.array(shares)) == total


def test_the_papers_tables_are_made_of_its_numbers_alone() -> None:
    """By hand on the mean of three benchmarks, pass@256: (0.427 + 0.965 + 0.794 - 0.407 - 0.960 -
    0.775) / 3. Of Table 6 the best of nine is 0.983, their mean 0.9602."""
    study = load_study("paper", ROOT / "config").seen_by("paper_tests")  # as a rule passes it
    display = Display(study, "paper_tests", [], ROOT / "reports/paper")
    differences, pairs, best, patterns = (
        make(display) for make in shows(study, "paper_tests").tables().values()
    )
    frame = differences.frame.set_index(["quantity", "other", "benchmark"])
    assert len(frame) == 32
    assert frame["value"]["pass@256", "grpo", MEAN] == pytest.approx(0.044 / 3)
    assert (frame["p_holm"] >= frame["p"]).all()
    of_k = pairs.frame[pairs.frame["at"] == "pass@k"].set_index(["table", "kl"])
    tables = ["table1", "table3", "table3", "table4", "table9", *["pooled"] * 4]
    assert of_k.index.get_level_values("table").tolist() == tables
    assert set(of_k.loc["table3"].index) == {"changed"}
    pools = of_k.loc["pooled"].set_index("weights", append=True)
    assert pools["comparisons"].tolist() == [5, 5, 3, 3]
    assert pools["value"].tolist() == pytest.approx([0.0101, 0.0111, 0.0070, 0.0079], abs=1e-4)
    assert pools["p_normal"]["same", "precision"] < 0.05 < pools["p"]["same", "precision"]
    gains = best.frame.set_index("quantity")
    assert gains["gain"]["pass@256"] == pytest.approx(0.0228, abs=1e-4)
    assert gains["by_chance"]["pass@1"] == pytest.approx(1.48501 * 0.063 / math.sqrt(3), abs=1e-5)
    assert gains["kept"].tolist() == [0.433, 0.967]
    counts = patterns.frame.set_index(["algorithm", "pattern"]).loc["grpo_branch"]
    row = counts.loc["proof_by_contradiction"]  # 0.427 of 60 problems are 26 at most
    assert (row["solved"], row["most"], row["whole"]) == (26, 13, 276)
    assert row["worth"] == pytest.approx(0.033 * 26)


def test_a_model_that_the_paper_lacks_is_refused(tmp_path: Path) -> None:
    study = load_study("paper", ROOT / "config")
    (tmp_path / "mapping.yaml").write_text("qwen_math_7b: []\n")
    display = Display(study, "paper_tests", [], tmp_path)
    with pytest.raises(ValueError, match="reports/paper has no accuracy of qwen_math_7b"):
        shows(study, "paper_tests").tables()[""](display)
