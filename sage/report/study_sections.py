"""Sections that every report has: theory, hyperparameters, contamination, luck, grading, support.

They are made of standing exhibits, like the sections of `sage.report.sections`.
"""

from __future__ import annotations

from sage.exhibits import shows
from sage.report.loader import PageContent, PageFiles
from sage.report.sections import Part, Section, label_of, parts_of
from sage.study import ResolvedStudy

SECTIONS = {
    "theory": ("Theory", "theory", ("figure1", "figure5", "appendix_c", "estimators")),
    "hyperparameters": ("Hyperparameters", "table7 table8 readings", ()),
    "contamination": ("Contamination", "contamination", ()),
    "chance": ("Luck and working behind pass@k", "chance", ()),
    "grading": ("Grading", "grading", ()),
    "support": ("Support: problems kept, lost and new", "support", ()),
}
"""Title, target and exhibits by anchor; no exhibits are those of the target."""


def study_sections(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Section]:
    """All of them, in order."""
    sections = []
    for anchor, (title, target, names) in SECTIONS.items():
        parts: list[Part] = []
        missing: list[str] = []
        for name in names or target.split():
            heading = f"{label_of(name)}. " if label_of(name) else ""
            label = shows(study, name).caption
            made, lacking = parts_of(study, name, content, files, heading, label, heading)
            parts += made
            missing += lacking
        section = Section(anchor, "", title, target, parts=tuple(parts), missing=tuple(missing))
        sections.append(section)
    return sections
