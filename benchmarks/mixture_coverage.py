"""How often the interval beside a mixture holds the truth (docs/statistics.md).

    python -m benchmarks.mixture_coverage

Simulates studies of PROBLEMS problems with DRAWS samples of each, prints the share of intervals
that hold the true difference, and writes it to `benchmarks/mixture_coverage.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import expit, logit

from benchmarks.chance import markdown
from sage.evaluation.intervals import Groups
from sage.evaluation.mixtures import beside_mixture
from sage.runtime.files import write_json_atomic

PROBLEMS, DRAWS, K, STUDIES, RESAMPLES = 60, 64, 32, 1_000, 1_000
STRATA = np.arange(PROBLEMS) % 6
OWN = STRATA == 0
"""The stratum that RL trains on: accuracy is counted there."""

RUNS = (2, 3, 5)
FEW = (0.03, 0.05, 0.1, 0.15)
"""Shares of problems that carry the whole difference in pass@K."""

Policies = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rates of the base `[P]`, of a method and of the baseline `[S, P]`."""

World = Callable[[np.random.Generator, np.ndarray, int], Policies]


def sharpened(rng: np.random.Generator, strata: np.ndarray, runs: int) -> Policies:
    """RL raises one stratum of six and lowers the others; the method does both less."""
    own, size = strata == 0, len(strata)
    base = np.where(own, -1.2, -3.5) + 0.7 * rng.standard_normal(size)
    policies = []
    for up, down in ((2.0, -0.8), (3.0, -2.0)):
        of_problem = 0.5 * rng.standard_normal(size)
        of_run = 0.3 * rng.standard_normal((2, runs, 1))
        change = np.where(own, up + of_run[0], down + of_run[1])
        noise = 0.3 * rng.standard_normal((runs, size))
        policies.append(expit(base + of_problem + change + noise))
    return expit(base), *policies


def nearly_as_accurate(rng: np.random.Generator, strata: np.ndarray, runs: int) -> Policies:
    """As SmolLM2 on sheets: RL makes one stratum sure, and the method keeps a third of the rest."""
    rates = np.array([0.28, 0.15, 0.1, 0.07, 0.028, 0.0008])[strata]
    own, size = strata == 0, len(strata)
    base = expit(logit(rates) + 0.5 * rng.standard_normal(size))
    policies = []
    for sure, kept in ((2.7, 0.3), (3.0, 0.05)):
        of_problem = 0.3 * rng.standard_normal(size)
        of_run = 0.3 * rng.standard_normal((2, runs, 1))
        noise = of_problem + 0.3 * rng.standard_normal((runs, size))
        others = np.minimum(base * kept * np.exp(of_run[1] + noise), 0.99)
        policies.append(np.where(own, expit(sure + of_run[0] + noise), others))
    return base, *policies


def carried_by_few(share: float) -> World:
    """The method keeps a `share` of problems that the baseline loses, and solves the others too."""

    def world(rng: np.random.Generator, strata: np.ndarray, runs: int) -> Policies:
        rare = rng.random(len(strata)) < share
        base = np.where(rare, 0.3, np.where(rng.random(len(strata)) < 0.5, 0.6, 0.0))
        kept = np.where(rare, 0.3, np.where(base > 0, 0.75, 0.0))
        lost = np.where(rare, 0.0, np.where(base > 0, 0.95, 0.0))
        return base, np.tile(kept, (runs, 1)), np.tile(lost, (runs, 1))

    return world


def truth(world: World, weights: bool) -> float:
    """The method's pass@K minus that of the mixture, over very many problems and runs."""
    strata = np.tile(np.arange(6), 2_000)
    base, kept, lost = world(np.random.default_rng(99), strata, 200)
    own = strata == 0 if weights else np.ones(len(strata), bool)
    ours, theirs, before = (rates[..., own].mean() for rates in (kept, lost, base))
    share = (theirs - ours) / (theirs - before)
    mixed = share * (1 - base) + (1 - share) * (1 - lost)
    return float((mixed**K).mean() - ((1 - kept) ** K).mean())


def coverage(world: World, runs: int, strata: bool) -> float:
    """The share of STUDIES whose interval holds the truth; accuracy on OWN with `strata`."""
    rng, wanted, held, told = np.random.default_rng(1), truth(world, strata), 0, 0
    groups = Groups(tuple(map(str, STRATA)), drawn=False) if strata else None
    for _ in range(STUDIES):
        base, kept, lost = (rng.binomial(DRAWS, rate) for rate in world(rng, STRATA, runs))
        weights = OWN / OWN.mean() if strata else None
        found = beside_mixture(kept, lost, base, DRAWS, K, RESAMPLES, groups, weights)
        told += not np.isnan(found["value"])
        held += found["low"] <= wanted <= found["high"]
    return held / told


def main() -> int:
    """Print and keep."""
    content = {f"six strata, {runs} runs": coverage(sharpened, runs, True) for runs in RUNS}
    content["nearly as accurate, 5 runs"] = coverage(nearly_as_accurate, 5, True)
    content |= {
        f"{100 * share:.0f} % of problems carry all, 5 runs": coverage(
            carried_by_few(share), 5, False
        )
        for share in FEW
    }
    rows = {name: round(value, 3) for name, value in content.items()}
    write_json_atomic(Path(__file__).with_suffix(".json"), {"rows": [*rows.items()]})
    print(markdown("world | coverage", [[name, f"{value:.3f}"] for name, value in rows.items()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
