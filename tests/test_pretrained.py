"""The page of the study of a pretrained model holds to what its runs have shown so far."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

from benchmarks import kept_tables, pretrained
from benchmarks.pretrained import K, training_of
from sage.evaluation.curves import WORKING

CONTENT = json.loads(pretrained.FILE.read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/pretrained-study.md").read_text(encoding="utf-8")


def test_the_pages_hold_the_tables() -> None:
    assert pretrained.render(CONTENT) in PAGE
    measurements = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    for table in (pretrained.differences(), pretrained.seeing()):
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
    """One strategy or a blind choice of two; what the sheet needs; right sums in any form."""
    ways: dict[str, list[str]] = {"blind": [], "sees": [], "adds": []}
    for run in CONTENT["runs"]:
        strata = run["solved"]["strata"]
        both = strata["plain"] > 0.9 and strata["turn"] > 0.9
        others = max(strata[name] for name in ("raise", "lower", "upturn", "downturn"))
        ways["adds" if both and others > 0.1 else "sees" if both else "blind"].append(run["method"])
        if not both:
            assert strata["plain"] + strata["turn"] < 1.25
        if run["method"] != "grpo_no_kl":
            assert others < 0.01
    guided = "grpo_branch_stronger_k1_reward"
    assert ways["adds"] == ["grpo_no_kl"] * 2
    assert sorted(ways["sees"]) == ["grpo", *[guided] * 3]
    assert sorted(ways["blind"]) == [*["grpo"] * 2, *["grpo_k1_reward"] * 3, "grpo_no_kl"]


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
        "kl_last": 0.5,
        "dose": None,
        "sampler_gap": 0.25,
        "seconds_a_step": 2.0,
    }
