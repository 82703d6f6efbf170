"""One section of the page per exhibit: its tables or its figure, and what is behind them.

Relies on the frames and figures that the report's rules have written; only wording and layout are
added here. What is not there is said to be not run, with the name that runs it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pandas as pd

from sage.analysis.case_study import CaseStudy
from sage.reporting.ablation import ablation_caption
from sage.reporting.accuracy import accuracy_caption, column_groups, estimate
from sage.reporting.beside import paper_parts
from sage.reporting.content import PageContent
from sage.reporting.layout import PageFiles, trained_runs
from sage.reporting.looks import line_styles
from sage.reporting.measures import (
    gradient_caption,
    patterns_caption,
    step_times_caption,
    tails_caption,
)
from sage.reporting.views import (
    NONE,
    Cell,
    Group,
    Head,
    Part,
    Row,
    Table,
    algorithm_row,
    grouped,
    inline_svg,
    interval_of_points,
    line_key,
    listing,
    norm_cell,
    points,
    share_cell,
)
from sage.reporting.wording import benchmark_titles, exhibit_heading, percent, row_title
from sage.study import BASE, ResolvedStudy
from sage.study.exhibits import (
    AblationTable,
    PatternTable,
    PerplexityFigure,
    StepTimesTable,
    TrajectoryFigure,
)

_ESTIMATE = ("value", "low", "high")


@dataclass(frozen=True)
class Section:
    """A section of the page; `missing` are the files it lacks, `behind` what its numbers are of."""

    anchor: str
    label: str
    title: str
    target: str
    behind: tuple[tuple[str, str], ...] = ()
    parts: tuple[Part, ...] = ()
    missing: tuple[str, ...] = ()
    case: CaseStudy | None = None
    note: str = ""


def exhibit_sections(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Section]:
    """The study's exhibits, in its order."""
    return [exhibit_section(study, name, content, files) for name in study.study.exhibits]


def exhibit_section(
    study: ResolvedStudy, name: str, content: PageContent, files: PageFiles
) -> Section:
    """The section of one exhibit."""
    shown = study.study.exhibits[name]
    parts: list[Part] = []
    if name in content.tables:
        parts.append(_table_part(study, name, content, files))
    if name in content.figures:
        parts.insert(0, _figure_part(study, name, content, files))
    parts += paper_parts(study, name, content, files)
    wanted = (
        (files.tables, content.tables),
        (files.figures, content.figures),
        (files.cases, content.cases),
    )
    missing = [
        paths[name].as_posix() for paths, there in wanted if name in paths and name not in there
    ]
    case = content.cases.get(name)
    unsolved = name in content.cases and case is None
    return Section(
        anchor=f"exhibit-{name}",
        label=label_of(name),
        title=shown.title,
        target=name,
        behind=tuple(behind(study, name, content)),
        parts=tuple(parts),
        missing=tuple(missing),
        case=case,
        note="No problem was solved by every row, so there is no case to show." if unsolved else "",
    )


def label_of(exhibit: str) -> str:
    """``Table 1`` of `table1`, ``Figure 6 (3b)`` of `figure6_3b`; nothing for other names."""
    found = re.fullmatch(r"(table|figure)(\d+)(?:_(.+))?", exhibit)
    if not found:
        return "Appendix C" if exhibit == "appendix_c" else ""
    part = f" ({found[3].replace('_', '.')})" if found[3] else ""
    return f"{found[1].capitalize()} {found[2]}{part}"


