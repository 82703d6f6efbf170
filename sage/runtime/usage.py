"""The resources a job uses while it runs: host memory of all its processes, and its GPUs.

A thread looks every few seconds and keeps the peaks in a file that the environment names. So a
manifest written by a child process also covers the whole job. Nothing here can make a job fail;
without leased GPUs no GPU is queried.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from sage.runtime.devices import queried

FILE = "SAGE_USAGE"
"""The environment variable with the path of the file of peaks."""

SECONDS = 5.0
"""Seconds between two measurements."""

_FOLDER = "sage-usage-of-"
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_GPU_FAILURES = 3


@dataclass(frozen=True)
class Usage:
    """Peaks so far, in bytes, and the mean utilisation of the GPUs as a share; None means unknown.

    Host memory is the resident memory of the job and its descendants, added up as SLURM does:
    shared pages count in each process. GPU memory is that of the fullest device.
    """

    memory: int = 0
    gpu_memory: int | None = None
    gpu_utilisation: float | None = None


def usage() -> Usage:
    """The job's usage so far, available in any of its processes."""
    seen = Usage()
    with suppress(KeyError, OSError, ValueError, TypeError):
        seen = Usage(**json.loads(Path(os.environ[FILE]).read_text(encoding="utf-8")))
    of_gpus = [n for n in (seen.gpu_memory, _reserved_by_torch()) if n is not None]
    memory = max(seen.memory, _peak_of_one_process())
    return Usage(memory, max(of_gpus, default=None), seen.gpu_utilisation)


@contextmanager
def watched(devices: Sequence[str] = ()) -> Iterator[None]:
    """Watch this process, its descendants and the GPUs with these UUIDs (or numbers)."""
    for left in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):  # by processes that were killed
        if not psutil.pid_exists(int(left.name.removeprefix(_FOLDER).partition("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    name = f"{_FOLDER}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "usage.json"
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(file, devices, over), daemon=True)
        os.environ[FILE] = str(file)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join(timeout=1.0)
            os.environ.pop(FILE, None)


def memory_of_processes(pid: int) -> int:
    """Resident bytes of a process and its descendants, added up."""
    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += one.memory_info().rss
    return total


def gpu_state(devices: Sequence[str]) -> list[tuple[int, float | None]] | None:
    """Bytes in use and utilisation (0 to 1) of each device now; None if unknown."""
    lines = queried("memory.used,utilization.gpu", f"--id={','.join(devices)}")
    states = [re.fullmatch(r"(\d+) MiB, (?:(\d+) %|.*)", line) for line in lines]
    known = [(int(one[1]) * 2**20, int(one[2]) / 100 if one[2] else None) for one in states if one]
    return known if known and len(known) == len(lines) else None


def _watch(file: Path, devices: Sequence[str], over: threading.Event) -> None:
    memory, gpu_memory, shares, failures = 0, None, list[float](), 0
    while True:
        memory = max(memory, memory_of_processes(os.getpid()), _peak_of_one_process())
        if devices and failures < _GPU_FAILURES:
            state = gpu_state(devices)
            failures = failures + 1 if state is None else 0
            for used, share in state or ():
                gpu_memory = max(used, gpu_memory or 0)
                shares += [] if share is None else [share]
        mean = round(sum(shares) / len(shares), 4) if shares else None
        with suppress(OSError):
            part = file.with_suffix(".part")
            part.write_text(json.dumps(asdict(Usage(memory, gpu_memory, mean))), encoding="utf-8")
            part.replace(file)
        if over.wait(SECONDS):
            return


def _peak_of_one_process() -> int:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * _RSS_UNIT


def _reserved_by_torch() -> int | None:
    """The most GPU memory that torch has used in this process; None if it uses no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return max(torch.cuda.max_memory_reserved(i) for i in range(torch.cuda.device_count()))
