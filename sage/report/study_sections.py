"""Sections that every report has: theory, hyperparameters, contamination, grading, support.

They are made like the exhibits of `sage.report.sections`: from files if these exist, else as not
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.exhibits import shows
from sage.exhibits.rows import require
from sage.rendering.labels import benchmark_titles, row_title
from sage.rendering.lines import line_styles
from sage.rendering.numbers import NONE, grouped, percent
from sage.rendering.table import Cell, Group, Head, Row, Table
from sage.report.loader import PageContent, PageFiles
from sage.report.sections import Part, Section, label_of, parts_of
from sage.study import BASE, ResolvedStudy

STATUSES = ("correct", "wrong", "unparsed", "timeout", "gold_unparsed", "truncated")
"""The statuses of a completion. A truncated one also has another status."""

_RATES = ("model", "algorithm", "train_seed", "benchmark", "status", "share", "n_samples")
_STATUS_TITLES = {
    "correct": "Correct",
    "wrong": "Wrong",
    "unparsed": "Unparsed",
    "timeout": "Timeout",
    "gold_unparsed": "No reference",
    "truncated": "Truncated",
}
_SUPPORT = {
    "preserved": "Kept",
    "shrunk": "Lost",
    "expanded": "New",
    "neither": "Never",
    "srr": "Retention",
    "ndr": "Discovery",
    "sds": "Dynamics",
    "nscr": "Net change",
}


def theory_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Figures 1 and 5, the toy example, and the gradients of guides: what needs no run."""
    parts, missing = _standing(
        study, ("figure1", "figure5", "appendix_c", "estimators"), content, files
    )
    return Section("theory", "", "Theory", "theory", parts=parts, missing=missing)


def settings_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Tables 7 and 8, the hyperparameters as used, and how open questions were answered."""
    names = ("table7", "table8", "readings")
    parts, missing = _standing(study, names, content, files)
    title = "Hyperparameters"
    return Section(title.lower(), "", title, " ".join(names), parts=parts, missing=missing)


def _standing(
    study: ResolvedStudy, names: Sequence[str], content: PageContent, files: PageFiles
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """Tables and figures that every report has, and the missing files."""
    parts: list[Part] = []
    missing: list[str] = []
    for name in names:
        heading = f"{label_of(name)}. " if label_of(name) else ""
        label = shows(study, name).caption
        made, lacking = parts_of(study, name, content, files, heading, label, heading)
        parts += made
        missing += lacking
    return tuple(parts), tuple(missing)


def study_sections(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Section]:
    """All of them, in order."""
    return [
        theory_section(study, content, files),
        settings_section(study, content, files),
        contamination_section(study, content, files),
        grading_section(study, content, files),
        support_section(study, content, files),
    ]


def contamination_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Training problems that also occur in benchmarks."""
    rule = study.study.contamination
    path = files.made.metrics("contamination", "csv").as_posix()
    name, found = "contamination", content.contamination
    if found is None:
        return Section(name, "", "Contamination", name, missing=(path,))
    titles = benchmark_titles(study)
    groups = []
    for training, rows in found.groupby("training", sort=False):
        cells = [
            Row(
                titles.get(str(row["benchmark"]), str(row["benchmark"])),
                (
                    Cell(grouped(row["problems"])),
                    Cell(grouped(row["exact"]), mark="" if row["exact"] else "nil"),
                    Cell(grouped(row["ngram"]), mark="" if row["ngram"] else "nil"),
                    Cell(percent(row["share"]), mark="" if row["share"] else "nil"),
                    Cell(grouped(row["training_overlapping"])),
                ),
            )
            for row in rows.to_dict("records")
        ]
        size = grouped(int(rows["training_problems"].iloc[0]))
        heading = f"{titles.get(str(training), str(training))} ({size} problems)"
        groups.append(Group(heading, tuple(cells)))
    columns = ("Problems", "Same text", "Near", "Share (%)", "In training")
    caption = (
        "Benchmark problems that also occur in the RL training set, with the same text or a "
        f"similar one. Near: at least {rule.share:g} of the problem’s {rule.ngram}-word sequences "
        "also occur in a training problem. The last column counts training problems. "
        + (
            "Overlapping training problems were dropped."
            if rule.drop
            else ("No training problem was dropped.")
        )
    )
    table = Table("Benchmark", tuple(Head("", (name,)) for name in columns), tuple(groups))
    part = Part("table-contamination", caption, path, name, table=table)
    return Section(name, "", "Contamination", name, parts=(part,))


def grading_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Statuses of every row's completions, folded by model."""
    path = files.made.metrics("rates").as_posix()
    rates = content.metrics.get("rates")
    if rates is None:
        return Section("grading", "", "Grading", "metrics", missing=(path,))
    caption = (
        "Percentage of a method’s completions by status, pooled over training seeds. Unparsed: "
        "no answer could be extracted. Timeout: the comparison with the reference answer took "
        "too long. Truncated: cut off at the token limit; a truncated completion also has one of "
        "the other statuses."
    )
    parts = [
        Part(
            f"table-grading-{model}",
            caption,
            path,
            "metrics",
            table=grading_view(grading_table(rates, study, model), study),
            summary=settings.title,
        )
        for model, settings in study.study.models.items()
    ]
    return Section("grading", "", "Grading", "metrics", parts=tuple(parts))


