"""What `sage-rlvr` shows of a run: one line of progress, and problems in full.

It is a logger of Snakemake (`snakemake_interface_logger_plugins`), which gets every event of a run.
On a terminal the line is written anew each second; elsewhere a line comes with each new stage, and
once a minute. Snakemake's own log, in .snakemake/log, keeps everything.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import WARNING, LogRecord
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from sage.rendering.numbers import duration
from sage.results import Results
from sage.runtime.records import FOLDER, LAST
from sage.tools.targets import TELLING, ending

_BASES = {"pretrain": "base models", "adopt": "base models"}
STAGES = {**_BASES, "sft": "SFT", "rl": "RL", "sample": "sampling"}
"""Stages by rule; every other rule is one of `OTHERS`."""

OTHERS = "data, tables and figures"
QUIET_SECONDS = 60.0
"""Where there is no terminal, the longest time without a line while jobs run."""

FEW = 3
"""With fewer jobs there is no progress to show: what they print is their result."""

STOPPED: list[str] = []
"""Rules of this run whose jobs were stopped from the keyboard."""

LAST_LINES = 12
"""Lines that are shown of a failed job's log."""

_UNSAID = ("At least one job did not complete", "Exiting because a job execution failed")


@dataclass
class Progress:
    """Jobs of a run by rule: how many there are, ended and running; times in seconds."""

    total: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: dict[int, tuple[str, float]] = field(default_factory=dict)
    failed: int = 0
    began: float = 0.0

    def start(self, job: int, rule: str, now: float) -> None:
        self.running[job] = rule, now

    def end(self, job: int, now: float, failed: bool = False) -> None:
        rule, began = self.running.pop(job, ("", now))
        self.failed += failed
        if rule and not failed:
            self.done[rule] += 1
            self.seconds[rule] += now - began

    def left(self) -> int:
        """How many jobs have not ended well."""
        return self.total.total() - self.done.total()

    def seconds_left(self, now: float) -> float | None:
        """Time for the jobs that are left, as many side by side as now, each as long as those of
        its rule were; None while a rule of STAGES with jobs left has no job that ended."""
        work = 0.0
        for rule, total in self.total.items():
            left = total - self.done[rule]
            if left and rule in STAGES and not self.done[rule]:
                return None
            work += left * self.seconds[rule] / max(1, self.done[rule])
        work -= sum(now - began for _, began in self.running.values())
        return max(work, 0.0) / max(1, len(self.running))

    def stage(self) -> str:
        """What is running, the longest part of a run first."""
        names = {STAGES.get(rule, OTHERS) for rule, _ in self.running.values()}
        return next((name for name in reversed(STAGES.values()) if name in names), OTHERS)

    def line(self, now: float) -> str:
        """`RL 3 of 22 · 40 of 201 jobs · 2 min, about 9 min left`."""
        stage, done, total = self.stage(), self.done.total(), self.total.total()
        rules = [rule for rule in self.total if STAGES.get(rule, OTHERS) == stage]
        part, whole = (sum(count[rule] for rule in rules) for count in (self.done, self.total))
        left = self.seconds_left(now) if self.left() else None
        ends = "" if left is None else f", about {duration(left)} left"
        wrong = f", {self.failed} failed" if self.failed else ""
        spent = duration(now - self.began)
        return f"{stage} {part} of {whole} · {done} of {total} jobs{wrong} · {spent}{ends}"


_REASONS = {
    "Params have changed": "settings changed",
    "Code has changed": "code changed",
    "Updated input files": "input files changed",
    "Set of input files has changed": "other input files",
    "Missing output files": "not made yet",
    "Input files updated by another job": "made from what changes",
}
"""Snakemake's reasons for a job in few words."""


def _why(reason: str, log: Sequence[str]) -> str:
    """What differs from the job's record, or else Snakemake's reason."""
    jobs = LAST[-1].reasons.items() if LAST else ()
    differs = next((reasons for job, reasons in jobs if [*job.log] == [*log]), [])
    known = (short for said, short in _REASONS.items() if said in reason)
    return next(iter(differs), None) or next(known, "asked for")


