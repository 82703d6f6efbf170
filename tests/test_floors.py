"""The order of the package: a module imports only from floors below its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SAGE = Path(__file__).resolve().parents[1] / "sage"

FLOORS = (
    *("fields", "faults", "runtime", "named", "results", "prompting", "method", "rivals", "theory"),
    *("problems", "grading", "tasks", "study", "policies", "fetched_bases", "sampling", "training"),
    *("evaluation", "rendering", "exhibits", "claims", "report", "tools"),
)
"""Packages and modules of `sage`, the ground floor first."""


def floor_of(path: Path) -> str:
    return path.relative_to(SAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Packages and modules of `sage` that a file imports, within functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "sage":
            names = [f"sage.{alias.name}" for alias in node.names]
        else:
            names = [getattr(node, "module", None) or ""]
        yield from (name.split(".")[1] for name in names if name.startswith("sage."))


def test_every_module_has_a_floor() -> None:
    names = {floor_of(path) for path in SAGE.rglob("*.py")} - {"__init__"}
    assert names == set(FLOORS)
    assert len(FLOORS) == len(names)


def test_imports_lead_down() -> None:
    upwards = [
        f"{path.relative_to(SAGE)} imports sage.{name}"
        for path in sorted(SAGE.rglob("*.py"))
        for name in imported(path)
        if (own := floor_of(path)) not in ("__init__", name)
        and FLOORS.index(name) > FLOORS.index(own)
    ]
    assert upwards == []


def test_no_module_imports_a_rival() -> None:
    """The registry finds them; they do not know each other."""
    assert [path for path in SAGE.rglob("*.py") if "rivals" in imported(path)] == []
