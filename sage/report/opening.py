"""What opens a report: what was found, with numbers before and after, and one forest of it.

Where claims were tested that were registered before training, the forest has their primary
contrasts. In every other study it has the study's own comparisons, adjusted after Holm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from sage.claims.evidence import Finding, by_pair, of_pass_at_k
from sage.evaluation.curves import POOLED
from sage.evaluation.intervals import holm
from sage.exhibits import kind_of
from sage.exhibits.pass_at_k import LEVEL, ShowsPassAtK
from sage.rendering.forest import Forest, Line, forest
from sage.rendering.labels import benchmark_titles, listed, row_title
from sage.rendering.numbers import interval_of_points, p_text, percent, points
from sage.study import BASE, ResolvedStudy

MOST = 12
"""The most differences in the forest of a study without claims: the largest ones."""


@dataclass(frozen=True)
class Opening:
    """Sentences, the forest, what its lines are, and a note below it."""

    sentences: tuple[str, ...] = ()
    forest: Forest | None = None
    caption: str = ""
    note: str = ""


@dataclass(frozen=True)
class _Contrasts:
    """Differences of a model's methods, as means over `benchmarks`."""

    study: ResolvedStudy
    model: str
    methods: Sequence[str]
    benchmarks: Sequence[str]
    comparisons: pd.DataFrame
    pass_at_k: pd.DataFrame

    @cached_property
    def pairs(self) -> dict[tuple[object, ...], dict[object, object]]:
        """Rows of the comparisons."""
        return by_pair(self.comparisons)

    @property
    def first(self) -> str:
        """The method that others are compared with."""
        return self.methods[0]

    @property
    def ks(self) -> tuple[int, int]:
        """1 and the primary k."""
        return 1, self.study.evaluation(self.model).primary_k

    def between(self, row: str, other: str, k: int) -> Finding | None:
        """The difference of two methods, of all bases of the model if there are several."""
        for name in (self.study.bases(self.model)[0], self.model):
            if ones := of_pass_at_k(self.pairs, name, self.benchmarks, row, other, k):
                return ones[0]
        return None

    def level(self, row: str, k: int) -> float:
        """Mean pass@k over benchmarks, and over bases if there are several; NaN if not run."""
        rows = self.pass_at_k
        chosen = rows[
            rows["model"].isin(self.study.bases(self.model)[1])
            & rows["benchmark"].isin(list(self.benchmarks))
            & (rows["algorithm"] == row)
            & (rows["k"] == k)
            & (rows["metric"] == "pass@k")
        ]
        pooled = chosen[chosen["train_seed"] == POOLED]
        return float((chosen if pooled.empty else pooled)["value"].mean())

    @property
    def where(self) -> str:
        """The benchmarks in words."""
        titles = benchmark_titles(self.study)
        if len(self.benchmarks) == 1:
            return titles[self.benchmarks[0]]
        return f"mean of {len(self.benchmarks)} benchmarks"


def opening(
    study: ResolvedStudy,
    comparisons: pd.DataFrame | None,
    pass_at_k: pd.DataFrame | None,
    claims: Sequence[Line],
    untold: int,
) -> Opening:
    """What opens the report of a study.

    `claims` are the lines of claims that may open it, and `untold` counts tested ones that cannot
    be drawn with them.
    """
    contrasts = None
    if comparisons is not None and pass_at_k is not None:
        contrasts = _contrasts(study, comparisons, pass_at_k)
    sentences, lines = _said(contrasts) if contrasts else ((), [])
    if claims:
        caption = (
            "Primary contrasts of the paper’s claims. The wash is the side that the paper claims, "
            "the grey band the margin below which no difference matters. Open marks: one training "
            "run."
        )
        note = f"{untold} more are in section Claims, in other units." if untold else ""
        return Opening(sentences, forest(claims), caption, note)
    if not contrasts:
        return Opening()
    largest = sorted(lines, key=lambda line: -abs(line.effect))[:MOST]
    kept = [line for line in lines if line in largest]
    caption = (
        f"Differences of pass@{contrasts.ks[1]} from {row_title(study, contrasts.first)}, "
        f"{contrasts.where}, paired by problem. p is adjusted after Holm for all methods and both "
        "pass@1 and pass@k."
    )
    note = f"The {MOST} largest of {len(lines)} differences." if len(lines) > len(kept) else ""
    return Opening(sentences, forest(kept), caption, note)


def _contrasts(
    study: ResolvedStudy, comparisons: pd.DataFrame, pass_at_k: pd.DataFrame
) -> _Contrasts | None:
    """Of the exhibit that leads, or else of the first that shows pass@k; None without runs."""
    names = [
        name for name in study.study.exhibits if isinstance(kind_of(study, name), ShowsPassAtK)
    ]
    names.sort(key=lambda name: not kind_of(study, name).leads)
    for name in names:
        exhibit = kind_of(study, name)
        there = pass_at_k[pass_at_k["model"].isin(study.bases(exhibit.model)[1])]
        methods = [
            row for row in exhibit.rows_of(study) if row != BASE and row in set(there["algorithm"])
        ]
        benchmarks = [b for b in exhibit.benchmarks_of(study) if b in set(there["benchmark"])]
        if methods and benchmarks:
            return _Contrasts(study, exhibit.model, methods, benchmarks, comparisons, pass_at_k)
    return None


