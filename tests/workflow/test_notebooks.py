"""The notebooks of examples/: their cells run, and they hold no outputs nor paths of a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SIZES = "PRETRAINING_STEPS, RL_STEPS, SAMPLES = "


def cells_of(file: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return cells


def code_of(name: str) -> str:
    """The code cells of a notebook, as a script that shows what each cell ends with."""
    cells = cells_of(ROOT / f"examples/{name}.ipynb")
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def run(code: str, folder: Path, **environment: str) -> str:
    """What `code` prints, as a process of its own in `folder`."""
    settings = {
        "MPLBACKEND": "agg",
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=settings | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_two() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["explore", "train"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_they_are_small_and_hold_nothing_of_a_machine(file: Path) -> None:
    assert file.stat().st_size < 20_000
    text = file.read_text(encoding="utf-8")
    assert not any(word in text for word in ("/home/", "/tmp/", "C:\\"))
    for cell in cells_of(file):
        assert cell.get("outputs", []) == []


def test_explore_shows_a_finished_study(smoke: Path, tmp_path: Path) -> None:
    code = code_of("explore") + "\nprint(shares.loc[problem_id], points, chosen)"
    printed = run(code, tmp_path, STUDY=str(smoke))
    assert "| correct:" in printed
    for method in ("grpo_branch", "grpo_no_kl", "base"):
        assert method in printed


@pytest.mark.timeout(600)
def test_train_trains(tmp_path: Path) -> None:
    code = code_of("train")
    assert SIZES in code
    printed = run(code.replace(SIZES, SIZES + "4, 2, 4 #") + "\nprint(after)", tmp_path)
    assert "mean reward of the first step" in printed
    assert [line.split()[1] for line in printed.splitlines()[-3:]] == ["1", "2", "4"]
