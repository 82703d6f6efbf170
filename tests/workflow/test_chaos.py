"""The chaos run's own parts: its copies of the project, and what it compares.

The run itself takes as long as two studies: `python -m benchmarks.chaos`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.chaos import copy_project, described, differences, kill_one
from sage.exhibits import load_study


@pytest.mark.parametrize("small", [False, True])
def test_a_copy_has_a_whole_study_without_measured_times(tmp_path: Path, small: bool) -> None:
    copy_project(tmp_path / "copy", "smoke", small)
    study = load_study("smoke", tmp_path / "copy/config")
    kinds = {exhibit.kind for exhibit in study.study.exhibits.values()}
    assert "accuracy" in kinds
    assert "step_times" not in kinds
    assert (tmp_path / "copy/sage/tools/command.py").is_file()
    runs = [run for model in study.study.models for run in study.trained_runs(model)]
    assert (len(runs) == 2) == small


@pytest.fixture
def twice(tmp_path: Path) -> tuple[Path, Path]:
    """The results of the same study, made at different speeds."""
    for name, seconds in (("calm", 1.0), ("chaos", 2.0)):
        policy = tmp_path / name / "models/tiny/grpo/seed1"
        samples = tmp_path / name / "samples/tiny"
        policy.mkdir(parents=True)
        samples.mkdir(parents=True)
        (policy / "adapter_model.safetensors").write_bytes(b"weights")
        (policy / "manifest.json").write_text(json.dumps({"wall_seconds": seconds}))
        row = {"step": 1, "loss": 0.5, "seconds": seconds}
        (policy / "history.jsonl").write_text(json.dumps(row) + "\n")
        (samples / "easy.parquet").write_bytes(b"samples")
        (tmp_path / name / "metrics/training").mkdir(parents=True)
        table = tmp_path / name / "metrics/training/histories.parquet"
        pd.DataFrame([row]).to_parquet(table)
        made = {"tokens": 7, "wall_seconds": seconds}
        (samples / "easy.json").write_text(json.dumps(made))
    return tmp_path / "calm", tmp_path / "chaos"


def test_what_tells_of_the_run_is_no_difference(twice: tuple[Path, Path]) -> None:
    assert differences(*twice) == (5, [])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("models/tiny/grpo/seed1/adapter_model.safetensors", "weighty"),
        ("models/tiny/grpo/seed1/history.jsonl", '{"step": 1, "loss": 0.6, "seconds": 1}\n'),
        ("samples/tiny/easy.json", '{"tokens": 8}'),
        ("metrics/more.csv", "x"),
    ],
)
def test_every_other_change_is_a_difference(
    twice: tuple[Path, Path], file: str, content: str
) -> None:
    path = twice[1] / file
    path.write_text(content)
    assert differences(*twice)[1] == [file]


def test_a_value_changed_in_histories_is_a_difference(twice: tuple[Path, Path]) -> None:
    table = twice[1] / "metrics/training/histories.parquet"
    pd.read_parquet(table).assign(loss=0.5 + 1e-15).to_parquet(table)
    assert differences(*twice)[1] == ["metrics/training/histories.parquet"]


def test_only_processes_of_the_folder_are_killed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    wait = [sys.executable, "-c", "import time; time.sleep(60)"]
    processes = {}
    for folder in (inside, outside):
        folder.mkdir()
        processes[folder] = subprocess.Popen(wait, cwd=folder)
    time.sleep(0.2)  # until they are in their folders
    killed = kill_one(processes[inside].pid, inside, random.Random(1))
    assert killed == "Snakemake"  # the process that the run is, for nothing else works there
    assert processes[inside].wait(10) == -9
    assert processes[outside].poll() is None
    processes[outside].kill()
    processes[outside].wait()


def test_victims_are_named_by_what_they_do() -> None:
    assert described(["python", "/x/.snakemake/scripts/tmpabc.rl.py"]) == "job rl"
    assert described(["python", "-m", "sage.grading.worker", "5"]) == "worker sage.grading.worker"
    server = ["python", "-P", "/x/sage/runtime/fork_server.py", "a.socket"]
    assert described(server) == "fork or server of shared imports"
