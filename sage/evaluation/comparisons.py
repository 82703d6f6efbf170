"""Two methods on the same problems: the difference of their pass@k, its interval and p.

Differences are taken problem by problem and training seed by training seed. The base has no
training seed; every run is compared with the one base, and so with any policy of NO_SEED. A method
is better only if it is so on other problems and in other training runs: interval and p add both
(`sage.evaluation.intervals`), and p is not below that of a sign-flip permutation over problems (of
clusters, or within strata, where problems have them). Holm's adjustment is for a family: the
comparisons that are shown together. Methods that gave the same counts everywhere are one
computation under two names, and count as one.

Models that differ in their base alone are a sample of those there could be. A contrast over them is
random in bases and in problems, which all bases share, and training runs lie within bases. With the
differences averaged over the runs of a base (`over_bases`), a base stands where a run stood, and
Student's t has the bases' degrees of freedom where the variance is that of bases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import ANSWERS, WORKING, Curves, curves_of, paired_runs
from sage.evaluation.intervals import (
    Estimate,
    Groups,
    Parts,
    ends_of_share,
    holm,
    mean_of,
    p_of_problems,
    p_of_runs,
    parts_of,
)

Differences = tuple[np.ndarray, np.ndarray, list[int]]
"""Paired differences `[S, P, K]`, their ks `[K]` and their common training seeds `[S]`."""

PART_COLUMNS = ["train_seeds", "by_run", "var_problems", "var_interaction", "var_below"]
PART_COLUMNS += ["var_above", "units"]
"""`by_run` lists values by `train_seeds`; var_* and `units` are the fields of `Parts`."""

COLUMNS = ["model", "benchmark", "algorithm", "other", "metric", "k", "value", "low", "high"]
COLUMNS += ["p_problems", "p_runs", "p"]
COLUMNS += ["n_problems", "n_seeds", "n_bases", *PART_COLUMNS, "same_counts", "partly"]


def comparisons_table(
    counts: pd.DataFrame, draws: int, bases: Mapping[str, Sequence[str]] | None = None
) -> pd.DataFrame:
    """Every pair of methods of a model, on each benchmark, for each k they share.

    COLUMNS: `value` is pass@k of `algorithm` minus that of `other`, by answers (`metric` ANSWERS)
    and, where the working of both is known, by correct working (WORKING). `low` and `high` are its
    95 % interval, `n_seeds` the training runs compared. With one training run `p_runs` is NaN and
    the row says nothing about other runs. PART_COLUMNS are what the mean over several benchmarks
    is made from (`average`). `same_counts`: every run of both has the same correct counts;
    `partly`: some count of `algorithm` is neither none nor all.

    `bases` are groups of models by name, in place of each model by itself: `model` is then the
    group, `n_bases` its models, each of which counts the same, and `p_runs` and PART_COLUMNS are
    over bases instead of runs. Raises ValueError for methods on different problems.
    """
    curves = curves_of(counts)
    worked = {key: curve.of_working() for key, curve in curves.items()}
    rows: list[dict[str, object]] = []
    groups = {model: [model] for model, _, _ in curves} if bases is None else bases
    for (group, models), benchmark in product(
        groups.items(), dict.fromkeys(key[2] for key in curves)
    ):
        algorithms = dict.fromkeys(key[1] for key in curves)
        common = [a for a in algorithms if all((m, a, benchmark) in curves for m in models)]
        for other, algorithm in combinations(common, 2):
            runs = [((model, algorithm, benchmark), (model, other, benchmark)) for model in models]
            pairs = [(curves[one], curves[two]) for one, two in runs]
            if len(asked := {one.problems for pair in pairs for one in pair}) > 1:
                every = [set(names) for names in asked]
                alone = {n for names in every for n in names if not all(n in s for s in every)}
                raise ValueError(
                    f"{', '.join(filter(None, (group, benchmark)))}: {algorithm} and {other} were "
                    f"evaluated on different problems; {len(alone)} are not in both, such as "
                    f"{', '.join(repr(name[:60]) for name in sorted(alone)[:3])}"
                )
            named = {"model": group, "benchmark": benchmark, "algorithm": algorithm, "other": other}
            answers = _compared(algorithm, other, pairs, draws)
            working = [(worked[one], worked[two]) for one, two in runs]
            known = [(one, two) for one, two in working if one is not None and two is not None]
            rows += [named | row for row in answers]
            if len(known) == len(pairs):
                both = zip(chain(*pairs), chain(*known), strict=True)
                alike = all(one.same_as(two) for one, two in both)  # every right answer is worked
                by_working = answers if alike else _compared(algorithm, other, known, draws)
                rows += [named | row | {"metric": WORKING} for row in by_working]
    return pd.DataFrame(rows, columns=COLUMNS)


def _compared(
    algorithm: str, other: str, pairs: Sequence[tuple[Curves, Curves]], draws: int
) -> list[dict[Any, Any]]:
    """The rows of two methods without their names; `pairs` are their curves from each base."""
    differences = [_differences(algorithm, one, other, two) for one, two in pairs]
    values, ks, seeds = differences[0] if len(differences) == 1 else over_bases(differences)
    partly = any(((one.correct > 0) & (one.correct < one.n)).any() for one, _ in pairs)
    of_pair = {
        "same_counts": all(one.same_as(two) for one, two in pairs),
        "partly": partly,
        "n_seeds": sum(len(runs) for *_, runs in differences),
        "n_bases": len(pairs),
    }
    by_k = differences_rows(values, ks, seeds, draws, pairs[0][0].groups)
    return [row | of_pair for row in by_k]


def over_bases(differences: Sequence[Differences]) -> Differences:
    """The differences of several bases, `[S, P, K]` each, as those of runs `[B, P, K]`.

    Each is averaged over its base's runs, of which there may be different numbers, at the ks that
    all have. The bases are numbered from 1.
    """
    ks = reduce(np.intersect1d, [of_base for _, of_base, _ in differences])
    values = np.stack(
        [of_base.mean(axis=0)[:, np.searchsorted(own_ks, ks)] for of_base, own_ks, _ in differences]
    )
    return values, ks, list(range(1, len(values) + 1))


def adjusted(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Comparisons with `p_holm` and `n_tests` after `p`; a family is of one model, metric and k.

    `p_holm` is p adjusted (Holm 1979) for the `n_tests` comparisons of the family, over all pairs
    and benchmarks in it. Pairs of the same counts are one test, and a method beside its twin is
    none (NaN). Methods are twins if they have the same counts on every benchmark; counts that
    are all or nothing everywhere are no sign of it.
    """
    table = comparisons.drop(columns=["p_holm", "n_tests"], errors="ignore")  # of another family
    place = [*table.columns].index("p") + 1
    table.insert(place, "p_holm", np.nan)
    table.insert(place + 1, "n_tests", 0)
    for _, of_model in comparisons.groupby(["model", "metric"], sort=False):
        first = _first_names(of_model)
        for _, family in of_model.groupby("k", sort=False):
            p_holm, tests = _adjusted(family, first)
            table.loc[family.index, "p_holm"] = p_holm
            table.loc[family.index, "n_tests"] = tests
    return table