def behind(study: ResolvedStudy, name: str, content: PageContent) -> list[tuple[str, str]]:
    """Settings, and how many problems, samples and seeds an exhibit's numbers rest on."""
    shown = study.study.exhibits[name]
    model = study.model(shown.model)
    facts = [("Model", model.title)]
    if isinstance(shown, StepTimesTable):  # timed from the policy before RL, which learns nothing
        longest = f"≤ {model.rl.sampling.max_tokens} tokens each"
        return [*facts, ("Rounds", str(shown.rounds)), ("Completions", longest)]
    evaluation, titles = study.evaluation(shown.model), benchmark_titles(study)
    sets = study.benchmarks_of(name)
    if isinstance(shown, TrajectoryFigure):
        sets = [shown.benchmark]
    if sets:
        counts = [
            f"{titles[b]}: {grouped(len(content.problems[b]))}"
            if b in content.problems
            else titles[b]
            for b in sets
        ]
        facts.append(("Problems", "; ".join(counts)))
    per_problem = evaluation.samples
    if isinstance(shown, PatternTable | TrajectoryFigure) and shown.samples:
        per_problem = min(per_problem, shown.samples)
    if isinstance(shown, PerplexityFigure):
        facts.append(("Responses", f"{shown.responses} per problem and row"))
    elif sets:
        seeds = len(evaluation.seeds)
        per_problem_text = f"{per_problem} per problem"
        facts.append(("Samples", per_problem_text + (f" × {seeds} seeds" if seeds > 1 else "")))
    if sets:
        sampling = evaluation.sampling
        facts.append(
            ("Sampling", f"temperature {sampling.temperature:g}, ≤ {sampling.max_tokens} tokens")
        )
    else:
        facts.append(("Steps", grouped(model.rl.steps)))
    rows = set(study.rows_of(name)) - {BASE}
    wanted = [run for run in trained_runs(study, shown.model) if run[1] in rows]
    have = sum(run in content.policies for run in wanted)
    seeds_text = ", ".join(map(str, study.study.seeds))
    facts.append(("Training seeds", seeds_text))
    facts.append(
        ("Training runs", str(have) if have == len(wanted) else f"{have} of {len(wanted)}")
    )
    return facts


def accuracy_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """An accuracy frame in percent, with its marks."""
    titles, styles, groups = benchmark_titles(study), line_styles(study), column_groups(table)
    places = [(name, k) for name, ks in groups.items() for k in ks]
    rows = []
    for row in range(len(table)):
        algorithm = str(table.loc[row, "algorithm"])
        cells = [
            share_cell(*estimate(table, row, *place), _mark(table, row, *place)) for place in places
        ]
        title = str(table.loc[row, "title"])
        rows.append(Row(title, tuple(cells), line_key(styles[algorithm]), algorithm == BASE))
    heads = [Head(titles[name], tuple(f"pass@{k}" for k in ks)) for name, ks in groups.items()]
    return Table("Algorithm", tuple(heads), (Group("", tuple(rows)),))


def patterns_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A pattern frame: both readings of every pattern, with their intervals."""
    titles = dict(zip(table["pattern"], table["pattern_title"], strict=True))
    readings = (("pooled", "low", "high"), ("per_problem", "per_problem_low", "per_problem_high"))
    rows = []
    for algorithm, of in table.groupby("algorithm", sort=False):
        found = of.set_index("pattern").to_dict("index")
        cells = [
            share_cell(*(found[name][column] for column in columns))
            for name in titles
            for columns in readings
        ]
        cells.append(Cell(grouped(int(of["n_correct"].iloc[0]))))
        rows.append(algorithm_row(study, str(algorithm), cells))
    heads = [Head(str(title), ("all", "per problem")) for title in titles.values()]
    heads.append(Head("", ("Correct solutions",)))
    return Table("Algorithm", tuple(heads), (Group("", tuple(rows)),))


def gradient_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A gradient frame: algorithms down, thirds of training across."""
    stages = list(dict.fromkeys(table["stage"]))
    rows = []
    for algorithm, of in table.groupby("algorithm", sort=False):
        found = of.set_index("stage").to_dict("index")
        cells = [norm_cell(*(found[stage][part] for part in _ESTIMATE)) for stage in stages]
        rows.append(algorithm_row(study, str(algorithm), cells))
    heads = tuple(Head("", (str(stage).capitalize(),)) for stage in stages)
    return Table("Algorithm", heads, (Group("", tuple(rows)),))


def ablation_view(table: pd.DataFrame, shown: AblationTable) -> Table:
    """An ablation as a grid: the first setting down, the second across."""
    first, *second = shown.grid
    across: list[float] | list[None] = shown.grid[second[0]] if second else [None]
    ks = sorted({int(k) for k in table["k"]})
    rows = []
    for down in shown.grid[first]:
        cells = []
        for value in across:
            cell = table[table[first] == down]
            if value is not None:
                cell = cell[cell[second[0]] == value]
            for k in ks:
                (found,) = cell[cell["k"] == k].to_dict("records")
                mark = "own" if found["own"] else ""
                value, low, high = (found[part] for part in _ESTIMATE)
                cells.append(share_cell(value, low, high, mark))
        rows.append(Row(f"{down:g}", tuple(cells)))
    columns = tuple(f"pass@{k}" for k in ks)
    heads = [Head(f"{second[0]} {v:g}" if v is not None else "", columns) for v in across]
    return Table(first.replace("_", " ").capitalize(), tuple(heads), (Group("", tuple(rows)),))


