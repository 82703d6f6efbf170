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
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conftest import wait_for

from sage.runtime.survivors import (
    COMMAND,
    HOLDER,
    SNAKEMAKE,
    Locked,
    hold,
    note_owner,
    release_stale_lock,
)
from tests.conftest import ROOT

SNAKEFILE = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from sage.runtime.survivors import note_owner

onstart:
    note_owner(Path.cwd(), "local")

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
    note_owner(tmp_path, "local")  # this very process, which is no Snakemake
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


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A cluster on which no process of another node can be seen; its squeue prints `lines`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(()))
    monkeypatch.setenv("SLURM_JOB_ID", "40")

    def says(*lines: str, status: int = 0) -> None:
        words = "".join(f"echo '{line}'\n" for line in lines)
        (tools / "squeue").write_text(f"#!/bin/sh\n{words}exit {status}\n")
        (tools / "squeue").chmod(0o755)

    return says


@pytest.mark.parametrize("host", ["here", "other"])
def test_a_lock_stays_while_slurm_has_jobs_of_the_folder(
    host: str, tmp_path: Path, squeue: Callable[..., None]
) -> None:
    """They outlive their Snakemake, and no process of theirs is seen here."""
    path, name = lock(tmp_path), "sage_697bc020-3702"
    note_owner(tmp_path, "slurm")
    if host == "other":
        owner = {"host": host, "pid": 7, "executor": "slurm"}
        (tmp_path / ".snakemake/owner.json").write_text(json.dumps(owner))
    (link := tmp_path / "link").symlink_to(tmp_path)
    squeue(
        f"12|{name}|(null)|{tmp_path}",
        f"13|another_name|rule_rl_wildcards_tiny_grpo_1|{link}",
        f"14|{name}|rule_rl|{tmp_path}/elsewhere",
        f"15|bash|(null)|{tmp_path}",
        f"16|sage|(null)|{tmp_path}",  # a controller that is not this one
        f"40|sage|(null)|{tmp_path}",
    )
    with pytest.raises(Locked, match=r"jobs of .* \(12, 13, 16\).*`scancel 12 13 16`") as error:
        release_stale_lock(tmp_path)
    assert "unlock" not in str(error.value)
    assert path.exists()
    squeue(f"14|{name}|rule_rl|{tmp_path}/elsewhere")
    if host == "here":
        assert release_stale_lock(tmp_path)
    else:
        with pytest.raises(Locked, match=r"process 7 on other.*--unlock`, then the same command"):
            release_stale_lock(tmp_path)


def test_a_lock_stays_while_slurm_does_not_answer(
    tmp_path: Path, squeue: Callable[..., None]
) -> None:
    path = lock(tmp_path)
    note_owner(tmp_path, "slurm")
    squeue(status=1)
    says = r"squeue does not answer.*If there are none, run `.*--unlock`"
    with pytest.raises(Locked, match=says):
        release_stale_lock(tmp_path)
    assert path.exists()
    note_owner(tmp_path, "local")  # on a machine that has SLURM's tools and no cluster
    assert release_stale_lock(tmp_path)


def test_the_profile_names_jobs_as_the_lock_expects_them() -> None:
    assert "\nslurm-jobname-prefix: sage\n" in (ROOT / "profiles/slurm/profile.yaml").read_text()
    assert "--job-name=sage\n" in (ROOT / "profiles/slurm/controller.sh").read_text()


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


@pytest.mark.parametrize("told", ["gone", "other", "alive"])
def test_a_job_knows_the_snakemake_that_started_it(told: str, tmp_path: Path) -> None:
    """Whoever its parent is by then: here it is none of it. `other` has the number of a process
    that has ended."""
    name = tmp_path / ("snakemake" if told != "other" else "program")
    name.write_text("import time; time.sleep(600)")
    code = "from sage.runtime.survivors import *\nwith ends_with_snakemake(): print('works')"
    with subprocess.Popen([sys.executable, str(name)]) as process:
        if told == "gone":
            process.kill()
            process.wait()
        own = os.environ | {"PYTHONPATH": str(ROOT), SNAKEMAKE: str(process.pid)}
        done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
        process.kill()
    assert (done.returncode, done.stdout) == ((0, "works\n") if told == "alive" else (1, ""))


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


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
