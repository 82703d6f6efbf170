"""The result of a check, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sage.study import ResolvedStudy

State = Literal["ok", "failed", "warning"]
"""A warning does not fail the check: the study runs, but something about it is open."""

_COLUMNS = ("what", "needed", "here", "state")


@dataclass(frozen=True)
class Finding:
    """One need of a study, what the machine has, and what to do if that is not enough."""

    what: str
    needed: str
    here: str
    state: State
    way_out: str = ""


def met(is_met: bool) -> State:
    """The state of a need that the study has."""
    return "ok" if is_met else "failed"


def render_findings(study: ResolvedStudy, findings: Iterable[Finding]) -> str:
    """The findings as a table, and for each warning and failed one a line that says what to do."""
    rows = list(findings)
    cells = [_COLUMNS, *((row.what, row.needed, row.here, row.state) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [f"Needs of study {study.name} on this machine"]
    for row in cells:
        padded = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=False))
        lines.append("  ".join((*padded, row[3])))
    failed = [row for row in rows if row.state == "failed"]
    warned = [row for row in rows if row.state == "warning"]
    lines += [f"{row.what}: {row.way_out}" for row in [*warned, *failed]]
    lines.append(f"Needs not met: {len(failed)}." if failed else "All needs are met.")
    return "\n".join(lines)
