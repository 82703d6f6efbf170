"""What a study needs of this machine, held against what is there, before anything runs.

Only what the chosen study needs can fail: a study without GPUs passes on any laptop. Software is
looked up, not started, and the hub is asked once, by a study that needs it.
"""

from sage.checking.findings import Finding, render_findings
from sage.checking.machine import Machine, machine_findings
from sage.checking.sources import source_findings
from sage.study import ResolvedStudy

__all__ = ["Finding", "Machine", "check", "render_findings"]


def check(study: ResolvedStudy, machine: Machine) -> list[Finding]:
    """All that `study` may need of `machine`."""
    return [*machine_findings(study, machine), *source_findings(study, machine.results)]
