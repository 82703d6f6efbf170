"""Imports packages once and forks a process for each job of a Snakemake run that asks.

`sage.runtime.shared_imports` starts this file as a script and is its only client. The server
imports third-party packages only, never `sage`, so each job reads this project's code anew. A fork
is safe because the server has one thread and no GPU. It ends with its Snakemake, or when idle.

    python -P fork_server.py SOCKET SNAKEMAKE LOCK MODULE...
    (a path, a process id, a descriptor that is closed once the socket listens)

A job's process connects and sends one message: what to run, as JSON, and its standard streams. For
each the server forks a process that stays between the two: it forks again for the job, sends the
process id of that, later its exit code (negative: the signal that ended it), and hands on each byte
that it gets as a signal. If the job's process goes away, it kills the fork and all processes that
the fork started, which are in its process group; if it is killed itself, or the server is, the
kernel kills the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

FORKED = "SAGE_FORKED"
"""The environment variable of a fork with its process id and that of its Snakemake."""

IDLE_SECONDS = 600.0
"""A server without jobs ends after this time."""

LEAVING_SECONDS = 5.0
"""How long forks may take to end by themselves after the end of their Snakemake."""

_LONGEST_MESSAGE = 1 << 20
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Request:
    """What a fork is to run."""

    content: dict[str, Any]
    streams: list[int]


class Server:
    """Serves on `listener`, which it owns, until the process `snakemake` ends."""

    def __init__(self, listener: socket.socket, snakemake: int) -> None:
        self._listener, self._pid = listener, os.getpid()
        self._snakemake = os.pidfd_open(snakemake)
        self._forks: set[int] = set()
        self.is_leaving = False
        """Whether Snakemake has ended."""

    def serve(self) -> Request | None:
        """Returns None at the server's end, and in every fork what it is to run."""
        calls = self._listener.fileno()
        while not self.is_leaving:
            wait = 1.0 if self._forks else IDLE_SECONDS
            ready, _, _ = select.select([calls, self._snakemake], [], [], wait)
            self._reap()
            self.is_leaving = self._snakemake in ready
            if not ready and wait == IDLE_SECONDS:
                return None
            if calls in ready and (request := self._fork(self._listener.accept()[0])):
                return request
        deadline = time.monotonic() + LEAVING_SECONDS
        while self._forks and time.monotonic() < deadline:
            time.sleep(0.1)
            self._reap()
        for pid in self._forks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        return None

    def _fork(self, connection: socket.socket) -> Request | None:
        """Fork for a job that has connected; the request, but in its own fork only."""
        pid = None
        with contextlib.suppress(OSError):  # too little memory, or too many processes
            pid = None if unfit() else os.fork()
        if pid == 0:
            self._listener.close()
            os.close(self._snakemake)
            return stand_between(connection, self._pid)
        if pid:
            self._forks.add(pid)
        connection.close()  # without a fork, the job runs by itself
        return None

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._forks.discard(pid)


def stand_between(connection: socket.socket, server: int) -> Request:
    """Fork for the job that sends its request; returns that in the fork alone.

    This process stays between the fork and the job's process, and ends with either.
    """
    _die_with(server)
    os.setpgid(0, 0)
    own = os.getpid()
    try:
        message, streams, *_ = socket.recv_fds(connection, _LONGEST_MESSAGE, 3)
        if not message or len(streams) < 3:
            raise OSError
        request = Request(json.loads(message), streams)
        pid = os.fork()
    except OSError:  # the job is gone, or it runs by itself
        os._exit(1)
    if pid == 0:
        _die_with(own)
        connection.close()
        return request
    for stream in streams:
        os.close(stream)
    _attend(connection, pid)


def _attend(connection: socket.socket, pid: int) -> NoReturn:
    """Hand signals on to the fork `pid` and its end to the job's process; then kill what is left.

    That is what the fork has started and, if the job's process is gone, the fork.
    """
    end, messages = os.pidfd_open(pid), connection.fileno()
    with contextlib.suppress(OSError):
        connection.send(str(pid).encode())
        while end not in select.select([messages, end], [], [])[0]:
            if not (signals := connection.recv(64)):
                break
            for number in signals:
                os.kill(pid, number)
        else:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.send(str(code).encode())
    os.killpg(0, signal.SIGKILL)
    raise SystemExit  # not reached: it is in that group


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


def _die_with(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before it could be watched
        os.kill(os.getpid(), signal.SIGKILL)


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
