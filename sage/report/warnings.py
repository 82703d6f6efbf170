"""Warnings: limits of a page's numbers, each computed from files.

They concern missing runs, results made with other settings, training that went wrong, truncated
or unparsed completions, intervals without width, and uncommitted code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pydantic_core import to_jsonable_python

from sage.evaluation.curves import ANSWERS, POOLED
from sage.exhibits.every_report import grading_table
from sage.rendering.labels import benchmark_titles, method_title
from sage.rendering.numbers import listing, percent
from sage.report.loader import PageContent
from sage.report.provenance import run_title
from sage.results import Run
from sage.runtime.records import differ
from sage.study import BASE, ResolvedStudy
from sage.study.models import UNCOUNTED
from sage.tasks.data import OwnSet, repeats
from sage.tasks.own import OwnTask

_LIMITS = {
    "truncated": (
        0.05,
        "more than {} of the completions are truncated; pass@k then also measures the token limit",
    ),
    "unparsed": (
        0.20,
        "more than {} of the completions are unparsed; pass@k then also measures the answer format",
    ),
    "gold_unparsed": (
        0.0,
        "some reference answers cannot be parsed; no completion of these problems can be correct",
    ),
}
"""Shares of completions by status above which there is a warning, and the warning."""

_APART = 0.2
"""The difference of pass@k between runs of one method above which there is a warning."""

_LOST = 0.1
"""The share of pass@k that may be without correct working before there is a warning."""


@dataclass(frozen=True)
class Notice:
    """A warning, and lines that name the runs concerned."""

    text: str
    lines: list[str]


def warnings(study: ResolvedStudy, content: PageContent) -> list[Notice]:
    """All warnings of a page, most serious first."""
    manifests = {
        **{f"{model}/{stage}": manifest for (model, stage), manifest in content.parents.items()},
        **{run_name(run): manifest for run, manifest in content.policies.items()},
        **{run_name(*pair): manifest for pair, manifest in content.evaluations.items()},
    }
    notices = [*missing_runs(study, content), *stale_results(study, content)]
    notices += training_notices(study, content)
    if study.numbers_of_runs() == [1]:
        text = (
            "Each method was trained once, so a difference holds for these single runs and "
            "decides no claim about methods. To decide claims, train with more seeds (the key "
            "“seeds” of the study)."
        )
        notices.append(Notice(text, []))
    if "rates" in content.metrics:
        grading = grading_table(content.metrics["rates"])
        for model, of_model in grading.groupby("model", sort=False):
            notices += grading_notices(of_model, study, str(model))
    found_in = {"chance": working_notices, "pass_at_k": spread_notices, "counts": twin_notices}
    for name, find in found_in.items():
        if name in content.metrics:
            notices += find(content.metrics[name], study)
    for name, problems in content.problems.items():
        own = study.study.problems[name]
        if isinstance(own, OwnSet | OwnTask) and (said := repeats(problems)):
            notices.append(Notice(f"{own.title}: {said}.", []))
    text = (
        "If all problems have the same result, the interval has no width, but the uncertainty is "
        "not zero."
    )
    notices += _if_any(text, (table.flat for table in content.tables.values() if table.flat))
    return [*notices, *commit_notices(manifests)]


def working_notices(chance: pd.DataFrame, study: ResolvedStudy) -> list[Notice]:
    """Methods whose pass@k is much lower where only right answers with correct working count.

    `chance` is a table of `sage.evaluation.chance`, at the primary k.
    """
    pooled = chance[(chance["stratum"].fillna("") == "") & (chance["train_seed"] == POOLED)]
    runs = []
    for row in pooled.to_dict("records"):
        k = study.evaluation(row["model"]).primary_k
        if row["k"] == k and row["worked"] < (1 - _LOST) * row["value"]:
            place = _place(study, row["model"], row["benchmark"], k)
            shares = f"{percent(row['value'])} → {percent(row['worked'])}\u202f%"
            runs.append((place, f"{method_title(study, row['algorithm'])} {shares}"))
    text = (
        f"These methods give right answers by wrong working: more than {100 * _LOST:.0f}\u202f% of "
        "their pass@k is lost if the working must be correct too (by answers → with correct "
        "working)."
    )
    return _if_any(text, _by_place(runs))


def spread_notices(pass_at_k: pd.DataFrame, study: ResolvedStudy) -> list[Notice]:
    """Methods whose training runs end far apart, by answers at the primary k."""
    runs = pass_at_k[(pass_at_k["train_seed"] != POOLED) & (pass_at_k["metric"] == ANSWERS)]
    far, keys = [], ["model", "benchmark", "algorithm", "k"]
    for (model, name, row, k), own in runs.groupby(keys, sort=False):
        low, high = own["value"].min(), own["value"].max()
        if k == study.evaluation(str(model)).primary_k and high - low > _APART:
            place = _place(study, str(model), str(name), k)
            shares = f"{percent(low)} to {percent(high)}\u202f% in {len(own)} runs"
            far.append((place, f"{method_title(study, str(row))} {shares}"))
    text = (
        f"Training runs of these methods differ by more than {100 * _APART:.0f} points. They may "
        "have ended in different states, of which a mean says little: look at each run."
    )
    return _if_any(text, _by_place(far))


def twin_notices(counts: pd.DataFrame, study: ResolvedStudy) -> list[Notice]:
    """Methods of a model with the same counts of correct samples on every problem: one computation
    with several names."""
    shares = counts.assign(share=counts["correct"] / counts["n_samples"])
    lines = []
    for model, of_model in shares.groupby("model", sort=False):
        keys = ["train_seed", "benchmark", "problem_id"]
        columns = of_model.pivot_table("share", keys, "algorithm", sort=False)
        alike: dict[tuple[Any, ...], list[str]] = {}
        for row, values in columns.items():
            there = values.dropna()
            if there.between(0, 1, inclusive="neither").any():  # only 0s and 1s prove nothing
                alike.setdefault(tuple(there.items()), []).append(method_title(study, str(row)))
        title = study.model(str(model)).title
        lines += [f"{title}: {' = '.join(rows)}" for rows in alike.values() if len(rows) > 1]
    text = (
        "These methods have the same numbers everywhere: in this study they are the same "
        "computation and count as one piece of evidence."
    )
    return _if_any(text, lines)


def missing_runs(study: ResolvedStudy, content: PageContent) -> list[Notice]:
    """RL runs and evaluations of the study that have no manifest."""
    titles = benchmark_titles(study)
    untrained, unseen = [], []
    for model, settings in study.study.models.items():
        untrained += [
            (settings.title, run_title(study, run))
            for run in study.trained_runs(model)
            if run not in content.policies
        ]
        unseen += [
            (f"{settings.title}, {titles[benchmark]}", run_title(study, run))
            for run, benchmark in study.evaluated_runs(model)
            if (run, benchmark) not in content.evaluations
        ]
    return [
        *_if_any(f"Not trained yet: {len(untrained)} runs.", _by_place(untrained)),
        *_if_any(f"Not sampled yet: {len(unseen)} evaluations.", _by_place(unseen)),
    ]


def stale_results(study: ResolvedStudy, content: PageContent) -> list[Notice]:
    """Results made with other settings than the study's, by their manifests."""
    settings: list[tuple[str, Mapping[str, Any], dict[str, Any]]] = []
    for (model, stage), manifest in content.parents.items():
        key = "sft" if stage == BASE else "base"
        made = getattr(study.model(model), key)
        settings.append((f"{model}/{stage}", manifest, {key: made} if made else {}))
    for run, manifest in content.policies.items():
        rl, algorithm = study.rl(run.model, run.algorithm), study.algorithms[run.algorithm]
        settings.append((run_name(run), manifest, {"rl": rl, "algorithm": algorithm}))
    for (run, benchmark), manifest in content.evaluations.items():
        evaluation = {"evaluation": study.evaluation(run.model).decisive()}
        settings.append((run_name(run, benchmark), manifest, evaluation))
    stale = []
    for name, manifest, now in settings:
        then = manifest.get("settings") or {}
        current = {key: to_jsonable_python(now[key]) for key in now if key in then}
        then = {key: then[key] for key in current}
        if differing := differ(then, current, without=UNCOUNTED):
            stale.append(f"{name}: {listing(differing, most=4)}")
    text = (
        "Some results were made with settings that differ from the study’s current settings (old "
        "→ new)."
    )
    return _if_any(text, [*stale[:20], *([f"and {len(stale) - 20} more"] if stale[20:] else [])])


