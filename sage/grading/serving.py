"""Judging answers in a process of its own, with bounded time and memory.

The kernel bounds each question's CPU time and the process's memory, whatever the code is doing, and
the process ends with its input, so none outlives its parent. `sage.grading.workers` is the other
side.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import IO, Literal

Outcome = Literal["correct", "wrong", "unparsed", "timeout", "gold_unparsed"]
Judge = Callable[[str], Outcome]

MEMORY_BYTES = 2 << 30
"""Address space of a worker; a comparison that wants more counts as a timeout."""


def serve(
    requests: IO[str],
    replies: IO[str],
    cpu_seconds: float,
    warm_up: Callable[[], object],
    prepare: Callable[[str], Judge],
) -> None:
    """Answer one JSON request a line until the input ends.

    `warm_up` loads everything before the first clock starts. `prepare` makes the judge of a gold
    answer, which is trusted and not timed; an answer that takes its judge more than `cpu_seconds`
    kills the process with SIGPROF.
    """
    logging.disable()
    warm_up()
    with contextlib.suppress(ValueError, OSError):  # macOS refuses; so does a lower limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    print('"ready"', file=replies, flush=True)
    for line in requests:
        gold, answer = json.loads(line)
        judge = prepare(gold)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        outcome = judge(answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(outcome), file=replies, flush=True)


def serve_standard_streams(warm_up: Callable[[], object], prepare: Callable[[str], Judge]) -> None:
    """Serve on the standard streams; what a library prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    serve(sys.stdin, replies, seconds, warm_up, prepare)
