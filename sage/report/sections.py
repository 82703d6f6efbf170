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
from sage.rendering.labels import benchmark_titles, method_title
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

OF_RECORD = ("hyperparameters", "contamination")
"""Those that say how the study was made."""

SHORT = 30
"""The most words of a caption, but for a first sentence that is longer."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])(?<!Dr\.) (?=[A-ZΔ≈])")

LONG, LONG_IN_STUDY, MANY = 12, 8, 8
"""Tables with more rows, those of STUDY_SECTIONS with more than the second, and figures with more
panels are folded, as they fill many screens of a phone; so are tables beside a figure."""


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
    numbers. Those `of_samples` show completions,
    those `of_record` how the study was made."""

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
    of_samples: bool = False
    of_record: bool = False


def exhibit_sections(
    study: ResolvedStudy, content: PageContent, files: PageFiles
) -> tuple[Section | None, list[Section]]:
    """The section that opens the page, if the study has an exhibit for it, and the others."""
    names = list(study.study.exhibits)
    sections = [exhibit_section(study, name, content, files) for name in names]
    leading = [place for place, name in enumerate(names) if kind_of(study, name).leads]
    if study.study.trial:
        return None, sections
    return sections.pop(leading[0]) if leading else None, sections


def of_kept_run(sections: Sequence[Section]) -> list[Section]:
    """The sections that have parts, without what is missing, which the page of a kept run says
    once."""
    return [replace(one, missing=()) for one in sections if one.parts]


def further_tables(content: PageContent, files: PageFiles) -> list[Section]:
    """A section of the kept tables that belong to no exhibit, if there are any."""
    parts = [
        Part(f"table-{name}", one.caption, files.made.table(name).as_posix(), *shown)
        for name, one in content.further.items()
        for shown in [(one.table, None, one.summary)]
    ]
    return [Section("further", "", "Further tables", "", parts=parts)] if parts else []


def exhibit_section(
    study: ResolvedStudy, name: str, content: PageContent, files: PageFiles
) -> Section:
    """The section of one exhibit."""
    title, label = study.study.exhibits[name].title, label_of(study, name)
    if sum(one.title == title for one in study.study.exhibits.values()) > 1:
        title += f", {study.model(study.study.exhibits[name].model).title}"
    rows = listing([method_title(study, row) for row in study.methods_of(name)])
    spoken = f"{label} {title}, for {rows}.".strip()
    parts, missing = parts_of(study, name, content, files, spoken)
    metrics, shown = content.metrics.get("pass_at_k"), Display(study, name, (), files.paper)
    if parts and metrics is not None and (by_k := kind_of(study, name).at_each_k(shown, metrics)):
        path = files.made.metrics("pass_at_k").as_posix()
        args = (f"table-{name}_at_each_k", f"{title}: {by_k.caption}", path)
        parts.insert(1, Part(*args, by_k.table, by_k=True))
    drawn = any(part.figure for part in parts)
    parts = sorted((_folded(part, 0 if drawn else LONG) for part in parts), key=_is_folded)
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
        of_samples=name in content.cases,
    )


def parts_of(
    study: ResolvedStudy,
    name: str,
    content: PageContent,
    files: PageFiles,
    label: str,
    heading: str = "",
) -> tuple[list[Part], list[str]]:
    """Figures and tables of an exhibit, folded ones last, and the missing files.

    Captions start with `heading`; `label` is the text of a figure for screen readers.
    """
    parts, missing = [], []
    keys = {method_title(study, row): style for row, style in line_styles(study).items()}
    exhibit = shows(study, name)
    title = f"{study.study.exhibits[name].title}. " if name in study.study.exhibits else ""
    for figure, suffix in figures_of(study, name).items():
        caption = exhibit.captions.get(suffix) or exhibit.caption or exhibit.contents
        path = files.made.figure(figure).as_posix()
        if svg := content.figures.get(figure):
            drawn = figure_html(svg, f"svg-{figure}", label, keys)
            short, more = _shortened(heading, caption)
            parts.append(Part(f"figure-{figure}", short, path, figure=drawn, more=more))
        else:
            missing.append(path)
    for table in tables_of(study, name, files.paper):
        path = files.made.table(table).as_posix()
        if document := content.tables.get(table):
            short, more = _shortened(heading, document.caption.removeprefix(title))
            shown, summary = filled(document.table), document.summary
            parts.append(Part(f"table-{table}", short, path, shown, None, summary, more))
        else:
            missing.append(path)
    return sorted(parts, key=_is_folded), missing


def _shortened(heading: str, caption: str) -> tuple[str, Sequence[str]]:
    """A heading with the start of a caption, in whole sentences of at most SHORT words, and the
    other ones; of a first sentence that is longer, what stands before a colon or semicolon."""
    start, *more = _SENTENCE_ENDS.split(caption)
    if len(start.split()) > SHORT and (first := re.split("[:;] ", start)[0]) != start:
        start, more = f"{first}.", [start, *more]
    while more and len(f"{start} {more[0]}".split()) <= SHORT:
        start += f" {more.pop(0)}"
    return heading + start, more


def said_often(sections: Sequence[Section]) -> list[str]:
    """The sentences that several captions leave out, which the page says once."""
    counts = Counter(each for section in sections for part in section.parts for each in part.more)
    return [sentence for sentence, count in counts.items() if count > 1]


def _is_folded(part: Part) -> bool:
    return bool(part.summary)


def _folded(part: Part, most: int) -> Part:
    """The part, folded if it is a table of more than `most` rows or a figure of MANY panels."""
    if part.figure and (panels := part.figure.count("<svg viewBox")) > MANY:
        return replace(part, summary=f"The figure, {panels} panels")
    rows = sum(len(group.rows) for group in part.table.groups) if part.table else 0
    if rows <= most or part.summary:
        return part
    return replace(part, summary=f"The table{' at each k' * part.by_k}, {rows} rows")


def label_of(study: ResolvedStudy, exhibit: str) -> str:
    """``Table 1`` for `table1`, ``Figure 6 (3b)`` for `figure6_3b`; empty for other names, and
    where the study reproduces no paper."""
    if not study.study.paper:
        return ""
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


def by_facts(
    sections: Sequence[Section],
) -> list[tuple[Sequence[tuple[str, str]], list[Section]]]:
    """The facts behind the numbers, each time with the sections that share them."""
    shared: dict[tuple[tuple[str, str], ...], list[Section]] = {}
    for section in sections:
        shared.setdefault(tuple(section.behind), []).append(section)
    return [(facts, alike) for facts, alike in shared.items() if facts]


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
            heading = f"{number}. " if (number := label_of(study, name)) else ""
            label = shows(study, name).contents
            made, lacking = parts_of(study, name, content, files, label, heading)
            parts += (_folded(part, LONG_IN_STUDY) for part in made)
            missing += lacking
        note = f"Of this study’s methods: {effects}." if effects and ESTIMATORS in names else ""
        section = Section(anchor, "", title, target, [], parts, missing, note=note)
        sections.append(replace(section, of_record=anchor in OF_RECORD))
    return sections
