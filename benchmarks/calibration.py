"""Verdicts and intervals against known truth: simulated studies through the real ledger.

Each study of `benchmarks.worlds` is measured as a real one is and judged by `config/claims.yaml`.
Without an effect a claim may be decided in at most 5 % of studies. `benchmarks/calibration.json`
keeps the tables with the number of studies and the seed of each entry.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.special import betaln

from benchmarks.paired import Comparison
from benchmarks.worlds import (
    DRAWS,
    PLACEBO,
    ROOT,
    SAMPLES,
    SIZES,
    World,
    comparison_rows,
    differences,
    exhibits,
    histories,
    kinds_of,
    shift_for,
    simulated_study,
)
from sage.claims.evidence import Measured
from sage.claims.ledger import judged
from sage.claims.tests import Claim, PassAtK, Recorded, StepTime, load_claims
from sage.evaluation.intervals import interval_of_difference, interval_of_share
from sage.evaluation.pass_at_k import pass_at_k
from sage.runtime.files import write_text_atomic
from sage.study import ResolvedStudy

RESULTS = ROOT / "benchmarks/calibration.json"
MANY, STUDIES, FEWER = 4_000, 1_000, 500
"""Studies for claims about histories, for other claims, and for power."""
SEEDS, RUNS = (3, 5, 8), (1, 3, 5, 10, 20)
"""Training runs of studies with verdicts, and of those with intervals only."""
Record = dict[str, Any]
Table = Iterator[tuple[Record, Comparison | None]]
"""Records of a table, each with its limit if it has one."""


def comparisons() -> Iterator[Comparison]:
    """False verdicts of every claim, power, and coverage; the tables are printed and kept."""
    study, claims = simulated_study(), load_claims(ROOT / "config/claims.yaml")
    tables: dict[str, list[Record]] = {}
    for name, measure in (
        ("false verdicts", false_verdicts(study, claims)),
        ("power", power(study, claims)),
        ("opposite effects", opposite_effects(study, claims)),
        ("coverage", coverage()),
    ):
        print(name, flush=True)
        tables[name] = []
        for record, limit in measure:
            tables[name].append(record)
            print("  " + ", ".join(f"{key} {value}" for key, value in record.items()), flush=True)
            if limit is not None:
                yield limit
    kept = {
        "command": "python -m benchmarks calibration",
        "world": asdict(World()),
        "problems": SIZES,
        "samples": SAMPLES,
        "bootstrap": DRAWS,
        "seed": "the number of runs",
        "tables": tables,
    }
    write_text_atomic(RESULTS, json_by_row(kept))


def json_by_row(content: Mapping[str, Any]) -> str:
    """The content as JSON, each record of a table in one line."""
    tables = content["tables"]
    lines = {
        name: "[\n" + ",\n".join(f"   {json.dumps(record)}" for record in records) + "\n  ]"
        for name, records in tables.items()
    }
    head = json.dumps({key: value for key, value in content.items() if key != "tables"}, indent=1)
    body = ",\n".join(f"  {json.dumps(name)}: {text}" for name, text in lines.items())
    return head.removesuffix("\n}") + ',\n "tables": {\n' + body + "\n }\n}\n"


def false_verdicts(study: ResolvedStudy, claims: Mapping[str, Claim]) -> Table:
    """How often each claim gets each verdict where rows differ by chance."""
    for name, claim in claims.items():
        kinds = kinds_of(claim)
        studies = MANY if Recorded in kinds else STUDIES
        worlds = {"no effect": World()}
        if kinds == {PassAtK}:  # what others measure knows no other world
            worlds["base against base"] = PLACEBO
        for title, world in worlds.items():
            for runs in SEEDS if kinds != {StepTime} else SEEDS[:1]:  # times have no runs
                seen = verdict_rates(study, claim, world, runs, studies, rng=runs)
                head = {"world": title, "claim": name, "runs": runs} | rates(seen, studies)
                record = head | measured(false_share(claim, seen, studies), "false", studies)
                yield record, _at_most(f"{title}, {runs} runs: false verdicts on {name}", record)


def power(study: ResolvedStudy, claims: Mapping[str, Claim]) -> Table:
    """Verdicts on two claims of pass@k by the size of the effect in points, and by runs.

    One is about the mean over three benchmarks, the other about one benchmark of 40 problems.
    """
    for name, exhibit in (("accuracy_and_coverage", "table1"), ("further_benchmark", "table9")):
        claim, benchmarks = claims[name], study.benchmarks_of(exhibit)
        margin = claim.primary.margin or 0.0
        for points in (-0.10, -0.05, -0.03, -margin, margin, 0.03, 0.05):
            shift = shift_for(points, SAMPLES // 2, benchmarks)
            shifts = {("grpo_branch", benchmark): shift for benchmark in benchmarks}
            for runs in SEEDS:
                seen = verdict_rates(study, claim, World(), runs, FEWER, runs, shifts)
                wrong = seen["supported" if points < 0 else "contradicted"]
                wrong += seen["no difference"] if abs(points) >= margin else 0
                head = {"claim": name, "points": round(100 * points), "runs": runs}
                record = head | rates(seen, FEWER) | measured(wrong / FEWER, "false", FEWER)
                title = f"{name}, {100 * points:+.0f} points, {runs} runs: false verdicts"
                yield record, _at_most(title, record)


def opposite_effects(study: ResolvedStudy, claims: Mapping[str, Claim]) -> Table:
    """Verdicts where an effect of one logit on a benchmark meets its opposite on another."""
    name = "accuracy_and_coverage"
    first, second, *_ = study.benchmarks_of("table1")
    shifts = {("grpo_branch", first): 1.0, ("grpo_branch", second): -1.0}
    for runs in SEEDS:
        seen = verdict_rates(study, claims[name], World(), runs, FEWER, runs, shifts)
        yield {"claim": name, "runs": runs} | rates(seen, FEWER), None


def coverage() -> Table:
    """Coverage of 95 % intervals of differences and of shares, by runs."""
    for runs in RUNS:
        for ratio in (0.0, 0.5, 1.0, 3.0):
            share = difference_coverage(ratio, runs, 2 * STUDIES, runs)
            title = f"a difference, spread of runs {ratio:g} times that of problems"
            yield _coverage(title, runs, share, 2 * STUDIES)
        for shift in (-1.0, 0.0, 1.0):
            share = effect_coverage(shift, runs, 2 * STUDIES, runs)
            title = f"a difference of pass@64, {shift:+.0f} logits, 40 problems"
            yield _coverage(title, runs, share, 2 * STUDIES)
        for truth, a, b in ((0.995, 3.0, 12.0), (0.986, 2.2, 10.0), (0.94, 1.2, 6.0)):
            for samples in (64, 128):
                share = share_coverage(a, b, samples, runs, STUDIES, runs)
                yield _coverage(f"pass@64 of {truth}, {samples} samples", runs, share, STUDIES)


def verdict_rates(
    study: ResolvedStudy,
    claim: Claim,
    world: World,
    runs: int,
    studies: int,
    rng: int,
    shifts: Mapping[tuple[str, str], float] | None = None,
) -> Counter[str]:
    """How often a claim gets each verdict; `shifts` as `benchmarks.worlds.differences`."""
    generator, kinds = np.random.default_rng(rng), kinds_of(claim)
    found = differences(claim, study, world, runs, studies, generator, shifts)
    seen: Counter[str] = Counter()
    for rows in comparison_rows(found) if found else [{}] * studies:
        measures = Measured(
            comparisons=rows,
            histories=histories(runs, generator) if Recorded in kinds else {},
            exhibits=exhibits(kinds, runs, generator),
        )
        seen[str(judged("claim", claim, study, measures)[0]["verdict"])] += 1
    return seen


def false_share(claim: Claim, seen: Mapping[str, int], studies: int) -> float:
    """The share of verdicts that are false where there is no effect."""
    wrong = (
        ["contradicted"] if claim.primary.direction == "not up" else ["supported", "contradicted"]
    )
    return sum(seen.get(verdict, 0) for verdict in wrong) / studies


def rates(seen: Mapping[str, int], studies: int) -> Record:
    """The share of each verdict."""
    names = ("supported", "contradicted", "no difference", "inconclusive")
    return {name: round(seen.get(name, 0) / studies, 4) for name in names}


def measured(share: float, name: str, studies: int) -> Record:
    """A share with its standard error, which is at least that of one study in all."""
    spread = max(share * (1.0 - share), 1.0 / studies)
    return {name: round(share, 4), "error": round((spread / studies) ** 0.5, 4), "studies": studies}


def difference_coverage(ratio: float, runs: int, studies: int, rng: int) -> float:
    """How often the interval of a difference of 0 over 60 problems holds it.

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


