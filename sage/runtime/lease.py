"""Gives each job its own GPUs: Snakemake counts GPUs, a lease says which ones a job uses.

A device is leased by an flock on its file, in one folder for the whole machine, so the kernel
releases it however the job ends. The job itself holds the lease: programs it starts do not inherit
the descriptor and forked children close theirs at once. So no orphan process keeps a device, and
no child can release it. A job gets all the devices it asks for or none, in order of arrival: a
free device is kept for the job that has waited longest for it. No job waits while it holds a
device, so none waits forever.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import random
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sage.runtime.devices import VISIBLE, Device

FOLDER = "SAGE_GPU_LEASES"
"""The environment variable that replaces `DEFAULT_FOLDER`, the folder of leases."""

DEFAULT_FOLDER = Path("/tmp/sage-gpu-leases")
"""Not TMPDIR, which differs between users: all users must find the same files."""

NOTICE_SECONDS = 60.0
"""Seconds between messages of a waiting job."""

_POLL_SECONDS = 0.1
"""Seconds between two tries of the first job in the queue; jobs further back wait longer."""

_SLOWEST_POLL = 2.0


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
    held = _acquire(count, devices, job, _folder())
    try:
        yield [device for device in devices if device.key in held]
    finally:
        _release(held.values())


_locks: set[int] = set()
"""Descriptors with a lock, which a forked child closes: unlocking would release the parent's."""

os.register_at_fork(after_in_child=lambda: _release(list(_locks)))


def _take(path: Path, wait: bool = False) -> int | None:
    """A descriptor with the lock on `path`, made if it is not there; None if another has it."""
    while True:
        lock = _open(path)
        _locks.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
        except BlockingIOError:
            _release([lock])
            return None
        except BaseException:
            _release([lock])
            raise
        _release([lock])  # the file was deleted in the meantime


def _release(locks: Iterable[int]) -> None:
    """Close those that are open still; a forked child has closed its parent's already."""
    for lock in locks:
        if lock in _locks:
            _locks.discard(lock)
            os.close(lock)


def _write(lock: int, content: dict[str, Any]) -> None:
    """Write the text that other processes read while the lock is held."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(content).encode(), 0)


def _acquire(count: int, devices: Sequence[Device], job: str, folder: Path) -> dict[str, int]:
    """The locks of `count` devices by key; returns when all are held.

    A place in the queue is a file named after its time, locked while its job waits.
    """
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    me = {"pid": os.getpid(), "user": user, "job": job, "since": time.time()}
    started, said = time.monotonic(), -NOTICE_SECONDS
    with _gate(folder):
        place = folder / f"waiting-{time.time_ns():020d}-{os.getpid()}"
        ticket = _take(place)
        assert ticket is not None  # the name belongs to this process only
        _write(ticket, {**me, "count": count, "keys": [device.key for device in devices]})
    try:
        while True:
            with _gate(folder):
                earlier = list(_waiting_before(place, folder))
                held, busy = _take_free(count, devices, earlier, folder)
            if len(held) == count:
                for lock in held.values():
                    _write(lock, {**me, "since": time.time()})
                return held
            waited = time.monotonic() - started
            if waited - said >= NOTICE_SECONDS:
                said = waited
                print(f"Waiting for {count} GPUs for {waited:.0f} s: {busy}", flush=True)
            pause = min(_POLL_SECONDS * (1 + len(earlier)), _SLOWEST_POLL)
            time.sleep(pause * random.uniform(0.5, 1.0))
    finally:
        place.unlink(missing_ok=True)
        _release([ticket])


def _take_free(
    count: int, devices: Sequence[Device], earlier: Sequence[dict[str, Any]], folder: Path
) -> tuple[dict[str, int], str]:
    """All `count` locks or none, and as text who holds the others; call it only behind the gate.

    Free devices that `earlier` jobs in the queue want are kept for them.
    """
    free: dict[str, int] = {}
    busy: list[str] = []
    for device in devices:
        path = folder / f"device-{re.sub(r'[^A-Za-z0-9.-]', '_', device.key)}"
        if (lock := _take(path)) is None:
            busy.append(f"GPU {device.name} is held by {_named(_content(path))}")
        else:
            free[device.key] = lock
    left = list(free)
    for other in earlier:
        kept = [key for key in left if key in other["keys"]][: other["count"]]
        left = [key for key in left if key not in kept]
        busy += [f"GPU {d.name} is kept for {_named(other)}" for d in devices if d.key in kept]
    chosen = left[:count] if len(left) >= count else []
    _release([lock for key, lock in free.items() if key not in chosen])
    return {key: free[key] for key in chosen}, "; ".join(busy)


def _waiting_before(place: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """The jobs ahead in the queue; places of dead jobs are removed."""
    for path in sorted(folder.glob("waiting-*")):
        if path.name >= place.name:
            return
        if (lock := _take(path)) is None:
            if content := _content(path):
                yield content
        else:
            with contextlib.suppress(OSError):
                path.unlink()
            _release([lock])


@contextmanager
def _gate(folder: Path) -> Iterator[None]:
    """Lets in one process at a time; no process waits for another inside."""
    lock = _take(folder / "gate", wait=True)
    assert lock is not None
    try:
        yield
    finally:
        _release([lock])


def _folder() -> Path:
    """The folder of leases. All users can write to it; none can delete files of others."""
    folder = Path(os.environ.get(FOLDER) or DEFAULT_FOLDER)
    reason: object = "it must be a folder that every user can read and write"
    try:
        with _open_to_all(), contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o1777)
        if stat.S_ISDIR(folder.lstat().st_mode) and os.access(folder, os.R_OK | os.W_OK):
            return folder
    except OSError as error:
        reason = error
    raise PermissionError(
        f"GPU leases cannot be kept in {folder}: {reason}. Set the environment variable {FOLDER} "
        "to another folder, on a local disk and the same for all users of this machine"
    )


def _open(path: Path) -> int:
    """A descriptor that programs started from here do not inherit.

    In a folder that others can write to, the kernel may refuse O_CREAT for their files, so the
    first try is without it.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with contextlib.suppress(FileExistsError), _open_to_all():
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


@contextmanager
def _open_to_all() -> Iterator[None]:
    """Files and folders made inside get exactly the mode they are given."""
    mask = os.umask(0)
    try:
        yield
    finally:
        os.umask(mask)


def _named(holder: dict[str, Any] | None) -> str:
    if not holder:
        return "an unknown process"
    since = time.strftime("%d %b %H:%M:%S", time.localtime(holder["since"]))
    return f"process {holder['pid']} of {holder['user']} since {since} ({holder['job']})"


def _content(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content
