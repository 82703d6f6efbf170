"""Rivals of GRPO at two sizes: levels, differences and mixtures by hand."""

import json
from pathlib import Path

import pandas as pd
from conftest import ROOT

from benchmarks.sizes import counts_of
from benchmarks.sizes_rivals import (
    APART,
    FILE,
    PLAIN,
    RIVALS,
    SIZES,
    rewards,
    rewards_table,
    tables,
)
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
    levels, differences, bases, wrong = tables(counts())
    assert levels.count("| `grpo` | 100.0 | 100.0 | 50.0 |") == 2
    assert levels.count("| `pkpo_kl` | 50.0 | 50.0 | 100.0 |") == 2
    same = "+0.0 (+0.0 to +0.0)"
    assert f"| `grpo_forward_kl_exact` | all | both | {same} | {same} | {same} |" in differences
    half = "−50.0 (−50.0 to −50.0) | +50.0 (+50.0 to +50.0)"
    assert f"| `pkpo_kl` | all | 0.6 M | {half} |" in differences
    assert bases.count("| 100.0 | −50.0 | +0.0 | +0.0 | −50.0 | +50.0 |") == 6
    assert "pkpo_kl" not in wrong


def test_two_runs_are_left_out_and_those_with_wrong_working_are_listed() -> None:
    changed = counts()
    one = (changed["model"] == APART[0]) & (changed["train_seed"] == APART[1])
    changed.loc[one & (changed["algorithm"] == RIVALS[1]) & (changed["correct"] == 8), "worked"] = 6
    _, differences, _, wrong = tables(changed)
    assert "| middle_first | `pkpo_kl`, run 1 | 50.0 | 37.5 |" in wrong
    assert wrong.count("run 1") == 1
    half = "−50.0 (−50.0 to −50.0) | +50.0 (+50.0 to +50.0)"
    assert f"| `pkpo_kl` | all | 0.6 M | {half} |" not in differences
    assert f"| `pkpo_kl` | without run 1 of middle_first | 0.6 M | {half} |" in differences


def test_a_rival_is_held_against_the_mixture_that_is_as_accurate() -> None:
    """Right half as often: two thirds of the draws are the base's, so the mixture has both sheets
    but for the cases without any draw of the base, (1/3)^16."""
    differences = tables(counts())[1]
    line = next(each for each in differences.splitlines() if "`pkpo_kl` | all | both" in each)
    assert line.endswith("| +0.0 (+0.0 to +0.0) |")


def test_rewards_are_means_over_steps_and_runs(tmp_path: Path) -> None:
    for base in (base for bases in SIZES.values() for base in bases):
        for run in (1, 2):
            folder = tmp_path / "models" / base / PLAIN / f"seed{run}"
            folder.mkdir(parents=True)
            rows = [{"step": step, "reward": run * (step > 20)} for step in range(1, 41)]
            (folder / "history.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = rewards(tmp_path)
    assert found["sums"] == {PLAIN: [0.0, 1.5]}
    table = rewards_table(found)
    assert "| base | method | steps 1 to 20 | steps 21 to 40 |" in table
    assert table.count("| `grpo` | 0.00 | 1.50 |") == 6


def test_the_page_holds_the_tables() -> None:
    page = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    shown = tables(counts_of(ROOT / "reports/kept/sizes_rivals"))
    shown.append(rewards_table(json.loads(FILE.read_text(encoding="utf-8"))))
    assert all(table.strip() in page for table in shown)
