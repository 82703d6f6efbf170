"""Training on a GPU: the same as plain GRPO, what a guide costs, a kill, a whole study.

Every test runs on the CPU too, where it checks the test itself; what only a GPU can show is
asserted there alone. `make test-gpu` runs them on a GPU and keeps a table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conftest import copy_project, snakemake_in
from safetensors.torch import load_file
from test_multiprocess import PROBLEMS, ROWS, SETTINGS, third
from trainers import is_of_trl, write_parent
from trl import GRPOTrainer

from benchmarks import training
from sage.method.guides import BranchGuide
from sage.policies import load_model, load_tokenizer
from sage.runtime.manifest import Manifest
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import RL, Algorithm, Sampling
from sage.training import rl
from sage.training.adapters import lora_config
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

ON_A_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here"),
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)]),
]


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that add in a fixed order, where there are any."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def settings_with(**changes: Any) -> RL:
    return RL.model_validate(SETTINGS.model_dump() | {"precision": "bfloat16"} | changes)


def trained(
    kind: type[GRPOTrainer], parent: Path, device: str, **extra: Any
) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Three steps; the logged numbers but for times, and the weights."""
    settings = settings_with(steps=3)
    row = Algorithm.model_validate(ROWS["grpo"])
    config = rl.grpo_config(settings, row, 1, device, parent.with_name("scratch"))
    config.save_strategy = "no"
    trainer = kind(
        model=load_model(parent, rl.weights_dtype(settings)),
        reward_funcs=[third],
        args=config,
        train_dataset=rl.prompt_dataset(PROBLEMS),
        processing_class=load_tokenizer(parent),
        peft_config=lora_config(settings.lora) if settings.lora else None,
        **extra,
    )
    trainer.train()
    log = [
        {key: value for key, value in entry.items() if is_of_trl(key)}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    assert {p.device.type for p in trainer.model.parameters()} == {device}
    return log, {name: p.detach().cpu() for name, p in trainer.model.named_parameters()}


@pytest.mark.usefixtures("repeatable")
def test_a_guide_of_one_is_plain_grpo_in_bfloat16(tmp_path: Path, device: str) -> None:
    parent = write_parent(tmp_path / "base", PROBLEMS)
    log, weights = trained(GRPOTrainer, parent, device)
    ones = Shaping(guide=BranchGuide(ratio=0.0))
    log_of_ones, weights_of_ones = trained(SageTrainer, parent, device, shaping=ones)
    assert log == log_of_ones
    assert all(torch.equal(weights[name], weights_of_ones[name]) for name in weights)
    steep = Shaping(guide=BranchGuide(ratio=0.3, threshold=5.0))
    _, guided = trained(SageTrainer, parent, device, shaping=steep)
    assert any(not torch.equal(weights[name], guided[name]) for name in weights)


def test_a_guide_costs_two_percent_at_most(
    device: str, record_property: Callable[[str, object], None]
) -> None:
    steps = training.STEPS if device == "cuda" else training.WARM_UP + 2
    time_of_a_step, memory = training.of_a_guide(device, steps)
    for one in (time_of_a_step, memory):
        record_property(one.name, f"{one.ratio:.4f} ({one.limit}; {one.rounds} pairs)")
    assert memory.kept
    assert time_of_a_step.rounds == steps - training.WARM_UP
    if device == "cuda":  # a few steps on a busy CPU show nothing
        assert time_of_a_step.kept


def test_recorded_steps_draw_the_same(
    tmp_path: Path, device: str, record_property: Callable[[str, object], None]
) -> None:
    """And sooner, on a GPU; on a CPU they are made over the whole cache and not recorded."""
    training.write_parent(tmp_path / "base", training.ON_A_GPU if device == "cuda" else {})
    model, tokenizer = load_model(tmp_path / "base").to(device), load_tokenizer(tmp_path / "base")
    sampling = Sampling(temperature=1.0, max_tokens=100, stop=[])
    requests = [Request((3 + i % 8, 4, 5), str(i)) for i in range(64)]
    drawn, seconds = {}, {}
    for records in (False, True, False, True):
        sampler = TransformersSampler.from_model(model, tokenizer, None)
        sampler.decoder.records = records
        start = time.perf_counter()
        drawn[records] = sampler.sample(requests, sampling)
        seconds[records] = time.perf_counter() - start
    same = sum(a == b for a, b in zip(drawn[False], drawn[True], strict=True))
    record_property("completions that are the same, of 64", same)
    record_property("seconds without and with", [f"{seconds[r]:.2f}" for r in (False, True)])
    assert same >= 60  # a tie of rounding can pick the neighbouring token
    if device == "cuda":
        assert sampler.decoder.records  # nothing kept a step from being recorded
        assert seconds[True] < seconds[False]


def train(parent: Path, output: Path, device: str, dies: bool = False) -> None:
    """`train_rl`; with `dies` this process kills itself at the fourth step."""
    step = SageTrainer.training_step

    def dying(self: SageTrainer, *arguments: Any) -> torch.Tensor:
        if self.state.global_step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments)

    if dies:
        SageTrainer.training_step = dying
    rl.train_rl(
        parent,
        PROBLEMS,
        settings_with(),
        Algorithm.model_validate(ROWS["grpo_random"]),
        seed=1,
        device=device,
        scratch=output.with_name(output.name + "_scratch"),
        output=output,
        manifest=Manifest({}, 1, time.time()),
    )


