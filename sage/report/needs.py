"""What an exhibit needs before it can be made by itself."""

from __future__ import annotations

from pathlib import Path

from sage.exhibits import CONTAMINATION, EVERY_REPORT, kind_of, shows
from sage.results import Results
from sage.study import ResolvedStudy


def needed_metrics(study: ResolvedStudy, name: str) -> list[tuple[str, str]]:
    """The models and benchmarks whose metrics an exhibit shows or is measured from."""
    pairs = list(shows(study, name).evaluated(study))
    if name not in EVERY_REPORT and "evaluated" in (kind := kind_of(study, name)).needs:
        pairs += [(kind.model, benchmark) for benchmark in kind.benchmarks_of(study)]
    return list(dict.fromkeys(pairs))


def files_needed(study: ResolvedStudy, results: Results, name: str) -> list[Path]:
    """The files that jobs make for an exhibit: samples, problems, policies, or what was measured
    with a model. Samples are those of all methods, for metrics compare them."""
    files: list[Path] = []
    for model, benchmark in needed_metrics(study, name):
        runs = [run for run, drawn in study.evaluated_runs(model) if drawn == benchmark]
        files += [results.samples(run, benchmark) for run in runs]
        files.append(results.problems(benchmark))
    if name == CONTAMINATION:
        files += map(results.problems, study.problem_sets())
    elif shows(study, name).with_model:
        files.append(results.measured(name))
    elif shows(study, name).measures:
        asked = kind_of(study, name).inputs(study, results, name)
        files += [path for key, paths in asked.items() if key != "evaluated" for path in paths]
    return list(dict.fromkeys(files))
