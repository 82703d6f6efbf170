"""What RL did to the problems a policy can solve at all (Wu et al. 2025, arXiv 2507.14843).

A problem counts as solved if any of its n samples is correct. With n samples, a problem that
is solved with probability epsilon = -ln(zeta) / n or more is missed with probability zeta at
most: unsolved means that its success rate is likely below epsilon, not that it is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from sage.evaluation.curves import POOLED, curves_of
from sage.fields import BASE

ZETA = 0.05
"""Highest probability that a problem solved at rate epsilon goes unsolved."""

SCORES = ("srr", "ndr", "sds", "nscr")

_LEAST = {"srr": 0.0, "ndr": 0.0, "sds": 0.0, "nscr": -1.0}
_FORMULAS: dict[str, Callable[..., Any]] = {
    "srr": lambda p, e, s: p / (p + s),
    "ndr": lambda p, e, s: e / (p + e),
    "sds": lambda p, e, s: 2 * p * e / (p * p + 2 * p * e + e * s),
    "nscr": lambda p, e, s: (e - s) / (p + e + s),
}

COLUMNS = ["model", "algorithm", "train_seed", "benchmark", "preserved", "expanded", "shrunk"]
COLUMNS += ["neither", *SCORES, "n_samples", "zeta", "epsilon"]
COLUMNS += [*(f"{name}_{part}" for name in SCORES for part in ("low", "high"))]


def support_table(counts: pd.DataFrame, draws: int) -> pd.DataFrame:
    """Each trained run against the base: a row per run, and one pooled over training seeds.

    COLUMNS: problems solved by both (`preserved`, P), only after training (`expanded`, E), only
    before (`shrunk`, S) and by neither; the pooled row (train_seed POOLED) adds them up over
    seeds. Support retention P / (P + S), new discovery E / (P + E), their harmonic mean
    (support dynamic score) and net change (E - S) / (P + E + S): NaN where nothing divides.
    For each score, `_low` and `_high` are its 95 % interval, over problems and, where there are
    several, training runs. Raises ValueError if base and run differ in problems or in samples per
    problem.
    """
    curves = curves_of(counts)
    rows: list[dict[str, object]] = []
    for (model, algorithm, benchmark), trained in curves.items():
        base = curves.get((model, BASE, benchmark))
        if algorithm == BASE or base is None:
            continue
        if (trained.problems, trained.n) != (base.problems, base.n):
            raise ValueError(
                f"{model}, {algorithm}, {benchmark}: sampled unlike the base "
                f"({trained.n} samples against {base.n}, or other problems)"
            )
        groups = {seed: trained.correct[i : i + 1] for i, seed in enumerate(trained.seeds)}
        groups[POOLED] = trained.correct
        for train_seed, correct in groups.items():
            before, after = base.correct[:1] > 0, correct > 0
            cells = before & after, ~before & after, before & ~after, ~before & ~after
            sizes = [int(cell.sum()) for cell in cells]
            head = (model, algorithm, train_seed, benchmark, *sizes)
            size = {"n_samples": trained.n, "zeta": ZETA, "epsilon": -math.log(ZETA) / trained.n}
            rows.append(
                dict(zip(COLUMNS, head, strict=False))
                | support_scores(*sizes[:3])
                | size
                | _intervals(cells, draws)
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def support_scores(preserved: float, expanded: float, shrunk: float) -> dict[str, float]:
    """The four scores by name, from P, E and S; NaN for 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        counts = np.float64(preserved), np.float64(expanded), np.float64(shrunk)
        return {name: float(score(*counts)) for name, score in _FORMULAS.items()}


def _intervals(cells: tuple[np.ndarray, ...], draws: int) -> dict[str, float]:
    """`_low` and `_high` of each score, the ends of its 95 % interval, from cells `[S, P]`.

    Problems get weights from a flat Dirichlet distribution, with those of one more problem, and an
    end is the farthest that any kind of it gives: for a share of like problems that is Gaffke's
    interval (`sage.evaluation.bootstrap`), and Clopper and Pearson's where none or all were lost.
    Student's arm over the runs' scores is added to that as to a variance.
    """
    runs, problems = cells[0].shape
    weights = np.random.default_rng(0).dirichlet(np.ones(problems + 1), draws) * (problems + 1)
    drawn = [weights[:, :-1] @ cell.mean(axis=0) for cell in cells[:3]]
    resampled = [
        [part + (weights[:, -1] if kind == more else 0.0) for kind, part in enumerate(drawn)]
        for more in range(3)
    ]
    sums = [cell.sum(axis=1).astype(float) for cell in cells[:3]]
    found = {}
    for name, score in _FORMULAS.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(score(*(total.sum() for total in sums)))
            by_run = score(*sums)
            scores = np.array([score(*parts) for parts in resampled])
        known_of = [each for each in scores if np.isfinite(each).all()]
        ends = (
            min(np.quantile(each, 0.025) for each in known_of),
            max(np.quantile(each, 0.975) for each in known_of),
        )
        reach, known = 0.0, by_run[np.isfinite(by_run)]
        if runs > 1:
            spread = known.std(ddof=1) / math.sqrt(len(known)) if len(known) > 1 else math.nan
            reach = float(stdtrit(len(known) - 1, 0.975) * spread)
        below, above = (math.hypot(max(a, 0.0), reach) for a in (value - ends[0], ends[1] - value))
        found[f"{name}_low"] = max(value - below, _LEAST[name])
        found[f"{name}_high"] = min(value + above, 1.0)
    return found
