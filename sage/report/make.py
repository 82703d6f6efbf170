"""Makes a study's report: metrics, measurements, tables, figures, claims, excerpts, and the page.

One function makes all of it, in one process, from the samples, policies and measurements with a
model that jobs have made. The report of a finished study shows all; a report of the results so far
has folders of its own, and leaves out what cannot be made yet.
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
from sage.evaluation.metrics import TABLES, join_metrics, write_metrics
from sage.exhibits import (
    CONTAMINATION,
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
from sage.report.needs import needed_metrics
from sage.report.page import write_page
from sage.results import Results, run_at
from sage.runtime.manifest import Manifest
from sage.study import BASE, ResolvedStudy

Attempt = Callable[[str, Callable[[], None]], None]
"""Makes a part of a report, called by its name."""


def write_report(
    study: ResolvedStudy, results: Results, reports: Path, claims: Mapping[str, Claim]
) -> None:
    """Make the whole report of a study whose jobs have ended.

    `reports` holds the templates and the paper's tables; `claims` are those that the study tests.
    Raises what keeps a part from being made, with the name of the part in a note.
    """
    files = PageFiles(results, results, reports)
    _make_all(study, files, claims, _insist)
    write_page(study, files, results.page)


def write_partial(
    study: ResolvedStudy, results: Results, reports: Path, claims: Mapping[str, Claim]
) -> Path:
    """Make a report of the results so far, in folders of its own; returns the page's path.

    What cannot be made is left out with a message, and the page marks it as not run.
    """
    files = PageFiles(results, results.partial, reports)
    _make_all(study, files, claims, _try)
    write_page(study, files, results.partial_page, partial_report=True)
    return results.partial_page


def write_exhibits(
    study: ResolvedStudy, results: Results, reports: Path, names: Sequence[str]
) -> None:
    """Make some exhibits alone, in the folders of the report of the results so far.

    Raises as `write_report`.
    """
    _make_exhibits(study, PageFiles(results, results.partial, reports), names, _insist)


def _make_all(
    study: ResolvedStudy, files: PageFiles, claims: Mapping[str, Claim], attempt: Attempt
) -> None:
    names = [*study.study.exhibits, *in_every_report(study)]
    pairs = dict.fromkeys(
        (model, benchmark)
        for model in study.study.models
        for _, benchmark in study.evaluated(model)
    )
    groups = {pair: drawn for pair in pairs if (drawn := drawn_on(study, files.results, *pair))}
    attempt("metrics", lambda: _metrics(study, groups, files))
    _make_exhibits(study, files, names, attempt, evaluated=True)
    samples = [path for drawn in groups.values() for path in drawn]
    if samples:
        problems = {path.stem: files.results.problems(path.stem) for path in samples}
        attempt("samples", lambda: write_excerpts(samples, problems, files.made.excerpts))
    attempt("claims", lambda: _claims(study, files, claims))


def _make_exhibits(
    study: ResolvedStudy,
    files: PageFiles,
    names: Sequence[str],
    attempt: Attempt,
    evaluated: bool = False,
) -> None:
    """Measure exhibits and show them; `evaluated` says that the metrics they show are made."""
    if not evaluated:
        for name in names:
            for pair in needed_metrics(study, name):
                if drawn := drawn_on(study, files.results, *pair):
                    attempt(name, partial(_evaluate, study, pair, drawn, files))
    for name in names:
        if name == CONTAMINATION:
            attempt(name, lambda: _contamination(study, files))
        elif name not in EVERY_REPORT:
            attempt(name, partial(_measure, study, name, files))
    for name in names:
        show(study, name, files, attempt)


def drawn_on(study: ResolvedStudy, results: Results, model: str, benchmark: str) -> list[Path]:
    """The files of samples of a model's policies on a benchmark that exist: all, or `comparable`
    ones of them."""
    runs = [run for run, name in study.evaluated_runs(model) if name == benchmark]
    files = [results.samples(run, benchmark) for run in runs]
    there = [path for path in files if path.is_file()]
    return there if len(there) == len(files) else comparable(there)


def comparable(samples: Iterable[Path]) -> list[Path]:
    """Those of the sample files of a model on a benchmark whose methods share a training seed, as
    comparisons need: the seed that most methods have."""
    runs = {path: run_at(path.parent)[1:] for path in samples}
    seeds = Counter(seed for row, seed in runs.values() if row != BASE)
    common = min(seeds, key=lambda seed: (-seeds[seed], seed)) if seeds else 0
    rows = {row for row, seed in runs.values() if seed == common or row == BASE}
    return [path for path, (row, _) in runs.items() if row in rows]


def _metrics(
    study: ResolvedStudy, groups: Mapping[tuple[str, str], Sequence[Path]], files: PageFiles
) -> None:
    """Metrics of each model on each benchmark, and of the whole study."""
    for pair, drawn in groups.items():
        _evaluate(study, pair, drawn, files)
    if groups:
        folders = [files.made.evaluated(*pair) for pair in groups]
        tables = {name: files.made.metrics(name) for name in TABLES}
        join_metrics(folders, tables, study.study.bases, study.study.evaluation.bootstrap)


def _evaluate(
    study: ResolvedStudy, pair: tuple[str, str], drawn: Sequence[Path], files: PageFiles
) -> None:
    problems, folder = files.results.problems(pair[1]), files.made.evaluated(*pair)
    write_metrics(drawn, study.study.evaluation.bootstrap, folder, problems=problems)


def _measure(study: ResolvedStudy, name: str, files: PageFiles) -> None:
    """Measure one exhibit from the inputs that exist, unless it needs a model."""
    exhibit = kind_of(study, name)
    if exhibit.with_model or not exhibit.measures:
        return
    asked = dict(exhibit.inputs(study, files.results, name))
    if "evaluated" in asked:
        asked["evaluated"] = [files.made.evaluated(*each.parts[-2:]) for each in asked["evaluated"]]
    inputs = {key: [path for path in paths if path.exists()] for key, paths in asked.items()}
    if len(inputs.get("samples", ())) < len(asked.get("samples", ())):
        by_place: dict[tuple[str, str], list[Path]] = {}
        for path in inputs["samples"]:
            by_place.setdefault((run_at(path.parent)[0], path.stem), []).append(path)
        inputs["samples"] = [path for drawn in by_place.values() for path in comparable(drawn)]
    if any(asked[key] and not paths for key, paths in inputs.items()):
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


def show(study: ResolvedStudy, name: str, files: PageFiles, attempt: Attempt) -> None:
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
    rule, folder = study.study.contamination, files.made.measured(CONTAMINATION)
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


def _insist(name: str, make: Callable[[], None]) -> None:
    """Make a part of the report; an error says of which part it is."""
    try:
        make()
    except Exception as error:
        error.add_note(f"while the report's {name} was made")
        raise


def _try(name: str, make: Callable[[], None]) -> None:
    """Make a part of the report. If data for it is missing, leave it out and say so."""
    try:
        make()
    except (ValueError, KeyError, FileNotFoundError) as error:
        print(f"{name}: not made, {error}")
