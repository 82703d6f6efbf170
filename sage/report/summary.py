"""The summary that opens a report: a table with a row for each method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from sage.evaluation.curves import LEVEL, POOLED
from sage.rendering.numbers import percent
from sage.rendering.table import Cell, Column, Record, Table, points_cell, table_of
from sage.report.compared import Compared, Difference
from sage.study import BASE, ResolvedStudy, is_control


def summary(
    study: ResolvedStudy,
    compared: Compared,
    chance: pd.DataFrame | None,
    untested: Mapping[str, str],
) -> tuple[Table, str]:
    """A row for each method, with those that gain most of pass@k first, and the caption."""
    last, others = compared.ks[-1], {(one.row, one.k): one for one in compared.of_others}
    base, first, *rest = compared.levels
    records: dict[str, dict[Any, Any]] = {}
    for row, levels in compared.levels.items():
        own = {k: others[row, k] for k in compared.ks if (row, k) in others}
        ends = {
            k: (one.finding.effect, one.finding.low, one.finding.high) for k, one in own.items()
        }
        if row == base:
            found = {one.k: one.finding for one in compared.of_first}
            ends = {k: (-one.effect, -one.high, -one.low) for k, one in found.items()}
        verdict = _verdict(compared, [*own.values()], untested)
        verdict = {base: "starting point", first: "reference"}.get(row, verdict)
        records[row] = {"level": levels, "ends": ends, "verdict": verdict}
    worked = _worked(compared, chance)
    rest.sort(key=lambda row: -records[row]["ends"].get(last, (-math.inf,))[0])
    controls = [row for row in rest if is_control(study.algorithms[row])]
    methods = [row for row in rest if row not in controls]
    columns: list[Column] = [("", f"pass@{k}", partial(_level_cell, k)) for k in compared.ks]
    if worked:
        columns.append(("", f"pass@{last}, correct working", _worked_cell))
    apart = f"Difference from {compared.first}"
    columns += [(apart, f"pass@{k}", partial(_ends_cell, k)) for k in compared.ks]
    columns.append(("", "Verdict", _verdict_cell))
    groups = [
        (heading, [(row, records[row] | {"worked": worked.get(row, math.nan)}) for row in rows])
        for heading, rows in (
            ("", [base, first, *methods]),
            ("Controls, not rewarded for right answers", controls),
        )
        if rows
    ]
    where = compared.where.removeprefix("on ")
    caption = (
        f"{where[0].upper()}{where[1:]}, in percent. Differences in points with 95 % intervals, "
        "paired by problem; clear ones have p < 0.05, adjusted after Holm for all methods and "
        "measures. A click on a heading sorts."
    )
    return table_of("Method", columns, groups, study), caption


def too_small(factor: str) -> str:
    """The dose of a guide, from how many times too small it is; empty for a dose of 0."""
    return {"": "0", "1": "just too small"}.get(factor, f"{factor} times too small")


def _verdict(compared: Compared, own: Sequence[Difference], untested: Mapping[str, str]) -> str:
    """What can be said of a method beside the first one."""
    if not own:
        return "not compared"
    if (factor := untested.get(own[0].title)) is not None:
        return f"not tested: dose {too_small(factor)}"
    clear = [one for one in own if one.p < LEVEL]
    said = ", ".join(
        f"{'more' if one.finding.effect > 0 else 'less'} pass@{one.k}" for one in clear
    )
    if own[0] not in compared.judged:
        return "one run, not judged"
    return said or "no clear difference"


def _worked(compared: Compared, chance: pd.DataFrame | None) -> dict[str, float]:
    """pass@k by correct working over all runs, by method; empty where nobody can check it."""
    if chance is None:
        return {}
    rows = chance[(chance["stratum"].fillna("") == "") & (chance["k"] == compared.ks[-1])]
    rows = rows[rows["model"].isin(compared.models) & rows["benchmark"].isin(compared.benchmarks)]
    pooled = rows[(rows["train_seed"] == POOLED) | (rows["algorithm"] == BASE)]
    means = pooled.drop_duplicates(["model", "benchmark", "algorithm"], keep="last").groupby(
        "algorithm"
    )["worked"]
    return {str(row): float(value) for row, value in means.mean().items() if value == value}


def _level_cell(k: int, record: Record) -> Cell:
    return Cell(percent(record["level"][k]))


def _ends_cell(k: int, record: Record) -> Cell:
    return points_cell(*record["ends"].get(k, (math.nan,) * 3))


def _worked_cell(record: Record) -> Cell:
    return Cell(percent(record["worked"]))


def _verdict_cell(record: Record) -> Cell:
    return Cell(record["verdict"], mark="said")
