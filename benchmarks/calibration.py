"""Verdicts and intervals against known truth: simulated studies through the real ledger.

Problems are Beta distributed, fitted to the base policy of the mini study's reference run; rows
and runs move them by normal effects in logits. Each study is measured as a real one is and judged
by `config/claims.yaml`. Without an effect a claim may be decided in at most 5 % of studies.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import root
from scipy.special import betaln, expit, logit

from benchmarks.paired import Comparison
from sage.claims.evidence import Pair
from sage.claims.ledger import Measured, judged
from sage.claims.tests import Claim, PassAtK, load_claims
from sage.evaluation.comparisons import differences_rows
from sage.evaluation.intervals import interval_of_difference, interval_of_share
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.study import BASE, ResolvedStudy

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "reports/reference/mini"
STUDIES, FEWER, DRAWS, SAMPLES = 1_000, 400, 1_000, 128
"""Studies for claims about pass@k, and for others, which take longer; bootstrap; samples drawn."""
SEEDS = (3, 5, 8)
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


def comparisons() -> Iterator[Comparison]:
    """False verdicts of every claim, and coverage; tables of power are printed."""
    study, claims = simulated_study(), load_claims(ROOT / "config/claims.yaml")
    print(f"{STUDIES} studies ({FEWER} of claims not about pass@k); {World()}; problems {SIZES}")
    kinds = {True: STUDIES, False: FEWER}
    for name, world in (("no effect", World()), ("base against base", PLACEBO)):
        for runs in SEEDS:
            for of_samples, studies in kinds.items():
                these = {key: one for key, one in claims.items() if _of_samples(one) == of_samples}
                if world == PLACEBO and not of_samples:
                    continue  # their measurements know no such world
                counts, _ = verdict_rates(study, these, world, runs, studies, rng=runs)
                for claim, seen in counts.items():
                    print(f"{name}, {runs} runs, {claim}: {shares(seen, studies)}", flush=True)
                    false = false_share(claims[claim], seen, studies)
                    yield _rate(f"{name}, {runs} runs: false verdicts on {claim}", false, studies)
    yield from power_table(study, claims["accuracy_and_coverage"])
    yield from coverage_table()


SIZES = {"arithmetic": 60, "harder": 60, "knights": 40, "longer": 40}


def simulated_study(samples: int = SAMPLES) -> ResolvedStudy:
    """The mini study, with `samples` samples of each problem."""
    study = load_study("mini", ROOT / "config")
    models = {
        name: model.model_copy(update={"evaluation": None})
        for name, model in study.study.models.items()
    }
    evaluation = study.study.evaluation.model_copy(
        update={"samples": samples, "seeds": [0], "bootstrap": DRAWS}
    )
    whole = study.study.model_copy(update={"models": models, "evaluation": evaluation})
    return study.model_copy(update={"study": whole})


def fitted() -> dict[str, tuple[float, float]]:
    """Beta distributions of the base's success rates with the reference's pass@1 and pass@64."""
    return {
        benchmark: beta_with(*_reference(table, benchmark))
        for benchmark, table in (
            ("arithmetic", "table1"),
            ("harder", "table1"),
            ("knights", "table1"),
            ("longer", "table9"),
        )
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
    claims: Mapping[str, Claim],
    study: ResolvedStudy,
    world: World,
    runs: int,
    studies: int,
    rng: np.random.Generator,
    shifts: Mapping[tuple[str, str], float] | None = None,
) -> dict[Key, np.ndarray]:
    """Differences of pass@k that the claims need, `[runs, problems, studies]` by Key.

    `shifts` are effects of rows in logits, by row and benchmark.
    """
    wanted = _wanted(claims, study)
    rows = {name for row, other, _, _ in wanted for name in (row, other)}
    values: dict[tuple[str, str, int], np.ndarray] = {}
    common = {
        row: world.run * np.sqrt(0.5) * rng.standard_normal((runs, 1, studies)) for row in rows
    }
    for benchmark in sorted({key[2] for key in wanted}):
        size = SIZES[benchmark]
        level = logit(rng.beta(*fitted()[benchmark], (1, size, studies)).clip(1e-9, 1 - 1e-9))
        for row in sorted(rows):
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


def other_measurements(study: ResolvedStudy, runs: int, rng: np.random.Generator) -> Measured:
    """Histories, patterns, tails and step times of one study in which rows differ by chance."""
    rows = ["grpo", "grpo_no_kl", "grpo_branch", "grpo_random", "grpo_token"]
    histories = {}
    for row in rows[:2]:
        for seed in range(runs):
            reward, norm = (
                0.6 + 0.02 * rng.standard_normal(),
                0.2 * np.exp(0.1 * rng.standard_normal()),
            )
            histories["tiny", row, seed] = [
                {"step": i, "reward": reward + 0.05 * noise, "grad_norm": norm * np.exp(0.2 * more)}
                for i, (noise, more) in enumerate(rng.standard_normal((30, 2)), start=1)
            ]
    exhibits = {
        "table2": _patterns(runs, rng),
        "figure7": _perplexities(["base", "grpo", *rows[2:]], runs, rng),
        "overhead": _times(["grpo", *rows[2:]], rng),
    }
    return Measured(exhibits=exhibits, histories=histories)


def verdict_rates(
    study: ResolvedStudy,
    claims: Mapping[str, Claim],
    world: World,
    runs: int,
    studies: int,
    rng: int,
    shifts: Mapping[tuple[str, str], float] | None = None,
) -> tuple[dict[str, Counter[str]], int]:
    """How often each claim gets each verdict, and in how many studies any is false."""
    generator = np.random.default_rng(rng)
    found = differences(claims, study, world, runs, studies, generator, shifts)
    counts: dict[str, Counter[str]] = {name: Counter() for name in claims}
    any_false = 0
    only = all(_of_samples(claim) for claim in claims.values())
    for rows in comparison_rows(found) if found else [{}] * studies:
        measured = Measured() if only else other_measurements(study, runs, generator)
        measured = replace(measured, comparisons=rows)
        false = False
        for name, claim in claims.items():
            verdict = str(judged(name, claim, study, measured)[0]["verdict"])
            counts[name][verdict] += 1
            false |= false_share(claim, Counter([verdict]), 1) > 0
        any_false += false
    return counts, any_false


def false_share(claim: Claim, seen: Mapping[str, int], studies: int) -> float:
    """The share of verdicts that are false where there is no effect."""
    wrong = (
        ["contradicted"] if claim.primary.direction == "not up" else ["supported", "contradicted"]
    )
    return sum(seen.get(verdict, 0) for verdict in wrong) / studies


def shares(seen: Mapping[str, int], studies: int) -> str:
    """Verdicts with their shares, as text."""
    return ", ".join(f"{name} {count / studies:.3f}" for name, count in sorted(seen.items()))


def power_table(study: ResolvedStudy, claim: Claim) -> Iterator[Comparison]:
    """Verdicts on one claim of pass@k by the size of the effect in points, and by seeds."""
    claims = {"claim": claim}
    benchmarks = study.benchmarks_of("table1")
    margin = claim.primary.margin or 0.0
    k = SAMPLES // 2
    print("power: true difference of pass@64 in points, runs, verdicts")
    for points in (-0.10, -0.05, -0.03, -margin, 0.03, 0.05):
        shift = _shift_for(points, k, benchmarks)
        shifts = {("grpo_branch", benchmark): shift for benchmark in benchmarks}
        for runs in SEEDS:
            counts, _ = verdict_rates(study, claims, World(), runs, STUDIES, runs, shifts)
            seen = counts["claim"]
            print(f"{100 * points:+.0f}, {runs}: {shares(seen, STUDIES)}", flush=True)
            wrong = "supported" if points < 0 else "contradicted"
            false = seen[wrong] + (seen["no difference"] if abs(points) >= margin else 0)
            yield _rate(
                f"{100 * points:+.0f} points, {runs} runs: false verdicts", false / STUDIES, STUDIES
            )
    first, second, *_ = benchmarks
    shifts = {("grpo_branch", first): 1.0, ("grpo_branch", second): -1.0}
    for runs in SEEDS:
        counts, _ = verdict_rates(study, claims, World(), runs, STUDIES, runs, shifts)
        print(
            f"opposite effects of one logit on two benchmarks, {runs} runs: "
            f"{shares(counts['claim'], STUDIES)}",
            flush=True,
        )


def coverage_table() -> Iterator[Comparison]:
    """Coverage of 95 % intervals of a share and of a difference, by runs; 60 problems."""
    print("coverage of 95 % intervals, 60 problems; runs vary by this many times as problems do")
    for ratio in (0.0, 0.5, 1.0, 3.0):
        for runs in (1, 3, 5, 10, 20):
            share = difference_coverage(ratio, runs, STUDIES * 2, runs)
            print(f"difference, ratio {ratio:g}, {runs} runs: {share:.3f}", flush=True)
            yield _coverage(f"a difference, ratio {ratio:g}, {runs} runs", share)
    for name, (a, b) in {"0.995": (3.0, 12.0), "0.986": (2.2, 10.0), "0.94": (1.2, 6.0)}.items():
        for samples in (64, 128):
            for runs in (1, 3, 5, 10, 20):
                share = share_coverage(a, b, samples, runs, STUDIES, runs)
                title = f"pass@64 of {name}, {samples} samples, {runs} runs"
                print(f"{title}: {share:.3f}", flush=True)
                yield _coverage(title, share)


def difference_coverage(ratio: float, runs: int, studies: int, rng: int) -> float:
    """How often the interval of a difference of 0 holds it.

    Problems have effects shared by runs (SD 0.2), `ratio` is SE over runs by SE over problems.
    """
    generator, problems = np.random.default_rng(rng), 60
    spread = ratio * 0.2 * np.sqrt(runs / problems) if runs > 1 else 0.0
    values = (
        0.2 * generator.standard_normal((1, problems, studies))
        + spread * generator.standard_normal((runs, 1, studies))
        + 0.1 * generator.standard_normal((runs, problems, studies))
    )
    low, high = interval_of_difference(values, DRAWS)
    return float(((low <= 0) & (high >= 0)).mean())


def share_coverage(a: float, b: float, samples: int, runs: int, studies: int, rng: int) -> float:
    """How often the interval of mean pass@64 holds the truth; rates are Beta(a, b)."""
    generator = np.random.default_rng(rng)
    rates = generator.beta(a, b, (1, 60, studies))
    truth = 1.0 - np.exp(betaln(a, b + 64) - betaln(a, b))
    table = pass_at_k(samples, np.arange(samples + 1), np.array([64]))[:, 0]
    values = table[generator.binomial(samples, np.broadcast_to(rates, (runs, 60, studies)))]
    low, high = interval_of_share(values, DRAWS)
    return float(((low <= truth) & (truth <= high)).mean())


def _of_samples(claim: Claim) -> bool:
    """Whether all tests of a claim are about pass@k."""
    return all(isinstance(test, PassAtK) for test in (claim.primary, *claim.secondary))


def _rate(name: str, false: float, studies: int) -> Comparison:
    """A rate that should be 5 % at most, give or take three standard errors."""
    bound = 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    return Comparison(name, false, f"at most {bound:.3f}", false, 0.05, studies, "of studies")


def _coverage(name: str, share: float) -> Comparison:
    return Comparison(f"coverage of {name}", share, "at least 0.93", share, 0.95, 1, "of studies")


def _wanted(claims: Mapping[str, Claim], study: ResolvedStudy) -> list[Key]:
    """Every difference of pass@k that claims are tested on, at k = 1 or half of the samples."""
    keys: dict[Key, None] = {}
    for claim in claims.values():
        for test in (claim.primary, *claim.secondary):
            if isinstance(test, PassAtK):
                k = 1 if test.k == 1 else study.study.evaluation.samples // 2
                for benchmark in study.benchmarks_of(test.exhibit):
                    keys[test.row, test.other, benchmark, k] = None
    return list(keys)


def _shift_for(points: float, k: int, benchmarks: Sequence[str]) -> float:
    """The effect in logits that moves mean pass@k by `points` in the default world."""
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


def _reference(table: str, benchmark: str) -> tuple[float, float]:
    """pass@1 and pass@64 of the base; half a problem is kept from 0 and 1."""
    with (REFERENCE / f"{table}.csv").open(encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["algorithm"] == BASE)
    first, many = (float(row[f"{benchmark} pass@{k} value"]) for k in (1, 64))
    size = SIZES[benchmark]
    return first, min(many, 1.0 - 0.5 / size)


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
