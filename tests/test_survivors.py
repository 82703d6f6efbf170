"""A killed Snakemake leaves no job at work, and its lock is released by the next `make`."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sage.runtime.survivors import COMMAND, HOLDER, Locked, hold, note_owner, release_stale_lock
from tests.conftest import ROOT

SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from sage.runtime.survivors import note_owner

onstart:
    note_owner(Path.cwd())

rule all:
    output: "done"
    log: "job.log"
    script: "job.py"
"""
JOB = """
import os, subprocess, sys, time
from pathlib import Path
from sage.runtime.job import job

with job(snakemake):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("pids").write_text(f"{os.getpid()} {child.pid}")
    while not Path("go").exists():
        time.sleep(0.1)
    child.kill()
Path(snakemake.output[0]).touch()
"""


def lock(folder: Path) -> Path:
    path = folder / ".snakemake/locks/0.output.lock"
    path.parent.mkdir(parents=True)
    path.write_text("done\n")
    return path


def test_a_folder_without_a_lock_is_left_alone(tmp_path: Path) -> None:
    assert not release_stale_lock(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_without_its_owner_is_released(tmp_path: Path) -> None:
    path = lock(tmp_path)
    note_owner(tmp_path)  # this very process, which is no Snakemake
    assert release_stale_lock(tmp_path)
    assert not path.exists()


def test_a_lock_of_another_machine_stays(tmp_path: Path) -> None:
    path = lock(tmp_path)
    (tmp_path / ".snakemake/owner.json").write_text(json.dumps({"host": "other", "pid": 7}))
    assert socket.gethostname() != "other"
    with pytest.raises(Locked, match=r"process 7 on other") as error:
        release_stale_lock(tmp_path)
    command = f"run `{Path(sys.executable).parent}/snakemake --cores 1 --unlock`, then the same"
    assert command in str(error.value)
    assert path.exists()


@pytest.mark.parametrize(
    "options", ["-m", "-u -m", "-um", "-X utf8 -m", "-W ignore -m", "-P -msnakemake"]
)
def test_a_lock_stays_whatever_options_python_was_started_with(
    options: str, tmp_path: Path
) -> None:
    path, module = lock(tmp_path), tmp_path / "snakemake.py"
    module.write_text("import time; print('up', flush=True); time.sleep(600)")
    words = options.split() + ["snakemake"] * (not options.endswith("snakemake"))
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    ) as live:
        try:
            assert live.stdout
            assert live.stdout.readline() == b"up\n"
            with pytest.raises(Locked, match=rf"process {live.pid}\) is running"):
                release_stale_lock(tmp_path)
        finally:
            live.kill()
    assert path.exists()
    assert release_stale_lock(tmp_path)


def test_results_are_made_by_one_run_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sage.runtime.survivors import hold; "
        "hold(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as other:
        try:
            assert other.stdout
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(Locked, match=rf'another run \(.*"pid": {other.pid}.*set `results`'):
                hold(tmp_path)
        finally:
            other.send_signal(signal.SIGKILL)
    hold(tmp_path)  # the lock has ended with its process
    hold(tmp_path)
    assert json.loads((tmp_path / HOLDER).read_text())["pid"] == os.getpid()
    unknown = OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(fcntl, "flock", raising(unknown))  # as some network file systems
    (tmp_path / "other").mkdir()
    hold(tmp_path / "other")
    hold(tmp_path / "missing")


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def wait_for(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_killed_snakemake_takes_its_jobs_with_it_and_the_next_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE.format(root=str(ROOT)))
    (tmp_path / "job.py").write_text(JOB)
    tools = Path(sys.executable).parent
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", COMMAND, "run", "--cores", "1", "--rerun-incomplete"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    first, pids = start(), tmp_path / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    running = [int(pid) for pid in pids.read_text().split()]
    assert all(psutil.pid_exists(pid) for pid in running)

    beside = start()  # a living Snakemake keeps its lock
    assert "is running in" in beside.communicate(timeout=60)[0]
    assert beside.returncode == 1

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    wait_for(lambda: not any(map(psutil.pid_exists, running)))
    assert "Snakemake is gone" in (tmp_path / "job.log").read_text()

    (tmp_path / "go").touch()
    second = start()
    printed = second.communicate(timeout=120)[0]
    assert second.returncode == 0, printed
    assert "lock of a Snakemake that was killed is released" in printed
    assert (tmp_path / "done").exists()
