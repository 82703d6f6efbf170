"""Simulated studies: problems, rows and runs with known effects, measured as real ones are.

Problems are Beta distributed, fitted to the base policy of a run of the mini study; rows and runs
move them by normal effects in logits. `benchmarks.calibration` judges these studies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import root
from scipy.special import betaln, expit, logit

from sage.claims.evidence import History, Pair
from sage.claims.tests import Claim, PassAtK, PatternShare, StepTime, Tail
from sage.evaluation.comparisons import differences_rows
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.study import BASE, ResolvedStudy

ROOT = Path(__file__).resolve().parents[1]
DRAWS, SAMPLES = 1_000, 128
"""Of the bootstrap; of each problem."""

SEEN = {
    "arithmetic": (60, 1_622, 60),
    "harder": (60, 350, 55),
    "knights": (40, 158, 34),
    "longer": (40, 194, 36),
}
"""Problems of a benchmark; of 64 samples each, how many the base had right; problems solved."""

SIZES = {benchmark: seen[0] for benchmark, seen in SEEN.items()}
"""Problems of a benchmark."""

BENCHMARKS = {
    "table1": ("arithmetic", "harder", "knights"),
    "table3": ("arithmetic", "harder", "knights"),
    "figure4": ("knights",),
    "table9": ("longer",),
}
"""Benchmarks of the exhibits that claims about pass@k name."""

Key = tuple[str, str, str, int]
"""row, other, benchmark, k."""


@dataclass(frozen=True)
class World:
    """What problems, rows and runs are like; standard deviations in logits.

    `row` is by how much a row moves single problems, the same in all its runs; `run` by how much
    a run moves all problems, half of its variance on every benchmark alike; `both` what is left.
    """

    row: float = 0.5
    run: float = 0.25
    both: float = 0.3
    samples: int = SAMPLES


PLACEBO = World(row=0.0, run=0.0, both=0.0)
"""Every row is the base: a second draw of itself."""


@cache
def simulated_study(samples: int = SAMPLES, among: tuple[str, ...] = tuple(SEEN)) -> ResolvedStudy:
    """The mini study on the benchmarks `among` those of SEEN, with `samples` of each problem."""
    study = load_study("mini", ROOT / "config")
    models = {
        name: model.model_copy(update={"evaluation": None})
        for name, model in study.study.models.items()
    }
    evaluation = study.study.evaluation.model_copy(
        update={"samples": samples, "primary_k": samples // 2, "seeds": [0], "bootstrap": DRAWS}
    )
    exhibits = {
        name: exhibit.model_copy(update={"benchmarks": [b for b in BENCHMARKS[name] if b in among]})
        if name in BENCHMARKS
        else exhibit
        for name, exhibit in study.study.exhibits.items()
    }
    update = {"models": models, "evaluation": evaluation, "exhibits": exhibits}
    whole = study.study.model_copy(update=update)
    return study.model_copy(update={"study": whole})


def fitted() -> dict[str, tuple[float, float]]:
    """Beta distributions of the base's success rates with the pass@1 and pass@64 of SEEN.

    Half a problem is kept from pass@64 of 1.
    """
    return {
        benchmark: beta_with(correct / (64 * size), min(solved / size, 1.0 - 0.5 / size))
        for benchmark, (size, correct, solved) in SEEN.items()
    }


def beta_with(first: float, many: float, k: int = 64) -> tuple[float, float]:
    """a and b of the Beta distribution with mean pass@1 `first` and mean pass@k `many`."""

    def gap(logs: np.ndarray) -> list[float]:
        a, b = np.exp(logs)
        missed = np.exp(betaln(a, b + k) - betaln(a, b))
        return [float(logit(a / (a + b)) - logit(first)), float(np.log(missed / (1.0 - many)))]

    found = root(gap, np.log([2.0 * first, 2.0 * (1.0 - first)]))
    if not found.success:
        raise ValueError(f"no Beta distribution with pass@1 {first} and pass@{k} {many}")
    a, b = np.exp(found.x)
    return float(a), float(b)


def differences(
    claim: Claim,
    study: ResolvedStudy,
    world: World,
    runs: int,
    studies: int,
    rng: np.random.Generator,
    shifts: Mapping[tuple[str, str], float] | None = None,
) -> dict[Key, np.ndarray]:
    """Differences of pass@k that a claim needs, `[runs, problems, studies]` by Key.

    `shifts` are effects of rows in logits, by row and benchmark.
    """
    wanted = _wanted(claim, study)
    rows = sorted({name for row, other, _, _ in wanted for name in (row, other)})
    values: dict[tuple[str, str, int], np.ndarray] = {}
    common = {
        row: world.run * np.sqrt(0.5) * rng.standard_normal((runs, 1, studies)) for row in rows
    }
    for benchmark in sorted({key[2] for key in wanted}):
        size = SIZES[benchmark]
        level = logit(rng.beta(*fitted()[benchmark], (1, size, studies)).clip(1e-9, 1 - 1e-9))
        for row in rows:
            ks = sorted({k for one, two, on, k in wanted if row in (one, two) and on == benchmark})
            if not ks:
                continue
            count = 1 if row == BASE else runs
            own = world.run * np.sqrt(0.5) * rng.standard_normal((count, 1, studies))
            moved = level + world.row * rng.standard_normal((1, size, studies)) + own
            moved = moved + (common[row] if row != BASE else 0.0)
            moved = moved + world.both * rng.standard_normal((count, size, studies))
            moved = moved + (shifts or {}).get((row, benchmark), 0.0)
            correct = rng.binomial(world.samples, expit(moved))
            table = pass_at_k(world.samples, np.arange(world.samples + 1), np.array(ks))
            values |= {(row, benchmark, k): table[correct, i] for i, k in enumerate(ks)}
    return {
        key: values[row, on, k] - values[other, on, k]
        for key in wanted
        for row, other, on, k in (key,)
    }


def comparison_rows(found: Mapping[Key, np.ndarray]) -> list[dict[Pair, dict[str, Any]]]:
    """What `metrics/comparisons.parquet` would hold of each study, row by row."""
    studies = next(iter(found.values())).shape[2]
    tables: list[dict[Pair, dict[str, Any]]] = [{} for _ in range(studies)]
    for (row, other, benchmark, k), values in found.items():
        seeds = list(range(values.shape[0]))
        names = {"model": "tiny", "benchmark": benchmark, "algorithm": row, "other": other}
        rows = differences_rows(values, [k] * studies, seeds, DRAWS)
        for table, one in zip(tables, rows, strict=True):
            table["tiny", benchmark, row, other, k] = names | one
    return tables


def histories(runs: int, rng: np.random.Generator) -> dict[tuple[str, str, int], History]:
    """Training histories of one study in which rows differ by chance."""
    found = {}
    for row in ("grpo", "grpo_no_kl"):
        for seed in range(runs):
            reward, norm = (
                0.6 + 0.02 * rng.standard_normal(),
                0.2 * np.exp(0.1 * rng.standard_normal()),
            )
            found["tiny", row, seed] = [
                {"step": i, "reward": reward + 0.05 * noise, "grad_norm": norm * np.exp(0.2 * more)}
                for i, (noise, more) in enumerate(rng.standard_normal((30, 2)), start=1)
            ]
    return found


def exhibits(
    kinds: Collection[type], runs: int, rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """What tests of `kinds` read of one study, in which rows differ by chance."""
    rows = ["grpo", "grpo_branch", "grpo_random", "grpo_token"]
    found = {}
    if PatternShare in kinds:
        found["table2"] = _patterns(runs, rng)
    if Tail in kinds:
        found["figure7"] = _perplexities(["base", *rows], runs, rng)
    if StepTime in kinds:
        found["overhead"] = _times(rows, rng)
    return found


def shift_for(points: float, k: int, benchmarks: Sequence[str]) -> float:
    """The effect in logits that moves mean pass@k by `points` (a share) in the default world."""
    rng = np.random.default_rng(0)
    world, size = World(), 200_000
    levels = {b: logit(rng.beta(*fitted()[b], size).clip(1e-9, 1 - 1e-9)) for b in benchmarks}
    noise = np.sqrt(world.row**2 + world.run**2 + world.both**2) * rng.standard_normal(size)

    def mean(shift: float) -> float:
        rates = [expit(levels[b] + noise + shift) for b in benchmarks]
        return float(np.mean([1.0 - (1.0 - rate) ** k for rate in rates]))

    low, high, aim = -6.0, 6.0, mean(0.0) + points
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < aim else (low, middle)
    return (low + high) / 2


def kinds_of(claim: Claim) -> set[type]:
    """The kinds of test that a claim has."""
    return {type(test) for test in (claim.primary, *claim.secondary)}


def _wanted(claim: Claim, study: ResolvedStudy) -> list[Key]:
    """Every difference of pass@k that a claim is tested on, at k = 1 or half of the samples."""
    keys: dict[Key, None] = {}
    for test in (claim.primary, *claim.secondary):
        if isinstance(test, PassAtK):
            k = 1 if test.k == 1 else study.study.evaluation.samples // 2
            for benchmark in study.benchmarks_of(test.exhibit):
                keys[test.row, test.other, benchmark, k] = None
    return list(keys)


def _patterns(runs: int, rng: np.random.Generator) -> pd.DataFrame:
    size, name = SIZES["arithmetic"], "proof_by_contradiction"
    rate, level = rng.beta(*fitted()["arithmetic"], size), logit(rng.beta(0.5, 9.5, size))
    rows: list[dict[str, Any]] = []
    for row in ("base", "grpo", "grpo_branch"):
        count = 1 if row == "base" else runs
        moved = level + 0.3 * rng.standard_normal(size) + 0.3 * rng.standard_normal((count, 1))
        correct = rng.binomial(16, np.broadcast_to(rate, (count, size)))
        shown = rng.binomial(correct, expit(moved))
        rows.append(
            {
                "model": "tiny",
                "algorithm": row,
                "benchmark": "arithmetic",
                "pattern": name,
                "train_seeds": list(range(count)),
                "problems": list(range(size)),
                "correct": correct.ravel().tolist(),
                "shown": shown.ravel().tolist(),
            }
        )
    return pd.DataFrame(rows)


def _perplexities(rows: Sequence[str], runs: int, rng: np.random.Generator) -> pd.DataFrame:
    """20 problems with 32 responses each, log-normal; rows and runs move their scale."""
    problems, responses = 20, 32
    scale = 0.3 * np.exp(0.2 * rng.standard_normal(problems))
    keys = [(row, seed) for row in rows for seed in range(1 if row == "base" else runs)]
    drawn = []
    for _ in keys:
        moved = scale * np.exp(0.1 * rng.standard_normal(problems) + 0.1 * rng.standard_normal())
        drawn.append(np.exp(moved[:, None] * np.abs(rng.standard_normal((problems, responses)))))
    each = problems * responses
    return pd.DataFrame(
        {
            "algorithm": np.repeat([row for row, _ in keys], each),
            "train_seed": np.repeat([seed for _, seed in keys], each),
            "benchmark": "arithmetic",
            "problem_id": np.tile(np.repeat(np.arange(problems), responses), len(keys)),
            "perplexity": np.ravel(drawn),
        }
    )


def _times(rows: Sequence[str], rng: np.random.Generator) -> pd.DataFrame:
    """40 rounds; a round is slow or fast for all rows, and each time has 5 % noise."""
    slow = np.exp(0.2 * rng.standard_normal(40))
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "algorithm": row,
                    "round": range(40),
                    "seconds": slow * np.exp(0.05 * rng.standard_normal(40)),
                }
            )
            for row in rows
        ],
        ignore_index=True,
    )
