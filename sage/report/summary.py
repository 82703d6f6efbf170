"""The summary that opens a report: a table with a row for each method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.rendering.numbers import percent
from sage.rendering.table import Cell, Record, Table, points_cell, table_of
from sage.report.compared import Compared, Difference
from sage.study import BASE, ResolvedStudy, is_control


def summary(
    study: ResolvedStudy,
    compared: Compared,
    chance: pd.DataFrame | None,
    untested: Mapping[str, float],
) -> tuple[Table, str]:
    """A row for each method, with those that gain most of pass@k first, and the caption."""
    ks, last, worked = compared.ks, compared.ks[-1], _worked(compared, chance)
    base, first, *rest = compared.levels
    several = len({*compared.runs.values()}) > 1
    counted = f"Difference from {compared.first}{' by answers' if worked else ''}"
    heads = [("", f"pass@{k}") for k in ks]
    heads += [("", f"pass@{last}, correct working")] * bool(worked)
    heads += [(counted, f"pass@{k}") for k in ks] + [("", "Runs")] * several + [("", "Verdict")]
    records: dict[str, Record] = {}
    for method, levels in compared.levels.items():
        own = [one for one in compared.of_others if one.method == method]
        ends = {one.k: (one.above, one.finding.low, one.finding.high) for one in own}
        if method == base:
            ends = {k: (-one.effect, -one.high, -one.low) for k, one in compared.of_first.items()}
        verdict = {base: "starting point", first: "reference"}.get(method)
        cells = [Cell(percent(levels[k])) for k in ks]
        cells += [Cell(percent(worked.get(method, math.nan)))] * bool(worked)
        cells += [points_cell(*ends.get(k, (math.nan,) * 3)) for k in ks]
        cells += [Cell(str(compared.runs.get(method, "")))] * several
        cells.append(Cell(verdict or _verdict(compared, own, untested), mark="said"))
        records[method] = {**dict(enumerate(cells)), "gain": ends.get(last, (-math.inf,))[0]}
    rest.sort(key=lambda method: -records[method]["gain"])
    controls = [method for method in rest if is_control(study.algorithms[method])]
    methods = [base, first, *(method for method in rest if method not in controls)]
    columns = [(*head, itemgetter(at)) for at, head in enumerate(heads)]
    headed = {"": methods, "Controls, not rewarded for right answers": controls}
    groups = [
        (head, [(one, records[one]) for one in ones]) for head, ones in headed.items() if ones
    ]
    where, count = compared.where.removeprefix("on "), len(compared.of_others)
    clear = f"Clear: p < 0.05 after Holm over all {count}. " if count > 1 else ""
    caption = (
        f"{where[0].upper()}{where[1:]}, in percent. Differences in points with 95 % intervals, "
        f"over the problems and runs that both have. {clear}Headings sort."
    )
    return table_of("Method", columns, groups, study), caption


def too_small(share: float) -> str:
    """The dose of a guide, from its share of the least one."""
    if not share:
        return "0"
    return f"{1 / share:.2g} times too small" if share < 0.95 else "just too small"


def _verdict(compared: Compared, own: Sequence[Difference], untested: Mapping[str, float]) -> str:
    """What can be said of a method beside the first one."""
    if not own:
        return "not compared"
    if own[0].method in untested:
        return f"not tested: dose {too_small(untested[own[0].method])}"
    if own[0] not in compared.judged:
        return "one run, not judged"
    clear = [f"{'more' if one.above > 0 else 'less'} pass@{one.k}" for one in own if one.clear]
    alone = any(one.finding.low > 0 or one.finding.high < 0 for one in own)
    return ", ".join(clear) or ("may be chance" if alone else "no clear difference")


def _worked(compared: Compared, chance: pd.DataFrame | None) -> dict[str, float]:
    """pass@k by correct working over all runs, by method; empty where nobody can check it."""
    if chance is None:
        return {}
    rows = chance[(chance["stratum"].fillna("") == "") & (chance["k"] == compared.ks[-1])]
    rows = rows[rows["model"].isin(compared.models) & rows["benchmark"].isin(compared.benchmarks)]
    pooled = rows[(rows["train_seed"] == POOLED) | (rows["algorithm"] == BASE)]
    each = pooled.drop_duplicates(["model", "benchmark", "algorithm"], keep="last")
    means = each.groupby("algorithm")["worked"].mean().dropna()
    return {str(method): float(value) for method, value in means.items()}
