"""The page of the study of a pretrained model holds to what its runs have shown so far."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

from benchmarks import pretrained
from benchmarks.pretrained import K, training_of


def test_the_page_holds_the_tables() -> None:
    content = json.loads(pretrained.FILE.read_text(encoding="utf-8"))
    page = (ROOT / "docs/pretrained-study.md").read_text(encoding="utf-8")
    assert pretrained.render(content) in page
    base, runs = content["base"], content["runs"]
    assert base[f"chance_{K}"] <= 0.01
    assert base["hardware"]["gpu"] == "NVIDIA H200"
    assert base[f"pass_{K}"] == pytest.approx(0.75, abs=0.01)  # three quarters of the sheets
    assert all(run["reward_last"] > run["reward_first"] for run in runs)
    assert all(run["dose"] > 0.05 for run in runs if run["dose"] is not None)
    assert max(run["sampler_gap"] for run in runs) < 0.0002  # docs/running.md
    assert f"{len(runs)} of the 12 runs" in page


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