def training_notices(study: ResolvedStudy, content: PageContent) -> list[Notice]:
    """Runs of RL whose histories show signs that training went wrong, by their manifests."""
    lines = []
    for run, manifest in content.policies.items():
        steps: dict[str, list[str]] = {}
        for sign in manifest.get("signs") or ():
            span = dict.fromkeys((str(sign["first"]), str(sign["last"])))
            steps.setdefault(str(sign["text"]), []).append("–".join(span))
        lines += [
            f"{run_name(run)}: {text} (steps {listing(spans, most=4)})"
            for text, spans in steps.items()
        ]
    text = (
        "In some runs training went wrong in these steps; read their results with care. The limits "
        "are in the key “rl.watch” of the model."
    )
    return _if_any(text, lines)


def grading_notices(grading: pd.DataFrame, study: ResolvedStudy, model: str) -> list[Notice]:
    """Shares above their limits in a grading table: truncated, unparsed, unparsed reference."""
    titles, name = benchmark_titles(study), study.model(model).title
    notices = []
    for status, (limit, what) in _LIMITS.items():
        over = grading[grading[status] > limit]
        runs = [
            (titles[row["benchmark"]], f"{method_title(study, row['algorithm'])} {share}\u202f%")
            for row in over.to_dict("records")
            for share in [percent(row[status])]
        ]
        text = what.format(f"{100 * limit:.0f}\u202f%")
        notices += _if_any(f"{name}: {text}.", _by_place(runs))
    return notices


