"""A report of the results so far, or of samples alone, made by one process.

All is made by the same functions as by the workflow's jobs.

The workflow measures an exhibit only when all of its runs exist, so an unfinished study has few
exhibits. This module measures exhibits from the runs that exist, in its own folder, which the
whole report does not read. Exhibits that need a model to be measured are shown only if the
workflow has measured them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sage.claims import CONTRASTS
from sage.claims.figure import write_contrasts
from sage.claims.ledger import write_ledger
from sage.claims.tests import Claim
from sage.evaluation.curves import run_of
from sage.evaluation.metrics import TABLES, join_metrics, write_metrics
from sage.exhibits import (
    EVERY_REPORT,
    figures_of,
    frames_of,
    in_every_report,
    kind_of,
    measure,
    tables_of,
    write_piece,
)
from sage.problems.contamination import write_contamination
from sage.problems.record import read_problem_sets
from sage.report.browser import write_excerpts
from sage.report.loader import PageFiles
from sage.report.page import write_page
from sage.results import Results
from sage.runtime.manifest import Manifest
from sage.study import BASE, ResolvedStudy

Attempt = Callable[[str, Callable[[], None]], None]
"""Makes a part of a report, called by its name."""


def write_partial(
    study: ResolvedStudy, results: Results, reports: Path, claims: Mapping[str, Claim]
) -> Path:
    """Make the report of the results in `results` and return the page's path.

    `reports` holds the templates and the paper's tables; `claims` are those that the study tests.
    What cannot be made is left out with a message, and the page marks it as not run.
    """
    files = PageFiles(results, results.partial, reports)
    _make(study, files, _attempt)
    _attempt("claims", lambda: _claims(study, files, claims))
    write_page(study, files, results.partial_page, partial_report=True)
    return results.partial_page


def write_whole(study: ResolvedStudy, results: Results, reports: Path) -> None:
    """Make the report of a study that trains nothing, with metrics, tables and figures.

    Its samples are in `results`. Raises what keeps a part from being made.
    """
    files = PageFiles(results, results, reports)
    _make(study, files, lambda name, make: make())
    write_page(study, files, results.page)


def _make(study: ResolvedStudy, files: PageFiles, attempt: Attempt) -> None:
    """What a page shows, but for claims, each part by `attempt`."""
    samples = _samples(study, files.results)
    attempt("metrics", lambda: _metrics(study, samples, files))
    for name in study.study.exhibits:
        attempt(name, partial(_measure, study, name, files))
    attempt("contamination", lambda: _contamination(study, files))
    for name in [*study.study.exhibits, *in_every_report(study)]:
        _show(study, name, files, attempt)
    if samples:
        problems = {path.stem: files.results.problems(path.stem) for path in samples}
        attempt("samples", lambda: write_excerpts(samples, problems, files.made.excerpts))


def comparable(samples: Iterable[Path]) -> list[Path]:
    """Sample files of methods that share a training seed, as comparisons need.

    For each model and benchmark this is the seed that most methods have. Methods without it are
    left out.
    """
    groups: dict[tuple[str, str], dict[Path, tuple[str, int]]] = {}
    for path in samples:
        model, row, seed, benchmark = run_of(path)
        groups.setdefault((model, benchmark), {})[path] = row, seed
    kept = []
    for runs in groups.values():
        seeds = Counter(seed for row, seed in runs.values() if row != BASE)
        common = min(seeds, key=lambda seed: (-seeds[seed], seed)) if seeds else 0
        rows = {row for row, seed in runs.values() if seed == common or row == BASE}
        kept += [path for path, (row, _) in runs.items() if row in rows]
    return kept


def _samples(study: ResolvedStudy, results: Results) -> list[Path]:
    pairs = [pair for model in study.study.models for pair in study.evaluated_runs(model)]
    return comparable([path for pair in pairs if (path := results.samples(*pair)).is_file()])


def _metrics(study: ResolvedStudy, samples: Sequence[Path], files: PageFiles) -> None:
    """Metrics of each model on each benchmark, and of the whole study."""
    made, draws = files.made, study.study.evaluation.bootstrap
    groups: dict[Path, list[Path]] = {}
    for path in samples:
        model, _, _, benchmark = run_of(path)
        groups.setdefault(made.evaluated(model, benchmark), []).append(path)
    for folder, paths in groups.items():
        write_metrics(paths, draws, folder, problems=files.results.problems(folder.name))
    if groups:
        tables = {name: made.metrics(name) for name in TABLES}
        join_metrics([*groups], tables, study.study.bases, draws)


def _measure(study: ResolvedStudy, name: str, files: PageFiles) -> None:
    """Measure one exhibit from the inputs that exist, unless it needs a model."""
    exhibit = kind_of(study, name)
    if exhibit.with_model or not exhibit.measures:
        return
    inputs = {
        key: [path for path in paths if path.exists()]
        for key, paths in exhibit.inputs(study, files.results, name).items()
    }
    if "samples" in inputs:
        inputs["samples"] = comparable(inputs["samples"])
    if not all(inputs.values()):
        return
    measure(
        exhibit.model_dump(),
        exhibit.settings(study, name),
        inputs,
        files.made.measured(name),
        device="cpu",
        shards=files.made.exhibit_shards(name),
        manifest=Manifest(settings={}, threads=1, started=time.time()),
    )


def _show(study: ResolvedStudy, name: str, files: PageFiles, attempt: Attempt) -> None:
    """Tables and figures of one exhibit, if it has been measured."""
    paper, part = files.paper, study.seen_by() if name in EVERY_REPORT else study.seen_by(name)
    wanted = frames_of(study, name, files.made, files.results)
    measured = [folder for folder in wanted if folder.is_dir()]
    if wanted and not measured:
        return
    tables, figures = tables_of(study, name, paper), figures_of(study, name)
    pieces = [(piece, suffix, files.made.table(piece)) for piece, suffix in tables.items()]
    pieces += [(piece, suffix, files.made.figure(piece)) for piece, suffix in figures.items()]
    for piece, suffix, path in pieces:
        attempt(piece, partial(write_piece, part, name, suffix, measured, paper, path))


def _contamination(study: ResolvedStudy, files: PageFiles) -> None:
    training, benchmarks = (
        [path for name in names if (path := files.results.problems(name)).is_file()]
        for names in (study.training_sets(), study.benchmark_sets())
    )
    if not training or not benchmarks:
        return
    rule, folder = study.study.contamination, files.made.measured("contamination")
    sets = read_problem_sets(training), read_problem_sets(benchmarks)
    write_contamination(*sets, rule.ngram, rule.share, folder)


def _claims(study: ResolvedStudy, files: PageFiles, claims: Mapping[str, Claim]) -> None:
    frames = {
        name: path
        for name in study.study.exhibits
        if (frame := kind_of(study, name).evidence)
        and (path := files.measured(study, name) / f"{frame}.parquet").is_file()
    }
    runs = [run for model in study.study.models for run in study.trained_runs(model)]
    made = files.made
    comparisons, chance = (
        path if path.is_file() else None
        for path in (made.metrics("comparisons"), made.metrics("chance"))
    )
    write_ledger(
        study,
        claims,
        comparisons,
        chance,
        frames,
        [files.results.policy(run) for run in runs if files.results.history(run).is_file()],
        made.metrics("claims"),
    )
    write_contrasts(made.metrics("claims"), study, made.figure(CONTRASTS))


def _attempt(name: str, make: Callable[[], None]) -> None:
    """Make a part of the report. If data for it is missing, leave it out and say so."""
    try:
        make()
    except (ValueError, KeyError, FileNotFoundError) as error:
        print(f"{name}: not made, {error}")
