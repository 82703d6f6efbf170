"""The origin of a study's results: key settings, problem sets, all settings, runs and machines.

Everything comes from the resolved study, the problem files and the manifests of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sage.problems.record import Problem
from sage.rendering.labels import benchmark_titles, row_title
from sage.rendering.markup import yaml_text
from sage.rendering.numbers import NONE, duration, grouped
from sage.rendering.table import Cell, Group, Head, Row, Table
from sage.report.loader import PageContent, PageFiles
from sage.results import Results, Run
from sage.study import BASE, ResolvedStudy

_STAGES = {"pretrained": "Base model", BASE: "Parent of RL"}


def study_facts(study: ResolvedStudy) -> list[tuple[str, str]]:
    """The settings a reader should see first, as (term, text)."""
    evaluation = study.study.evaluation
    seeds = len(evaluation.seeds)
    return [
        ("Models", ", ".join(model.title for model in study.study.models.values())),
        ("Training seeds", study.seeds_text()),
        (
            "Samples per problem",
            f"{evaluation.samples} × {seeds} evaluation seed" + ("s" if seeds > 1 else ""),
        ),
        ("Temperature", f"{evaluation.sampling.temperature:g}"),
        ("Bootstrap draws", grouped(evaluation.bootstrap)),
    ]


def all_settings(study: ResolvedStudy) -> list[tuple[str, str]]:
    """All settings of the study, with defaults, as (heading, YAML)."""
    used = dict.fromkeys(row for model in study.study.models for row in study.trained(model))
    algorithms = {name: study.algorithms[name].model_dump(mode="json") for name in used}
    benchmarks = {
        name: study.problem_set(name)
        for name, settings in study.study.problems.items()
        if settings.source == "benchmark"
    }
    texts = [
        ("Study", yaml_text(study.study.model_dump(mode="json"))),
        ("Algorithms", yaml_text(algorithms)),
    ]
    return [*texts, ("Data sets", yaml_text(benchmarks))] if benchmarks else texts


def problem_sets(
    study: ResolvedStudy, problems: Mapping[str, Sequence[Problem]], results: Results
) -> Table:
    """Every problem set used: its purpose, size and source."""
    trained, tested = study.training_sets(), study.benchmark_sets()
    rows = []
    for name in study.problem_sets():
        settings, records = study.study.problems[name], problems.get(name, ())
        uses = [text for text, of in (("RL", trained), ("benchmark", tested)) if name in of]
        origins = sorted({f"{record.source} ({record.revision})" for record in records})
        more = [f"and {len(origins) - 3} more"] if len(origins) > 3 else []
        count = grouped(len(records)) if name in problems else "not made yet"
        cells = (
            Cell(" and ".join(uses)),
            Cell(count, mark="" if records else "nil"),
            Cell("; ".join([*origins[:3], *more]) or settings.source),
            Cell(results.problems(name).as_posix(), mark="path"),
        )
        rows.append(Row(settings.title, cells))
    columns = ("Use", "Problems", "Source (revision)", "File")
    heads = tuple(Head("", (name,)) for name in columns)
    return Table("Problem set", heads, (Group("", tuple(rows)),), words=True)


def run_tables(
    study: ResolvedStudy, content: PageContent, files: PageFiles
) -> list[tuple[str, str, Table]]:
    """The cost of training and sampling, as (heading, sum, table); a row for each manifest."""
    titles = benchmark_titles(study)
    training = [
        (_STAGES[stage], study.model(model).title, path, content.parents.get((model, stage)))
        for (model, stage), path in files.parents(study).items()
    ]
    training += [
        (
            run_title(study, run),
            study.model(run.model).title,
            path,
            content.policies.get(run),
        )
        for run, path in files.policies(study).items()
    ]
    sampling = [
        (
            run_title(study, run),
            f"{study.model(run.model).title}, {titles[benchmark]}",
            path,
            content.evaluations.get((run, benchmark)),
        )
        for (run, benchmark), path in files.evaluations(study).items()
    ]
    further = [
        (study.study.exhibits[name].title, "with a model", path, content.measurements.get(name))
        for name, path in files.measurements(study).items()
    ]
    parts = (("Training", training), ("Sampling", sampling), ("Further measurements", further))
    return [(heading, _sum(rows), _runs(rows)) for heading, rows in parts if rows]


def run_title(study: ResolvedStudy, run: Run) -> str:
    """The title of a policy: its row and its training seed."""
    title = row_title(study, run.algorithm)
    return title if run.algorithm == BASE else f"{title}, seed {run.seed}"


def recorded(content: PageContent, key: str) -> list[tuple[str, list[str]]]:
    """Every value under `key` in any manifest, by name; for versions, Python comes first."""
    manifests: Iterable[Mapping[str, Any]] = (
        *content.parents.values(),
        *content.policies.values(),
        *content.evaluations.values(),
        *content.measurements.values(),
    )
    seen: dict[str, list[str]] = {}
    for manifest in manifests:
        for name, value in (manifest.get(key) or {}).items():
            text = "none" if value is None else str(value)
            values = seen.setdefault(str(name), [])
            if text not in values:
                values.append(text)
    return sorted(seen.items(), key=lambda entry: (entry[0] != "python", entry[0]))


def _runs(rows: Sequence[tuple[str, str, Path, Mapping[str, Any] | None]]) -> Table:
    groups: dict[str, list[Row]] = {}
    for title, place, path, manifest in rows:
        groups.setdefault(place, []).append(Row(title, (*_cost(manifest), _path(path))))
    columns = ("Commit", "Wall time", "Tokens", "Peak memory", "Manifest")
    return Table(
        "Run",
        tuple(Head("", (name,)) for name in columns),
        tuple(Group(place, tuple(of)) for place, of in groups.items()),
        words=True,
    )


def _cost(manifest: Mapping[str, Any] | None) -> tuple[Cell, ...]:
    if manifest is None:
        return (Cell("not run", mark="nil"), *(Cell(NONE, mark="nil") for _ in range(3)))
    tokens, memory = manifest.get("tokens"), manifest.get("peak_memory_gib")
    return (
        Cell(short_commit(manifest.get("git_commit"))),
        Cell(duration(manifest.get("wall_seconds"))),
        Cell(NONE if tokens is None else grouped(tokens)),
        Cell(NONE if memory is None else f"{memory:.2f} GiB"),
    )


def _path(path: Path) -> Cell:
    return Cell(path.as_posix(), mark="path")


def _sum(rows: Sequence[tuple[str, str, Path, Mapping[str, Any] | None]]) -> str:
    """``12 of 13 runs, 1 h 02 min, 1 234 567 tokens``."""
    there = [manifest for *_, manifest in rows if manifest is not None]
    count = f"{len(there)}" if len(there) == len(rows) else f"{len(there)} of {len(rows)}"
    seconds = sum(float(manifest.get("wall_seconds") or 0) for manifest in there)
    tokens = sum(int(manifest.get("tokens") or 0) for manifest in there)
    return f"{count} jobs, {duration(seconds)}, {grouped(tokens)} tokens"


def short_commit(commit: str | None) -> str:
    """A commit's first ten characters, and whether there were uncommitted changes."""
    if not commit:
        return NONE
    name, plus, state = commit.partition("+")
    return name[:10] + plus + state
