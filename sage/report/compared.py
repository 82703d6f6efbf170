"""A study's methods beside its first one: the differences that open a report.

Of the exhibit that leads, or else of the first that shows pass@k: the first method minus the base,
and each other method minus the first, at pass@1 and the primary k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sage.claims.evidence import Finding, by_pair, of_pass_at_k
from sage.evaluation.curves import LEVEL, POOLED, WORKING
from sage.evaluation.intervals import holm
from sage.exhibits import kind_of
from sage.exhibits.pooled_pass_at_k import ShowsPassAtK
from sage.rendering.labels import benchmark_titles, is_control, listed, method_title
from sage.rendering.numbers import interval_of_points, points
from sage.study import BASE, ResolvedStudy

APART = 0.05
"""Differences that correct working moves by more are told beside those of answers."""


@dataclass(frozen=True)
class Difference:
    """A method minus the first one in pass@k, over the problems and runs that both have.

    `p` is adjusted after Holm; a `control` is rewarded for no right answer.
    """

    method: str
    title: str
    k: int
    finding: Finding
    p: float
    control: bool

    @property
    def clear(self) -> bool:
        """Whether chance is not enough to explain it, among all differences."""
        return self.p < LEVEL

    @property
    def above(self) -> float:
        """The difference, as a share."""
        return self.finding.effect

    @property
    def change(self) -> str:
        """``+3.0 points (95 % interval +1.0 to +5.0)``, without an interval that is unknown."""
        limits = interval_of_points(self.finding.low, self.finding.high)
        known = f" (95 % interval {limits})" if limits else ""
        return f"{points(self.above)} points{known}"


@dataclass(frozen=True)
class Compared:
    """Differences of a study's first method from the base, by k, and of its others from the first.

    `working` has those from the base with correct working that are other findings than by answers.
    `levels` are pass@k over all runs, and `runs` their number, by method: the base and the first
    method before the others. `once` is said where the differences are over one run.
    """

    first: str
    where: str
    ks: Sequence[int]
    of_first: Mapping[int, Finding]
    of_others: Sequence[Difference]
    working: Mapping[int, Finding]
    once: str
    models: Sequence[str]
    benchmarks: Sequence[str]
    levels: Mapping[str, Mapping[int, float]]
    runs: Mapping[str, int]

    @property
    def judged(self) -> list[Difference]:
        """Of the other methods' differences those over several runs, if there are any: one run
        says nothing about further runs."""
        several = [one for one in self.of_others if (one.finding.runs or 0) > 1]
        return several or [*self.of_others]


def compared_methods(
    study: ResolvedStudy, comparisons: pd.DataFrame, pass_at_k: pd.DataFrame
) -> Compared | None:
    """Of the exhibit that leads, or else of the first that shows pass@k; None without runs.

    Differences are means over the exhibit's benchmarks, of all bases of its model if there are
    several.
    """
    exhibits = [kind_of(study, name) for name in study.study.exhibits]
    for exhibit in sorted(exhibits, key=lambda exhibit: not exhibit.leads):
        group, models = study.bases(exhibit.model)
        there = pass_at_k[pass_at_k["model"].isin(models)]
        rows, sets = set(there["algorithm"]), set(there["benchmark"])
        methods = [row for row in exhibit.methods_of(study) if row != BASE and row in rows]
        benchmarks = [name for name in exhibit.benchmarks_of(study) if name in sets]
        if isinstance(exhibit, ShowsPassAtK) and methods and benchmarks:
            break
    else:
        return None
    first = methods[0]
    ks = tuple(dict.fromkeys((1, study.evaluation(exhibit.model).primary_k)))
    asked = [(first, BASE, k) for k in ks] + [(row, first, k) for row in methods[1:] for k in ks]
    findings, of_working = (
        {
            pair: ones[0]
            for pair in asked
            for name in (exhibit.model, group)  # the group's goes over the model's
            if (ones := of_pass_at_k(pairs, name, benchmarks, *pair))
        }
        for pairs in (by_pair(comparisons), by_pair(comparisons, WORKING))
    )
    of_first, working = (
        {k: ones[first, BASE, k] for k in ks if (first, BASE, k) in ones}
        for ones in (findings, of_working)
    )
    others = {pair: one for pair, one in findings.items() if pair[1] != BASE}
    adjusted = holm(np.array([one.p for one in others.values()]))
    alone = "Each method was trained once"
    if max(study.numbers_of_runs(), default=1) > 1:
        alone = "Only one run is common to these methods"
    there = there[(there["metric"] == "pass@k") & there["benchmark"].isin(benchmarks)]
    runs = there[there["train_seed"] != POOLED]
    counts = runs.drop_duplicates(["algorithm", "model", "train_seed"])["algorithm"].value_counts()
    pooled = there[there["train_seed"] == POOLED]

    def level(method: str, k: int) -> float:
        return float(pooled[(pooled["algorithm"] == method) & (pooled["k"] == k)]["value"].mean())

    return Compared(
        first=method_title(study, first),
        where=_where(study, models, benchmarks),
        ks=ks,
        of_first=of_first,
        of_others=[
            Difference(
                name, method_title(study, name), k, one, p, is_control(study.algorithms[name])
            )
            for ((name, _, k), one), p in zip(others.items(), adjusted, strict=True)
        ],
        working={k: one for k, one in working.items() if _is_another(one, of_first[k])},
        once=alone,
        models=models,
        benchmarks=benchmarks,
        levels={name: {k: level(name, k) for k in ks} for name in (BASE, *methods)},
        runs={name: int(counts.get(name, 0)) for name in methods},
    )


def _is_another(one: Finding, other: Finding) -> bool:
    """Whether one is clear and the other not, or they are more than APART apart."""
    return direction(one) != direction(other) or abs(one.effect - other.effect) > APART


def direction(one: Finding) -> int:
    """1 or -1 for a clear difference, else 0."""
    return (1 if one.effect > 0 else -1) if one.p < LEVEL else 0


def _where(study: ResolvedStudy, models: Sequence[str], benchmarks: Sequence[str]) -> str:
    """``on Routes``; with the models where others of the study have the same benchmarks."""
    place = f"on {benchmark_titles(study)[benchmarks[0]]}"
    if len(benchmarks) > 1:
        place = f"mean of {len(benchmarks)} benchmarks"
    others = (each for name, each in study.study.models.items() if name not in models)
    if not any(set(each.benchmarks) & set(benchmarks) for each in others):
        return place
    return f"{place}, model {listed([study.model(name).title for name in models])}"
