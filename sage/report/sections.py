"""One section of the page for each exhibit: its tables and figures, and the facts behind them.

Rules write the tables and figures; this module only places them on the page. An exhibit whose
files are missing is marked “not run”, with the command that makes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from markupsafe import Markup

from sage.analysis.case_study import CaseStudy
from sage.exhibits import figures_of, kind_of, shows, tables_of
from sage.exhibits.case_study import CASE
from sage.exhibits.estimators import NAME as ESTIMATORS
from sage.exhibits.estimators import guide_effects
from sage.rendering.labels import benchmark_titles, exhibit_heading, row_title
from sage.rendering.lines import line_styles
from sage.rendering.markup import figure_html
from sage.rendering.numbers import grouped, listing
from sage.rendering.table import Table
from sage.report.loader import PageContent, PageFiles
from sage.study import BASE, ResolvedStudy

STUDY_SECTIONS = {
    "theory": ("Theory", "theory", ("figure1", "figure5", "appendix_c", "estimators")),
    "hyperparameters": ("Hyperparameters", "table7 table8 readings", ()),
    "contamination": ("Contamination", "contamination", ()),
    "chance": ("Luck and working behind pass@k", "chance", ()),
    "grading": ("Grading", "grading", ()),
    "support": ("Support: problems kept, lost and new", "support", ()),
}
"""Sections of every report: title, target and exhibits by anchor; no exhibits are those of the
target."""


@dataclass(frozen=True)
class Part:
    """One table or figure with its caption and file; folded if there is a `summary`."""

    anchor: str
    caption: str
    path: str
    target: str
    table: Table | None = None
    figure: Markup | None = None
    summary: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the page. `missing` are its missing files, `behind` the facts about its
    numbers."""

    anchor: str
    label: str
    title: str
    target: str
    behind: tuple[tuple[str, str], ...] = ()
    parts: tuple[Part, ...] = ()
    missing: tuple[str, ...] = ()
    case: CaseStudy | None = None
    case_path: str = ""
    note: str = ""


def exhibit_sections(
    study: ResolvedStudy, content: PageContent, files: PageFiles
) -> tuple[Section | None, list[Section]]:
    """The section that opens the page, if the study has an exhibit for it, and the others."""
    names = list(study.study.exhibits)
    sections = [exhibit_section(study, name, content, files) for name in names]
    for place, name in enumerate(names):
        if kind_of(study, name).leads:
            return sections.pop(place), sections
    return None, sections


def exhibit_section(
    study: ResolvedStudy, name: str, content: PageContent, files: PageFiles
) -> Section:
    """The section of one exhibit."""
    title, label = study.study.exhibits[name].title, label_of(name)
    rows = listing([row_title(study, row) for row in study.rows_of(name)])
    spoken = f"{label} {title}, for {rows}.".strip()
    heading = f"{exhibit_heading(study, name)}. "
    parts, missing = parts_of(study, name, content, files, heading, spoken)
    case, case_path = content.cases.get(name), (files.measured(study, name) / CASE).as_posix()
    note = ""
    if name in content.cases and case is None:
        note = "No problem was solved by every method, so there is no case to show."
    elif not parts and not missing and case is None:
        missing = (case_path,)  # an exhibit without tables and figures has a case
    return Section(
        anchor=f"exhibit-{name}",
        label=label,
        title=title,
        target=name,
        behind=tuple(behind(study, name, content)),
        parts=parts,
        missing=missing,
        case=case,
        case_path=case_path,
        note=note,
    )