def history(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "history.jsonl").open()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.usefixtures("repeatable")
def test_a_killed_run_goes_on(tmp_path: Path, device: str) -> None:
    parent = write_parent(tmp_path / "base", PROBLEMS)
    code = (
        "import pathlib, test_gpu as t\n"
        f"t.train(*map(pathlib.Path, {[str(parent), str(tmp_path / 'killed')]}), {device!r}, True)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
    )
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "killed_scratch/checkpoint-2").is_dir()
    train(parent, tmp_path / "killed", device)
    train(parent, tmp_path / "whole", device)
    resumed, whole = history(tmp_path / "killed"), history(tmp_path / "whole")
    assert [row["step"] for row in resumed] == [1, 2, 3, 4]
    assert resumed[:2] == whole[:2]
    if device == "cpu":  # kernels of a GPU may add in another order, and so draw another token
        assert resumed == whole
        weights = [
            load_file(tmp_path / run / "adapter_model.safetensors") for run in ("killed", "whole")
        ]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_a_short_study_runs_on_the_device(tmp_path: Path, device: str) -> None:
    """The smoke study's first model in bfloat16: SFT, RL and sampling by the workflow."""
    folder = copy_project(tmp_path / "sage")
    file = folder / "config/studies/smoke.yaml"
    study = yaml.safe_load(file.read_text(encoding="utf-8"))
    model = study["models"]["tiny"]
    model["base"]["pretraining"] |= {"documents": 500, "steps": 5}
    model["rl"] |= {"steps": 2, "precision": "bfloat16"}
    model["sft"]["precision"] = "bfloat16"
    model |= {"algorithms": ["grpo_branch"], "benchmarks": ["arithmetic"]}
    model["job"] = {"gpus": int(device == "cuda")}
    study["evaluation"]["dtype"] = "bfloat16"
    accuracy = {"kind": "accuracy", "title": "Accuracy", "model": "tiny"}
    study |= {"models": {"tiny": model}, "exhibits": {"table1": accuracy}}
    file.write_text(yaml.safe_dump(study), encoding="utf-8")
    done = snakemake_in(folder)(
        "table1", "--cores", "2", "--config", "study=smoke", f"device={device}"
    )
    assert done.returncode == 0, done.stdout
    results = folder / "results/smoke"
    assert len(history(results / "models/tiny/grpo_branch/seed3407")) == 2
    sampled = json.loads((results / "samples/tiny/base/seed0/arithmetic.json").read_text())
    assert sampled["settings"]["device"] == device
    assert (sampled["hardware"]["gpu"] is not None) == (device == "cuda")
