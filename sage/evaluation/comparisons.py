"""Two algorithms on the same problems: the difference of their pass@k, its interval and p.

Differences are taken problem by problem and training seed by training seed. The base has no
training seed; every run is compared with the one base. An algorithm is better only if it is so
on other problems and in other training runs: interval and p add both (`sage.evaluation.intervals`),
and p is not below that of a sign-flip permutation over problems. Algorithms that gave the same
counts everywhere are one computation under two names, and count as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.averages import PART_COLUMNS, part_columns
from sage.evaluation.curves import Curves, Samples, curves_of
from sage.evaluation.intervals import (
    holm,
    mean_of,
    p_of_problems,
    p_of_runs,
    parts_of,
)
from sage.study import BASE

COLUMNS = [
    "model",
    "benchmark",
    "algorithm",
    "other",
    "metric",
    "k",
    "value",
    "low",
    "high",
    "p_problems",
    "p_runs",
    "p",
    "p_holm",
    "n_tests",
    "n_problems",
    "n_seeds",
    *PART_COLUMNS,
]


def comparisons_table(samples: Samples, draws: int) -> pd.DataFrame:
    """Every pair of algorithms of a model, on each benchmark, for each k they share.

    COLUMNS: `value` is pass@k of `algorithm` minus that of `other`, `low` and `high` its 95 %
    interval, `n_seeds` the training runs compared. With one training run `p_runs` is NaN and
    the row says nothing about other runs. `p_holm` is p adjusted (Holm 1979) for the `n_tests`
    comparisons of that model at that k, over all pairs and benchmarks; pairs of the same counts
    are one test, and an algorithm beside its twin is none (NaN). PART_COLUMNS are what the mean
    over several benchmarks is made from (`sage.evaluation.averages`).
    """
    curves = curves_of(samples)
    first = _first_names(curves)
    rows = []
    for (model, benchmark), algorithms in _by_benchmark(curves).items():
        for other, algorithm in combinations(algorithms, 2):
            pair = (model, algorithm, benchmark), (model, other, benchmark)
            named = {"model": model, "benchmark": benchmark, "algorithm": algorithm, "other": other}
            rows += [named | row for row in _comparison(*pair, curves, draws)]
    table = pd.DataFrame(rows, columns=COLUMNS)
    for (of, _), family in table.groupby(["model", "k"], sort=False):
        adjusted, tests = _adjusted(family, first[str(of)])
        table.loc[family.index, "p_holm"] = adjusted
        table.loc[family.index, "n_tests"] = tests
    return table.astype({"p_holm": float, "n_tests": int})


def differences_rows(
    differences: np.ndarray, ks: Iterable[int], seeds: Sequence[int], draws: int
) -> list[dict[str, object]]:
    """The part of COLUMNS that differences `[S, P, K]` of runs `seeds` decide, a row for each k."""
    parts = parts_of(differences, draws)
    found = mean_of([parts])
    low, high = (np.clip(end, -1.0, 1.0) for end in found.interval())
    p_problems, p_runs = p_of_problems(differences, draws), p_of_runs(differences)
    p = np.maximum(p_problems, found.p())
    return [
        {
            "metric": "pass@k",
            "k": int(k),
            "value": float(found.value[place]),
            "low": float(low[place]),
            "high": float(high[place]),
            "p_problems": float(p_problems[place]),
            "p_runs": float(p_runs[place]),
            "p": float(p[place]),
            "p_holm": np.nan,
            "n_tests": 0,
            "n_problems": differences.shape[1],
            "n_seeds": differences.shape[0],
            **part_columns(parts, place, seeds),
        }
        for place, k in enumerate(ks)
    ]


def _first_names(curves: Mapping[tuple[str, str, str], Curves]) -> dict[str, dict[str, str]]:
    """By model and algorithm the first algorithm of the model with the same counts everywhere.

    Counts that are all or nothing are no sign of it.
    """
    counts: dict[str, dict[str, list[tuple[Any, ...]]]] = {}
    partly: set[tuple[str, str]] = set()
    for (model, algorithm, benchmark), found in sorted(curves.items(), key=lambda item: item[0][2]):
        seen = benchmark, found.n, found.seeds, found.correct.tobytes()
        counts.setdefault(model, {}).setdefault(algorithm, []).append(seen)
        if ((found.correct > 0) & (found.correct < found.n)).any():
            partly.add((model, algorithm))
    names: dict[str, dict[str, str]] = {}
    for model, of_model in counts.items():
        first: dict[tuple[Any, ...], str] = {}
        names[model] = {
            name: first.setdefault(tuple(seen), name) if (model, name) in partly else name
            for name, seen in of_model.items()
        }
    return names


def _adjusted(family: pd.DataFrame, first: Mapping[str, str]) -> tuple[list[float], int]:
    """p after Holm of a family's rows, each computation counted once, and how many those are."""
    keys = [
        (row["benchmark"], *sorted((first[row["algorithm"]], first[row["other"]])))
        for row in family[["benchmark", "algorithm", "other"]].to_dict("records")
    ]
    p = dict(zip(keys, family["p"], strict=True))
    p = {key: math.nan if key[1] == key[2] else value for key, value in p.items()}
    adjusted = dict(zip(p, holm(np.array(list(p.values()))), strict=True))
    return [float(adjusted[key]) for key in keys], sum(not math.isnan(v) for v in p.values())


def _by_benchmark(curves: Mapping[tuple[str, str, str], Curves]) -> dict[tuple[str, str], list]:
    algorithms: dict[tuple[str, str], list[str]] = {}
    for model, algorithm, benchmark in curves:
        algorithms.setdefault((model, benchmark), []).append(algorithm)
    return algorithms


def _comparison(
    key: tuple[str, str, str],
    other_key: tuple[str, str, str],
    curves: Mapping[tuple[str, str, str], Curves],
    draws: int,
) -> list[dict[str, object]]:
    one, other = curves[key], curves[other_key]
    if one.problems != other.problems:
        raise ValueError(f"{key} and {other_key}: evaluated on different problems")
    differences, ks, seeds = _differences(key, one, other_key, other)
    return differences_rows(differences, ks, seeds, draws)


def _differences(
    key: tuple[str, str, str], one: Curves, other_key: tuple[str, str, str], other: Curves
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Paired differences `[S, P, K]`, their ks `[K]` and their common training seeds `[S]`.

    pass@k is unbiased for every k up to n, so samples of different number share their ks.
    """
    ks, of_one, of_other = np.intersect1d(one.ks, other.ks, return_indices=True)
    values, others = one.values[..., of_one], other.values[..., of_other]
    if BASE in (key[1], other_key[1]):
        return values - others, ks, list((one if other_key[1] == BASE else other).seeds)
    seeds = [seed for seed in one.seeds if seed in other.seeds]
    if not seeds:
        raise ValueError(f"{key} and {other_key}: no training seed in common")
    places = [one.seeds.index(seed) for seed in seeds], [other.seeds.index(seed) for seed in seeds]
    return values[places[0]] - others[places[1]], ks, seeds