def parts_of(
    study: ResolvedStudy,
    name: str,
    content: PageContent,
    files: PageFiles,
    heading: str,
    label: str,
    table_heading: str = "",
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Figures and tables of an exhibit, folded ones last, and the missing files.

    Captions of figures start with `heading`, captions of tables with `table_heading`; `label` is
    the text of a figure for screen readers.
    """
    parts, missing = [], []
    keys = {row_title(study, row): style for row, style in line_styles(study).items()}
    shown = shows(study, name)
    caption = heading + (shown.caption or shown.contents)
    for figure in figures_of(study, name):
        path = files.made.figure(figure).as_posix()
        if svg := content.figures.get(figure):
            drawn = figure_html(svg, f"svg-{figure}", label, keys)
            parts.append(Part(f"figure-{figure}", caption, path, name, figure=drawn))
        else:
            missing.append(path)
    for table in tables_of(study, name, files.paper):
        path = files.made.table(table).as_posix()
        if document := content.tables.get(table):
            said, summary = table_heading + document.caption, document.summary
            parts.append(Part(f"table-{table}", said, path, name, document.table, summary=summary))
        else:
            missing.append(path)
    return tuple(sorted(parts, key=lambda part: bool(part.summary))), tuple(missing)


def label_of(exhibit: str) -> str:
    """``Table 1`` for `table1`, ``Figure 6 (3b)`` for `figure6_3b`; empty for other names."""
    match = re.fullmatch(r"(table|figure)(\d+)(?:_(.+))?", exhibit)
    if not match:
        return "Appendix C" if exhibit == "appendix_c" else ""
    part = f" ({match[3].replace('_', '.')})" if match[3] else ""
    return f"{match[1].capitalize()} {match[2]}{part}"


def behind(study: ResolvedStudy, name: str, content: PageContent) -> list[tuple[str, str]]:
    """Settings, and the numbers of problems, samples and runs behind an exhibit."""
    exhibit = kind_of(study, name)
    model, evaluation = study.model(exhibit.model), study.evaluation(exhibit.model)
    facts = [("Model", model.title)]
    sets, own = exhibit.problem_sets(study), exhibit.facts(study)
    if sets:
        titles, known = benchmark_titles(study), content.problems
        counts = {b: f": {grouped(len(known[b]))}" if b in known else "" for b in sets}
        facts.append(("Problems", "; ".join(titles[b] + count for b, count in counts.items())))
    facts += own
    if sets and not own:
        seeds = len(evaluation.seeds)
        text = f"{exhibit.samples_shown(study)} per problem"
        facts.append(("Samples", text + (f" × {seeds} seeds" if seeds > 1 else "")))
    if sets:
        sampling = evaluation.sampling
        text = f"temperature {sampling.temperature:g}, ≤ {sampling.max_tokens} tokens"
        facts.append(("Sampling", text))
    elif not own and model.rl:
        facts.append(("Steps", grouped(model.rl.steps)))
    methods = [row for row in exhibit.rows_of(study) if row != BASE]
    if exhibit.of_policies and (wanted := exhibit.runs(study)):
        have = sum(run in content.policies for run in wanted)
        runs = str(have) if have == len(wanted) else f"{have} of {len(wanted)}"
        seeds_of_rows = study.seeds_text(exhibit.model, methods)
        facts += [("Training seeds", seeds_of_rows), ("Training runs", runs)]
    return facts


def study_sections(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Section]:
    """Sections that every report has, made of standing exhibits: STUDY_SECTIONS, in order."""
    sections = []
    for anchor, (title, target, names) in STUDY_SECTIONS.items():
        parts: list[Part] = []
        missing: list[str] = []
        for name in names or target.split():
            heading = f"{label_of(name)}. " if label_of(name) else ""
            label = shows(study, name).contents
            made, lacking = parts_of(study, name, content, files, heading, label, heading)
            parts += made
            missing += lacking
        named = {
            row: study.algorithms[row] for row in study.algorithms if row not in study.variants
        }
        effects = guide_effects(named, content.guide_effects.get(ESTIMATORS))
        said = f"Of this study’s methods: {'; '.join(effects)}." if effects else ""
        section = Section(
            anchor,
            "",
            title,
            target,
            parts=tuple(parts),
            missing=tuple(missing),
            note=said if ESTIMATORS in names else "",
        )
        sections.append(section)
    return sections
