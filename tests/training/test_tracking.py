"""Watching training: which tool, where it writes, and that it reaches the Trainer's arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from conftest import ROOT
from transformers.integrations import integration_utils

from sage.exhibits import load_study
from sage.runtime import tracking
from sage.training import rl


def install(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(tracking, "_is_installed", lambda package: package in packages)


def test_trackio_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert tracking.chosen("auto") == "none"
    with pytest.raises(ValueError, match="pip install wandb"):
        tracking.chosen("wandb")
    install(monkeypatch, "trackio", "wandb")
    assert tracking.chosen("auto") == "trackio"
    assert tracking.chosen("wandb") == "wandb"
    assert tracking.chosen("none") == "none"


def test_nothing_leaves_the_machine_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, "wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    variables = tracking.for_jobs("wandb", "mini", tmp_path)
    assert variables["WANDB_MODE"] == "offline"
    assert variables["WANDB_DIR"] == str(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert tracking.for_jobs("wandb", "mini", tmp_path)["WANDB_MODE"] == "online"


def test_a_run_is_named_after_its_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, "tensorboard")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    variables = tracking.for_jobs("tensorboard", "mini", tmp_path / "tracking")
    scratch = Path("results/mini/scratch/tiny/grpo/seed1")
    found = tracking.reporting(scratch, variables)
    assert found == {"report_to": "tensorboard", "run_name": "tiny/grpo/seed1", "project": "mini"}
    assert tracking.os.environ["TENSORBOARD_LOGGING_DIR"] == str(
        tmp_path / "tracking/tiny/grpo/seed1"
    )
    of_sft = tracking.reporting(Path("results/mini/scratch/tiny/sft"), variables)
    assert of_sft["run_name"] == "tiny/sft"
    assert tracking.reporting(scratch, {}) == {"report_to": "none"}


def config_of(folder: Path, seed: int) -> Any:
    study, scratch = load_study("smoke", ROOT / "config"), folder / f"scratch/tiny/grpo/seed{seed}"
    row = study.algorithms["grpo"]
    return rl.grpo_config(study.model("tiny").rl, row, seed, "cpu", scratch)


def use_trackio(monkeypatch: pytest.MonkeyPatch, curves: Path) -> None:
    install(monkeypatch, "trackio")
    for name, value in tracking.for_jobs("trackio", "smoke", curves).items():
        monkeypatch.setenv(name, value)


def test_the_choice_reaches_trls_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(tracking.VARIABLE, raising=False)
    assert config_of(tmp_path, 7).report_to == []
    use_trackio(monkeypatch, tmp_path / "curves")
    config = config_of(tmp_path, 7)
    assert config.report_to == ["trackio"]
    assert config.run_name == "tiny/grpo/seed7"
    assert config.project == "smoke"
    assert (tmp_path / "curves").is_dir()


def test_a_resumed_run_is_one_run_in_trackio(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_trackio(monkeypatch, tmp_path / "curves")
    runs: dict[tuple[str, str], int] = {}

    def init(project: str, name: str, resume: str, **_: Any) -> None:
        assert resume == "allow"  # a run of that name goes on; without one it begins
        runs[project, name] = runs.get((project, name), 0) + 1

    monkeypatch.setitem(sys.modules, "trackio", MagicMock(init=init, config={}))
    monkeypatch.setattr(integration_utils, "is_trackio_available", lambda: True)
    for seed in (7, 7, 8):  # the first is killed, and goes on in another process
        first = SimpleNamespace(is_world_process_zero=True)
        integration_utils.TrackioCallback().setup(config_of(tmp_path, seed), first, None)
    assert runs == {("smoke", "tiny/grpo/seed7"): 2, ("smoke", "tiny/grpo/seed8"): 1}
