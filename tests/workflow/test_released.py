"""The study `released`, run by the workflow with little of everything: its faults are in force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import copy_project, snakemake_in

from sage.study.written import read_study

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1800)]


def shortened(content: dict[str, Any]) -> dict[str, Any]:
    """A few problems, steps and samples; what the readings set stays."""
    for problems in content["problems"].values():
        problems |= {"per_size": 2} if problems["source"] == "knights" else {"count": 8}
    model = content["models"]["sums"]
    model["base"]["pretraining"] |= {"documents": 500, "steps": 5}
    # A large rate, so that two steps part the model after SFT from the one before it.
    model["sft"] |= {"examples": 32, "epochs": 1, "warmup_steps": 0, "learning_rate": 1.0e-2}
    model["rl"] |= {"steps": 4, "checkpoint_every": 2}
    model |= {"algorithms": ["grpo", "dapo_branch"], "seeds": {}}
    content["evaluation"] |= {"samples": 4, "primary_k": 2, "bootstrap": 100}
    kept = {name: content["exhibits"][name] for name in ("table1",)}
    return content | {"exhibits": kept}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_project(tmp_path_factory.mktemp("released") / "sage")
    file = folder / "config/studies/released.yaml"
    content = shortened(read_study("released", folder / "config").content)
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    done = snakemake_in(folder)("table1", "readings", "--cores", "2", "--config", "study=released")
    assert done.returncode == 0, done.stdout[-4000:]
    return folder / "results/released"


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def test_training_was_as_released(results: Path) -> None:
    run = results / "models/sums/dapo_branch/seed1"
    settings = manifest_of(run)["settings"]
    rl, row = settings["rl"], settings["algorithm"]
    assert (rl["prompts_per_step"], rl["rollouts"], rl["steps_per_generation"]) == (1, 8, 2)
    assert (rl["schedule"], row["fidelity"], row["clip_high"]) == ("constant", "released", 0.2)
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    rates = [one["learning_rate"] for one in history]
    assert len(rates) == 4
    assert set(rates) == {rl["learning_rate"]}  # this schedule has no warm-up


def test_the_kl_term_refers_to_the_model_before_sft(results: Path) -> None:
    run = results / "models/sums/grpo/seed1"
    assert any("models/sums/pretrained" in name for name in manifest_of(run)["inputs"])
    first = json.loads((run / "history.jsonl").read_text().splitlines()[0])
    assert first["kl"] > 0  # from its own parent the policy has not moved yet


def test_sft_selects_whole_conversations_and_learns_their_text(results: Path) -> None:
    sft = manifest_of(results / "models/sums/base")["settings"]
    assert (sft["sft"]["length"], sft["sft"]["loss"]) == ("conversation", "text")
    counts = sft["examples"]
    assert counts["cut_at_max_tokens"] == 0
    assert counts["trained_on"] + counts["left_out_over_half_of_max_tokens"] == 32


def test_evaluation_is_at_the_released_temperature(results: Path) -> None:
    sampled = json.loads((results / "samples/sums/base/seed0/sheets.json").read_text())
    assert sampled["settings"]["evaluation"]["sampling"]["temperature"] == 0.3


def test_the_table_shows_both_ways_of_pass_at_1(results: Path) -> None:
    reading = pd.read_csv(results / "partial/report/tables/table1_reading.csv")
    assert {"value", "reading"} <= set(reading.columns)
    assert reading["reading"].notna().all()
