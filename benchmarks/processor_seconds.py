"""Wall and processor seconds of a command and of all that it starts: what shared imports save.

    python -m benchmarks.processor_seconds snakemake --cores 1 --config study=smoke

Processes that outlive their parents count too, such as servers of imports, which `time` misses.
Linux alone can do that.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36


def measure(command: Sequence[str]) -> tuple[int, float, float]:
    """Exit status, wall seconds and processor seconds of `command`, once all its processes end."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    start = time.monotonic()
    status = subprocess.call(command)
    wall = time.monotonic() - start
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, wall, used.ru_utime + used.ru_stime


def main() -> int:
    """Measure the command line's command, print, and exit as it did."""
    status, wall, processor = measure(sys.argv[1:])
    print(f"{wall:.1f} s, {processor:.1f} s of processors; exit status {status}")
    return status


if __name__ == "__main__":
    sys.exit(main())
