"""What only a GPU can show, in one command and nine minutes at most: `make test-gpu`.

Runs the tests marked `gpu` or `vllm` in parts, each in a process of its own and what proves most
first, prints a table of them with what they measured, and keeps it with the hardware's name in
`benchmarks/gpu.json`, which is written anew after every test: a run that is cut off leaves what it
has shown. Without a GPU it says so, leaves the file alone and exits with NO_GPU. This module is
also the plugin of pytest that keeps the table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sage.runtime.files import write_text_atomic
from sage.runtime.manifest import git_commit, hardware, versions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/gpu.json"
SECONDS = 540.0
"""The longest that the tests may take together."""

PARTS = (
    ["tests/training/test_gpu.py", "-k", "guide"],
    ["tests/training/test_gpu_shapes.py", "-k", "not 7b"],
    ["tests/training/test_gpu_shapes.py", "-k", "7b"],
    ["tests/training/test_gpu.py", "-k", "not guide"],
    ["tests/sampling/test_vllm.py"],
    ["tests/training/test_vllm_training.py"],
)
"""Arguments of pytest for each part."""

NO_GPU, OUT_OF_TIME = 3, 124
"""Exit statuses besides those of pytest."""

PLACE = "SAGE_GPU_TABLE"
"""The environment variable that tells the plugin where the table is kept."""

_rows: dict[str, dict[str, Any]] = {}


def pytest_collection_finish(session: Any) -> None:
    """Adds every test that is to run to the table, before the first one does."""
    _rows.update({item.nodeid: {"outcome": "not run", "seconds": 0.0} for item in session.items})
    _keep()


def pytest_runtest_logreport(report: Any) -> None:
    """Adds a phase of a test: its time, and its outcome unless an earlier phase failed."""
    row = _rows[report.nodeid]
    row["seconds"] = round(row["seconds"] + report.duration, 1)
    if report.when == "call" or report.outcome != "passed":
        row["outcome"] = report.outcome
        row["measured"] = dict(report.user_properties)
        if report.outcome != "passed":
            why = report.longrepr  # of a skipped test the file, the line and the reason
            said = why[-1] if isinstance(why, tuple) else str(why)
            row["reason"] = said.strip().splitlines()[-1][:300]
    _keep()


def _keep() -> None:
    """Write the rows of this process behind those of the parts before it."""
    if place := os.environ.get(PLACE):
        content = json.loads(Path(place).read_text(encoding="utf-8"))
        content["tests"] |= _rows
        write_text_atomic(Path(place), json.dumps(content, indent=2) + "\n")


def run(parts: Sequence[Sequence[str]], table: Path, seconds: float) -> int:
    """Run pytest on each of `parts`, for at most `seconds` together; `table` gets the rows.

    Returns the first status that is not 0. Out of time, pytest and all that it has started are
    killed, and the parts left are not run.
    """
    about = {"commit": git_commit(), "hardware": hardware(), "versions": versions(), "tests": {}}
    write_text_atomic(table, json.dumps(about))
    environment = {**os.environ, PLACE: str(table), "PYTHONPATH": str(ROOT)}
    end, statuses = time.monotonic() + seconds, [0]
    for part in parts:
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "benchmarks.gpu", *part]
        statuses.append(ended(command, end - time.monotonic(), cwd=ROOT, env=environment))
        if statuses[-1] == OUT_OF_TIME:
            return OUT_OF_TIME
    return next(filter(None, statuses), 0)


def ended(command: Sequence[str], seconds: float, **more: Any) -> int:
    """The status of a command, or OUT_OF_TIME after `seconds`; what it started is killed then."""
    with subprocess.Popen(command, start_new_session=True, **more) as started:
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


def render(rows: dict[str, dict[str, Any]]) -> str:
    """The rows as a table, a line for each test and one for what it measured."""
    lines = [f"{'test':60}  {'outcome':8}  seconds"]
    for name, row in rows.items():
        test = name.rpartition("::")[2]
        lines.append(f"{test:60}  {row['outcome']:8}  {row['seconds']:7.1f}")
        more = [f"{key}: {value}" for key, value in row.get("measured", {}).items()]
        lines += [f"  {line}" for line in [*more, *filter(None, [row.get("reason")])]]
    return "\n".join(lines)


def main() -> int:
    """Run, print and keep; 0 if every test ran and passed."""
    import torch

    if not torch.cuda.is_available():
        print(f"No GPU: torch {torch.__version__} sees no CUDA device here, so nothing was run.")
        return NO_GPU
    status = run([["-m", "gpu or vllm", *part] for part in PARTS], RESULTS, SECONDS)
    print(render(json.loads(RESULTS.read_text(encoding="utf-8"))["tests"]))
    if status == OUT_OF_TIME:
        print(f"Stopped after {SECONDS:g} s: what is marked `not run`, or missing, came too late.")
    print(f"Kept in {RESULTS.relative_to(ROOT)}; exit status {status}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
