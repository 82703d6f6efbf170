"""The methods of config/algorithms.yaml as plain data, with what each takes over from its base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sage.study.derived import whole_methods

FILE = Path(__file__).resolve().parents[2] / "config/algorithms.yaml"
ROWS: dict[str, Any] = whole_methods(yaml.safe_load(FILE.read_text(encoding="utf-8")))[0]


def derived(base: str, **changes: Any) -> dict[str, Any]:
    """A method that says what differs from `base`, as a study's `own_methods` would have it."""
    entries, faults = whole_methods({"own": {"base": base, **changes}}, ROWS)
    assert faults == []
    row: dict[str, Any] = entries["own"]
    return row
