"""The origin of a study's results: key settings, problem sets, all settings, runs and machines.

Everything comes from the resolved study, the problem files and the manifests of runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path

from sage.rendering.labels import benchmark_titles, method_title
from sage.rendering.markup import yaml_text
from sage.rendering.numbers import NONE, duration, grouped, listing
from sage.rendering.table import Cell, Record, Table, table_of
from sage.report.loader import Manifest, PageContent, PageFiles
from sage.results import Results, Run
from sage.study import BASE, ResolvedStudy
from sage.study.types import Paper

_Job = tuple[str, str, Path, Manifest | None]
"""Its title, where it stands, the path of its manifest, and what that has."""

_MEMORY = "peak_memory_gib"
_STAGES = {"pretrained": "Base model", BASE: "Parent of RL"}


def study_facts(study: ResolvedStudy) -> list[tuple[str, str]]:
    """The settings a reader should see first, as (term, text)."""
    evaluation, runs = study.study.evaluation, study.numbers_of_runs()
    seeds = len(evaluation.seeds)
    samples = f"{evaluation.samples} × {seeds} evaluation seed" + ("s" if seeds > 1 else "")
    given = [("Set on the command line", ", ".join(study.overrides))] if study.overrides else []
    models = study.study.models.values()
    rows = dict.fromkeys(row for model in study.study.models for row in study.trained(model))
    own = [row for row in rows if row not in study.variants] or rows  # no cells of an ablation
    methods = listing([method_title(study, row) for row in own], most=1)
    steps = sorted({model.rl.steps for model in models if model.rl})
    return [
        *given,
        ("Models", listing([model.title for model in models], most=1)),
        *([("Methods", methods)] if methods else []),
        *([("RL steps", " or ".join(map(grouped, steps)))] if steps else []),
        *([("Training runs", " or ".join(map(str, runs)) + " each")] if runs else []),
        ("Samples per problem", samples),
    ]


def made_from(content: PageContent) -> tuple[str, str]:
    """The day of the last job and the commit of all, each empty if no job has it; commits that
    differ are counted."""
    manifests = content.manifests
    ends = [str(manifest.get("ended") or manifest.get("started") or "") for manifest in manifests]
    commits = {commit for one in manifests if (commit := one.get("git_commit"))}
    named = f"{len(commits)} commits" if len(commits) > 1 else "".join(map(short_commit, commits))
    return max(ends, default="")[:10], named


def bibtex(paper: Paper) -> str:
    """A paper as an entry for BibTeX."""
    people = " and ".join(re.split(r",? and |, ", paper.authors))
    fields = {"title": f"{{{paper.title}}}", "author": people, "year": str(paper.year)}
    if paper.arxiv:
        fields |= {"eprint": paper.arxiv, "archivePrefix": "arXiv"}
    word = "".join(people.partition(" and ")[0].split()[-1:]).lower()
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


def problem_sets(study: ResolvedStudy, content: PageContent, results: Results) -> Table:
    """Every problem set used: its purpose, size and source."""
    uses = {"RL": study.training_sets(), "benchmark": study.benchmark_sets()}
    rows = []
    for name in study.problem_sets():
        records, settings = content.problems.get(name), study.study.problems[name]
        lacking = "not kept" if content.kept else "not made yet"
        count = lacking if records is None else grouped(len(records))
        origins = sorted({f"{one.source} ({one.revision})" for one in records or ()})
        more = [f"and {len(origins) - 3} more"] if origins[3:] else []
        record = {
            "Use": " and ".join(use for use in uses if name in uses[use]),
            "Problems": Cell(count, mark="" if records else "nil"),
            "Source (revision)": "; ".join(origins[:3] + more) or settings.source,
            "File": Cell(results.problems(name).as_posix(), mark="path"),
        }
        rows.append((settings.title, record))
    return _of_words("Problem set", ("Use", "Problems", "Source (revision)", "File"), [("", rows)])


def run_tables(
    study: ResolvedStudy, content: PageContent, files: PageFiles
) -> list[tuple[str, str, Table]]:
    """The cost of training and sampling, as (heading, sum, table); a row for each manifest."""
    titles, models = benchmark_titles(study), study.study.models
    training: list[_Job] = [
        (_STAGES[stage], models[model].title, path, content.parents.get((model, stage)))
        for (model, stage), path in files.parents(study).items()
    ]
    training += [
        (run_title(study, run), models[run.model].title, path, content.policies.get(run))
        for run, path in files.policies(study).items()
    ]
    sampling: list[_Job] = []
    for (run, benchmark), path in files.evaluations(study).items():
        place = f"{models[run.model].title}, {titles[benchmark]}"
        manifest = content.evaluations.get((run, benchmark))
        sampling.append((run_title(study, run), place, path, manifest))
    further: list[_Job] = [
        (study.study.exhibits[name].title, "with a model", path, content.measurements.get(name))
        for name, path in files.measurements(study).items()
    ]
    parts = (("Training", training), ("Sampling", sampling), ("Further measurements", further))
    return [(heading, _sum(jobs), _table(jobs)) for heading, jobs in parts if jobs]


def run_title(study: ResolvedStudy, run: Run) -> str:
    """The title of a policy: its method and its training seed."""
    title = method_title(study, run.algorithm)
    return title if run.algorithm == BASE else f"{title}, seed {run.seed}"


def recorded(content: PageContent, key: str) -> list[tuple[str, list[str]]]:
    """Every value under `key` in any manifest, by name; for versions, Python comes first."""
    seen: dict[str, dict[str, None]] = {}
    for manifest in content.manifests:
        for name, value in (manifest.get(key) or {}).items():
            seen.setdefault(str(name), {})["none" if value is None else str(value)] = None
    names = sorted(seen, key=lambda name: (name != "python", name))
    return [(name, list(seen[name])) for name in names]


_COST: dict[str, Callable[[Manifest], str]] = {
    "Commit": lambda job: short_commit(job.get("git_commit")),
    "Wall time": lambda job: duration(job.get("wall_seconds")),
    "Tokens": lambda job: NONE if job.get("tokens") is None else grouped(job["tokens"]),
    "Peak memory": lambda job: NONE if job.get(_MEMORY) is None else f"{job[_MEMORY]:.2f} GiB",
}


def _table(jobs: Sequence[_Job]) -> Table:
    groups: dict[str, list[tuple[str, Record]]] = {}
    for title, place, path, manifest in jobs:
        record = {"Manifest": Cell(path.as_posix(), mark="path")}
        for head, text in _COST.items():
            lacking = Cell("not run" if head == "Commit" else NONE, mark="nil")
            record[head] = lacking if manifest is None else Cell(text(manifest))
        groups.setdefault(place, []).append((title, record))
    return _of_words("Run", (*_COST, "Manifest"), groups.items())


def _of_words(
    first: str, heads: Iterable[str], groups: Iterable[tuple[str, Iterable[tuple[str, Record]]]]
) -> Table:
    """A table of texts, from records by head."""
    return table_of(first, [("", head, itemgetter(head)) for head in heads], groups, words=True)


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
