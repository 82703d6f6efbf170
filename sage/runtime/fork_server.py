"""Imports packages once and forks a process for each job of a Snakemake run that asks.

`sage.runtime.shared_imports` starts this file as a script and is its only client, and starts
another once a file of `sage` has changed. A fork is safe because the server has one thread and no
GPU. It ends with its Snakemake, or when idle.

    python -P fork_server.py SOCKET SNAKEMAKE LOCK MODULE...
    (a path, a process id, a descriptor that is closed once the socket listens)

A job's process connects and sends one message: what to run, as JSON, and its standard streams. The
server forks, sends the fork's process id, later its exit code (negative: the signal that ended it),
and hands on each byte that it gets as a signal. If the job's process goes away, the server kills
the fork and all that the fork started, which is in its process group; if the server is killed, the
kernel kills the forks.
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
from pathlib import Path
from typing import Any

FORKED = "SAGE_FORKED"
"""The environment variable of a fork with its process id and that of its Snakemake."""

IDLE_SECONDS = 600.0
"""A server without jobs ends after this time."""

LEAVING_SECONDS = 5.0
"""How long forks may take to end by themselves after the end of their Snakemake."""

REQUEST_SECONDS = 10.0
"""How long a job that has connected may take to send its request."""

_LONGEST_MESSAGE = 1 << 20
_PR_SET_PDEATHSIG = 1

Request = tuple[dict[str, Any], list[int]]
"""What a fork is to run, and its standard streams."""


def serve(listener: socket.socket, snakemake: int) -> Request | bool:
    """Serve on `listener` until the process `snakemake` ends, or idly for IDLE_SECONDS.

    Returns in every fork what it is to run; in the server whether Snakemake has ended.
    """
    parent, forks = os.pidfd_open(snakemake), dict[int, tuple[int, socket.socket]]()
    while True:
        connections = [connection for _, connection in forks.values()]
        watched: list[Any] = [listener, parent, *forks, *connections]
        ready = select.select(watched, [], [], IDLE_SECONDS)[0]
        if parent in ready or not (ready or forks):
            break
        for end, (pid, connection) in list(forks.items()):
            if end in ready:
                _tell_end(*forks.pop(end))
                os.close(end)
            elif connection in ready:
                _hand_on(connection, pid)
        if listener in ready:
            connection = listener.accept()[0]
            request = _request(connection)
            pid = _fork() if request else -1
            if pid == 0 and request:
                for descriptor in (parent, *forks):
                    os.close(descriptor)
                for other in (listener, connection, *connections):
                    other.close()
                return request
            for stream in request[1] if request else ():
                os.close(stream)
            if pid < 0:
                connection.close()  # without a fork, the job runs by itself
                continue
            forks[os.pidfd_open(pid)] = pid, connection
            with contextlib.suppress(OSError):
                connection.send(str(pid).encode())
    deadline = time.monotonic() + LEAVING_SECONDS
    while forks and (left := deadline - time.monotonic()) > 0:
        for end in select.select([*forks], [], [], left)[0]:
            del forks[end]
    for pid, _ in forks.values():
        _kill(pid)
    return parent in ready


def _request(connection: socket.socket) -> Request | None:
    """What a job that has connected sends; None if it is gone."""
    connection.settimeout(REQUEST_SECONDS)
    with contextlib.suppress(OSError):
        message, streams, *_ = socket.recv_fds(connection, _LONGEST_MESSAGE, 3)
        if message and len(streams) == 3:
            return json.loads(message), streams
    return None


def _fork() -> int:
    """0 in a fork that ends with its server, its process id in the server, -1 without a fork."""
    server = os.getpid()
    if unfit():
        return -1
    try:
        pid = os.fork()
    except OSError:  # too little memory, or too many processes
        return -1
    if pid == 0:
        os.setpgid(0, 0)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it went before it could be watched
            os._exit(1)
    return pid


def _tell_end(pid: int, connection: socket.socket) -> None:
    """Tell a job how its fork has ended, and end what the fork has started."""
    _kill(pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with connection, contextlib.suppress(OSError):
        connection.send(str(code).encode())


def _hand_on(connection: socket.socket, pid: int) -> None:
    """Hand a job's signals on to its fork; kill that if the job is gone."""
    signals = b""
    with contextlib.suppress(OSError):
        signals = connection.recv(64)
    if not signals:
        _kill(pid)
    for number in signals:
        os.kill(pid, number)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def unfit() -> str:
    """Why this process cannot be forked now; empty if it can."""
    threads = len(os.listdir("/proc/self/task"))
    return f"it has {threads} threads" if threads > 1 else ""


def become(request: Request, snakemake: str) -> str:
    """Make this fork the job's process, as if it had been started as such; returns its script."""
    content, streams = request
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
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
        os.close(int(lock))
        os.dup2(2, 1)  # closes the pipe on whose end the starter waits
        request = serve(listener, int(snakemake))
    if isinstance(request, tuple):
        runpy.run_path(become(request, snakemake), run_name="__main__")
    elif request:
        shutil.rmtree(Path(address).parent, ignore_errors=True)
    else:
        Path(address).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
