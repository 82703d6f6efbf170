"""GPU leases: real processes on pretended devices, checked by files the lease knows nothing of."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import filelock
import pytest
from conftest import ROOT

from sage.runtime.devices import Device
from sage.runtime.lease import FOLDER, TooFewDevices, lease

# Leases some of the devices, marks each with a file that must not be there yet, holds them, and
# goes in the way it is told. A marker names its process, so that one left by a kill is known.
JOB = """
import os, signal, sys, time
from pathlib import Path
from sage.runtime.devices import visible_devices
from sage.runtime.lease import lease

marks, count, seconds, end = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]

def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

with lease(count, visible_devices(), "job") as devices:
    names = [device.name for device in devices]
    assert len(set(names)) == count
    for name in names:
        mark = marks / name
        try:
            file = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            holder = int(mark.read_text() or 0)
            if is_alive(holder):
                sys.exit(f"{name} is used by {holder}")
            mark.unlink()
            file = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(file, str(os.getpid()).encode())
        os.close(file)
    print("leased", *names, flush=True)
    time.sleep(seconds)
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    for name in names:
        (marks / name).unlink()
"""

DEVICES = "0,1,2,3"
FOUR = [Device(name, name) for name in DEVICES.split(",")]

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python code with the names of devices in the environment; ends what is left."""
    processes: list[subprocess.Popen[str]] = []

    def of(code: str, *arguments: object, devices: str, **more: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": devices,
            "PYTHONPATH": f"{ROOT}:{Path(filelock.__file__).parents[1]}",
            "PATH": "/usr/bin:/bin",  # of a GPU machine, nvidia-smi must not cut the names down
            **more,
        }
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code, *map(str, arguments)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        processes.append(process)
        return process

    yield of
    for process in processes:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.slow
def test_jobs_never_share_a_device_whoever_is_killed(place: Path, start: Start) -> None:
    marks, chance = place / "marks", random.Random(7)
    marks.mkdir()
    ends = [chance.choice(["well", "well", "killed"]) for _ in range(50)]
    jobs = [
        start(JOB, marks, chance.choice([1, 1, 2, 3]), chance.uniform(0, 0.1), end, devices=DEVICES)
        for end in ends
    ]
    for one in chance.sample(jobs, 5):  # while they start, wait or hold
        time.sleep(0.1)
        one.kill()
    told = [one.communicate(timeout=200)[0] for one in jobs]
    codes = [one.returncode for one in jobs]
    assert not [text for text in told if "is used by" in text or "Traceback" in text]
    assert set(codes) <= {0, -signal.SIGKILL}
    assert codes.count(0) >= ends.count("well") - 5
    assert sum("leased" in text for text in told) >= 45
    with lease(4, FOUR, "all of them") as held:
        assert held == FOUR


CHILDREN = """
import os, subprocess, sys, time
from sage.runtime.devices import visible_devices
from sage.runtime.lease import lease

with lease(1, visible_devices(), "parent"):
    started = subprocess.Popen(["sleep", "600"], close_fds=False)
    if (forked := os.fork()) == 0:
        if sys.argv[1] == "unwinds":
            sys.exit("the child's end runs through the parent's with block")
        time.sleep(600)
    if sys.argv[1] == "unwinds":
        os.waitpid(forked, 0)
    print(started.pid, forked, flush=True)
    time.sleep(600)
"""


def test_children_neither_keep_a_dead_jobs_device_nor_lose_a_live_ones(
    place: Path, start: Start
) -> None:
    parent = start(CHILDREN, "sleeps", devices="0")
    children = [int(word) for word in line(parent).split()]
    parent.kill()
    parent.wait()
    try:
        began = time.monotonic()
        with lease(1, FOUR[:1], "the next"):
            assert time.monotonic() - began < 60
        for child in children:
            os.kill(child, 0)  # they live on
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)

    parent = start(CHILDREN, "unwinds", devices="0")
    said = line(parent)
    assert "runs through" in said
    started = int(line(parent).split()[0])
    waiting = start(JOB, place, 1, 0, "well", devices="0")
    assert f"GPU 0 is held by process {parent.pid} of" in line(waiting)
    time.sleep(1)
    assert waiting.poll() is None
    os.kill(started, signal.SIGKILL)
    parent.kill()
    assert "leased 0" in waiting.communicate(timeout=100)[0]


def test_a_job_for_two_devices_is_not_passed_by_later_ones(place: Path, start: Start) -> None:
    holder = start(JOB, place, 1, 600, "well", devices="0,1")
    assert "leased 0" in line(holder)
    large = start(JOB, place, 2, 1, "well", devices="0,1")
    assert f"Waiting for 0 s: GPU 0 is held by process {holder.pid}" in line(large)
    small = start(JOB, place, 1, 0, "well", devices="0,1")
    said = line(small)
    assert f"GPU 0 is held by process {holder.pid}" in said
    assert f"GPU 1 is held by process {large.pid}" in said  # which keeps it
    next_large = start(JOB, place, 2, 0, "well", devices="0,1,2")
    assert f"the turn to wait for several GPUs is held by process {large.pid}" in line(next_large)
    elsewhere = start(JOB, place, 1, 0, "well", devices="2,1")  # nobody waits for device 2
    assert "leased 2" in elsewhere.communicate(timeout=100)[0]
    holder.kill()
    (place / "0").unlink()
    assert "leased 0 1" in large.communicate(timeout=100)[0]
    assert "leased" in small.communicate(timeout=100)[0]
    assert "leased" in next_large.communicate(timeout=100)[0]


def test_more_than_there_is_fails_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    reason = (
        r"asks for 5 GPUs, but 4 are visible \(CUDA_VISIBLE_DEVICES=0,1,2,3\) here; lower `gpus`"
    )
    with pytest.raises(TooFewDevices, match=reason), lease(5, FOUR, "greedy"):
        pass
    parts = [Device(f"MIG-{n}", f"MIG-{n}") for n in range(2)]
    with pytest.raises(TooFewDevices, match="MIG"), lease(2, parts, "greedy"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
def test_users_share_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def job_of(user: int, seconds: float, marks: str) -> tuple[int, TextIO]:
        """A process of another user, forked, for it may not be let to start this Python."""
        out, into = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(into, 1)
            sys.argv, sys.stdout = ["", marks, "1", str(seconds), "well"], os.fdopen(1, "w")
            try:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                os.umask(0o077)
                exec(JOB, {})
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        os.close(into)
        return child, os.fdopen(out)

    monkeypatch.setenv("LOGNAME", "somebody")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        monkeypatch.setenv(FOLDER, f"{folder}/leases")
        first, told_by_first = job_of(65533, 1.0, folder)
        assert "leased 0" in told_by_first.readline()
        assert stat.S_IMODE(os.stat(f"{folder}/leases").st_mode) == 0o1777
        second, told_by_second = job_of(65534, 0.0, folder)
        assert f"held by process {first} of somebody" in told_by_second.readline()
        assert "leased 0" in told_by_second.readline()
        assert [os.waitpid(child, 0)[1] for child in (first, second)] == [0, 0]
        assert os.stat(f"{folder}/leases/device-0").st_uid == 65533
