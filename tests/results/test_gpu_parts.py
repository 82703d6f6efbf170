"""The parts that a GPU is to show, with tiny models and without vLLM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from benchmarks import gpu_parts

pytestmark = pytest.mark.skipif(
    gpu_parts.VLLM, reason="engines of vLLM need a process each: python -m benchmarks.gpu_parts"
)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The parts are made for processes of their own: two set how kernels add."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUBLAS_WORKSPACE_CONFIG", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
        yield
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kind", ["base", "beside", "merged"])
def test_log_probs_are_compared_with_the_trainers(kind: str, tmp_path: Path) -> None:
    found = gpu_parts.one_part(f"agree_{kind}", tmp_path / "part")
    assert found["ok"], found
    assert found["mean_gap_nats"] < 1e-5
    assert (found["gap_to_base"] > 0.1) is (kind != "base")


def test_an_adapter_that_is_not_drawn_from_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = gpu_parts.open_sampler
    monkeypatch.setattr(gpu_parts, "open_sampler", lambda base, _: opened(base, None))
    found = gpu_parts.one_part("agree_beside", tmp_path / "part")
    assert found["ok"] is False
    assert found["gap_to_base"] < 1e-5 < found["mean_gap_nats"]


def test_a_guide_of_one_is_held_against_none_and_a_steep_one(tmp_path: Path) -> None:
    for name in gpu_parts.GUIDES:
        assert gpu_parts.one_part(f"guide_{name}", tmp_path / f"guide_{name}")["ok"]
    found = gpu_parts.one_part("guide", tmp_path / "guide")
    assert (found["ok"], found["one"]) == (True, 0.0)
    assert found["steep"] > 0.0
    shutil.copy(tmp_path / "guide_steep.pt", tmp_path / "guide_one.pt")
    assert gpu_parts.one_part("guide", tmp_path / "guide")["ok"] is False


@pytest.mark.parametrize("name", ["draw_1.5B", "draw_adapter_1.5B", "step_1.5B", "step_7B"])
def test_speeds_are_measured(name: str, tmp_path: Path) -> None:
    found = gpu_parts.one_part(name, tmp_path / "part")
    assert found["ok"] is not False, found
    assert found["tokens_per_second"] > 0.0
    assert found["memory"]["host"] > 0.0


def test_what_fails_is_told_and_trl_waits_for_a_gpu(tmp_path: Path) -> None:
    found = gpu_parts.one_part("guide", tmp_path / "guide")  # of runs that were not made
    assert found["ok"] is False
    assert "FileNotFoundError" in found["error"]
    if not gpu_parts.CUDA:
        assert "needs a GPU" in gpu_parts.one_part("step_trl_7B", tmp_path)["skipped"]


@pytest.mark.slow
def test_each_part_is_a_process_and_a_copy_of_the_program_runs_alone(tmp_path: Path) -> None:
    copy = Path(shutil.copy(ROOT / "benchmarks/gpu_parts.py", tmp_path / "proof.py"))
    for start, out in ((["-m", "benchmarks.gpu_parts"], "one"), ([str(copy)], "two")):
        options = ["--out", str(tmp_path / out), "--only", "kernels", "drawing", "guide"]
        done = subprocess.run(
            [sys.executable, *start, *options], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        table = json.loads((tmp_path / out / "parts.json").read_text(encoding="utf-8"))
        assert {name: part["ok"] for name, part in table["parts"].items()} == {
            "kernels": None,
            "drawing": True,
            "guide": False,  # without the runs that it compares
        }
        assert done.returncode == 1
        assert table["versions"]["torch"]
        assert "== guide" in (tmp_path / out / "parts.log").read_text(encoding="utf-8")
    late = gpu_parts.measure(["drawing"], tmp_path / "late", seconds=1.0, each=100.0)
    assert late["parts"]["drawing"]["skipped"] == "no time left"
