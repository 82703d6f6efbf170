"""Compares what a study needs with what this machine has, before anything runs.

Only a need of the chosen study can fail: a study without GPUs passes on any laptop. Software is
looked up, not started. The hub is asked once, and only if the study needs it.
"""

from sage.study import ResolvedStudy
from sage.tools.check.findings import Finding, render_findings
from sage.tools.check.machine import Machine, machine_findings
from sage.tools.check.sources import source_findings

__all__ = ["Finding", "Machine", "check", "render_findings"]


def check(study: ResolvedStudy, machine: Machine) -> list[Finding]:
    """All needs of `study`, compared with `machine`."""
    return [*machine_findings(study, machine), *source_findings(study, machine.results)]
