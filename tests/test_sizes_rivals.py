"""Rivals of GRPO at two sizes: levels, differences and mixtures by hand."""

import pandas as pd
from conftest import ROOT

from benchmarks.sizes import counts_of
from benchmarks.sizes_rivals import PLAIN, RIVALS, SIZES, tables
from sage.study import BASE

COLUMNS = ["model", "algorithm", "train_seed", "problem_id", "stratum", "n_samples"]
COLUMNS += ["correct", "worked"]


def counts() -> pd.DataFrame:
    """Two runs of two sheets each, 16 samples a sheet; GRPO is never right where it is not trained.

    The forward KL is GRPO again. PKPO gets one sheet's samples right half as often, and one sample
    of the other sheet.
    """
    rows = []
    for model in (base for bases in SIZES.values() for base in bases):
        for row, seen, unseen in (
            (BASE, 4, 8),
            (PLAIN, 16, 0),
            (RIVALS[0], 16, 0),
            (RIVALS[1], 8, 1),
        ):
            for run in (1, 2) if row != BASE else (0,):
                for stratum, right in (("plain", seen), ("upturn", unseen)):
                    rows.append((model, row, run, stratum, stratum, 16, right, right))
    return pd.DataFrame(rows, columns=COLUMNS)


def test_levels_and_differences_are_means_over_runs_and_bases() -> None:
    levels, differences, bases = tables(counts())
    assert levels.count("| `grpo` | 100.0 | 100.0 | 50.0 |") == 2
    assert levels.count("| `pkpo_kl` | 50.0 | 50.0 | 100.0 |") == 2
    same = "+0.0 (+0.0 to +0.0)"
    assert f"| `grpo_forward_kl_exact` | both | {same} | {same} | {same} |" in differences
    assert "| `pkpo_kl` | 0.6 M | −50.0 (−50.0 to −50.0) | +50.0 (+50.0 to +50.0) |" in differences
    assert bases.count("| 100.0 | −50.0 | +0.0 | +50.0 |") == 6


def test_a_rival_is_held_against_the_mixture_that_is_as_accurate() -> None:
    """Right half as often: two thirds of the draws are the base's, so the mixture has both sheets
    but for the cases without any draw of the base, (1/3)^16."""
    differences = tables(counts())[1]
    line = next(each for each in differences.splitlines() if "`pkpo_kl` | both" in each)
    assert line.endswith("| +0.0 (+0.0 to +0.0) |")


def test_the_page_holds_the_tables() -> None:
    page = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    for table in tables(counts_of(ROOT / "reports/kept/sizes_rivals")):
        assert table.strip() in page
