"""One section of the page for each exhibit: its tables and figures, and the facts behind them.

Rules write the tables and figures; this module only places them on the page. An exhibit whose
files are missing is marked “not run”, with the command that makes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from sage.exhibits import figures_of, in_every_report, kind_of, shows, tables_of
from sage.exhibits.case_study import CASE, CaseStudy
from sage.exhibits.kind import Display
from sage.exhibits.theory import ESTIMATORS, guide_effects
from sage.rendering.labels import benchmark_titles, exhibit_heading, method_title
from sage.rendering.lines import line_styles
from sage.rendering.markup import figure_html
from sage.rendering.numbers import grouped, listing
from sage.rendering.table import Table, filled
from sage.report.loader import PageContent, PageFiles
from sage.study import BASE, ResolvedStudy

STUDY_SECTIONS = {
    "theory": ("Theory", "theory", ["figure1", "figure5", "appendix_c", "estimators"]),
    "hyperparameters": (
        "Hyperparameters",
        "table7 table8",
        ["table7", "table8", "readings"],
    ),
    "contamination": ("Contamination", "contamination", ["contamination"]),
    "chance": ("Luck and working behind pass@k", "chance", ["chance"]),
    "grading": ("Grading", "grading", ["grading"]),
    "support": ("Support: problems kept, lost and new", "support", ["support"]),
}
"""Sections of every report: title, target and exhibits by anchor."""

SHORT = 40
"""The most words of a caption, but for a first sentence that is longer."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])(?<!Dr\.) (?=[A-ZΔ≈])")

LONG = 12
"""Tables of these sections with more rows are folded, as they fill many screens of a phone."""


@dataclass(frozen=True)
class Part:
    """One table or figure with its caption and file; folded if there is a `summary`. `more` are
    the sentences of its caption that are too many. Of a table `by_k` one column is seen at a
    time."""

    anchor: str
    caption: str
    path: str
    table: Table | None = None
    figure: Markup | None = None
    summary: str = ""
    more: Sequence[str] = ()
    by_k: bool = False


@dataclass(frozen=True)
class Section:
    """A section of the page. `missing` are its missing files, `behind` the facts about its
    numbers."""

    anchor: str
    label: str
    title: str
    target: str
    behind: Sequence[tuple[str, str]] = ()
    parts: Sequence[Part] = ()
    missing: Sequence[str] = ()
    case: CaseStudy | None = None
    case_path: str = ""
    note: str = ""


def exhibit_sections(
    study: ResolvedStudy, content: PageContent, files: PageFiles
) -> tuple[Section | None, list[Section]]:
    """The section that opens the page, if the study has an exhibit for it, and the others."""
    names = list(study.study.exhibits)
    sections = [exhibit_section(study, name, content, files) for name in names]
    leading = [place for place, name in enumerate(names) if kind_of(study, name).leads]
    return sections.pop(leading[0]) if leading else None, sections


def exhibit_section(
    study: ResolvedStudy, name: str, content: PageContent, files: PageFiles
) -> Section:
    """The section of one exhibit."""
    title, label = study.study.exhibits[name].title, label_of(name)
    if sum(one.title == title for one in study.study.exhibits.values()) > 1:
        title += f", {study.model(study.study.exhibits[name].model).title}"
    rows = listing([method_title(study, row) for row in study.methods_of(name)])
    spoken = f"{label} {title}, for {rows}.".strip()
    heading = f"{exhibit_heading(study, name)}. "
    parts, missing = parts_of(study, name, content, files, heading, spoken)
    metrics, shown = content.metrics.get("pass_at_k"), Display(study, name, (), files.paper)
    if parts and metrics is not None and (by_k := kind_of(study, name).at_each_k(shown, metrics)):
        path = files.made.metrics("pass_at_k").as_posix()
        args = (f"table-{name}_at_each_k", f"{title}: {by_k.caption}", path)
        parts.insert(1, Part(*args, by_k.table, by_k=True))
    case, case_path = content.cases.get(name), (files.measured(study, name) / CASE).as_posix()
    note = ""
    if name in content.cases and case is None:
        note = "No problem was solved by every method, so there is no case to show."
    elif not parts and not missing and case is None:
        missing = [case_path]  # an exhibit without tables and figures has a case
    return Section(
        anchor=f"exhibit-{name}",
        label=label,
        title=title,
        target=name,
        behind=behind(study, name, content),
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
) -> tuple[list[Part], list[str]]:
    """Figures and tables of an exhibit, folded ones last, and the missing files.

    Captions of figures start with `heading`, captions of tables with `table_heading`; `label` is
    the text of a figure for screen readers.
    """
    parts, missing = [], []
    keys = {method_title(study, row): style for row, style in line_styles(study).items()}
    exhibit = shows(study, name)
    caption = heading + (exhibit.caption or exhibit.contents)
    for figure in figures_of(study, name):
        path = files.made.figure(figure).as_posix()
        if svg := content.figures.get(figure):
            drawn = figure_html(svg, f"svg-{figure}", label, keys)
            short, more = _shortened(caption)
            parts.append(Part(f"figure-{figure}", short, path, figure=drawn, more=more))
        else:
            missing.append(path)
    for table in tables_of(study, name, files.paper):
        path = files.made.table(table).as_posix()
        if document := content.tables.get(table):
            short, more = _shortened(table_heading + document.caption)
            shown, summary = filled(document.table), document.summary
            parts.append(Part(f"table-{table}", short, path, shown, None, summary, more))
        else:
            missing.append(path)
    return sorted(parts, key=lambda part: bool(part.summary)), missing


