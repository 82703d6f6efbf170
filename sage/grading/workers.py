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
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import psutil

from sage.grading.serving import Outcome

if TYPE_CHECKING:  # `python -m` complains of a module that its package has imported already
    from sage.grading import math_verify_worker, reasoning_gym_worker

    _ = math_verify_worker, reasoning_gym_worker

MATH_VERIFY = "sage.grading.math_verify_worker"
REASONING_GYM = "sage.grading.reasoning_gym_worker"

_START_SECONDS = 600.0  # importing sympy on a cold, busy disk
_PER_WORKER = 25  # comparisons worth the start of another worker
_WALL_FACTOR = 10.0
_HELD_UP = (psutil.STATUS_RUNNING, psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP)
_PREPARING = {REASONING_GYM: 300.0}  # seconds to generate an entry anew, on top


class Workers:
    """Up to `count` processes of a `module` that each compare one pair at a time; not for threads.

    The module is MATH_VERIFY or REASONING_GYM.
    """

    def __init__(self, count: int, cpu_seconds: float, module: str = MATH_VERIFY) -> None:
        if count < 1 or cpu_seconds <= 0:
            raise ValueError(
                f"workers {count} and limit {cpu_seconds} s must both be positive; "
                "one worker and 5 s are enough for most uses"
            )
        self._count = count
        self._cpu_seconds, self._module = cpu_seconds, module
        self._idle: list[_Worker] = []
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
        if self._owner != os.getpid():
            self._idle, self._owner = [], os.getpid()
        settled: dict[int, Outcome] = {}
        waiting = [(index, True) for index in reversed(range(len(pairs)))]
        most = min(self._count, -(-len(pairs) // _PER_WORKER))
        busy: dict[_Worker, tuple[int, bool]] = {}
        try:
            while len(settled) < len(pairs):
                while waiting and len(busy) < most:
                    worker = self._take()
                    busy[worker] = waiting.pop()
                    worker.ask(pairs[busy[worker][0]])
                for worker, outcome in _replies(list(busy)):
                    index, again = busy.pop(worker)
                    if outcome is None:
                        worker.close()
                        if worker.died_young and again:
                            waiting.append((index, False))
                            continue
                        outcome = "timeout"
                    else:
                        self._idle.append(worker)
                    settled[index] = outcome
                    report()
        finally:
            for worker in busy:  # interrupted: a late reply must not answer another question
                worker.close()
        return [settled[index] for index in range(len(pairs))]

    def _take(self) -> _Worker:
        """A worker that lives: one that waits, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            worker.close()  # killed from outside while it waited
        return _Worker(self._module, self._cpu_seconds)


class _Worker:
    """One process and the question it is at."""

    def __init__(self, module: str, cpu_seconds: float) -> None:
        self._module = module
        self._wall_seconds = _WALL_FACTOR * cpu_seconds + _PREPARING.get(module, 0.0)
        self._is_ready = False
        self._question: bytes | None = None
        self.deadline = 0.0
        self._looks: list[float] = []
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
    def replies(self) -> Any:
        """The stream its replies come on."""
        return self._process.stdout

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def died_young(self) -> bool:
        """Whether it ended by itself, not by its limit of CPU time nor because it was given up."""
        ended = self._process.returncode
        return ended is not None and ended != -signal.SIGPROF and not self._given_up

    def is_overdue(self) -> bool:
        """Whether to give it up: its deadline has passed, and it has not been held up.

        A process that has used CPU time since the last look, waits for a processor or a disk, or is
        stopped, gets a new deadline, until it has used as much CPU time as it may take altogether.
        """
        if time.monotonic() < self.deadline:
            return False
        try:
            process = psutil.Process(self._process.pid)
            used, state = sum(process.cpu_times()[:2]), process.status()
        except psutil.Error:  # gone: the end of its replies will tell
            return False
        looks = self._looks = [*self._looks, used]
        advances = len(looks) == 1 or used > looks[-2] or state in _HELD_UP
        self._given_up = not advances or used - looks[0] > self._wall_seconds
        self.deadline = time.monotonic() + self._wall_seconds
        return self._given_up

    def ask(self, pair: tuple[str, str]) -> None:
        """Hand over a question, now or as soon as the process is ready."""
        self._question = json.dumps(pair).encode() + b"\n"
        if self._is_ready:
            self._send()
        else:
            self.deadline = time.monotonic() + _START_SECONDS

    def _send(self) -> None:
        assert self._process.stdin is not None
        assert self._question is not None
        self._looks = []
        self.deadline = time.monotonic() + self._wall_seconds
        with contextlib.suppress(BrokenPipeError):  # dead: the end of its replies will tell
            self._process.stdin.write(self._question)

    def reply(self) -> Outcome | Literal["ready"] | None:
        """What has come: an outcome, word that it has started, None if the process is gone."""
        line = self.replies.readline()
        if not line.endswith(b"\n"):
            self._process.wait()
            self.check_started()
            return None
        if not self._is_ready:
            self._is_ready = True
            self._send()
        message: Outcome | Literal["ready"] = json.loads(line)
        return message

    def check_started(self) -> None:
        """Raises RuntimeError if it is given up before it was ready."""
        if not self._is_ready:
            self.close()
            raise RuntimeError(
                f"the grading worker did not start; run `python -m {self._module}` to see why"
            )

    def close(self) -> None:
        """Kill the process and wait for its end."""
        if self.is_alive:
            self._process.kill()
        self._process.communicate()


def _replies(workers: list[_Worker]) -> list[tuple[_Worker, Outcome | None]]:
    """Wait for one or more workers; their outcomes, None for one that died or is too late."""
    replies: list[tuple[_Worker, Outcome | None]] = []
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.replies, selectors.EVENT_READ, worker)
        nearest = min(worker.deadline for worker in workers)
        for key, _ in selector.select(max(0.0, nearest - time.monotonic())):
            message = key.data.reply()
            if message != "ready":
                replies.append((key.data, message))
    answered = {worker for worker, _ in replies}
    for worker in workers:
        if worker not in answered and worker.is_overdue():
            worker.check_started()
            replies.append((worker, None))
    return replies
