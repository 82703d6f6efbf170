"""What a reader should know before believing a number, each line computed from files.

Missing runs, results of other settings than the study's, completions that were cut off or could
not be read, intervals without width, and code that was not committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.reporting.accuracy import column_groups, estimate
from sage.reporting.content import PageContent
from sage.reporting.grading import grading_table
from sage.reporting.layout import PageFiles, evaluated_runs, trained_runs
from sage.reporting.views import listing
from sage.reporting.wording import AVERAGE, benchmark_titles, percent, row_title
from sage.study import BASE, ResolvedStudy

TRUNCATED_LIMIT = 0.05
"""Share of truncated completions above which pass@k measures the token limit as well."""
UNPARSED_LIMIT = 0.20
"""Share of completions without a readable answer above which format confounds ability."""

UNCOUNTED = ("title", "checkpoint_every")
"""Settings that change no result."""


@dataclass(frozen=True)
class Caution:
    """Something to know before believing a number, and lines that name the runs concerned."""

    text: str
    lines: list[str]


def cautions(study: ResolvedStudy, content: PageContent, files: PageFiles) -> list[Caution]:
    """All cautions of a page, the gravest first."""
    manifests = {
        **{f"{model}/{stage}": found for (model, stage), found in content.parents.items()},
        **{run_name(run): found for run, found in content.policies.items()},
        **{run_name(run): found for run, found in content.evaluations.items()},
    }
    found = [*missing_runs(study, content), *stale_results(study, content)]
    if len(study.study.seeds) == 1:
        text = (
            "Each row was trained once, so differences are those of single runs, and no claim "
            "about methods is decided by them. More training seeds (seeds, in the study) would "
            "tell."
        )
        found.append(Caution(text, []))
    flat: list[str] = []
    rates = content.metrics.get("rates")
    if rates is not None:
        for model in study.study.models:
            found += grading_cautions(grading_table(rates, study, model), study, model)
    for name, shown in study.study.exhibits.items():
        if shown.kind == "accuracy" and name in content.tables:
            flat += flat_intervals(content.tables[name], study, shown.title)
    pass_at_k = content.metrics.get("pass_at_k")
    if pass_at_k is not None:
        found += twin_cautions(pass_at_k, study)
    if flat:
        text = (
            "Where every problem fared alike an interval has no width; the uncertainty is not nil."
        )
        found.append(Caution(text, flat))
    return [*found, *commit_cautions(manifests)]


def twin_cautions(pass_at_k: pd.DataFrame, study: ResolvedStudy) -> list[Caution]:
    """Rows of a model with the same pass@k everywhere: one computation under two names."""
    runs = pass_at_k[pass_at_k["train_seed"] != POOLED]
    lines = []
    for model, of_model in runs.groupby("model", sort=False):
        keys = ["train_seed", "benchmark", "k"]
        columns = of_model.pivot_table("value", keys, "algorithm", sort=False)
        alike: dict[tuple[Any, ...], list[str]] = {}
        for row, values in columns.items():
            there = values.dropna()
            if there.between(0, 1, inclusive="neither").any():  # all or nothing is no coincidence
                alike.setdefault(tuple(there.items()), []).append(row_title(study, str(row)))
        title = study.model(str(model)).title
        lines += [f"{title}: {' = '.join(rows)}" for rows in alike.values() if len(rows) > 1]
    text = (
        "Rows with the same numbers throughout were the same computation here, and are no two "
        "pieces of evidence."
    )
    return [Caution(text, lines)] if lines else []


def missing_runs(study: ResolvedStudy, content: PageContent) -> list[Caution]:
    """Runs of RL and evaluations that the study asks for and that left no manifest."""
    titles = benchmark_titles(study)
    untrained, unseen = [], []
    for model, settings in study.study.models.items():
        untrained += [
            (settings.title, _run_title(study, row, seed))
            for _, row, seed in trained_runs(study, model)
            if (model, row, seed) not in content.policies
        ]
        unseen += [
            (f"{settings.title}, {titles[benchmark]}", _run_title(study, row, seed))
            for _, row, seed, benchmark in evaluated_runs(study, model)
            if (model, row, seed, benchmark) not in content.evaluations
        ]
    found = []
    if untrained:
        found.append(Caution(f"Not trained yet: {len(untrained)} runs.", _by_place(untrained)))
    if unseen:
        found.append(Caution(f"Not sampled yet: {len(unseen)} evaluations.", _by_place(unseen)))
    return found


def stale_results(study: ResolvedStudy, content: PageContent) -> list[Caution]:
    """Results whose manifest tells of other settings than the study's."""
    stale = []
    for model, stage in content.parents:
        settings = study.model(model)
        if stage == BASE and settings.sft:
            now = {"sft": settings.sft.model_dump(mode="json")}
        elif stage != BASE:
            now = {"base": settings.base.model_dump(mode="json")}
        else:
            continue
        stale += _stale(f"{model}/{stage}", content.parents[model, stage], now)
    for run, manifest in content.policies.items():
        model, algorithm, _ = run
        now = {
            "rl": study.model(model).rl.model_dump(mode="json"),
            "algorithm": study.algorithms[algorithm].model_dump(mode="json"),
        }
        stale += _stale(run_name(run), manifest, now)
    for sampled, manifest in content.evaluations.items():
        evaluation = study.evaluation(sampled[0]).decisive()
        stale += _stale(run_name(sampled), manifest, {"evaluation": evaluation})
    if not stale:
        return []
    text = "Results on disk were made with other settings than the study now has."
    return [Caution(text, [*stale[:20], *([f"and {len(stale) - 20} more"] if stale[20:] else [])])]