def effect_coverage(shift: float, runs: int, studies: int, rng: int) -> float:
    """How often the interval of a difference of pass@64 holds the true one, on benchmark `longer`.

    A row is moved by `shift` logits, so that differences are skewed. A single run stands for
    itself and has no effect of its own.
    """
    claim = load_claims(ROOT / "config/claims.yaml")["further_benchmark"]
    one = claim.model_copy(update={"secondary": []})
    world, shifts = World(run=0.25 if runs > 1 else 0.0), {("grpo_branch", "longer"): shift}
    study = simulated_study()

    def drawn(count: int, size: int, seed: int) -> np.ndarray:
        generator = np.random.default_rng(seed)
        (values,) = differences(one, study, world, count, size, generator, shifts).values()
        return values

    truth = float(drawn(1, 40_000, 1_000).mean())
    low, high = interval_of_difference(drawn(runs, studies, rng), DRAWS)
    return float(((low <= truth) & (truth <= high)).mean())


def share_coverage(a: float, b: float, samples: int, runs: int, studies: int, rng: int) -> float:
    """How often the interval of mean pass@64 over 60 problems holds it; rates are Beta(a, b)."""
    generator = np.random.default_rng(rng)
    solved = generator.beta(a, b, (1, 60, studies))
    truth = 1.0 - np.exp(betaln(a, b + 64) - betaln(a, b))
    table = pass_at_k(samples, np.arange(samples + 1), np.array([64]))[:, 0]
    values = table[generator.binomial(samples, np.broadcast_to(solved, (runs, 60, studies)))]
    low, high = interval_of_share(values, DRAWS)
    return float(((low <= truth) & (truth <= high)).mean())


def _at_most(name: str, record: Mapping[str, Any]) -> Comparison:
    """A rate that should be 5 % at most, give or take three standard errors."""
    studies, false = int(record["studies"]), float(record["false"])
    bound = 0.05 + 3 * np.sqrt(0.05 * 0.95 / studies)
    return Comparison(name, false, f"at most {bound:.3f}", false, 0.05, studies, "of studies")


def _coverage(title: str, runs: int, share: float, studies: int) -> tuple[Record, Comparison]:
    record = {"of": title, "runs": runs} | measured(share, "covered", studies)
    name = f"coverage of {title}, {runs} runs"
    limit = Comparison(name, share, "at least 0.93", share, 0.95, studies, "of studies")
    return record, limit