def _said(contrasts: _Contrasts) -> tuple[tuple[str, ...], list[Line]]:
    """The sentences about the comparisons, and their lines at the primary k."""
    study, first = contrasts.study, contrasts.first
    asked = [(first, BASE, k) for k in contrasts.ks]
    asked += [(row, first, k) for row in contrasts.methods[1:] for k in contrasts.ks]
    measured = [(pair, one) for pair in asked if (one := contrasts.between(*pair))]
    adjusted = holm(np.array([one.p for _, one in measured]))
    sentences, lines = [], []
    parts = [
        _change(contrasts, one, k, float(p))
        for ((row, _, k), one), p in zip(measured, adjusted, strict=True)
        if row == first
    ]
    if parts:
        title = row_title(study, first)
        sentences.append(f"{title} {listed(parts)}, {contrasts.where}.")
    others = [
        (row, k, one, float(p))
        for ((row, _, k), one), p in zip(measured, adjusted, strict=True)
        if row != first
    ]
    if others:
        sentences.append(_of_others(contrasts, others))
    if measured and all(one.runs == 1 for _, one in measured):
        sentences.append("Each method was trained once, so this is true of these runs alone.")
    for ((row, other, k), one), p in zip(measured, adjusted, strict=True):
        if k == contrasts.ks[1] and (row != first or not others):
            lines.append(_line(study, row, other, one, float(p)))
    return tuple(sentences), lines


def _change(contrasts: _Contrasts, one: Finding, k: int, p: float) -> str:
    """``raises pass@1 from 9.8 to 16.4 % (+6.6 points, 95 % interval …)``."""
    before, after = (percent(contrasts.level(row, k)) for row in (BASE, contrasts.first))
    known = f"{points(one.effect)} points"
    if limits := interval_of_points(one.low, one.high):
        known += f", 95 % interval {limits}"
    if math.isnan(p) or p >= LEVEL:
        return f"does not change pass@{k} significantly ({before} to {after} %: {known})"
    verb = "raises" if one.effect > 0 else "lowers"
    return f"{verb} pass@{k} of the base from {before} to {after} % ({known})"


def _of_others(contrasts: _Contrasts, others: Sequence[tuple[str, int, Finding, float]]) -> str:
    """Which other methods differ significantly from the first, and the largest differences."""
    first = row_title(contrasts.study, contrasts.first)
    clear = [one for one in others if one[3] < LEVEL]
    if not clear:
        largest = _named(contrasts, *max(others, key=lambda one: abs(one[2].effect)))
        if len({row for row, *_ in others}) == 1:
            return f"The other method does not differ significantly from {first}: {largest}."
        return (
            f"None of {len({row for row, *_ in others})} other methods differs significantly from "
            f"{first} after Holm; the largest difference is {largest}."
        )
    gains = [one for one in clear if one[2].effect > 0]
    losses = [one for one in clear if one[2].effect < 0]
    named = [
        f"the largest {kind} is {_named(contrasts, *max(ones, key=lambda one: abs(one[2].effect)))}"
        for kind, ones in (("gain", gains), ("loss", losses))
        if ones
    ]
    differing, count = (len({row for row, *_ in ones}) for ones in (clear, others))
    which = "The other method differs" if count == 1 else f"{differing} of {count} other methods"
    verb = "" if count == 1 else " differs" if differing == 1 else " differ"
    return f"{which}{verb} significantly from {first} after Holm: {listed(named)}."


def _named(contrasts: _Contrasts, row: str, k: int, one: Finding, p: float) -> str:
    """``PKPO in pass@128 (47.6 to 50.6 %, +3.0 points)``."""
    level = contrasts.level(row, k)  # the difference is over the runs that both have
    before, after = percent(level - one.effect), percent(level)
    title = row_title(contrasts.study, row)
    return f"{title} in pass@{k} ({before} to {after} %, {points(one.effect)} points)"


def _line(study: ResolvedStudy, row: str, other: str, one: Finding, p: float) -> Line:
    clear = p < LEVEL and one.low == one.low
    return Line(
        title=f"{row_title(study, row)} − {row_title(study, other)}",
        note="",
        effect=one.effect,
        low=one.low,
        high=one.high,
        verdict=f"p {p_text(p)}" if p < 0.001 else f"p = {p_text(p)}",
        kind=("higher" if one.effect > 0 else "lower") if clear else "inconclusive",
        hollow=one.runs == 1,
    )
