"""Jobs that run in forks of a process with their imports: as by themselves, and never left over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from conftest import wait_for

from sage.runtime import fork_server
from sage.runtime.devices import Device
from sage.runtime.job import _can_share
from sage.runtime.shared_imports import SWITCH, _private_folder
from tests.conftest import ROOT

# Named `snakemake`, so jobs take it for one: runs scripts in turn and prints their exit statuses.
RUNNER = """
import os, subprocess, sys
for number, script in enumerate(sys.argv[1:]):
    environment = os.environ | {"OF_A_PACKAGE": os.environ.get("VALUES", "000")[number]}
    print(subprocess.run([sys.executable, script], env=environment).returncode, flush=True)
sys.stdin.read()
"""
HEAD = """
import sys
OWN = ("SAGE_FORKED", "SAGE_USAGE")
at_start = sorted(name for name in sys.modules if name.split(".")[0] in ("sage", "slow_package"))
import json, os, psutil, subprocess, time
from pathlib import Path
from types import SimpleNamespace
from sage.runtime.job import job

snakemake = SimpleNamespace(
    threads=1, log=[__file__ + ".log"], params={}, resources={}, wildcards={}
)
def server():
    return os.getppid()

with job(snakemake, imports=["slow_package"]):
"""
TELL = """
    import random, slow_package, numpy
    state = {
        "arguments": sys.argv,
        "folder": os.getcwd(),
        "environment": {k: v for k, v in os.environ.items() if k not in OWN},
        "path": sys.path,
        "main": sys.modules["__main__"].__file__,
        "threads": len(os.listdir("/proc/self/task")),
    }
    Path("state").write_text(json.dumps(state))
    draws = [random.random(), numpy.random.rand()]
    others = {"at_start": at_start, "server": server(), "draws": draws}
    Path(f"others{len(list(Path().glob('others*')))}").write_text(json.dumps(others))
"""
STAY = """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("part").write_text(f"{os.getpid()} {server()} {child.pid}")
    Path("part").rename("pids")
    time.sleep(600)
"""


class Runner:
    """The runner, at work on the scripts with these bodies."""

    def __init__(self, folder: Path, *bodies: str, package: str = "", **variables: str) -> None:
        self.folder = folder
        (folder / "snakemake").write_text(RUNNER)
        (folder / "slow_package.py").write_text(f"open('made', 'a').write('x')\n{package}\n")
        scripts = [folder / f"script{number}.py" for number, _ in enumerate(bodies)]
        for script, body in zip(scripts, bodies, strict=True):
            script.write_text(HEAD + body)
        self.logs = [Path(f"{script}.log") for script in scripts]
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "snakemake"), *map(str, scripts)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", **variables},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Tests that run in a shell's background have it ignored, and so would their children.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def statuses(self) -> list[int]:
        """The exit statuses of the scripts, once all have ended."""
        printed = self.process.communicate(timeout=120)[0]
        return [int(line) for line in printed.splitlines() if line.lstrip("-").isdigit()]

    def jobs(self) -> list[psutil.Process]:
        """The processes that it has started itself."""
        return psutil.Process(self.process.pid).children()

    def pids(self) -> list[int]:
        """Those of the script that stays: the fork, the server, the fork's own child."""
        wait_for((self.folder / "pids").exists)
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]


def gone(*pids: int) -> bool:
    return not any(map(runs, pids))


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def others(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("others*"))]


def test_a_fork_finds_what_a_process_of_its_own_finds(tmp_path: Path) -> None:
    assert Runner(tmp_path, TELL).statuses() == [0]
    shared = (tmp_path / "state").read_bytes()
    alone = Runner(tmp_path, TELL, **{SWITCH: "off"})
    assert alone.statuses() == [0]
    first, second = json.loads(shared), json.loads((tmp_path / "state").read_bytes())
    assert second["environment"].pop(SWITCH) == "off"
    assert first == second


def test_jobs_share_imports_but_no_random_numbers(tmp_path: Path) -> None:
    runner = Runner(tmp_path, TELL, TELL, package="import numpy")
    assert runner.statuses() == [0, 0]
    first, second = others(tmp_path)
    assert first["at_start"] == second["at_start"] == ["slow_package"]
    assert first["server"] == second["server"]
    assert all(a != b for a, b in zip(first["draws"], second["draws"], strict=True))
    assert (tmp_path / "made").read_text() == "x"  # imported once
    wait_for(lambda: gone(first["server"]))  # with the run
    assert not list(Path("/tmp").glob(f"sage-imports-{os.getuid()}-{runner.process.pid}-*"))


def test_a_failing_fork_leaves_its_traceback_and_its_exit_status(tmp_path: Path) -> None:
    fails, exits = "    raise ValueError('no luck')\n", "    os._exit(7)\n"
    dies = "    os.kill(os.getpid(), 9)\n"
    runner = Runner(tmp_path, fails, exits, dies)
    assert runner.statuses() == [1, 7, 128 + signal.SIGKILL]
    log = runner.logs[0].read_text()
    assert "Traceback" in log
    assert "ValueError: no luck" in log


