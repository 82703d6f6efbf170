"""What a killed Snakemake leaves behind: jobs that still run, and a lock that nobody holds.

A job ends soon after the Snakemake that started it (`ends_with_snakemake`), so that no two jobs
write the same files; one in SLURM's queue does not. A lock is released where no Snakemake of this
folder is alive and SLURM has no job of it (`release_stale_lock`). Snakemake's lock is that of a
working folder; the results have their own (`hold`), which ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from sage.runtime import fork_server
from sage.runtime.devices import printed_by
from sage.runtime.files import write_text_atomic
from sage.runtime.fork_server import FORKED

COMMAND = "sage.tools.command"
"""The module that runs Snakemake in its own process (the command `sage-rlvr`)."""

POLL_SECONDS = 1.0
"""How often a job looks whether its Snakemake is there."""

OWNER = ".snakemake/owner.json"
"""The file with host and process that worked in a folder last."""

HOLDER = ".running.json"
"""The file in the results of a study that the process which makes them keeps locked."""

_held: dict[Path, int] = {}  # the open files behind the locks of this process

JOBS_LEAVE_SECONDS = 60.0
"""How long a new run waits for the jobs of a killed one."""


class Locked(RuntimeError):
    """The folder may not be used now; the message says by whom and what to do."""


@contextmanager
def ends_with_snakemake() -> Iterator[None]:
    """End this process and its children once the Snakemake above them is gone.

    Without one above, nothing is watched.
    """
    parent = snakemake_above()
    if parent is None:
        yield
        return
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(parent, done), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()


def snakemake_above() -> psutil.Process | None:
    """The Snakemake that this process works for; None without one."""
    if is_fork():
        return psutil.Process(int(os.environ[FORKED].split()[1]))
    return next(filter(_is_snakemake, psutil.Process().parents()), None)


def is_fork() -> bool:
    """Whether this process is a job that was forked from a server of imports."""
    return os.environ.get(FORKED, "").split()[:1] == [str(os.getpid())]


def note_owner(folder: Path, executor: str) -> None:
    """Note which process, on which machine, works in `folder`, and where its jobs run (`local`,
    `slurm`); Snakemake calls it at its start."""
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "executor": executor}
    write_text_atomic(folder / OWNER, json.dumps(owner) + "\n")


def hold(results: Path) -> None:
    """Keep the results of a study to this process until it ends, however it ends.

    Raises Locked if another has them, such as a run of a second copy of this repository. Where the
    file system knows no locks, nothing is held.
    """
    file = results.resolve() / HOLDER
    if file in _held:
        return
    with suppress(OSError):
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            said = os.read(lock, 10_000).decode(errors="replace").strip()
            os.close(lock)
            raise Locked(
                f"{results} is being made by another run ({said}); wait for its end or stop it, or "
                "set `results` in config/config.yaml to another folder"
            ) from error
        _held[file] = lock
        who = {"host": socket.gethostname(), "pid": os.getpid(), "folder": os.getcwd()}
        os.truncate(lock, 0)
        os.write(lock, f"{json.dumps(who)}\n".encode())


def release_stale_lock(folder: Path) -> bool:
    """Remove Snakemake's lock from `folder` if whoever held it is gone; whether there was one.

    Waits for jobs of a killed Snakemake on this machine, which end by themselves. Raises Locked if
    SLURM has jobs of this folder, which outlive their Snakemake, or if a Snakemake works here, on
    this machine or, for all that is known, on another.
    """
    locks = folder / ".snakemake" / "locks"
    if not locks.is_dir() or not any(locks.iterdir()):
        return False
    owner = {"host": socket.gethostname(), "pid": 0}
    with suppress(OSError, ValueError):
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    unlock = (
        f"run `{Path(sys.executable).with_name('snakemake')} --cores 1 --unlock`, then the same "
        "command again"
    )
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    for process in filter(_is_snakemake, others):
        if _is_in(process, folder):
            raise Locked(
                f"Snakemake (process {process.pid}) is running in {folder}; wait for its end, or "
                "stop it. Another study can run beside it with `snakemake --cores 1 --config "
                "study=NAME`"
            )
    if owner.get("executor") == "slurm" and (queued := _queued(folder, unlock)):
        raise Locked(
            f"SLURM still has jobs of {folder} ({', '.join(queued)}), and a second run would train "
            "the same policies beside them. Wait for their end, their results are kept, or stop "
            f"them with `scancel {' '.join(queued)}`; then run the same command again"
        )
    if owner["host"] != socket.gethostname():
        raise Locked(
            f"{folder} is locked by process {owner['pid']} on {owner['host']}. If Snakemake is not "
            f"running there, {unlock}"
        )
    deadline = time.monotonic() + JOBS_LEAVE_SECONDS
    while jobs := [process.pid for process in psutil.process_iter() if _is_job(process, folder)]:
        if time.monotonic() > deadline:
            raise Locked(f"a job of a killed Snakemake (process {jobs[0]}) still runs; stop it")
        time.sleep(POLL_SECONDS / 4)
    shutil.rmtree(locks)
    return True


def _queued(folder: Path, unlock: str) -> list[str]:
    """The ids of SLURM's jobs, waiting or running, that a run in `folder` submitted or is.

    Raises Locked where SLURM does not say.
    """
    said = printed_by("squeue", "--me", "--noheader", "--format=%i|%j|%k|%Z")
    if said is None:
        raise Locked(
            f"squeue does not answer, so jobs of a killed Snakemake may still work in {folder}; "
            f"run the same command where and when it does. If there are none, {unlock}"
        )
    jobs = (line.strip().split("|", 3) for line in said.splitlines() if line.count("|") >= 3)
    return [
        number
        for number, name, comment, place in jobs
        if (re.fullmatch("sage(_.*)?", name) or comment.startswith("rule_"))
        and number != os.environ.get("SLURM_JOB_ID")
        and Path(place).resolve() == folder.resolve()
    ]


def _watch(parent: psutil.Process, done: threading.Event) -> None:
    while not done.wait(POLL_SECONDS):
        if not parent.is_running() or parent.status() == psutil.STATUS_ZOMBIE:
            print("Snakemake is gone, so this job ends; the next run continues it.", flush=True)
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            os._exit(1)


def _is_snakemake(process: psutil.Process) -> bool:
    words = _command(process)
    named = {Path(word).name for word in (*words[:1], _program(words))}
    return bool(named & {"snakemake", "snakemake.py", "sage-rlvr", COMMAND})


def _program(words: Sequence[str]) -> str:
    """The script or module that a command line of Python runs, behind Python's own options."""
    options = iter(words[1:])
    for word in options:
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(options, "")
        elif module := re.fullmatch(r"-[bBdEiIOPqsSuvx]*m(.*)", word):
            return module[1] or next(options, "")
        elif not word.startswith("-"):
            return word
    return ""


def _is_job(process: psutil.Process, folder: Path) -> bool:
    """Whether it is a job of this folder, or a fork that works for one, or their server."""
    scripts, words = str(folder.resolve() / ".snakemake" / "scripts"), _command(process)
    if any(word.startswith(scripts) for word in words[1:2]):
        return True
    return fork_server.__file__ in words[:3] and _is_in(process, folder)


def _is_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()) == folder.resolve()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _command(process: psutil.Process) -> list[str]:
    """The words of its command line; none for a process that has ended."""
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
