"""One problem that all methods solve, their solutions side by side (App. H)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from sage.exhibits.kind import Kind, Measuring
from sage.fields import Name
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

CASE = "case.json"
"""The file of the case, which the page shows as text."""


class CaseStudyText(ExhibitOfRows, Kind):
    """One problem that all methods solve, their solutions side by side (App. H).

    One problem that all methods solve, with the first correct solution of each.
    """

    kind: Literal["case_study"]
    benchmark: Name
    """the problem set"""

    needs: ClassVar[tuple[str, ...]] = ("samples", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.case_study",)

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"algorithms": self.rows_of(study)}

    def measure(self, job: Measuring) -> None:
        """Write the case as JSON; `null` if no problem is solved by every method."""
        from sage.analysis.case_study import write_case

        write_case(
            samples=job.files["samples"],
            problems=job.file("problems"),
            algorithms=job.settings["algorithms"],
            output=job.folder / CASE,
        )