def _shortened(caption: str) -> tuple[str, Sequence[str]]:
    """The start of a caption, in whole sentences of at most SHORT words, and the other ones."""
    start, *more = _SENTENCE_ENDS.split(caption)
    while more and len(f"{start} {more[0]}".split()) <= SHORT:
        start += f" {more.pop(0)}"
    return start, more


def said_often(sections: Sequence[Section]) -> list[str]:
    """The sentences that several captions leave out, which the page says once."""
    counts = Counter(each for section in sections for part in section.parts for each in part.more)
    return [sentence for sentence, count in counts.items() if count > 1]


def _folded(part: Part) -> Part:
    rows = sum(len(group.rows) for group in part.table.groups) if part.table else 0
    return replace(part, summary=f"The table, {rows} rows") if rows > LONG else part


def label_of(exhibit: str) -> str:
    """``Table 1`` for `table1`, ``Figure 6 (3b)`` for `figure6_3b`; empty for other names."""
    if exhibit == "appendix_c":
        return "Appendix C"
    match = re.fullmatch(r"(table|figure)(\d+)(?:_(.+))?", exhibit)
    if not match:
        return ""
    part = f" ({match[3].replace('_', '.')})" if match[3] else ""
    return f"{match[1].capitalize()} {match[2]}{part}"


def behind(study: ResolvedStudy, name: str, content: PageContent) -> list[tuple[str, str]]:
    """Settings, and the numbers of problems, samples and runs behind an exhibit."""
    exhibit = kind_of(study, name)
    model, evaluation = study.model(exhibit.model), study.evaluation(exhibit.model)
    sets, own = exhibit.problem_sets(study), exhibit.facts(study)
    titles, known = benchmark_titles(study), content.problems
    facts = [("Model", model.title)]
    if sets:
        counts = (titles[b] + (f": {grouped(len(known[b]))}" if b in known else "") for b in sets)
        facts.append(("Problems", "; ".join(counts)))
    facts += own
    if sets and not own:
        seeds = f" × {n} seeds" if (n := len(evaluation.seeds)) > 1 else ""
        facts.append(("Samples", f"{exhibit.samples_shown(study)} per problem{seeds}"))
    if sets:
        sampling = evaluation.sampling
        text = f"temperature {sampling.temperature:g}, ≤ {sampling.max_tokens} tokens"
        facts.append(("Sampling", text))
    elif not own and model.rl:
        facts.append(("Steps", grouped(model.rl.steps)))
    if exhibit.of_policies and (wanted := exhibit.runs(study)):
        methods = [row for row in exhibit.methods_of(study) if row != BASE]
        have = sum(run in content.policies for run in wanted)
        runs = str(have) if have == len(wanted) else f"{have} of {len(wanted)}"
        facts.append(("Training seeds", study.seeds_text(exhibit.model, methods)))
        facts.append(("Training runs", runs))
    return facts


def study_sections(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Section]:
    """Sections of exhibits that a study does not name: those of STUDY_SECTIONS that say something
    of it."""
    own = {name: row for name, row in study.algorithms.items() if name not in study.variants}
    effects = "; ".join(guide_effects(own, content.guide_effects))
    sections, shown = [], in_every_report(study)
    for anchor, (title, target, every) in STUDY_SECTIONS.items():
        names = [name for name in every if name in shown]
        if not names:
            continue
        parts: list[Part] = []
        missing: list[str] = []
        for name in names:
            number = label_of(name) if study.study.paper else ""
            heading = f"{number}. " if number else ""
            label = shows(study, name).contents
            made, lacking = parts_of(study, name, content, files, heading, label, heading)
            parts += map(_folded, made)
            missing += lacking
        note = f"Of this study’s methods: {effects}." if effects and ESTIMATORS in names else ""
        sections.append(Section(anchor, "", title, target, [], parts, missing, note=note))
    return sections