def grading_table(rates: pd.DataFrame, study: ResolvedStudy, model: str) -> pd.DataFrame:
    """How a model's completions were graded, pooled over training seeds.

    `rates` has the columns of `metrics/rates.parquet`; `n_samples` counts the completions graded
    per run and benchmark. Returns columns benchmark, algorithm, n_samples and one share in [0, 1]
    for each status, in the order of the study's evaluations. Evaluations that were not sampled are
    left out.
    """
    require(rates, _RATES, "grading rates")
    rows = rates[(rates["model"] == model) & (rates["train_seed"] != POOLED)]
    pairs = study.evaluated(model)
    order = {name: place for place, name in enumerate(study.study.problems)}
    table: list[dict[str, Any]] = []
    for algorithm, benchmark in sorted(pairs, key=lambda pair: order[pair[1]]):
        run = rows[(rows["benchmark"] == benchmark) & (rows["algorithm"] == algorithm)]
        total = int(run.groupby("train_seed")["n_samples"].max().sum())
        if not total:
            continue
        counts = (run["share"] * run["n_samples"]).groupby(run["status"]).sum()
        shares = {status: float(counts.get(status, 0.0)) / total for status in STATUSES}
        table.append({"benchmark": benchmark, "algorithm": algorithm, "n_samples": total} | shares)
    return pd.DataFrame(table, columns=["benchmark", "algorithm", "n_samples", *STATUSES])


def grading_view(grading: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A grading table by benchmark, in percent, without columns of zeros."""
    titles, styles = benchmark_titles(study), line_styles(study)
    always = ("correct", "wrong", "unparsed", "truncated")
    statuses = [name for name in STATUSES if name in always or grading[name].any()]
    groups = []
    for benchmark, rows in grading.groupby("benchmark", sort=False):
        views = []
        for row in rows.to_dict("records"):
            texts = [percent(row[status]) for status in statuses]
            cells = [Cell(text, mark="nil" if text == "0.0" else "") for text in texts]
            cells.append(Cell(grouped(row["n_samples"])))
            name = row["algorithm"]
            title, key = row_title(study, name), styles[name]
            views.append(Row(title, tuple(cells), key, name == BASE))
        groups.append(Group(titles[str(benchmark)], tuple(views)))
    columns = [*(_STATUS_TITLES[status] for status in statuses), "Completions"]
    return Table("Algorithm", tuple(Head("", (name,)) for name in columns), tuple(groups))


def support_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Problems gained and lost compared with the base, folded by model."""
    path = files.made.metrics("support").as_posix()
    title, support = "Support: problems kept, lost and new", content.metrics.get("support")
    if support is None:
        return Section("support", "", title, "metrics", missing=(path,))
    parts = []
    for model, settings in study.study.models.items():
        rows = support[(support["model"] == model) & (support["train_seed"] == POOLED)]
        if rows.empty:
            continue
        epsilon = ", ".join(f"{value:.2g}" for value in sorted(set(rows["epsilon"])))
        caption = (
            "Problems solved by any sample before and after RL, added over training seeds. "
            "Retention: of the problems solved before, the share still solved. Discovery: of the "
            "problems solved after, the share that is new. Dynamics: the harmonic mean of "
            "retention and discovery. Net change: new minus lost, divided by all solved. A "
            f"problem counts as unsolved if its success rate is likely below {epsilon}; the rate "
            "need not be 0 (Wu et al. 2025)."
        )
        parts.append(
            Part(
                f"table-support-{model}",
                caption,
                path,
                "metrics",
                table=support_view(rows, study),
                summary=settings.title,
            )
        )
    return Section("support", "", title, "metrics", parts=tuple(parts))


def support_view(support: pd.DataFrame, study: ResolvedStudy) -> Table:
    """Pooled rows of the support metrics, by benchmark."""
    titles, styles = benchmark_titles(study), line_styles(study)
    counts = ("preserved", "shrunk", "expanded", "neither")
    groups = []
    for benchmark, rows in support.groupby("benchmark", sort=False):
        views = []
        for row in rows.to_dict("records"):
            cells = [Cell(grouped(row[name])) for name in counts]
            for name in list(_SUPPORT)[len(counts) :]:
                known = not pd.isna(row[name])
                cells.append(Cell(f"{row[name]:.2f}" if known else NONE))
            key = styles[row["algorithm"]]
            views.append(Row(row_title(study, row["algorithm"]), tuple(cells), key))
        groups.append(Group(titles[str(benchmark)], tuple(views)))
    heads = tuple(Head("", (name,)) for name in _SUPPORT.values())
    return Table("Algorithm", heads, tuple(groups))
