"""Gives each job its own GPUs: Snakemake counts GPUs, a lease says which ones a job uses.

A device is leased by a lock on its file (filelock), in one folder for the whole machine, so the
kernel releases it however the job ends. The job itself holds the lease: programs that it starts do
not inherit it, and forked children give their copy up. A job that waits for one device holds none.
One that waits for several keeps what it has got, so that smaller jobs cannot pass it for ever; it
does so in turn, one such job at a time, so that no two wait for each other.
"""

from __future__ import annotations

import getpass
import os
import random
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from sage.runtime.devices import VISIBLE, Device

FOLDER = "SAGE_GPU_LEASES"
"""The environment variable that replaces `DEFAULT_FOLDER`, the folder of leases."""

DEFAULT_FOLDER = Path("/tmp/sage-gpu-leases")
"""Not TMPDIR, which differs between users: all users must find the same files."""

NOTICE_SECONDS = 60.0
"""Seconds between messages of a waiting job."""

_POLL_SECONDS = 0.5


class TooFewDevices(RuntimeError):
    """A job asks for more GPUs than it can ever get."""


@contextmanager
def lease(count: int, devices: Sequence[Device], job: str) -> Iterator[list[Device]]:
    """Hold `count` of `devices`, waiting for them if necessary; `job` names the holder to others.

    Raises TooFewDevices if there are fewer devices, PermissionError if the folder of leases cannot
    be used.
    """
    if count > len(devices):
        named = os.environ.get(VISIBLE)
        here = f"{len(devices)} {'is' if len(devices) == 1 else 'are'} visible"
        here += f" ({VISIBLE}={named})" if named is not None else ""
        raise TooFewDevices(
            f"this job asks for {count} GPUs, but {here} here; lower `gpus` in the job "
            "section of its model, run on a machine with more GPUs, or use `--config device=cpu`"
        )
    if count > 1 and any(device.name.startswith("MIG-") for device in devices):
        raise TooFewDevices(
            f"this job asks for {count} GPUs, but CUDA gives a process at most one part of a "
            f"divided GPU (MIG); set `gpus: 1`, or name whole GPUs in {VISIBLE}"
        )
    folder = _folder()
    paths = {
        device: folder / f"device-{re.sub(r'[^A-Za-z0-9.-]', '_', device.key)}"
        for device in devices
    }
    with ExitStack() as locks:
        with ExitStack() as turn:
            if count > 1:
                _take(1, {folder / "several": "the turn to wait for several GPUs"}, job, turn)
            files = {path: f"GPU {device.name}" for device, path in paths.items()}
            held = _take(count, files, job, locks)
        yield [device for device, path in paths.items() if path in held]


def _take(count: int, files: Mapping[Path, str], job: str, locks: ExitStack) -> set[Path]:
    """Lock `count` of `files`, one after another, until the end of `locks`; returns them.

    While it waits it prints who holds the others, by what the files stand for.
    """
    held: set[Path] = set()
    began, said = time.monotonic(), -NOTICE_SECONDS
    while True:
        busy = []
        for path, what in files.items():
            if path not in held and len(held) < count:
                lock = FileLock(path, mode=0o666, on_acquired=partial(_sign, job))
                try:
                    locks.enter_context(lock.acquire(blocking=False))
                    held.add(path)
                except Timeout:
                    busy.append(f"{what} is held by {_holder(path)}")
        if len(held) == count:
            return held
        waited = time.monotonic() - began
        if waited - said >= NOTICE_SECONDS:
            said = waited
            print(f"Waiting for {waited:.0f} s: {'; '.join(busy)}", flush=True)
        time.sleep(_POLL_SECONDS * random.uniform(0.5, 1.0))


def _sign(job: str, lock: int) -> None:
    """Write who has the lock into its file, for those who wait."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    since = time.strftime("%d %b %H:%M:%S")
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} of {user} since {since} ({job})".encode(), 0)


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8") or "an unknown process"
    return "an unknown process"


def _folder() -> Path:
    """The folder of leases. All users can write to it; none can delete files of others."""
    folder = Path(os.environ.get(FOLDER) or DEFAULT_FOLDER)
    reason: object = "it must be a folder that every user can read and write"
    try:
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        if stat.S_ISDIR(folder.lstat().st_mode) and os.access(folder, os.R_OK | os.W_OK):
            return folder
    except OSError as error:
        reason = error
    raise PermissionError(
        f"GPU leases cannot be kept in {folder}: {reason}. Set the environment variable {FOLDER} "
        "to another folder, on a local disk and the same for all users of this machine"
    )
