"""Runs a job in a fork of a process that has made its imports already.

Importing torch, transformers and TRL takes longer than most jobs of a small study. A sampling job
of the smoke study took 0.6 s of processor time with shared imports and 8.8 to 9.3 s without
(`SAGE_SHARED_IMPORTS=off`), on two cores of an AMD EPYC beside some fifteen other processes. In
`mini` 104 of 116 jobs share. The first job of a Snakemake run that asks starts a server
(`sage.runtime.fork_server`); it and all later ones run in forks of it. The process that Snakemake
started waits, hands on signals and ends as the fork does. Where that cannot be, the job runs in its
own process as if this module were not there.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from sage.runtime import fork_server
from sage.runtime.dependencies import PACKAGE
from sage.runtime.files import text_sum
from sage.runtime.survivors import is_fork, snakemake_above

SWITCH = "SAGE_SHARED_IMPORTS"
"""The environment variable that, set to `off`, has every job make its own imports."""

_ALL = (
    "snakemake.io snakemake.iocontainers snakemake.logging psutil yaml pydantic.json_schema "
    "pydantic.type_adapter pandas pyarrow.parquet pyarrow.pandas_compat"
)

EXHIBITS = (
    f"{_ALL} scipy.special scipy.stats matplotlib.backends.backend_pdf "
    "matplotlib.backends.backend_svg matplotlib.figure "
    "sage.exhibits sage.evaluation.metrics sage.report.page"
).split()
"""What jobs import that measure exhibits without a model, or show them."""

MODELS = (
    f"{_ALL} torch transformers transformers.models.auto.modeling_auto "
    "transformers.models.auto.tokenization_auto transformers.models.qwen2.modeling_qwen2 "
    "transformers.models.qwen2.tokenization_qwen2 peft datasets trl.trainer.grpo_trainer "
    "sage.evaluation.samples sage.exhibits sage.training.rl"
).split()
"""What jobs with a model import."""

# A fork is safe without a second thread, which pyarrow's allocator would have, and without a GPU.
# Memory that glibc keeps for the next tensor need not be cleared anew by the kernel. Without the
# server, 30 steps of RL took 13 to 22 % less; in `make`, runs of sums 31.8 s in place of 33.3, of
# which 0.9 s are a digest that was left out as well.
_OF_SERVER = {
    "CUDA_VISIBLE_DEVICES": "",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=33554432:glibc.malloc.top_pad=67108864:"
    "glibc.malloc.trim_threshold=1073741824:glibc.malloc.hugetlb=1",
}

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


class Unavailable(RuntimeError):
    """No fork can be had; the message says why."""


def run_in_fork(modules: Sequence[str]) -> str | None:
    """Run this process's script in a fork with `modules` imported, and exit with its status.

    Returns only if the script is to go on here: in the fork itself, and wherever forks are not
    for this job. If one was expected but could not be had, returns why.
    """
    if is_fork() or sys.platform != "linux" or os.environ.get(SWITCH) == "off":
        return None
    snakemake = snakemake_above()
    if snakemake is None or "SLURM_JOB_ID" in os.environ:  # one job is all that would share
        return None
    content = {
        "arguments": sys.argv,
        "path": sys.path,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    try:
        connection = _connect(snakemake, modules)
        socket.send_fds(connection, [json.dumps(content).encode()], [0, 1, 2])
        if not connection.recv(64):
            raise Unavailable("the process that shares them has refused or ended")
    except (OSError, Unavailable) as error:
        return f"This job makes its own imports, because none could be shared: {error}"
    sys.exit(_wait(connection))


def _wait(connection: socket.socket) -> int:
    """The exit status of the fork, as a shell gives it: 128 and its number for a signal."""

    def hand_on(number: int, _: object) -> None:
        with suppress(OSError):
            connection.send(bytes([number]))

    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, hand_on)
    answer = b""
    with suppress(ConnectionResetError):
        answer = connection.recv(64)
    if not answer:
        print("The process that shared its imports with this job was killed.", file=sys.stderr)
        return 1
    code = int(answer)
    return code if code >= 0 else 128 - code


def _connect(snakemake: psutil.Process, modules: Sequence[str]) -> socket.socket:
    """A connection to the server of this Snakemake, with these modules and this environment.

    Environment variables can change what an import does, so each has its own server; and so has
    each state of this project's code, which may be edited while Snakemake runs.
    """
    folder = _private_folder(snakemake)
    code = sorted((str(path), path.stat().st_mtime_ns) for path in PACKAGE.rglob("*.py"))
    environment = sorted(os.environ.items())
    kind = [sys.executable, list(sys.flags), sys.path, environment, list(modules), code]
    server = folder / text_sum(json.dumps(kind))[:12]
    failed = server.with_suffix(".failed")
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(str(server))
            return connection
        if not failed.exists():
            said = _start(server, snakemake.pid, lock, modules)
            try:
                connection.connect(str(server))
                return connection
            except OSError as error:
                failed.write_text(said or str(error), encoding="utf-8")
        connection.close()
        raise Unavailable(failed.read_text(encoding="utf-8"))
    finally:
        os.close(lock)


def _start(address: Path, snakemake: int, lock: int, modules: Sequence[str]) -> str:
    """Start a server and wait until it listens or has failed; until then it holds the lock too.

    Returns the last line that it has printed.
    """
    command = [sys.executable, "-P", fork_server.__file__, address, snakemake, lock, *modules]
    log = address.with_suffix(".log")
    with open(log, "wb") as output:
        server = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env={**os.environ, **_OF_SERVER},
            pass_fds=[lock],
            start_new_session=True,
        )
    assert server.stdout is not None
    server.stdout.read()
    return "".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:])


def _private_folder(snakemake: psutil.Process) -> Path:
    """The folder of a Snakemake's servers, which no other user can enter."""
    place, prefix = Path(tempfile.gettempdir()), f"sage-imports-{os.getuid()}-"
    folder = place / f"{prefix}{snakemake.pid}-{int(100 * snakemake.create_time())}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        for other in place.glob(f"{prefix}*"):  # of servers that were killed
            number = other.name.removeprefix(prefix).split("-")[0]
            if re.fullmatch(r"\d{1,9}", number) and not psutil.pid_exists(int(number)):
                shutil.rmtree(other, ignore_errors=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise Unavailable(f"{folder} is not a private folder")
    return folder
