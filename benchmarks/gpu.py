"""What only a GPU can show, in one command and nine minutes at most: `make test-gpu`.

Runs the tests marked `gpu`, prints a table of them with what they measured, and keeps it in
`benchmarks/gpu.json`, which is written anew after every test: a run that is cut off leaves what
it has shown. Without a GPU it says so, leaves the file alone and exits with NO_GPU. This module is
also the plugin of pytest that keeps the table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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

NO_GPU, OUT_OF_TIME = 3, 124
"""Exit statuses besides those of pytest."""

PLACE = "SAGE_GPU_TABLE"
"""The environment variable that tells the plugin where the table is kept."""

_rows: dict[str, dict[str, Any]] = {}


def pytest_collection_finish(session: Any) -> None:
    """Every test that is to run, before the first one does."""
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
            row["reason"] = str(report.longrepr).strip().splitlines()[-1][:300]
    _keep()


def _keep() -> None:
    if place := os.environ.get(PLACE):
        write_text_atomic(Path(place), json.dumps(_rows))


def run(tests: Sequence[str], table: Path, seconds: float) -> int:
    """Run pytest on `tests` for at most `seconds`; `table` gets the rows. Returns its status.

    Out of time, pytest and all that it has started are killed.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "benchmarks.gpu", *tests]
    environment = {**os.environ, PLACE: str(table), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as tested:
        try:
            return tested.wait(seconds)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            with suppress(ProcessLookupError):
                os.killpg(tested.pid, signal.SIGKILL)


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
    table = RESULTS.with_suffix(".rows")
    status = run(["-m", "gpu", "tests/test_gpu.py"], table, SECONDS)
    rows = json.loads(table.read_text(encoding="utf-8")) if table.is_file() else {}
    table.unlink(missing_ok=True)
    content = {
        "commit": git_commit(),
        "hardware": hardware(),
        "versions": versions(),
        "status": status,
        "tests": rows,
    }
    write_text_atomic(RESULTS, json.dumps(content, indent=2) + "\n")
    print(render(rows))
    if status == OUT_OF_TIME:
        print(f"Stopped after {SECONDS:g} s; what is marked `not run` did not end in time.")
    print(f"Kept in {RESULTS.relative_to(ROOT)}; exit status {status}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
