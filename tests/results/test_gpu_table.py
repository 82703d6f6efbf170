"""`make test-gpu`: the table that it leaves, where it stops, and what it says without a GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from benchmarks import gpu

TESTS = """
import time, pytest

def test_measures(record_property):
    record_property("ratio", "1.01 (at most 1.02)")

def test_fails():
    assert 1 == 2, "not equal"

@pytest.mark.skip(reason="for a reason")
def test_skipped():
    pass

def test_is_slow():
    time.sleep(SECONDS)
"""


def rows_of(
    tmp_path: Path, sleeps: float, limit: float
) -> tuple[int, dict[str, dict[str, object]]]:
    (tmp_path / "test_few.py").write_text(TESTS.replace("SECONDS", str(sleeps)))
    arguments = [str(tmp_path / "test_few.py"), "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    parts = [[*arguments, "-k", "not slow"], [*arguments, "-k", "slow"]]
    status = gpu.run(parts, tmp_path / "table.json", limit)
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["hardware"]["cpu"]
    rows = table["tests"]
    return status, {name.rpartition("::")[2]: row for name, row in rows.items()}


def test_every_test_has_a_row_with_its_outcome_and_what_it_measured(tmp_path: Path) -> None:
    status, rows = rows_of(tmp_path, sleeps=0, limit=120)
    assert status == 1
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes == {
        "test_measures": "passed",
        "test_fails": "failed",
        "test_skipped": "skipped",
        "test_is_slow": "passed",
    }
    assert rows["test_skipped"]["reason"] == "Skipped: for a reason"  # and no path
    text = gpu.render({f"test_few.py::{name}": row for name, row in rows.items()})
    assert "  ratio: 1.01 (at most 1.02)" in text
    assert "for a reason" in text


@pytest.mark.slow  # waits for its limit, 30 seconds
def test_out_of_time_what_has_ended_is_kept(tmp_path: Path) -> None:
    start = time.monotonic()
    status, rows = rows_of(tmp_path, sleeps=600, limit=30)
    assert time.monotonic() - start < 120
    assert status == gpu.OUT_OF_TIME
    assert (rows["test_measures"]["outcome"], rows["test_is_slow"]["outcome"]) == (
        "passed",
        "not run",
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_says_so_and_fails() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == gpu.NO_GPU
    assert "sees no CUDA device here" in done.stdout


def test_make_and_the_docs_name_it_and_its_limit() -> None:
    makefile = (ROOT / "Makefile").read_text()
    docs = (ROOT / "docs/running.md").read_text()
    assert re.search(r"^test-gpu: .*\n\t.*python -m benchmarks\.gpu$", makefile, re.M)
    assert gpu.SECONDS == 9 * 60
    assert "`make test-gpu` tests the following in at most nine minutes" in docs