def commit_notices(manifests: Mapping[str, Mapping[str, Any]]) -> list[Notice]:
    """Runs made from different versions of the code, or from uncommitted code."""
    commits = {run: str(manifest.get("git_commit") or "") for run, manifest in manifests.items()}
    known = {commit.partition("+")[0] for commit in commits.values()} - {"", "unknown"}
    changed = sorted(run for run, commit in commits.items() if "+" in commit)
    several = [", ".join(sorted(known))] if len(known) > 1 else []
    text = f"Runs made with uncommitted changes in the code: {len(changed)}."
    return [
        *_if_any("Runs were made from different commits.", several),
        *_if_any(text, [listing(changed, most=8)] if changed else []),
    ]


def run_name(run: Run, *benchmark: str) -> str:
    """The name of a run, as its folder: model/algorithm/seed, and the benchmark if there is one."""
    return "/".join([run.model, run.algorithm, f"seed{run.seed}", *benchmark])


def _if_any(text: str, lines: Iterable[str]) -> list[Notice]:
    """A warning, if it has lines."""
    named = list(lines)
    return [Notice(text, named)] if named else []


def _place(study: ResolvedStudy, model: str, benchmark: str, k: int) -> str:
    return f"{study.model(model).title}, {benchmark_titles(study)[benchmark]}, pass@{k}"


def _by_place(runs: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each place, from (place, run)."""
    lines: dict[str, list[str]] = {}
    for place, run in runs:
        lines.setdefault(place, []).append(run)
    return [f"{place}: {listing(names)}" for place, names in lines.items()]