def differences_rows(
    differences: np.ndarray,
    ks: Iterable[int],
    seeds: Sequence[int],
    draws: int,
    groups: Groups | None = None,
) -> list[dict[Any, Any]]:
    """The part of COLUMNS that differences `[S, P, K]` of runs `seeds` decide, a row for each k."""
    parts = parts_of(differences, draws, groups=groups)
    mean = mean_of([parts])
    low, high = (np.clip(end, -1.0, 1.0) for end in mean.interval())
    units = differences if groups is None else groups.applied(differences)[0]
    p_problems, p_runs = p_of_problems(units, draws), p_of_runs(differences)
    p = np.maximum(p_problems, mean.p())
    columns = {"metric": ANSWERS, "k": list(ks), "value": mean.value, "low": low, "high": high}
    columns |= {"p_problems": p_problems, "p_runs": p_runs, "p": p, **part_columns(parts, seeds)}
    sizes = {"n_problems": differences.shape[1], "n_seeds": differences.shape[0], "n_bases": 1}
    return pd.DataFrame(columns | sizes).to_dict("records")


def _first_names(comparisons: pd.DataFrame) -> dict[str, str]:
    """By method the first of its twins, itself where it has none; comparisons of one model."""
    benchmarks: dict[str, set[str]] = {}
    same: dict[tuple[str, str], set[str]] = {}
    partly: dict[tuple[str, str], bool] = {}
    pairs = comparisons.drop_duplicates(["benchmark", "algorithm", "other"])
    for row in pairs.to_dict("records"):
        names = row["other"], row["algorithm"]
        for name in names:
            benchmarks.setdefault(name, set()).add(row["benchmark"])
        if row["same_counts"]:
            for pair in (names, names[::-1]):
                same.setdefault(pair, set()).add(row["benchmark"])
                partly[pair] = partly.get(pair, False) or row["partly"]
    first: dict[str, str] = {}
    for name, own in benchmarks.items():
        twins = (
            other
            for other in first
            if partly.get((name, other)) and same[name, other] == own == benchmarks[other]
        )
        first[name] = next(twins, name)
    return first


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


