"""What a manifest tells of a job's use of the machine: all its processes, and leased GPUs alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import wait_for

from sage.runtime import usage as module
from sage.runtime.manifest import Manifest
from sage.runtime.usage import usage, watched

MIB = 2**20

CHILD = """
import sys
held = bytearray(int(sys.argv[1]) * 2**20)
print("ready", flush=True)
sys.stdin.read()
"""

# A sample a second of two devices; on its third call the driver has gone.
SMI = """#!/bin/sh
echo "$*" >> {calls}
case $(wc -l < {calls}) in
1) echo "1000 MiB, 50 %"; echo "3000 MiB, 100 %" ;;
2) echo "5000 MiB, [N/A]"; echo "100 MiB, 0 %" ;;
*) echo "Unable to determine the device handle"; exit 15 ;;
esac
"""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)


def told_by_a_child() -> int:
    """The memory of the job, as a process that it has started knows it."""
    code = "from sage.runtime.usage import usage; print(usage().memory)"
    return int(subprocess.check_output([sys.executable, "-c", code]))


def test_memory_of_children_counts_together_and_outlives_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What this process needed for earlier tests would hide what the watch sees.
    monkeypatch.setattr(module, "_peak_of_one_process", lambda: 0)
    before = module.memory_of_processes(os.getpid())
    with watched():
        children = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, "150"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        wait_for(lambda: usage().memory >= before + 290 * MIB)
        for child in children:
            child.communicate()
        peak = usage().memory
        assert peak >= before + 290 * MIB
        # A process that the job has started writes of the whole job.
        assert told_by_a_child() >= peak


def test_a_peak_before_the_watch_reaches_a_process_that_the_job_starts() -> None:
    peak = usage().memory
    assert peak > 2**20
    with watched():
        wait_for(Path(os.environ[module.FILE]).exists)
        assert told_by_a_child() >= peak


def test_gpus_are_sampled_until_they_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, tool = tmp_path / "calls", tmp_path / "nvidia-smi"
    tool.write_text(SMI.format(calls=calls))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with watched(["GPU-a", "GPU-b"]):
        wait_for(lambda: calls.exists() and len(calls.read_text().splitlines()) >= 5)
        time.sleep(0.5)
        seen = usage()
        content = Manifest({}, 1, time.time(), clock=time.monotonic() - 2).content(tokens=100)
    assert (seen.gpu_memory, seen.gpu_utilisation) == (5000 * MIB, 0.5)
    assert calls.read_text().splitlines()[0].endswith("--id=GPU-a,GPU-b")
    assert len(calls.read_text().splitlines()) == 5  # three failures in a row end it
    assert content["peak_gpu_memory_gib"] == round(5000 / 1024, 3)
    assert content["gpu_utilisation"] == 0.5
    assert 40 < content["tokens_per_second"] <= 50
    json.dumps(content)


def test_without_gpus_none_is_asked_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with watched():
        time.sleep(0.3)
        seen = usage()
    assert (seen.gpu_memory, seen.gpu_utilisation) == (None, None)
    assert not (tmp_path / "asked").exists()


def test_what_killed_jobs_left_behind_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, own, other = (
        tmp_path / name
        for name in (f"sage-usage-of-{ended.pid}-x", f"sage-usage-of-{os.getpid()}-x", "else")
    )
    for folder in (left, own, other):
        folder.mkdir()
    with watched():
        assert not left.exists()
        assert len(list(tmp_path.iterdir())) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([own.name, "else"])
