"""A public data set of two rows: its entry, its file, and what is said of a fault in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sage.problems.entries import Benchmark
from sage.problems.record import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = [{"problem": "What is 1+1?", "answer": "2"}, {"problem": "What is 2+3?", "answer": "05"}]


def entry(**changes: Any) -> Benchmark:
    """An entry for one file of the hub, `test.jsonl` of `someone/sums`, and its copy."""
    return Benchmark.model_validate(
        {
            "hub": [
                {
                    "repository": "someone/sums",
                    "revision": COMMIT,
                    "files": [{"path": "test.jsonl", "rows": 2}],
                }
            ],
            "mirror": [{"path": "sums.jsonl", "rows": 2}],
            "fields": {"problem": "problem", "answer": "answer"},
            **changes,
        }
    )


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def write_mirror(folder: Path) -> Path:
    """A mirror in `folder` with the copy of `entry()`."""
    folder.mkdir()
    (folder / "sums.jsonl").write_bytes(lines(ROWS))
    return folder


def fault(action: Callable[[], object]) -> str:
    """The message with which `action` fails."""
    with pytest.raises(DataError) as caught:
        action()
    return str(caught.value)
