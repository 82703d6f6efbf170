"""What a guide does at which dose: its effect in each cell of a grid, and the slope over the dose.

A cell is a guided method; it is compared with the same method without its guide, problem by problem
and training seed by training seed. The dose is measured, not set: the standard deviation of
beta * log q(x, y) within a group in standard deviations of its advantages
(`sage.training.anchoring.DoseTally`), averaged over the steps of training. Coverage counts correct
working where the problem set can check it, else answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sage.evaluation.curves import curves_of, paired_runs, right_counts
from sage.evaluation.histories import History
from sage.evaluation.intervals import Groups, mean_of, parts_of
from sage.evaluation.pass_at_k import pass_at_k

EFFECTS = ["estimator", "kl_coefficient", "setting", "algorithm", "other", "k", "worked"]
EFFECTS += ["value", "low", "high", "with_guide", "without", "n_seeds", "guide_dose", "kl_dose"]
EFFECTS += ["guide_dose_first", "kl", "truncated"]
"""A row for each cell and k. `value` is pass@k with the guide minus that without it (shares), with
its 95 % interval; `worked` says whether correct working counts. Doses are means over steps and
runs, `guide_dose_first` over the first third; `kl` (nats) and `truncated` (share) over the last."""

SLOPES = ["estimator", "k", "worked", "value", "low", "high", "n_cells", "n_seeds"]
"""A row for each estimator and k: what ten times the dose adds to the effect (shares)."""


@dataclass(frozen=True)
class Cell:
    """A guided method and the same without its guide; `setting` is the guide's varied setting."""

    estimator: str
    kl_coefficient: float
    setting: float
    guided: str
    plain: str


def dose_tables(
    counts: pd.DataFrame,
    histories: Mapping[tuple[str, int], History],
    cells: Sequence[Cell],
    ks: Sequence[int],
    draws: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """EFFECTS and SLOPES of one model on one benchmark, from its counts.

    The slope is the least-squares line of the cells' effects over log10 of their doses; as it is
    linear in the effects, problems and runs are resampled with it as they are with a difference.
    Estimators with fewer than two cells of different dose have none. Raises ValueError if a cell
    and its control share no training seed.
    """
    curves = {algorithm: each for (_, algorithm, _), each in curves_of(counts).items()}
    effects, groups = [], None  # the same in all cells, which share their problems
    differences: dict[str, list[tuple[float, dict[int, np.ndarray]]]] = {}
    right, worked = right_counts(curves)
    for cell in cells:
        names = cell.guided, cell.plain
        seeds, *places = paired_runs(*((name, curves[name].seeds) for name in names))
        n, groups = curves[cell.guided].n, curves[cell.guided].groups
        guided, plain = (
            pass_at_k(n, right[name][place], np.array(ks))
            for name, place in zip(names, places, strict=True)
        )
        dose = _training(histories, cell.guided, seeds)
        mean = mean_of([parts_of(guided - plain, draws, groups=groups)])
        low, high = mean.interval()
        by_seed = dict(zip(seeds, guided - plain, strict=True))
        differences.setdefault(cell.estimator, []).append((dose["guide_dose"], by_seed))
        columns = {
            "estimator": cell.estimator,
            "kl_coefficient": cell.kl_coefficient,
            "setting": cell.setting,
            "algorithm": cell.guided,
            "other": cell.plain,
            "k": ks,
            "worked": worked,
            "value": mean.value,
            "low": low,
            "high": high,
            "with_guide": guided.mean(axis=(0, 1)),
            "without": plain.mean(axis=(0, 1)),
            "n_seeds": len(seeds),
        }
        effects.append(pd.DataFrame(columns | dose))
    slopes = [
        _slopes(pairs, ks, draws, groups).assign(estimator=estimator, worked=worked)
        for estimator, pairs in differences.items()
    ]
    kept = [each for each in slopes if len(each)] or [pd.DataFrame(columns=SLOPES)]
    return (
        pd.concat(effects, ignore_index=True)[EFFECTS],
        pd.concat(kept, ignore_index=True)[SLOPES],
    )


def _training(
    histories: Mapping[tuple[str, int], History], algorithm: str, seeds: Sequence[int]
) -> dict[str, float]:
    """The last columns of EFFECTS: means over a method's runs of what its histories say."""
    runs = [pd.DataFrame(histories[algorithm, seed]) for seed in seeds]
    third = max(1, len(runs[0]) // 3)

    def mean(key: str, steps: slice) -> float:
        return float(np.mean([run[key].iloc[steps].mean() for run in runs if key in run] or np.nan))

    return {
        "guide_dose": mean("guide_dose", slice(None)),
        "kl_dose": mean("kl_dose", slice(None)),
        "guide_dose_first": mean("guide_dose", slice(third)),
        "kl": mean("kl", slice(-third, None)),
        "truncated": mean("truncated_share", slice(-third, None)),
    }


def _slopes(
    pairs: Sequence[tuple[float, Mapping[int, np.ndarray]]],
    ks: Sequence[int],
    draws: int,
    groups: Groups | None,
) -> pd.DataFrame:
    """SLOPES of one estimator but for its name; over training runs that all its cells have.

    `pairs` are the dose of each cell and by training seed its differences `[P, K]`.
    """
    known = [(dose, change) for dose, change in pairs if dose > 0]
    doses = np.log10([dose for dose, _ in known])
    if len(known) < 2 or np.ptp(doses) == 0:
        return pd.DataFrame(columns=SLOPES)
    seeds = sorted(set.intersection(*(set(change) for _, change in known)))
    if not seeds:
        return pd.DataFrame(columns=SLOPES)
    centred = doses - doses.mean()
    weights = centred / (centred @ centred)
    changes = np.stack([[change[seed] for seed in seeds] for _, change in known])
    slope = np.einsum("c,cspk->spk", weights, changes)
    mean = mean_of([parts_of(slope, draws, None, groups=groups)])
    low, high = mean.interval()
    columns = {"k": ks, "value": mean.value, "low": low, "high": high}
    return pd.DataFrame(columns | {"n_cells": len(known), "n_seeds": len(seeds)})
