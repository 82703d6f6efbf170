"""Simulated studies: problems, methods and runs with known effects, measured as real ones are.

Methods and runs move problems by effects in logits. The sheets are those of the world of sums: its
levels after GRPO, and the spread of its 20 kept runs by stratum, are read from
`benchmarks/calibration_runs.json`, and a simulated run moves the strata as one of these did. The
problems of the other benchmarks are Beta distributed, fitted to the base of an earlier small
study. `benchmarks.calibration` judges these studies.
"""

from __future__ import annotations

import json
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
from sage.claims.tests import Claim, PassAtK, PatternShare, Tail
from sage.evaluation.comparisons import differences_rows
from sage.evaluation.intervals import Groups
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.study import BASE, ResolvedStudy

ROOT = Path(__file__).resolve().parents[1]
DRAWS, SAMPLES, PRIMARY_K = 500, 128, 16
"""Of the bootstrap; of each problem; the world of sums' primary k."""

SHEETS, SIZE = "sheets", 120
"""The benchmark of the world of sums, and its problems."""

SEEN = {"harder": (60, 350, 55), "knights": (40, 158, 34), "longer": (40, 194, 36)}
"""Problems of a benchmark; of 64 samples each, how many the base had right; problems solved."""

SIZES = {SHEETS: SIZE, **{benchmark: seen[0] for benchmark, seen in SEEN.items()}}

BENCHMARKS = {
    "table1": (SHEETS, "harder"),
    "table3": (SHEETS, "harder"),
    "figure4": ("knights",),
    "table9": ("longer",),
}
"""Benchmarks of the exhibits that claims about pass@k name."""

MODEL = "qwen_math_7b"
"""The model of the paper's study, whose exhibits the simulated study has."""

Key = tuple[str, str, str, int]
"""row, other, benchmark, k."""


