"""The page of the study of a pretrained model holds to what its runs have shown so far."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

from benchmarks import kept_tables, pretrained
from benchmarks.pretrained import BOTH, K, training_of
from sage.evaluation.curves import WORKING

CONTENT = json.loads(pretrained.FILE.read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/pretrained-study.md").read_text(encoding="utf-8")


def test_the_pages_hold_the_tables() -> None:
    assert all(table in PAGE for table in pretrained.render(CONTENT).split("\n\n"))
    measurements = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    for table in (pretrained.differences(), pretrained.right_on_both()):
        assert table in PAGE
        assert table in measurements


def test_the_study_is_judged_by_its_rules() -> None:
    """Chance and dose are as the rules want them; GRPO's gain in pass@1 is not told from none."""
    runs = CONTENT["runs"]
    assert CONTENT["base"][f"chance_{K}"] <= 0.01
    gain, loss = (
        kept_tables.difference("pretrained", "sums", "sheets", "grpo", "base", k, WORKING)
        for k in (1, K)
    )
    assert gain
    assert loss
    assert gain[1] < 0 < gain[0]
    assert loss[2] < 0
    doses = [run["dose"] for run in runs if run["dose"] is not None]
    assert sum(doses) / len(doses) >= 0.05
    assert len(doses) == 3
    assert max(run["sampler_gap"] for run in runs) < 0.0004  # docs/running.md


def test_runs_end_in_the_three_ways_of_the_page() -> None:
    """They do what the sheet needs, add right in any form, or neither."""
    ways: dict[str, list[str]] = {"looks": [], "adds": [], "neither": []}
    looks_a_little = {}
    for run in CONTENT["runs"]:
        strata, forms = run["solved"]["strata"], run["forms"]
        both = min(strata["plain"], strata["turn"]) > BOTH
        looks = forms["plain_on_plain"] - forms["plain_on_turn"]
        ways["neither" if not both else "looks" if looks > 0.9 else "adds"].append(run["method"])
        assert (run["high"] is not None) == both
        assert forms["others"] < 0.02
        if not both and looks > 0.05:
            looks_a_little[run["method"], run["seed"]] = round(100 * looks)
        if run["method"] != "grpo_no_kl":
            assert max(strata[name] for name in strata if name not in kept_tables.SEEN) < 0.01
    guided = "grpo_branch_stronger_k1_reward"
    assert sorted(ways["looks"]) == ["grpo", *[guided] * 3]
    assert ways["adds"] == ["grpo_no_kl"] * 2
    assert sorted(ways["neither"]) == [*["grpo"] * 2, *["grpo_k1_reward"] * 3, "grpo_no_kl"]
    assert looks_a_little == {("grpo", 2): 25, ("grpo_k1_reward", 1): 14}


def test_the_file_follows_from_the_kept_counts() -> None:
    counts = pd.read_parquet(kept_tables.KEPT / "pretrained/counts.parquet")
    for run in CONTENT["runs"]:
        own = counts[(counts["algorithm"] == run["method"]) & (counts["train_seed"] == run["seed"])]
        rates = own.groupby("stratum")["worked"].mean() / own["n_samples"].iloc[0]
        assert rates.to_dict() == pytest.approx(run["solved"]["strata"], abs=5e-5)


def test_a_run_is_known_by_both_ends(tmp_path: Path) -> None:
    """Rewards 0 to 19 hundredths: the first eight have the mean 3.5, the last eight 15.5."""
    folder = tmp_path / "grpo/seed7"
    folder.mkdir(parents=True)
    rows = pd.DataFrame(
        {
            "reward": [step / 100 for step in range(20)],
            "kl": [None] * 12 + [0.5] * 8,
            "sampler_gap_mean": [0.0] * 19 + [0.25],
            "seconds": 2.0,
        }
    )
    rows.to_json(folder / "history.jsonl", orient="records", lines=True)
    assert training_of(folder) == {
        "method": "grpo",
        "seed": 7,
        "steps": 20,
        "reward_first": 0.035,
        "reward_last": 0.155,
        "high": None,
        "kl_last": 0.5,
        "dose": None,
        "sampler_gap": 0.25,
        "seconds_a_step": 2.0,
    }
