"""Base against base: real samples of one policy, named as all rows, through the ledger of claims.

`placebo.parquet` holds 256 graded samples of each problem, drawn from the base policy of the mini
study. For a claim they are dealt at random to its rows and runs, so that nothing differs but the
samples, and are then measured and judged by the code that does so in a study. Claims about
training histories and times have no such samples and are not run. The k of a claim is half of the
samples that a run gets: the pool has more for claims of fewer methods.

Trained runs differ from each other, which draws from one base do not show. So the samples of the
runs in `reports/mini/first_world`, five of each of seven methods, are dealt in two halves that are
taken for two methods, and so are their runs, two against two. The file was made by this module at
commit 5dde0ad, from the mini study of commit 7db415f with `evaluation.samples: 256`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.calibration import is_false
from benchmarks.paired import Comparison
from benchmarks.worlds import DRAWS, MODEL, ROOT, simulated_study
from sage.claims.evidence import Measured
from sage.claims.ledger import judged
from sage.claims.tests import Claim, PassAtK, PatternShare, Tail, load_claims
from sage.evaluation.comparisons import comparisons_table, differences_rows
from sage.evaluation.counts import counts_table
from sage.evaluation.curves import Run
from sage.evaluation.pass_at_k import pass_at_k
from sage.study import BASE

POOL = ROOT / "benchmarks/placebo.parquet"
BENCHMARKS = ("harder", "knights", "longer")
PATTERN = "proof_by_contradiction"
DEALS, RUNS = 25, (3, 5, 8)
"""Random deals of the samples; training runs of a row."""

HALF_K = 16
"""k of the contrasts between halves of real runs."""

Deal = dict[tuple[str, int], np.ndarray]
"""Of each row and seed the places of its samples in the pool's `[P, n]`."""


def comparisons() -> Iterator[Comparison]:
    """The share of verdicts that are false, by the number of runs."""
    claims = load_claims(ROOT / "config/claims.yaml")
    for runs in RUNS:
        counts: Counter[str] = Counter()
        false = made = 0
        for deal in range(DEALS):
            seen = verdicts(claims, runs, seed=deal)
            counts.update(seen.values())
            made += sum(verdict != "not run" for verdict in seen.values())
            false += len(false_ones(claims, seen))
        print(f"base against base, {runs} runs: {dict(counts)}", flush=True)
        name = f"base against base, real samples, {runs} runs: false verdicts"
        share = false / made
        yield Comparison(name, share, "at most 0.05", share, 0.05, made, "of verdicts")
    for what, p in halves().items():
        name = f"{what} of real runs, pass@1 and pass@{HALF_K}: p below 0.05"
        share = float((p < 0.05).mean())
        yield Comparison(name, share, "at most 0.06", share, 0.05, len(p), "of contrasts")


