"""Sections that every report has: theory, hyperparameters, contamination, grading, support.

They are made like the exhibits of `sage.report.sections`: from files if these exist, else as not
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.exhibits import shows
from sage.rendering.labels import benchmark_titles
from sage.rendering.numbers import NONE, grouped, percent
from sage.rendering.table import (
    Cell,
    Columns,
    Record,
    Row,
    Table,
    columns_of_algorithms,
    columns_table,
)
from sage.report.loader import PageContent, PageFiles
from sage.report.sections import Part, Section, label_of, parts_of
from sage.study import ResolvedStudy

_STATUS_TITLES = {
    "correct": "Correct",
    "wrong": "Wrong",
    "unparsed": "Unparsed",
    "timeout": "Timeout",
    "gold_unparsed": "No reference",
    "truncated": "Truncated",
}
STATUSES = tuple(_STATUS_TITLES)
"""The statuses of a completion. A truncated one also has another status."""

_THEORY = ("figure1", "figure5", "appendix_c", "estimators")
_SETTINGS = ("table7", "table8", "readings")
_ALWAYS = ("correct", "wrong", "unparsed", "truncated")
"""Statuses whose columns are shown even if they are empty."""

_COUNTS = {"preserved": "Kept", "shrunk": "Lost", "expanded": "New", "neither": "Never"}
_SHARES = {"srr": "Retention", "ndr": "Discovery", "sds": "Dynamics", "nscr": "Net change"}


def study_sections(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Section]:
    """All of them, in order."""
    return [
        standing_section("Theory", "theory", _THEORY, study, content, files),
        standing_section("Hyperparameters", " ".join(_SETTINGS), _SETTINGS, study, content, files),
        contamination_section(study, content, files),
        grading_section(study, content, files),
        support_section(study, content, files),
    ]


def standing_section(
    title: str,
    target: str,
    names: Sequence[str],
    study: ResolvedStudy,
    content: PageContent,
    files: PageFiles,
) -> Section:
    """Tables and figures that need no run."""
    parts: list[Part] = []
    missing: list[str] = []
    for name in names:
        heading = f"{label_of(name)}. " if label_of(name) else ""
        label = shows(study, name).caption
        made, lacking = parts_of(study, name, content, files, heading, label, heading)
        parts += made
        missing += lacking
    return Section(title.lower(), "", title, target, parts=tuple(parts), missing=tuple(missing))


def contamination_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Training problems that also occur in benchmarks."""
    rule = study.study.contamination
    path = files.made.metrics("contamination", "csv").as_posix()
    name, found = "contamination", content.metrics.get("contamination")
    if found is None:
        return Section(name, "", "Contamination", name, missing=(path,))
    titles = benchmark_titles(study)

    def title(name: str) -> str:
        return titles.get(name, name)

    def row(record: Record, cells: list[Cell]) -> Row:
        return Row(title(str(record["benchmark"])), tuple(cells))

    def cell(text: str, value: float) -> Cell:
        return Cell(text, mark="" if value else "nil")

    columns: Columns = {
        "Problems": lambda row: grouped(row["problems"]),
        "Same text": lambda row: cell(grouped(row["exact"]), row["exact"]),
        "Near": lambda row: cell(grouped(row["ngram"]), row["ngram"]),
        "Share (%)": lambda row: cell(percent(row["share"]), row["share"]),
        "In training": lambda row: grouped(row["training_overlapping"]),
    }
    groups = (
        (f"{title(str(name))} ({grouped(rows['training_problems'].iloc[0])} problems)", rows)
        for name, rows in found.groupby("training", sort=False)
    )
    caption = (
        "Benchmark problems that also occur in the RL training set, with the same text or a "
        f"similar one. Near: at least {rule.share:g} of the problem’s {rule.ngram}-word sequences "
        "also occur in a training problem. The last column counts training problems. "
        f"{'Overlapping training problems were' if rule.drop else 'No training problem was'} "
        "dropped."
    )
    table = columns_table("Benchmark", columns, groups, row)
    part = Part("table-contamination", caption, path, name, table=table)
    return Section(name, "", "Contamination", name, parts=(part,))


def grading_section(study: ResolvedStudy, content: PageContent, files: PageFiles) -> Section:
    """Statuses of every method's completions, folded by model."""
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

    def share(status: str, row: Record) -> Cell:
        text = percent(row[status])
        return Cell(text, mark="nil" if text == "0.0" else "")

    statuses = [name for name in STATUSES if name in _ALWAYS or grading[name].any()]
    columns: Columns = {_STATUS_TITLES[name]: partial(share, name) for name in statuses}
    columns = {**columns, "Completions": lambda row: grouped(row["n_samples"])}
    return columns_of_algorithms(study, columns, by_benchmark(grading, study))


def by_benchmark(frame: pd.DataFrame, study: ResolvedStudy) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each benchmark, under its title."""
    titles = benchmark_titles(study)
    return [(titles[str(name)], rows) for name, rows in frame.groupby("benchmark", sort=False)]


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

    def count(name: str, row: Record) -> str:
        return grouped(row[name])

    def share(name: str, row: Record) -> str:
        return NONE if pd.isna(row[name]) else f"{row[name]:.2f}"

    columns: Columns = {title: partial(count, name) for name, title in _COUNTS.items()}
    columns = {**columns, **{title: partial(share, name) for name, title in _SHARES.items()}}
    return columns_of_algorithms(study, columns, by_benchmark(support, study))
