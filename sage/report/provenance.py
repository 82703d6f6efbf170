"""The origin of a study's results: key settings, problem sets, all settings, runs and machines.

Everything comes from the resolved study, the problem files and the manifests of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sage.problems.record import Problem
from sage.rendering.labels import benchmark_titles, row_title
from sage.rendering.markup import yaml_text
from sage.rendering.numbers import NONE, duration, grouped
from sage.rendering.table import Cell, Group, Row, Table, single_heads
from sage.report.loader import Manifest, PageContent, PageFiles
from sage.results import Results, Run
from sage.study import BASE, ResolvedStudy
from sage.study.types import Paper

_Job = tuple[str, str, Path, Manifest | None]
"""Its title, where it stands, the path of its manifest, and what that has."""

_STAGES = {"pretrained": "Base model", BASE: "Parent of RL"}


def study_facts(study: ResolvedStudy) -> list[tuple[str, str]]:
    """The settings a reader should see first, as (term, text)."""
    evaluation, trained_with = study.study.evaluation, study.seeds_text()
    seeds = len(evaluation.seeds)
    samples = f"{evaluation.samples} × {seeds} evaluation seed" + ("s" if seeds > 1 else "")
    given = [("Set on the command line", ", ".join(study.overrides))] if study.overrides else []
    return [
        *given,
        ("Models", ", ".join(model.title for model in study.study.models.values())),
        *([("Training seeds", trained_with)] if trained_with else []),
        ("Samples per problem", samples),
        ("Temperature", f"{evaluation.sampling.temperature:g}"),
        ("Bootstrap draws", grouped(evaluation.bootstrap)),
    ]


def made_from(content: PageContent) -> tuple[str, str]:
    """The day of the last job and the commit of all, each empty if no job has it; commits that
    differ are counted."""
    kinds = (content.parents, content.policies, content.evaluations, content.measurements)
    manifests = [manifest for of_kind in kinds for manifest in of_kind.values()]
    ends = [str(manifest.get("ended") or manifest.get("started") or "") for manifest in manifests]
    commits = {commit for one in manifests if (commit := one.get("git_commit"))}
    named = short_commit(commits.pop()) if len(commits) == 1 else f"{len(commits)} commits"
    return max(ends, default="")[:10], named if manifests else ""


def bibtex(paper: Paper) -> str:
    """A paper as an entry for BibTeX."""
    people = " and ".join(paper.authors.replace(" and ", ", ").split(", "))
    fields = {"title": f"{{{paper.title}}}", "author": people, "year": str(paper.year)}
    if paper.arxiv:
        fields |= {"eprint": paper.arxiv, "archivePrefix": "arXiv"}
    word = people.partition(" and ")[0].split()[-1].lower()
    body = "".join(f"  {name} = {{{text}}},\n" for name, text in fields.items())
    return f"@misc{{{word}{paper.year},\n{body}}}"


def all_settings(study: ResolvedStudy) -> list[tuple[str, str]]:
    """All settings of the study, with defaults, as (heading, YAML)."""
    used = dict.fromkeys(row for model in study.study.models for row in study.trained(model))
    algorithms = {name: study.algorithms[name].model_dump(mode="json") for name in used}
    benchmarks = {
        name: study.problem_set(name)
        for name, settings in study.study.problems.items()
        if settings.source == "benchmark"
    }
    settings = {"Study": study.study.model_dump(mode="json"), "Algorithms": algorithms}
    settings |= {"Data sets": benchmarks} if benchmarks else {}
    return [(heading, yaml_text(value)) for heading, value in settings.items()]


def problem_sets(
    study: ResolvedStudy, problems: Mapping[str, Sequence[Problem]], results: Results
) -> Table:
    """Every problem set used: its purpose, size and source."""
    trained, tested = study.training_sets(), study.benchmark_sets()
    rows = []
    for name in study.problem_sets():
        settings, records = study.study.problems[name], problems.get(name, ())
        uses = [text for text, names in (("RL", trained), ("benchmark", tested)) if name in names]
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
    heads = single_heads(("Use", "Problems", "Source (revision)", "File"))
    return Table("Problem set", heads, (Group("", tuple(rows)),), words=True)


def run_tables(
    study: ResolvedStudy, content: PageContent, files: PageFiles
) -> list[tuple[str, str, Table]]:
    """The cost of training and sampling, as (heading, sum, table); a row for each manifest."""
    titles = benchmark_titles(study)
    models = {name: model.title for name, model in study.study.models.items()}
    training = [
        (_STAGES[stage], models[model], path, content.parents.get((model, stage)))
        for (model, stage), path in files.parents(study).items()
    ] + [
        (run_title(study, run), models[run.model], path, content.policies.get(run))
        for run, path in files.policies(study).items()
    ]
    sampling = [
        (
            run_title(study, run),
            f"{models[run.model]}, {titles[benchmark]}",
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
    return [(heading, _sum(jobs), _table(jobs)) for heading, jobs in parts if jobs]


def run_title(study: ResolvedStudy, run: Run) -> str:
    """The title of a policy: its method and its training seed."""
    title = row_title(study, run.algorithm)
    return title if run.algorithm == BASE else f"{title}, seed {run.seed}"


def recorded(content: PageContent, key: str) -> list[tuple[str, list[str]]]:
    """Every value under `key` in any manifest, by name; for versions, Python comes first."""
    kinds = (content.parents, content.policies, content.evaluations, content.measurements)
    seen: dict[str, dict[str, None]] = {}
    for manifest in (manifest for of_kind in kinds for manifest in of_kind.values()):
        for name, value in (manifest.get(key) or {}).items():
            seen.setdefault(str(name), {})["none" if value is None else str(value)] = None
    names = sorted(seen, key=lambda name: (name != "python", name))
    return [(name, list(seen[name])) for name in names]


def _table(jobs: Sequence[_Job]) -> Table:
    groups: dict[str, list[Row]] = {}
    for title, place, path, manifest in jobs:
        cells = (*_cost(manifest), Cell(path.as_posix(), mark="path"))
        groups.setdefault(place, []).append(Row(title, cells))
    heads = single_heads(("Commit", "Wall time", "Tokens", "Peak memory", "Manifest"))
    made = tuple(Group(place, tuple(rows)) for place, rows in groups.items())
    return Table("Run", heads, made, words=True)


def _cost(manifest: Manifest | None) -> tuple[Cell, ...]:
    if manifest is None:
        return (Cell("not run", mark="nil"), *(Cell(NONE, mark="nil") for _ in range(3)))
    tokens, memory = manifest.get("tokens"), manifest.get("peak_memory_gib")
    return (
        Cell(short_commit(manifest.get("git_commit"))),
        Cell(duration(manifest.get("wall_seconds"))),
        Cell(NONE if tokens is None else grouped(tokens)),
        Cell(NONE if memory is None else f"{memory:.2f} GiB"),
    )


def _sum(jobs: Sequence[_Job]) -> str:
    """``12 of 13 runs, 1 h 02 min, 1 234 567 tokens``."""
    there = [manifest for *_, manifest in jobs if manifest is not None]
    count = f"{len(there)}" if len(there) == len(jobs) else f"{len(there)} of {len(jobs)}"
    seconds = sum(float(manifest.get("wall_seconds") or 0) for manifest in there)
    tokens = sum(int(manifest.get("tokens") or 0) for manifest in there)
    return f"{count} jobs, {duration(seconds)}, {grouped(tokens)} tokens"


def short_commit(commit: str | None) -> str:
    """A commit's first ten characters, and whether there were uncommitted changes."""
    if not commit:
        return NONE
    name, plus, state = commit.partition("+")
    return name[:10] + plus + state