def halves(deals: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    """p of contrasts between halves of the same method's real runs, which differ by chance.

    `halves of samples`: each problem's samples in each of five runs, dealt at random. `halves of
    runs`: runs 1 and 2 against 3 and 4, and the two other ways to pair four runs. On harder sums
    and puzzles, at k = 1 and HALF_K.
    """
    kept = pd.read_parquet(ROOT / "reports/mini/first_world/counts.parquet")
    kept = kept[kept["benchmark"].isin(BENCHMARKS) & (kept["algorithm"] != BASE)]
    keys = ["algorithm", "benchmark", "train_seed", "problem_id"]
    solved = kept["count"].where(kept["correct"], 0).groupby([kept[key] for key in keys]).sum()
    sizes = kept.groupby(keys)["count"].sum()
    rng, ks = np.random.default_rng(seed), np.array([1, HALF_K])
    p: dict[str, list[float]] = {"halves of samples": [], "halves of runs": []}
    for method, right in solved.groupby(level=[0, 1]):
        correct = right.unstack().to_numpy(dtype=int)  # [runs, problems]
        n = int(sizes.loc[method].iloc[0])
        for _ in range(deals):
            first = rng.hypergeometric(correct, n - correct, n // 2)
            pair = [
                np.stack([pass_at_k(n // 2, run, ks) for run in half])
                for half in (first, correct - first)
            ]
            p["halves of samples"] += _p(pair[0] - pair[1])
        values = np.stack([pass_at_k(n, run, ks) for run in correct])
        for one, other in (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))):
            p["halves of runs"] += _p(values[[*one]] - values[[*other]])
    return {what: np.array(all_of) for what, all_of in p.items()}


def _p(differences: np.ndarray) -> list[float]:
    rows = differences_rows(differences, [1, HALF_K], range(len(differences)), DRAWS)
    return [float(str(row["p"])) for row in rows]


def false_ones(claims: Mapping[str, Claim], seen: Mapping[str, str]) -> dict[str, str]:
    """Verdicts that are false where nothing differs, by claim."""
    return {name: verdict for name, verdict in seen.items() if is_false(claims[name], verdict)}


def verdicts(claims: Mapping[str, Claim], runs: int, seed: int) -> dict[str, str]:
    """The verdict of each claim where all of its rows are the base."""
    rng = np.random.default_rng(seed)
    return {name: _verdict(name, claim, runs, rng) for name, claim in claims.items()}


def _verdict(name: str, claim: Claim, runs: int, rng: np.random.Generator) -> str:
    samples, frames, exhibits = dealt(claim, runs, rng)
    table = comparisons_table(counts_table(frames), DRAWS) if frames else None
    study = simulated_study(samples, samples // 2, BENCHMARKS)
    return str(judged(name, claim, study, Measured(table, exhibits))[0]["verdict"])


def dealt(
    claim: Claim, runs: int, rng: np.random.Generator
) -> tuple[int, dict[Run, pd.DataFrame], dict[str, pd.DataFrame]]:
    """What a claim is tested on, where its rows are the base, with `runs` training runs each.

    Returns the samples of a problem and run (as large a power of two as the pool allows), the
    graded samples by run, and the metrics of exhibits.
    """
    tests = [claim.primary, *claim.secondary]
    rows = sorted({row for test in tests for row in (test.method, test.other)})
    cells = [(row, seed) for row in rows for seed in range(1 if row == BASE else runs)]
    if BASE not in rows:
        cells.append((BASE, 0))  # tails are measured against the base
    samples = 2 ** ((_pool()[BENCHMARKS[0]]["correct"].shape[1] // len(cells)).bit_length() - 1)
    study = simulated_study(samples, samples // 2, BENCHMARKS)
    deals = {benchmark: _deal(benchmark, cells, samples, rng) for benchmark in BENCHMARKS}
    frames: dict[Run, pd.DataFrame] = {}
    exhibits: dict[str, pd.DataFrame] = {}
    for test in tests:
        if isinstance(test, PassAtK):
            frames |= {
                (MODEL, row, seed, benchmark): _graded(benchmark, places)
                for benchmark in study.benchmarks_of(test.exhibit)
                for (row, seed), places in deals[benchmark].items()
            }
        elif isinstance(test, PatternShare):
            exhibits[test.exhibit] = _patterns(deals[BENCHMARKS[0]])
        elif isinstance(test, Tail):
            exhibits[test.exhibit] = _perplexities(deals[BENCHMARKS[0]])
    return samples, frames, exhibits


@cache
def _pool() -> dict[str, dict[str, np.ndarray]]:
    """The pool's columns as `[P, n]`, and the `problems` `[P]`, by benchmark."""
    pool = pd.read_parquet(POOL)
    found: dict[str, dict[str, np.ndarray]] = {}
    for benchmark, rows in pool.groupby("benchmark", observed=True):
        size = rows["problem"].nunique()
        columns = ("correct", "shown", "perplexity")
        found[str(benchmark)] = {name: rows[name].to_numpy().reshape(size, -1) for name in columns}
        found[str(benchmark)]["problems"] = rows["problem"].unique().astype(str)
    return found


def _deal(
    benchmark: str, cells: list[tuple[str, int]], samples: int, rng: np.random.Generator
) -> Deal:
    """Every problem's samples shuffled and dealt to the cells, `[P, samples]` each."""
    of = _pool()[benchmark]["correct"]
    order = rng.permuted(np.tile(np.arange(of.shape[1]), (len(of), 1)), axis=1)
    return {
        cell: order[:, place * samples : (place + 1) * samples] for place, cell in enumerate(cells)
    }


def _graded(benchmark: str, places: np.ndarray) -> pd.DataFrame:
    pool = _pool()[benchmark]
    correct = np.take_along_axis(pool["correct"], places, axis=1)
    return pd.DataFrame(
        {
            "problem_id": np.repeat(pool["problems"], places.shape[1]),
            "status": np.where(correct.ravel(), "correct", "wrong"),
        }
    )


def _patterns(deal: Deal) -> pd.DataFrame:
    """The columns of Table 2's metrics that rows are compared by."""
    pool = _pool()[BENCHMARKS[0]]
    rows: dict[str, dict[str, Any]] = {}
    for (row, seed), places in deal.items():
        correct, shown = (np.take_along_axis(pool[n], places, axis=1) for n in ("correct", "shown"))
        head = {"algorithm": row, "benchmark": BENCHMARKS[0], "pattern": PATTERN}
        lists = {"problems": list(pool["problems"]), "train_seeds": [], "correct": [], "shown": []}
        entry = rows.setdefault(row, head | lists)
        entry["train_seeds"].append(seed)
        entry["correct"] += correct.sum(axis=1).tolist()
        entry["shown"] += (correct & shown).sum(axis=1).tolist()
    return pd.DataFrame(list(rows.values()))


def _perplexities(deal: Deal) -> pd.DataFrame:
    pool = _pool()[BENCHMARKS[0]]
    kept = ~np.isnan(pool["perplexity"]).any(axis=1)
    frames = []
    for (row, seed), places in deal.items():
        values = np.take_along_axis(pool["perplexity"], places, axis=1)[kept]
        ids = np.repeat(pool["problems"][kept], values.shape[1])
        head = {"algorithm": row, "train_seed": seed, "benchmark": BENCHMARKS[0]}
        frames.append(pd.DataFrame({**head, "problem_id": ids, "perplexity": values.ravel()}))
    return pd.concat(frames, ignore_index=True)
