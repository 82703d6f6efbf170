"""Grading processes: started when first needed, reused, killed and replaced when stuck.

Each question has a bounded CPU time, so that a busy machine or a job that is stopped for a while
changes no verdict. Wall-clock time ends only what neither computes nor waits for a processor. The
order of questions and the number of workers do not matter either: a worker that dies by no fault
of its limits is replaced and asked again.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

import psutil

from sage.grading.serving import Outcome

if TYPE_CHECKING:  # `python -m` complains of a module that its package has imported already
    from sage.grading import math_verify_worker

    _ = math_verify_worker

MATH_VERIFY = "sage.grading.math_verify_worker"

_START_SECONDS = 600.0  # importing sympy on a cold, busy disk
_PER_WORKER = 25  # comparisons worth the start of another worker
_WALL_FACTOR = 10.0
_HELD_UP = (psutil.STATUS_RUNNING, psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP)


class Workers:
    """Up to `count` processes of a `module`, each comparing one pair at a time; not for threads."""

    def __init__(self, count: int, cpu_seconds: float, module: str = MATH_VERIFY) -> None:
        if count < 1 or cpu_seconds <= 0:
            raise ValueError(
                f"workers {count} and limit {cpu_seconds} s must both be positive; "
                "one worker and 5 s are enough for most uses"
            )
        self._count, self._cpu_seconds, self._module = count, cpu_seconds, module
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def close(self) -> None:
        """End the processes; the next question starts new ones."""
        workers, self._idle = self._idle, []
        if self._owner == os.getpid():  # a forked child leaves its parent's processes alone
            for worker in workers:
                worker.close()

    def outcomes(
        self, pairs: Sequence[tuple[str, str]], report: Callable[[], object] = lambda: None
    ) -> list[Outcome]:
        """The outcome of each pair (gold, answer); `report` is called as each is settled."""
        if not pairs:
            return []
        if self._owner != os.getpid():
            self._idle, self._owner = [], os.getpid()
        # A thread for each process, which waits for it.
        threads = ThreadPoolExecutor(min(self._count, -(-len(pairs) // _PER_WORKER)))
        asked = [threads.submit(self._outcome, pair) for pair in pairs]
        try:
            for settled in as_completed(asked):
                settled.result()
                report()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            with self._lock:  # interrupted: a late reply must not answer another question
                left, self._busy = self._busy, set()
            for worker in left:
                worker.close()
        return [settled.result() for settled in asked]

    def _outcome(self, pair: tuple[str, str]) -> Outcome:
        """The outcome of one pair; a worker that dies young is replaced once."""
        for _ in range(2):
            worker = self._take()
            outcome = worker.ask(pair)
            with self._lock:
                self._busy.discard(worker)
                if outcome is not None:
                    self._idle.append(worker)
                    return outcome
            worker.close()
            if not worker.died_young:
                break
        return "timeout"

    def _take(self) -> _Worker:
        """A worker that lives: one that waits, or a new one."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            while worker and not worker.is_alive:
                worker.close()  # killed from outside while it waited
                worker = self._idle.pop() if self._idle else None
            worker = worker or _Worker(self._module, self._cpu_seconds)
            self._busy.add(worker)
            return worker


class _Worker:
    """One process, and the question it is at."""

    def __init__(self, module: str, cpu_seconds: float) -> None:
        self._module = module
        self._wall_seconds = _WALL_FACTOR * cpu_seconds
        self._is_ready = False
        self._given_up = False
        # By `python -m`, so that it never runs the caller's main module. Hashes are fixed
        # because sympy's results may follow them.
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", module, str(cpu_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
        )

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def died_young(self) -> bool:
        """Whether it ended by itself, not by its limit of CPU time nor because it was given up."""
        ended = self._process.returncode
        return ended is not None and ended != -signal.SIGPROF and not self._given_up

    def ask(self, pair: tuple[str, str]) -> Outcome | None:
        """The outcome of a question; None if the process is gone, or stuck.

        Raises RuntimeError if it ends, or is given up, before it was ready.
        """
        if not self._is_ready and self._reply(_START_SECONDS) is None:
            self.close()
            raise RuntimeError(
                f"the grading worker did not start; run `python -m {self._module}` to see why"
            )
        self._is_ready = True
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # dead: the end of its replies will tell
            self._process.stdin.write(json.dumps(pair).encode() + b"\n")
        return self._reply(self._wall_seconds)

    def _reply(self, seconds: float) -> Outcome | None:
        """What it says within `seconds`, or later if it has been held up; None if nothing."""
        assert self._process.stdout is not None
        looks: list[float] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(seconds):
                seconds = self._wall_seconds
                if self._is_stuck(looks):
                    self._given_up = True
                    return None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self._process.wait()
            return None
        reply: Outcome = json.loads(line)
        return reply

    def _is_stuck(self, looks: list[float]) -> bool:
        """Whether to give it up: it has not been held up.

        A process that has used CPU time since the last of the `looks`, waits for a processor or a
        disk, or is stopped, goes on, until it has used as much CPU time as it may take altogether.
        """
        try:
            process = psutil.Process(self._process.pid)
            used, state = sum(process.cpu_times()[:2]), process.status()
        except psutil.Error:  # gone: the end of its replies will tell
            return False
        advances = not looks or used > looks[-1] or state in _HELD_UP
        looks.append(used)
        return not advances or used - looks[0] > self._wall_seconds

    def close(self) -> None:
        """Kill the process and wait for its end."""
        if self.is_alive:
            self._given_up = True
            self._process.kill()
        self._process.communicate()