def _differences(name: str, one: Curves, other_name: str, other: Curves) -> Differences:
    """The differences of two methods.

    pass@k is unbiased for every k up to n, so samples of different number share their ks.
    """
    ks, of_one, of_other = np.intersect1d(one.ks, other.ks, return_indices=True)
    values, others = one.values[..., of_one], other.values[..., of_other]
    seeds, *places = paired_runs((name, one.seeds), (other_name, other.seeds))
    return values[places[0]] - others[places[1]], ks, seeds


def part_columns(parts: Parts, seeds: Sequence[int]) -> dict[str, list[Any]]:
    """PART_COLUMNS of `parts` `[K]`, whose runs are `seeds`: lists of K entries."""
    size = len(parts.problems)
    return {
        "train_seeds": [list(seeds)] * size,
        "by_run": parts.by_run.T.tolist(),
        "var_problems": parts.problems.tolist(),
        "var_interaction": parts.interaction.tolist(),
        "var_below": parts.below.tolist(),
        "var_above": parts.above.tolist(),
        "units": [parts.units] * size,
    }


def average(
    rows: Sequence[Mapping[Any, Any]], signs: Sequence[int] | None = None, bounded: bool = False
) -> Estimate:
    """The mean difference over some rows of the comparisons, one for each benchmark; `[1]`.

    A row with sign -1 was taken the other way round. Only training seeds that all rows have
    count; with fewer of them the mean over a problem's runs is less sure. `bounded` is for shares
    (`mean_of`). Raises ValueError if there are none.
    """
    seeds = set.intersection(*(set(map(int, row["train_seeds"])) for row in rows))
    if not seeds:
        raise ValueError("benchmarks without a training seed in common")
    signs = signs or [1] * len(rows)
    return mean_of(
        [_parts(row, sign, seeds) for row, sign in zip(rows, signs, strict=True)], bounded
    )


def average_share(rows: Sequence[Mapping[Any, Any]]) -> tuple[float, float, float]:
    """As `average`, of shares (rows of pass@k): the mean and its 95 % interval."""
    estimate = average(rows, bounded=True)
    low, high = ends_of_share(estimate)
    return float(estimate.value[0]), float(low[0]), float(high[0])


def _parts(row: Mapping[Any, Any], sign: int, seeds: set[int]) -> Parts:
    by_seed = dict(zip(map(int, row["train_seeds"]), row["by_run"], strict=True))
    more = len(by_seed) / len(seeds)  # s_e^2 / (S P) for the seeds that count
    interaction = np.array([row["var_interaction"]])
    problems, below, above = (
        np.array([row[f"var_{name}"]]) + interaction * (more - 1.0)
        for name in ("problems", *("below", "above")[::sign])
    )
    return Parts(
        by_run=sign * np.array([[by_seed[seed]] for seed in sorted(seeds)]),
        problems=problems,
        interaction=interaction * more,
        below=below,
        above=above,
        units=int(row["units"]),
    )