class LogHandler(LogHandlerBase):
    """Snakemake's events as a line of progress."""

    writes_to_stream, writes_to_file, needs_rulegraph = True, False, False
    has_filter = has_formatter = True

    def __post_init__(self) -> None:
        self._progress = Progress(began=time.monotonic())
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._said, self._begun, self._at = list[str](), set[str](), time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._lock, self._over = threading.Lock(), threading.Event()
        threading.Thread(target=self._tick, daemon=True).start()

    def emit(self, record: LogRecord) -> None:
        with self._lock:
            self._take(record)

    def close(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        with self._lock:
            if self._reasons:
                self._write("This would run (nothing has been run):")
                rows = self._reasons.items()
                self._write(*(f"  {count:4d} {rule}: {why}" for (rule, why), count in rows))
            elif self._progress.done and self._progress.left():
                self._end(time.monotonic())
        super().close()

    def _take(self, record: LogRecord) -> None:
        event, now, details = getattr(record, "event", None), time.monotonic(), record.__dict__
        if event == LogEvent.RUN_INFO and not self._progress.total:
            counts = {rule: n for rule, n in details["stats"].items() if rule != "total"}
            self._progress.total.update(counts)
            if sum(counts.values()) < FEW:
                return
            most = ", ".join(f"{n} {rule}" for rule, n in Counter(counts).most_common(4))
            self._write(f"{sum(counts.values())} jobs: {most}{', …' if len(counts) > 4 else ''}")
        elif event == LogEvent.JOB_INFO and self.common_settings.dryrun:
            why = _why(details["reason"], details.get("log") or ())
            self._reasons[details["rule_name"], why] += 1
        elif event == LogEvent.JOB_INFO:
            self._progress.start(details["jobid"], details["rule_name"], now)
            self._show(now)
        elif event == LogEvent.JOB_FINISHED:
            if self._progress.running.get(details["job_id"], ("",))[0] == "first_page":
                page = Results(Path(os.environ.get(FOLDER, ""))).partial_page
                self._write(f"First results, of one run of each method: {page}")
            self._progress.end(details["job_id"], now)
            if self._progress.left() == 0:
                self._end(now)
        elif event == LogEvent.JOB_ERROR:
            self._progress.end(details["jobid"], now, failed=True)
            if details["rule_name"] not in TELLING:
                self._write(*failure(details["rule_name"], [*map(Path, details["log"] or ())]))
        elif record.levelno >= WARNING and getattr(record, "exception", "") != "RuleException":
            self._problem(record.getMessage())
        elif "Nothing to be done" in record.getMessage():
            known = LAST and not LAST[-1].unrecorded and not LAST[-1].changed
            made = " and made from today's settings, code and files" if known else ""
            self._write(f"Nothing to do: every file is there{made}.")
            results = Results(Path(os.environ.get(FOLDER, "")))
            if results.page.is_file():
                self._write(*ending("all", [], results))

    def _problem(self, text: str) -> None:
        text = text.removeprefix("WorkflowError:\n").strip()
        if text and text not in self._said and not text.startswith(_UNSAID):
            self._said.append(text)
            self._write(text)

    def _end(self, now: float) -> None:
        if self._progress.total.total() >= FEW:
            self._write(self._progress.line(now))

    def _show(self, now: float) -> None:
        if self._progress.total.total() < FEW:
            return
        stage = self._progress.stage()
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{self._progress.line(now)}")
            sys.stderr.flush()
        elif stage not in self._begun or now - self._at >= QUIET_SECONDS:
            self._begun.add(stage)
            self._at = now
            self._write(self._progress.line(now))

    def _write(self, *lines: str) -> None:
        start = "\r\x1b[K" if self._terminal else ""
        for line in lines:
            print(start + line, file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self._over.wait(1.0):
            with self._lock:
                if self._progress.running:
                    self._show(time.monotonic())


def failure(rule: str, logs: list[Path]) -> list[str]:
    """What a failed job's log ends with; its own message alone where it has one."""
    text: list[str] = []
    with suppress(OSError, IndexError):
        text = logs[0].read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    if any(line.startswith("KeyboardInterrupt") for line in text[-LAST_LINES:]):
        STOPPED.append(rule)
        return [f"The job of {rule} was stopped; the same command goes on from there."]
    own = text[-1:] if text and text[-1].startswith("ERROR: ") else text[-LAST_LINES:]
    place = f"; its log is {logs[0]}" if logs else ""
    return [f"A job of {rule} failed{place}.", *(f"  {line}" for line in own)]