@pytest.mark.slow
def test_a_killed_job_takes_its_fork_with_it(tmp_path: Path) -> None:
    runner = Runner(tmp_path, STAY, TELL)
    fork, server, child = runner.pids()
    assert fork_server.__file__ in psutil.Process(server).cmdline()
    runner.jobs()[0].kill()
    wait_for(lambda: gone(fork, child))
    assert runner.statuses() == [-signal.SIGKILL, 0]
    assert others(tmp_path)[0]["server"] == server  # which goes on for the next job


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_job_reaches_its_fork(tmp_path: Path, number: int) -> None:
    """And the log says of both that the job was stopped, not that it failed."""
    runner = Runner(tmp_path, STAY)
    fork, _, child = runner.pids()
    runner.jobs()[0].send_signal(number)
    assert runner.statuses() == [128 + signal.SIGINT]  # how Python ends after an interrupt
    assert "KeyboardInterrupt" in runner.logs[0].read_text()
    assert gone(fork, child)


@pytest.mark.slow
def test_a_killed_server_ends_its_forks_and_fails_their_jobs(tmp_path: Path) -> None:
    runner = Runner(tmp_path, STAY, TELL)
    fork, server, _ = runner.pids()
    os.kill(server, signal.SIGKILL)
    assert runner.statuses() == [1, 0]
    assert gone(fork)
    assert others(tmp_path)[0]["server"] != server  # a new one


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_snakemake_ends_forks_and_server(tmp_path: Path, number: int) -> None:
    runner = Runner(tmp_path, STAY)
    pids, jobs = runner.pids(), runner.jobs()
    os.kill(runner.process.pid, number)
    runner.process.wait()
    wait_for(lambda: gone(*pids, *(job.pid for job in jobs)))
    assert "Snakemake is gone" in runner.logs[0].read_text()


def test_a_job_that_cannot_be_forked_says_so_and_runs_by_itself(tmp_path: Path) -> None:
    threads = (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    runner = Runner(tmp_path, TELL, TELL, package=threads)
    assert runner.statuses() == [0, 0]
    assert [other["at_start"] for other in others(tmp_path)] == [[], []]
    for log in runner.logs:
        assert "makes its own imports" in log.read_text()
        assert "it has 2 threads" in log.read_text()
    assert (tmp_path / "made").read_text() == "xxx"  # no second server was tried


def test_a_folder_of_another_name_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    prefix = f"sage-imports-{os.getuid()}-"
    for name in ("x", "999999999-5", "9" * 40):
        (tmp_path / f"{prefix}{name}").mkdir()
    made = _private_folder(psutil.Process())
    there = {path.name.removeprefix(prefix) for path in tmp_path.iterdir()}
    assert there == {made.name.removeprefix(prefix), "x", "9" * 40}


def test_another_environment_is_another_server(tmp_path: Path) -> None:
    """A variable may change what an import does."""
    assert Runner(tmp_path, TELL, TELL, TELL, VALUES="121").statuses() == [0, 0, 0]
    servers = [other["server"] for other in others(tmp_path)]
    assert servers[0] == servers[2] != servers[1]


def test_code_that_was_edited_is_read_anew(tmp_path: Path) -> None:
    """Forks have this project's code as it was when their server started."""
    shutil.copytree(ROOT / "sage", tmp_path / "sage", ignore=shutil.ignore_patterns("__pycache__"))
    tells = (
        TELL
        + """
    import sage.fields
    Path(f"said{len(list(Path().glob('said*')))}").write_text(str(sage.fields.__doc__))
"""
    )
    edits = """
    file = Path("sage/fields.py")
    file.write_text(file.read_text() + "\\n__doc__ = 'edited'\\n")
"""
    runner = Runner(
        tmp_path,
        tells,
        tells + edits,
        tells,
        package="import sage.fields",
        PYTHONPATH=str(tmp_path),
    )
    assert runner.statuses() == [0, 0, 0]
    servers = [other["server"] for other in others(tmp_path)]
    assert servers[0] == servers[1] != servers[2]
    said = [path.read_text() == "edited" for path in sorted(tmp_path.glob("said*"))]
    assert said == [False, False, True]


@pytest.mark.parametrize(
    ("threads", "asked", "params", "shares"),
    [
        (1, 0, {"evaluation": {"engine": "transformers"}}, True),
        (1, 0, {"evaluation": {"engine": "vllm"}}, False),
        (1, 0, {"settings": {"rl": {"engine": "vllm"}}}, False),
        (1, 0, {"study": {"models": {"tiny": {"engine": "vllm"}}}}, True),  # a table of it
        (2, 0, {}, False),
        (1, 1, {}, False),
    ],
)
def test_only_jobs_of_one_thread_without_gpu_and_vllm_are_forked(
    threads: int, asked: int, params: dict, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sage.runtime.job.visible_devices", lambda: [Device("0", "GPU-0")])
    snakemake = SimpleNamespace(threads=threads, resources={"gpus_asked": asked})
    assert _can_share(snakemake, params) == shares


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="glibc's allocator is that of Linux")
def test_a_job_keeps_the_memory_of_tensors_for_the_next_ones():
    code = """
import resource
import numpy as np
from sage.runtime.job import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.ones(2**20) for _ in range(5)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
by_default = faults()
keep_freed_memory()
faults()
print(by_default, faults())
"""
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    by_default, kept = map(int, output.split())
    assert kept < by_default / 10
