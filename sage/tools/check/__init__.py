"""Compares what a study needs with what this machine has, before anything runs.

Only a need of the chosen study can fail: a study without GPUs passes on any laptop. Software is
looked up, not started. The hub is asked once, and only if the study needs it.
"""

from collections.abc import Collection

from sage.study import ResolvedStudy
from sage.tools.check.findings import Finding, render_findings
from sage.tools.check.machine import Machine, largest_job, machine_findings
from sage.tools.check.sources import source_findings

__all__ = ["Finding", "Machine", "check", "lacking", "render_findings", "unavailable"]


def check(study: ResolvedStudy, machine: Machine) -> list[Finding]:
    """All needs of `study`, compared with `machine`."""
    return [*machine_findings(study, machine), *source_findings(study, machine.results)]


def lacking(study: ResolvedStudy, machine: Machine) -> list[str]:
    """GPUs and memory of the largest job that `machine` does not have, a line each."""
    failed = [each for each in largest_job(study, machine) if each.state == "failed"]
    return [
        f"{each.what}: needed {each.needed}, here {each.here}; {each.way_out}" for each in failed
    ]


def unavailable(
    study: ResolvedStudy, machine: Machine, bases: Collection[str], sets: Collection[str]
) -> list[str]:
    """What keeps models' `bases` and problem `sets` from being fetched, a line each."""
    asked = {f"base {name}" for name in bases} | {f"problems {name}" for name in sets}
    for name in sets:
        if (settings := study.study.problems[name]).source == "benchmark":
            asked.add(f"data set {settings.benchmark}")
    failed = [each for each in source_findings(study, machine.results) if each.state == "failed"]
    if not any(each.what in asked for each in failed):
        return []
    return [f"{each.what}: {each.way_out}" for each in failed if each.what in {*asked, "hub"}]