@dataclass(frozen=True)
class World:
    """What problems, methods and runs are like; standard deviations in logits.

    `row` is by how much a method moves single problems, the same in all its runs; `run` by how
    much a run moves all problems (of sheets beside what the kept runs did), half of its variance on
    every benchmark alike; `both` what is left. `heavy` draws the first two from Student's t with
    three degrees of freedom. With `clusters`, half of the variance of `row` is shared by the
    problems of a cluster. There are `bases` with as many runs each; `by_base` is by how much a
    method moves all problems of a base. A share of runs, `collapsed`, loses `loss` logits, or those
    of the method `only`. A study that does not know its clusters or bases takes them for none.
    """

    row: float = 0.5
    run: float = 0.25
    both: float = 0.3
    heavy: bool = False
    clusters: int = 0
    clusters_known: bool = True
    bases: int = 1
    by_base: float = 0.0
    bases_known: bool = True
    collapsed: float = 0.0
    loss: float = 2.0
    only: str = ""

    def noise(self, rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        """Normal, or heavy-tailed, with this standard deviation."""
        if self.heavy:  # Student's t with 3 degrees of freedom has the variance 3
            return scale / np.sqrt(3.0) * rng.standard_t(3.0, shape)
        return scale * rng.standard_normal(shape)


PLACEBO = World(row=0.0, run=0.0, both=0.0)
"""Every method is the base: a second draw of itself."""


@cache
def simulated_study() -> ResolvedStudy:
    """The paper's study on BENCHMARKS, with SAMPLES of each problem."""
    study = load_study("paper", ROOT / "config")
    models = {
        name: model.model_copy(update={"evaluation": None})
        for name, model in study.study.models.items()
    }
    drawn = {"samples": SAMPLES, "primary_k": PRIMARY_K, "seeds": [0], "bootstrap": DRAWS}
    exhibits = {
        name: exhibit.model_copy(update={"benchmarks": list(BENCHMARKS[name])})
        if name in BENCHMARKS
        else exhibit
        for name, exhibit in study.study.exhibits.items()
    }
    update = {"models": models, "exhibits": exhibits}
    update["evaluation"] = study.study.evaluation.model_copy(update=drawn)
    return study.model_copy(update={"study": study.study.model_copy(update=update)})


@cache
def kept_runs() -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The strata, the level of each after GRPO, and how each of 20 runs moved them; logits.

    Levels `[H]` are those of pass@1 in the world `plus`. Moves `[R, H]` are from the mean of the
    world's own five runs, times sqrt(5 / 4).
    """
    measured = json.loads((ROOT / "benchmarks/calibration_runs.json").read_text(encoding="utf-8"))
    strata = tuple(measured["models"]["plus"]["grpo"][0]["pass@1"])[:-1]
    moves, levels = [], {}
    for name, model in measured["models"].items():
        shares = [[run["pass@1"][stratum] for stratum in strata] for run in model["grpo"]]
        logits = logit(np.clip(np.array(shares) / 100, 5e-4, 1 - 5e-4))
        levels[name] = logits.mean(axis=0)
        moves.append((logits - levels[name]) * np.sqrt(len(logits) / (len(logits) - 1)))
    return strata, levels["plus"], np.concatenate(moves)


def groups(benchmark: str, world: World) -> Groups | None:
    """What a study would know of the problems of a benchmark: clusters, or strata of sheets."""
    if world.clusters:
        labels = [str(i % world.clusters) for i in range(SIZES[benchmark])]
        return Groups(tuple(labels), drawn=True) if world.clusters_known else None
    if benchmark != SHEETS:
        return None
    strata = kept_runs()[0]
    return Groups(tuple(strata[i % len(strata)] for i in range(SIZE)), drawn=False)


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


def levels(benchmark: str, size: int, studies: int, rng: np.random.Generator) -> np.ndarray:
    """Success rates of problems in logits, `[1, size, studies]`."""
    if benchmark == SHEETS:
        strata, means, _ = kept_runs()
        own = np.array([means[i % len(strata)] for i in range(size)])
        return own[None, :, None] + 0.5 * rng.standard_normal((1, size, studies))
    rates = rng.beta(*fitted()[benchmark], (1, size, studies))
    return np.asarray(logit(rates.clip(1e-9, 1 - 1e-9)))


def differences(
    wanted: Collection[Key],
    world: World,
    runs: int,
    studies: int,
    rng: np.random.Generator,
    shifts: Mapping[tuple[str, str], float] | None = None,
) -> dict[Key, np.ndarray]:
    """Differences of pass@k by Key, `[runs, problems, studies]`; with bases, over their runs.

    `shifts` are effects of methods in logits, by method and benchmark.
    """
    rows = sorted({name for row, other, _, _ in wanted for name in (row, other)})
    shape = world.bases * runs, 1, studies
    values: dict[tuple[str, str, int], np.ndarray] = {}
    common = {row: world.noise(rng, world.run * np.sqrt(0.5), shape) for row in rows}
    for row in rows:  # a base is moved as a whole, a collapsed run everywhere
        by_base = world.by_base * rng.standard_normal((world.bases, 1, studies))
        common[row] = common[row] + np.repeat(by_base, runs, axis=0)
        if world.only in ("", row):
            common[row] = common[row] - world.loss * (rng.random(shape) < world.collapsed)
    for benchmark in sorted({key[2] for key in wanted}):
        size, level = SIZES[benchmark], levels(benchmark, SIZES[benchmark], studies, rng)
        for row in rows:
            ks = sorted({k for one, two, on, k in wanted if row in (one, two) and on == benchmark})
            if not ks:
                continue
            count = world.bases if row == BASE else world.bases * runs
            moved = level + _of_row(world, size, studies, rng)
            moved = moved + world.both * rng.standard_normal((count, size, studies))
            if row != BASE:
                moved = moved + common[row] + _of_runs(benchmark, world, size, shape, rng)
            moved = moved + (shifts or {}).get((row, benchmark), 0.0)
            correct = rng.binomial(SAMPLES, expit(moved))
            if row == BASE:
                correct = np.repeat(correct, runs, axis=0)
            table = pass_at_k(SAMPLES, np.arange(SAMPLES + 1), np.array(ks))
            values |= {(row, benchmark, k): table[correct, i] for i, k in enumerate(ks)}
    pairs = {
        (row, other, on, k): values[row, on, k] - values[other, on, k]
        for row, other, on, k in wanted
    }
    if world.bases == 1 or not world.bases_known:
        return pairs
    return {
        key: one.reshape(world.bases, runs, *one.shape[1:]).mean(axis=1)
        for key, one in pairs.items()
    }


def _of_row(world: World, size: int, studies: int, rng: np.random.Generator) -> np.ndarray:
    """By how much a method moves each problem, `[1, size, studies]`."""
    if not world.clusters:
        return world.noise(rng, world.row, (1, size, studies))
    half = world.row * np.sqrt(0.5)
    shared = world.noise(rng, half, (1, world.clusters, studies))
    return shared[:, np.arange(size) % world.clusters] + world.noise(rng, half, (1, size, studies))


def _of_runs(
    benchmark: str, world: World, size: int, shape: tuple[int, int, int], rng: np.random.Generator
) -> np.ndarray:
    """By how much each run moves the problems of a benchmark, beside what is common to all."""
    if benchmark != SHEETS or not world.run:
        return world.noise(rng, world.run * np.sqrt(0.5), shape)
    strata, _, moves = kept_runs()
    drawn = moves[rng.integers(len(moves), size=(shape[0], shape[2]))]  # [runs, studies, strata]
    drawn = drawn * rng.choice([-1.0, 1.0], (shape[0], shape[2], 1))
    return np.moveaxis(drawn, 2, 1)[:, np.arange(size) % len(strata)]


def comparison_rows(
    pairs: Mapping[Key, np.ndarray], world: World
) -> list[dict[Pair, dict[str, Any]]]:
    """What `metrics/comparisons.parquet` would hold of each study, row by row."""
    studies = next(iter(pairs.values())).shape[2]
    tables: list[dict[Pair, dict[str, Any]]] = [{} for _ in range(studies)]
    for (row, other, benchmark, k), values in pairs.items():
        seeds, known = list(range(values.shape[0])), groups(benchmark, world)
        names = {"model": MODEL, "benchmark": benchmark, "algorithm": row, "other": other}
        rows = differences_rows(values, [k] * studies, seeds, DRAWS, known)
        for table, one in zip(tables, rows, strict=True):
            table[MODEL, benchmark, row, other, k] = names | one
    return tables


def histories(runs: int, rng: np.random.Generator) -> dict[tuple[str, str, int], History]:
    """Training histories of one study in which rows differ by chance."""
    found = {}
    for row in ("grpo", "grpo_no_kl"):
        for seed in range(runs):
            reward = 0.6 + 0.02 * rng.standard_normal()
            norm = 0.2 * np.exp(0.1 * rng.standard_normal())
            found[MODEL, row, seed] = [
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
    return found


def shift_for(points: float, k: int, benchmarks: Sequence[str]) -> float:
    """The effect in logits that moves mean pass@k by `points` (a share) in the default world."""
    rng, world, size = np.random.default_rng(0), World(), 120_000
    noise = np.sqrt(world.row**2 + world.run**2 + world.both**2) * rng.standard_normal(size)
    own = {b: levels(b, size, 1, rng)[0, :, 0] + noise for b in benchmarks}

    def mean(shift: float) -> float:
        rates = [expit(own[b] + shift) for b in benchmarks]
        return float(np.mean([1.0 - (1.0 - rate) ** k for rate in rates]))

    low, high, aim = -6.0, 6.0, mean(0.0) + points
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < aim else (low, middle)
    return (low + high) / 2


def keys_of(claims: Collection[Claim]) -> list[Key]:
    """Every difference of pass@k that claims are tested on, at k = 1 or the primary k."""
    study = simulated_study()
    return list(
        dict.fromkeys(
            (test.method, test.other, benchmark, test.k_in(study))
            for claim in claims
            for test in (claim.primary, *claim.secondary)
            if isinstance(test, PassAtK)
            for benchmark in study.benchmarks_of(test.exhibit)
        )
    )


def _patterns(runs: int, rng: np.random.Generator) -> pd.DataFrame:
    size = SIZES["harder"]
    rate, level = rng.beta(*fitted()["harder"], size), logit(rng.beta(0.5, 9.5, size))
    head = {"model": MODEL, "benchmark": "harder", "pattern": "proof_by_contradiction"}
    rows: list[dict[str, Any]] = []
    for row in ("base", "grpo", "grpo_branch"):
        count = 1 if row == "base" else runs
        moved = level + 0.3 * rng.standard_normal(size) + 0.3 * rng.standard_normal((count, 1))
        correct = rng.binomial(16, np.broadcast_to(rate, (count, size)))
        lists = {"train_seeds": range(count), "problems": range(size), "correct": correct.ravel()}
        lists["shown"] = rng.binomial(correct, expit(moved)).ravel()
        rows.append(head | {"algorithm": row} | {name: list(each) for name, each in lists.items()})
    return pd.DataFrame(rows)


def _perplexities(rows: Sequence[str], runs: int, rng: np.random.Generator) -> pd.DataFrame:
    """20 problems with 32 responses each, log-normal; rows and runs move their scale."""
    problems, responses = 20, 32
    scale = 0.3 * np.exp(0.2 * rng.standard_normal(problems))
    frames = []
    keys = [(row, seed) for row in rows for seed in range(1 if row == BASE else runs)]
    for name, seed in keys:
        moved = scale * np.exp(0.1 * rng.standard_normal(problems) + 0.1 * rng.standard_normal())
        drawn = np.exp(moved[:, None] * np.abs(rng.standard_normal((problems, responses))))
        ids = np.repeat(np.arange(problems), responses)
        head = {"algorithm": name, "train_seed": seed, "benchmark": "harder", "problem_id": ids}
        frames.append(pd.DataFrame({**head, "perplexity": drawn.ravel()}))
    return pd.concat(frames, ignore_index=True)
