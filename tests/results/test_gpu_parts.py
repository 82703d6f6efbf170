"""`benchmarks.gpu`: the parts that a GPU is to show, with tiny models and without vLLM, its table,
and what it says without a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from benchmarks import gpu
from sage.tools import gpus
from sage.tools.gpus import Work

pytestmark = pytest.mark.skipif(
    gpu.VLLM, reason="engines of vLLM need a process each: python -m benchmarks.gpu"
)


@pytest.mark.parametrize("name", ["draw_1.5B", "step_1.5B", "step_7B"])
def test_speeds_are_measured(name: str, tmp_path: Path) -> None:
    found = gpu.one_part(name, tmp_path / "part")
    assert found["ok"] is not False, found
    assert found["tokens_per_second"] > 0.0
    assert found["memory"]["host"] > 0.0
    work = found["work"]
    assert {*Work.__annotations__} < {*work}
    assert (work["stage"], work["rows"]) == (("rl", 8) if "step" in name else ("sample", gpu.ROWS))


def test_what_fails_is_told_and_trl_waits_for_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu.PARTS, "sample", lambda folder: gpu.load_tokenizer(folder / "none"))
    found = gpu.one_part("sample", tmp_path / "part")
    assert found["ok"] is False
    assert "none" in found["error"]
    if not gpu.CUDA:
        assert "needs a GPU" in gpu.one_part("step_trl_7B", tmp_path)["skipped"]


@pytest.mark.slow
def test_each_part_is_a_process_and_late_ones_are_left_out(tmp_path: Path) -> None:
    names = ("draw_0.5B", "step_trl_0.5B")
    options = ["--tiny", "--out", str(tmp_path / "out"), "--only", *names]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    table = json.loads((tmp_path / "out/parts.json").read_text(encoding="utf-8"))
    assert [*table["parts"]] == [*names]
    assert {part["ok"] for part in table["parts"].values()} == {None}
    assert done.returncode == 0
    assert table["versions"]["torch"]
    assert "== draw_0.5B" in (tmp_path / "out/parts.log").read_text(encoding="utf-8")
    late = gpu.measure(["draw_0.5B"], tmp_path / "late", seconds=1.0, each=100.0)
    assert late["parts"]["draw_0.5B"]["skipped"] == "no time left"


TESTS = """
import pytest

def test_measures(record_property):
    record_property("ratio", "1.01 (at most 1.02)")

def test_fails():
    assert 1 == 2, "not equal"

@pytest.mark.skip(reason="for a reason")
def test_skipped():
    pass
"""


def test_every_test_has_a_row_with_its_outcome_and_what_it_measured(tmp_path: Path) -> None:
    (tmp_path / "test_few.py").write_text(TESTS)
    found = gpu.tested([str(tmp_path / "test_few.py"), f"--rootdir={tmp_path}"], tmp_path)
    assert found["ok"] is False
    rows = found["tests"]
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "test_measures": "passed",
        "test_fails": "failure",
        "test_skipped": "skipped",
    }
    assert rows["test_measures"]["measured"] == {"ratio": "1.01 (at most 1.02)"}
    assert "not equal" in rows["test_fails"]["reason"]
    assert rows["test_skipped"]["reason"] == "for a reason"


def test_tests_of_a_gpu_are_there_to_be_run() -> None:
    for part in gpu.TESTS.values():
        assert (ROOT / part.args[0][2]).is_file()


def test_a_command_that_takes_too_long_is_ended_with_all_it_started() -> None:
    assert gpu.ended(["sh", "-c", "sleep 99 & wait"], 1.0) == gpu.OUT_OF_TIME


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_says_so_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([]) == gpu.NO_GPU
    assert "sees no CUDA device here" in capsys.readouterr().out


def test_kept_speeds_are_those_that_a_plan_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up numbers."""
    monkeypatch.setattr(gpus, "SPEEDS", Path(shutil.copy(gpus.SPEEDS, tmp_path)))
    before = gpus.measured_speeds()
    step = {"ok": True, "tokens_per_second": 123.0, "memory": {"gpu": 9.0}}
    step["work"] = gpu.work_of("rl", "vllm", "1.5B", 8)
    table = {"commit": "0" * 40, "hardware": {"gpu": "NVIDIA H200"}, "parts": {"step_1.5B": step}}
    (tmp_path / "parts.json").write_text(json.dumps(table))
    assert gpu.main(["--keep", str(tmp_path)]) == 0
    assert gpus.measured_speeds()[:-1] == before
    assert gpus.measured_speeds()[-1]["tokens_per_second"] == 123.0


def test_make_and_the_docs_name_it_and_its_limit() -> None:
    makefile, docs = ((ROOT / name).read_text() for name in ("Makefile", "docs/running.md"))
    assert re.search(r"^test-gpu: .*\n\t.*python -m benchmarks\.gpu$", makefile, re.M)
    assert gpu.SECONDS == 9 * 60
    assert "`make test-gpu` tests the following in at most nine minutes" in docs
