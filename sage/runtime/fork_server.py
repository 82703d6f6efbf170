"""Imports packages once and forks a process for each job of a Snakemake run that asks.

`sage.runtime.shared_imports` starts this file as a script and is its only client. The server
imports third-party packages only, never `sage`, so each job reads this project's code anew. A fork
is safe because the server has one thread and no GPU. It ends with its Snakemake, or when idle.

    python -P fork_server.py SOCKET SNAKEMAKE LOCK MODULE...
    (a path, a process id, a descriptor that is closed once the socket listens)

A job's process connects and sends one message: what to run, as JSON, and its standard streams. It
gets the process id of its fork, later the fork's exit code (negative: the signal that ended it).
Each byte that it sends is a signal for the fork. If it goes away, its fork is killed with all
processes that the fork started; if the server is killed, the kernel kills the forks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORKED = "SAGE_FORKED"
"""The environment variable of a fork with its process id and that of its Snakemake."""

IDLE_SECONDS = 600.0
"""A server without jobs ends after this time."""

LEAVING_SECONDS = 5.0
"""How long forks may take to end by themselves after the end of their Snakemake."""

_LONGEST_MESSAGE = 1 << 20
_PR_SET_PDEATHSIG = 1


@dataclass
class _Job:
    """A connection, and the fork that works for it once the request is there."""

    connection: socket.socket
    pid: int = 0
    pidfd: int = -1

    def close(self) -> None:
        self.connection.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)


@dataclass
class Request:
    """What a fork is to run."""

    content: dict[str, Any]
    streams: list[int]
    server: int = field(default_factory=os.getpid)


class Server:
    """Serves on `listener`, which it owns, until the process `snakemake` ends."""

    def __init__(self, listener: socket.socket, snakemake: int) -> None:
        self._listener = listener
        self._snakemake = os.pidfd_open(snakemake)
        self._jobs: list[_Job] = []
        self._leaving: float | None = None

    def serve(self) -> Request | None:
        """Returns None at the server's end, and in every fork what it is to run."""
        while not self._is_over():
            wait = IDLE_SECONDS if self._leaving is None and not self._jobs else 1.0
            ready = self._ready(wait)
            if not ready and wait == IDLE_SECONDS:
                break
            for job, descriptor in ready:
                if job is None:
                    self._accept_or_leave(descriptor)
                elif job not in self._jobs:
                    continue  # closed a moment ago
                elif descriptor == job.pidfd:
                    self._report(job)
                elif job.pid:
                    self._hand_on(job)
                elif request := self._fork(job):
                    return request
        for job in self._jobs:
            _kill_group(job.pid)
        return None

    @property
    def is_leaving(self) -> bool:
        """Whether Snakemake has ended."""
        return self._leaving is not None

    def _is_over(self) -> bool:
        return self._leaving is not None and (not self._jobs or time.monotonic() > self._leaving)

    def _ready(self, seconds: float) -> list[tuple[_Job | None, int]]:
        """The descriptors with news, and whose they are; a selector is made each time, so that
        forks share none."""
        with selectors.PollSelector() as selector:
            if self._leaving is None:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._snakemake, selectors.EVENT_READ)
            for job in self._jobs:
                if job.connection.fileno() >= 0:
                    selector.register(job.connection, selectors.EVENT_READ, job)
                if job.pid:
                    selector.register(job.pidfd, selectors.EVENT_READ, job)
            return [(key.data, key.fd) for key, _ in selector.select(seconds)]

    def _accept_or_leave(self, descriptor: int) -> None:
        if descriptor == self._snakemake:
            self._leaving = time.monotonic() + LEAVING_SECONDS
        else:
            self._jobs.append(_Job(self._listener.accept()[0]))

    def _fork(self, job: _Job) -> Request | None:
        """Fork for a job that has sent its request; the request, but in the fork only."""
        try:
            message, streams, *_ = socket.recv_fds(job.connection, _LONGEST_MESSAGE, 3)
            if not message or len(streams) < 3 or unfit():
                raise OSError
            request = Request(json.loads(message), streams)
            job.pid = os.fork()
        except OSError:  # too little memory, too many processes or files, or the job is gone
            self._drop(job)  # if it is there, it runs by itself
            return None
        if job.pid == 0:
            _die_with(request.server)
            os.setpgid(0, 0)
            self._listener.close()
            os.close(self._snakemake)
            for other in self._jobs:
                other.close()
            return request
        with contextlib.suppress(OSError):  # it has done so itself
            os.setpgid(job.pid, job.pid)
        job.pidfd = os.pidfd_open(job.pid)
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(OSError):  # gone: the next look at the connection tells
            job.connection.send(str(job.pid).encode())
        return None

    def _hand_on(self, job: _Job) -> None:
        """Send the fork the signals that have come, or kill it if the job's process is gone."""
        try:
            signals = job.connection.recv(64)
        except OSError:
            signals = b""
        for number in signals:
            os.kill(job.pid, number)
        if not signals:
            _kill_group(job.pid)
            job.connection.close()

    def _report(self, job: _Job) -> None:
        """Tell the job's process how its fork has ended."""
        _kill_group(job.pid)  # what it has left behind
        code = os.waitstatus_to_exitcode(os.waitpid(job.pid, 0)[1])
        with contextlib.suppress(OSError):  # the job's process may be gone
            job.connection.send(str(code).encode())
        self._drop(job)

    def _drop(self, job: _Job) -> None:
        self._jobs.remove(job)
        job.close()


def unfit() -> str:
    """Why this process cannot be forked now; empty if it can."""
    if (threads := len(os.listdir("/proc/self/task"))) > 1:
        return f"it has {threads} threads"
    return "it has imported sage" if "sage" in sys.modules else ""


def become(request: Request, snakemake: int) -> str:
    """Make this fork the job's process, as if it had been started as such; returns its script."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    content = request.content
    os.chdir(content["folder"])
    os.environ.clear()
    os.environ.update(content["environment"])
    os.environ[FORKED] = f"{os.getpid()} {snakemake}"
    sys.argv[:] = content["arguments"]
    sys.path[:] = content["path"]
    importlib.invalidate_caches()
    # Else all forks share one random state before they set a seed; `random` takes care of itself.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    return sys.argv[0]


def _die_with(server: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it went before it could be watched
        os.kill(os.getpid(), signal.SIGKILL)


def _kill_group(pid: int) -> None:
    """Kill a fork and what it has started; it is not reaped yet, so the number is still its own."""
    if pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Serve, and in a fork run the script that the request names."""
    address, snakemake, lock, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    if reason := unfit():
        sys.exit(f"a process with these imports cannot be forked: {reason}")
    gc.collect()
    gc.freeze()  # else the collector touches, and so copies, every page in every fork
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        server = Server(listener, int(snakemake))
        os.close(int(lock))
        os.dup2(2, 1)  # closes the pipe on whose end the starter waits
        request = server.serve()
    if request:
        runpy.run_path(become(request, int(snakemake)), run_name="__main__")
    elif server.is_leaving:
        shutil.rmtree(Path(address).parent, ignore_errors=True)
    else:
        Path(address).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