def tails_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A frame of perplexity tails, a block of rows per problem."""
    groups = []
    for number, (problem, of) in enumerate(table.groupby("problem_id", sort=False), start=1):
        rows = [
            algorithm_row(
                study,
                str(row["algorithm"]),
                [
                    Cell(f"{row['median']:.3g}"),
                    Cell(f"{row['upper']:.3g}"),
                    Cell(percent(row["tail_share"])),
                    Cell(str(row["n"])),
                ],
            )
            for row in of.to_dict("records")
        ]
        groups.append(Group(f"Problem {number} ({problem})", tuple(rows)))
    columns = ("Median", "Upper", "Beyond the base", "Responses")
    return Table("Algorithm", tuple(Head("", (name,)) for name in columns), tuple(groups))


def step_times_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A frame of step times: medians, and what each row costs over the first."""
    rows = []
    for row in table.to_dict("records"):
        cost = Cell(NONE)
        if not math.isnan(row["excess"]):
            cost = Cell(points(row["excess"]), interval_of_points(row["low"], row["high"]))
        seconds = Cell(f"{row['seconds']:.3f}")
        rows.append(algorithm_row(study, str(row["algorithm"]), [seconds, cost]))
    heads = tuple(Head("", (name,)) for name in ("Seconds", "Excess in percent"))
    return Table("Algorithm", heads, (Group("", tuple(rows)),))


def _mark(table: pd.DataFrame, row: int, benchmark: str, k: int) -> str:
    mark = table[f"{benchmark} pass@{k} mark"].iloc[row]
    return str(mark) if isinstance(mark, str) else ""


def _table_part(study: ResolvedStudy, name: str, content: PageContent, files: PageFiles) -> Part:
    frame, shown = content.tables[name], study.study.exhibits[name]
    if shown.kind == "accuracy":
        pass_at_k = content.metrics.get("pass_at_k")
        caption = (
            accuracy_caption(pass_at_k, study, name)
            if pass_at_k is not None
            else f"{exhibit_heading(study, name)}: pass@k in percent."
        )
        view = accuracy_view(frame, study)
    elif shown.kind == "patterns":
        caption, view = patterns_caption(frame, study, name), patterns_view(frame, study)
    elif shown.kind == "gradient_norms":
        caption, view = gradient_caption(frame, study, name), gradient_view(frame, study)
    elif shown.kind == "step_times":
        caption, view = step_times_caption(frame, study, name), step_times_view(frame, study)
    elif isinstance(shown, AblationTable):
        caption, view = ablation_caption(frame, study, name), ablation_view(frame, shown)
    else:
        caption, view = tails_caption(frame, study, name), tails_view(frame, study)
    return Part(f"table-{name}", caption, files.tables[name].as_posix(), name, table=view)


def _figure_part(study: ResolvedStudy, name: str, content: PageContent, files: PageFiles) -> Part:
    shown = study.study.exhibits[name]
    rows = listing([row_title(study, row) for row in study.rows_of(name)])
    label = f"{label_of(name)} {shown.title}, for {rows}.".strip()
    return Part(
        anchor=f"figure-{name}",
        caption=f"{exhibit_heading(study, name)}. {FIGURE_CAPTIONS[shown.kind]}",
        path=files.figures[name].as_posix(),
        target=name,
        figure=inline_svg(content.figures[name], f"svg-{name}", label),
    )


FIGURE_CAPTIONS = {
    "curves": "Share of problems solved by at least one of k samples, the unbiased estimate; bands "
    "are 95 % intervals, each of its own curve. Where a curve falls below the base’s, problems "
    "that the base solves with enough samples may have been lost: whether it does is for the "
    "paired comparisons to say.",
    "training": "Thin lines are single optimizer steps (single spikes may leave the panel), thick "
    "lines their running mean, averaged over training seeds.",
    "trajectory": "Training reward against test accuracy at moments of training. Where the one "
    "rises and the other does not, the policy may have learnt the training problems alone; the "
    "bars are 95 % intervals.",
    "perplexity": "Each mark is a response, at its perplexity under the policy before RL: further "
    "right is less likely under that policy.",
}