def changes(then: Any, now: Any, place: str = "") -> list[str]:
    """Settings that differ, such as ``rl.steps 200 → 300``; UNCOUNTED ones are passed over."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = [key for key in dict.fromkeys([*then, *now]) if key not in UNCOUNTED]
        return [
            change
            for key in keys
            for change in changes(then.get(key), now.get(key), f"{place}.{key}".lstrip("."))
        ]
    return [] if then == now else [f"{place} {_short(then)} → {_short(now)}"]


def grading_cautions(grading: pd.DataFrame, study: ResolvedStudy, model: str) -> list[Caution]:
    """Shares above their limits in a grading table: truncated, unparsed, unreadable reference."""
    titles, name = benchmark_titles(study), study.model(model).title
    found = []
    for status, limit, what, consequence in (
        (
            "truncated",
            TRUNCATED_LIMIT,
            f"More than {100 * TRUNCATED_LIMIT:.0f}\u202f% of the completions are truncated",
            "pass@k then also measures the token limit",
        ),
        (
            "unparsed",
            UNPARSED_LIMIT,
            f"More than {100 * UNPARSED_LIMIT:.0f}\u202f% of the completions are unparsed",
            "pass@k then also measures the answer format",
        ),
        (
            "gold_unparsed",
            0.0,
            "Some reference answers cannot be read",
            "no completion can be right there",
        ),
    ):
        runs = [
            (titles[benchmark], f"{row_title(study, algorithm)} {percent(share)}\u202f%")
            for benchmark, algorithm, share in zip(
                grading["benchmark"], grading["algorithm"], grading[status], strict=True
            )
            if share > limit
        ]
        if runs:
            found.append(Caution(f"{name}: {what.lower()}; {consequence}.", _by_place(runs)))
    return found


def flat_intervals(table: pd.DataFrame, study: ResolvedStudy, title: str) -> list[str]:
    """A line on the cells of an accuracy frame whose interval has no width, if there are any."""
    titles, places = benchmark_titles(study), []
    for benchmark, ks in column_groups(table).items():
        for k in ks:
            values = [estimate(table, row, benchmark, k) for row in range(len(table))]
            flat = [row for row, value in enumerate(values) if _is_flat(value)]
            if flat and benchmark != AVERAGE:
                rows = (
                    "every row"
                    if len(flat) == len(table)
                    else listing([str(table["title"].iloc[row]) for row in flat], most=4)
                )
                places.append(f"{titles[benchmark]} at k = {k} ({rows})")
    return [f"{title}: {', '.join(places)}"] if places else []


def commit_cautions(manifests: Mapping[str, Mapping[str, Any]]) -> list[Caution]:
    """Runs made from different versions of the code, or from uncommitted code."""
    commits = {run: str(manifest.get("git_commit") or "") for run, manifest in manifests.items()}
    known = {commit.partition("+")[0] for commit in commits.values()} - {"", "unknown"}
    changed = sorted(run for run, commit in commits.items() if "+" in commit)
    found = []
    if len(known) > 1:
        found.append(Caution("Runs come from different commits.", [", ".join(sorted(known))]))
    if changed:
        text = f"Made while the code had uncommitted changes: {len(changed)}."
        found.append(Caution(text, [listing(changed, most=8)]))
    return found


def run_name(run: Sequence[Any]) -> str:
    """A run as its folder is called: model/algorithm/seed, and the benchmark if there is one."""
    model, algorithm, seed, *benchmark = run
    return "/".join([str(model), str(algorithm), f"seed{seed}", *map(str, benchmark)])


def _stale(name: str, manifest: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line on a result whose recorded settings are not those of `now`; none recorded, none."""
    then = manifest.get("settings") or {}
    recorded = {key: then[key] for key in now if key in then}
    found = changes(recorded, {key: json.loads(json.dumps(now[key])) for key in recorded})
    return [f"{name}: {listing(found, most=4)}"] if found else []


def _short(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _by_place(runs: list[tuple[str, str]]) -> list[str]:
    """One line per place from (place, run)."""
    lines: dict[str, list[str]] = {}
    for place, run in runs:
        lines.setdefault(place, []).append(run)
    return [f"{place}: {listing(names)}" for place, names in lines.items()]


def _is_flat(interval: tuple[float, float, float]) -> bool:
    return interval[1] == interval[2]


def _run_title(study: ResolvedStudy, algorithm: str, seed: int) -> str:
    title = row_title(study, algorithm)
    return title if algorithm == BASE else f"{title} (seed {seed})"
