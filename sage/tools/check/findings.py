"""The result of a check, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sage.study import ResolvedStudy

State = Literal["ok", "failed", "warning"]
"""A warning does not fail the check: the study runs, but something about it is open."""


@dataclass(frozen=True)
class Finding:
    """One need of a study, what the machine has, and what to do if that is not enough."""

    what: str
    needed: str
    here: str
    state: State
    way_out: str = ""


def need(what: str, needed: str, here: str, is_met: bool, way_out: str) -> Finding:
    """A need that fails the check unless it is met."""
    return Finding(what, needed, here, "ok" if is_met else "failed", way_out)


def render_findings(study: ResolvedStudy, findings: Iterable[Finding]) -> str:
    """The findings as a table, and for each warning and failed one a line that says what to do."""
    rows = list(findings)
    cells = [("what", "needed", "here", "state")]
    cells += [(row.what, row.needed, row.here, row.state) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"Needs of study {study.name} on this machine"]
    for row in cells:
        padded = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    failed = [row for row in rows if row.state == "failed"]
    warned = [row for row in rows if row.state == "warning"]
    lines += [f"{row.what}: {row.way_out}" for row in [*warned, *failed]]
    lines.append(f"Needs not met: {len(failed)}." if failed else "All needs are met.")
    return "\n".join(lines)
