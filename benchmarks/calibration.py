"""Verdicts and intervals against known truth: simulated studies through the real ledger.

Each study of `benchmarks.worlds` is measured as a real one is and judged by `config/claims.yaml`.
Without an effect a claim may be decided in at most 5 % of studies. `benchmarks/calibration.json`
keeps the tables with the number of studies and the seed of each entry;
`python -m benchmarks.calibration_page` puts them into `docs/statistics.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.special import betaln

from benchmarks import worlds
from benchmarks.calibration_page import RESULTS, Record, json_by_row
from benchmarks.paired import Comparison
from benchmarks.worlds import PRIMARY_K, ROOT, SAMPLES, SHEETS, World, differences, shift_for
from sage.claims.evidence import Finding, Measured, Pair
from sage.claims.ledger import judged
from sage.claims.tests import Claim, PassAtK, Recorded, load_claims
from sage.claims.tests import Comparison as Test
from sage.claims.verdicts import two_states
from sage.evaluation import intervals
from sage.evaluation.comparisons import average
from sage.evaluation.pass_at_k import pass_at_k
from sage.runtime.files import write_text_atomic

STUDIES, MANY, CHUNK = 400, 2_000, 200
"""Studies of an entry, of one in the covered worlds, and drawn at a time. Standard errors at 5 %
are 0.011 and 0.005."""
SEEDS, RUNS = (3, 5, 10), (1, 3, 5, 10, 20)
"""Training runs of studies with verdicts, and of those with intervals only."""
COVERED = {
    "no effect": World(),
    "base against base": worlds.PLACEBO,
    "heavy tails": World(heavy=True),
    "ten clusters": World(clusters=10),
    "collapsed runs": World(collapsed=0.2),
    "three bases": World(bases=3, by_base=0.15),
    "five bases": World(bases=5, by_base=0.15),
}
"""Worlds without an effect that the rules are made for, by name."""
OUTSIDE = {
    "ten clusters, not named": World(clusters=10, clusters_known=False),
    "three bases, taken for runs of one": World(bases=3, by_base=0.15, bases_known=False),
}
"""What a study must know of its problems and bases: worlds where it does not."""
ALL = "no effect, all claims"
IN_ALL = ("gains_of_grpo", "accuracy_and_coverage", "forward_kl", "out_of_distribution")
"""Claims that are simulated in every world; all are in a world without an effect."""
VERDICTS = ("supported", "contradicted", "smaller than matters", "no difference", "inconclusive")
MARGIN = 0.01
"""Of the power of `no difference`: the claims' own is seldom reached by studies of this size."""
SHIFTED = {"accuracy_and_coverage": "table1", "further_benchmark": "table9"}
"""Claims of pass@k that are asked with an effect, and whose benchmarks it is on: the mean of two,
and one of 40 problems."""
Table = Iterator[tuple[Record, Comparison | None]]
"""Records of a table, each with its limit if it has one."""
Shifts = Mapping[tuple[str, str], float]
"""Effects in logits, by method and benchmark."""


def comparisons() -> Iterator[Comparison]:
    """False verdicts of every claim, power, and coverage; the tables are printed and kept."""
    claims = load_claims(ROOT / "config/claims.yaml")
    tables: dict[str, list[Record]] = {}
    for name, measure in (
        ("false verdicts", false_verdicts(claims)),
        ("no difference", no_difference(claims)),
        ("power", power(claims)),
        ("least effect", least_effects(claims)),
        ("coverage", coverage()),
        ("two states", of_two_states(claims)),
    ):
        print(name, flush=True)
        tables[name] = []
        for record, limit in measure:
            tables[name].append(record)
            print("  " + ", ".join(f"{key} {value}" for key, value in record.items()), flush=True)
            if limit is not None:
                yield limit
    made = {name: asdict(world) for name, world in {**COVERED, **OUTSIDE}.items()}
    kept = {"command": "python -m benchmarks calibration", "worlds": made, "problems": worlds.SIZES}
    kept |= {"samples": SAMPLES, "primary_k": PRIMARY_K, "bootstrap": worlds.DRAWS}
    write_text_atomic(RESULTS, json_by_row(kept | {"seed": "the number of runs", "tables": tables}))


def false_verdicts(claims: Mapping[str, Claim]) -> Table:
    """How often each claim gets each verdict where methods differ by chance, and any of them."""
    for title, runs in [*product([*COVERED, ALL], SEEDS), *product(OUTSIDE, SEEDS[:1])]:
        asked = claims if title == ALL else {name: claims[name] for name in IN_ALL}
        for record in of_world(asked, title, runs, MANY if title in COVERED else STUDIES):
            name = f"{title}, {runs} runs: false verdicts on {record['claim']}"
            limited = title not in OUTSIDE and record["claim"] != "any"
            yield record, _at_most(name, record) if limited else None


def of_world(claims: Mapping[str, Claim], title: str, runs: int, studies: int) -> Iterator[Record]:
    """The records of one world without an effect: one of each claim, and of any of them."""
    world = {**COVERED, **OUTSIDE, ALL: World()}[title]
    rows = list(ledgers(claims, world, runs, studies, only_clear=True))
    wrong = {
        name: [name in one and is_false(claim, str(one[name]["verdict"])) for one in rows]
        for name, claim in claims.items()
    }
    for name in claims:
        head = {"world": title, "claim": name, "runs": runs}
        yield head | measured(float(np.mean(wrong[name])), "false", studies)
    any_one = float(np.mean(np.any(list(wrong.values()), axis=0)))
    head = {"world": title, "claim": "any", "of": len(claims), "runs": runs}
    yield head | measured(any_one, "false", studies)


def no_difference(claims: Mapping[str, Claim]) -> Table:
    """How often methods are taken for equal, where they are and where they are a margin apart.

    They are apart in all runs alike, or because a share of one method's runs collapses.
    """
    for runs, what in product((*SEEDS, 20), worlds_apart()):
        record = of_equality(claims, what, runs, STUDIES)
        covered = what.startswith("a margin") and "10 %" not in what
        false = record | {"false": record["no difference"]}
        yield record, _at_most(f"{what}, {runs} runs: no difference", false) if covered else None


def worlds_apart() -> dict[str, tuple[World, Shifts]]:
    """Worlds where two methods are equal, or MARGIN apart on sheets, each with its shifts."""
    calm, apart = World(row=0.2, run=0.0, both=0.2), shift_for(-MARGIN, PRIMARY_K, [SHEETS])
    return {
        "equal, runs as kept": (World(), {}),
        "equal, runs alike": (calm, {}),
        "a margin apart, runs alike": (calm, {("grpo_branch", SHEETS): apart}),
        **{
            f"a margin apart, {100 * share:.0f} % of runs collapse": (_collapsing(share), {})
            for share in (0.1, 0.2, 0.3)
        },
    }


def of_equality(claims: Mapping[str, Claim], what: str, runs: int, studies: int) -> Record:
    """The record of one of `worlds_apart`: `accuracy_and_coverage` on sheets alone, with MARGIN."""
    name, (world, shifts) = "accuracy_and_coverage", worlds_apart()[what]
    primary = claims[name].primary.model_copy(update={"margin": MARGIN, "benchmarks": [SHEETS]})
    asked = {name: claims[name].model_copy(update={"primary": primary, "secondary": []})}
    rows = [one[name] for one in ledgers(asked, world, runs, studies, shifts)]
    equal = sum(row["verdict"] == "no difference" for row in rows) / studies
    within = [max(-row["low_90"], row["high_90"]) < MARGIN for row in rows]
    record: Record = {"methods": what, "margin": MARGIN, "runs": runs}
    record |= {"means alone": round(float(np.mean(within)), 4)}
    return record | measured(equal, "no difference", studies)


def _collapsing(share: float) -> World:
    """A world where so large a share of one method's runs loses a margin in the mean."""
    loss = -shift_for(-MARGIN / share, PRIMARY_K, [SHEETS])
    return World(row=0.2, run=0.0, both=0.2, collapsed=share, loss=loss, only="grpo_branch")


def shifted(claims: Mapping[str, Claim], name: str, points: float, runs: int) -> Counter[str]:
    """Verdicts on a claim of SHIFTED where its method is moved by so many points (a share)."""
    benchmarks = worlds.simulated_study().benchmarks_of(SHIFTED[name])
    shift = shift_for(points, PRIMARY_K, benchmarks)
    shifts = {("grpo_branch", benchmark): shift for benchmark in benchmarks}
    rows = ledgers({name: claims[name]}, World(), runs, STUDIES, shifts)
    return Counter(str(row[name]["verdict"]) for row in rows)


def power(claims: Mapping[str, Claim]) -> Table:
    """Verdicts by the size of the effect in points, and by runs."""
    for name, points, runs in product(SHIFTED, (-0.05, -0.02, 0.02, 0.05), SEEDS):
        seen = shifted(claims, name, points, runs)
        wrong = seen["supported" if points < 0 else "contradicted"]
        wrong += seen["no difference"] + seen["smaller than matters"]
        head = {"claim": name, "points": round(100 * points), "runs": runs}
        record = head | {name: round(seen[name] / STUDIES, 4) for name in VERDICTS}
        record |= measured(wrong / STUDIES, "false", STUDIES)
        title = f"{name}, {100 * points:+.0f} points, {runs} runs: false verdicts"
        yield record, _at_most(title, record)


def least_effects(claims: Mapping[str, Claim]) -> Table:
    """The smallest loss, in points, that 8 of 10 studies find; above 60 none is looked for."""
    for name, runs in product(SHIFTED, SEEDS):
        low, high = 0.0, 0.6
        for _ in range(7):
            points = (low + high) / 2
            found = shifted(claims, name, -points, runs)["contradicted"]
            low, high = (low, points) if found >= intervals.POWER * STUDIES else (points, high)
        yield {"claim": name, "runs": runs, "points": round(100 * high, 1)}, None


def coverage() -> Table:
    """Coverage of 95 % intervals of differences and of shares, by runs."""
    for runs in RUNS:
        for ratio in (0.0, 0.5, 1.0, 3.0):
            share = difference_coverage(ratio, runs, 2 * MANY)
            title = f"a difference, spread of runs {ratio:g} times that of problems"
            yield _coverage(title, runs, share, 2 * MANY)
        for shift in (-1.0, 0.0, 1.0):
            share = effect_coverage(shift, runs, MANY)
            title = f"a difference of pass@{PRIMARY_K}, {shift:+.0f} logits, 120 sheets"
            yield _coverage(title, runs, share, MANY)
        for truth, a, b in ((0.995, 3.0, 12.0), (0.986, 2.2, 10.0), (0.94, 1.2, 6.0)):
            share = share_coverage(a, b, runs, MANY)
            yield _coverage(f"pass@64 of {truth}, {SAMPLES} samples", runs, share, MANY)


def of_two_states(claims: Mapping[str, Claim]) -> Table:
    """Runs of which a share is 30 points lower, so that the mean over all of them is 0.

    `named`: studies in which the rules name two states, and give no verdict. `covered`: these, and
    studies whose interval holds the mean of the states that its runs are in; `over all`: those
    whose interval holds the mean over all runs. No rule sees a state that no run was in.
    """
    for share, runs in product((0.1, 0.2, 0.5), (*SEEDS, 20)):
        record = two_state_coverage(claims["accuracy_and_coverage"].primary, share, runs, 2 * MANY)
        title = f"{100 * share:.0f} % of runs in the lower state"
        covered, limit = _coverage(title, runs, record.pop("covered"), 2 * MANY)
        yield covered | record, limit


def two_state_coverage(test: Test, share: float, runs: int, studies: int) -> Record:
    """The numbers of `of_two_states`, for `runs` runs over 60 problems."""
    rng, problems, apart = np.random.default_rng(runs), 60, 0.3
    lower = rng.random((runs, 1, studies)) < share
    state = apart * (share - lower)
    values = (
        0.2 * rng.standard_normal((1, problems, studies))
        + 0.02 * rng.standard_normal((runs, 1, studies))
        + 0.1 * rng.standard_normal((runs, problems, studies))
        + state
    )
    estimate = intervals.mean_of([intervals.parts_of(values, worlds.DRAWS)])
    low, high = estimate.interval()
    both = lower.any(axis=(0, 1)) & ~lower.all(axis=(0, 1))
    truth = np.where(both, 0.0, state[0, 0])
    none = Finding("", 0.0, 0.0, 0.0, 0.0, problems, "problems", runs)
    studied = [replace(none, by_run=tuple(one)) for one in estimate.by_run.T.tolist()]
    named = np.array([two_states(test, one) is not None for one in studied])
    held = (low <= truth) & (truth <= high)
    over_all = (low <= 0) & (high >= 0)
    numbers = {"covered": (held | named).mean(), "named": named.mean(), "over all": over_all.mean()}
    return {name: round(float(number), 4) for name, number in numbers.items()}


def ledgers(
    claims: Mapping[str, Claim],
    world: World,
    runs: int,
    studies: int,
    shifts: Shifts | None = None,
    only_clear: bool = False,
) -> Iterator[dict[str, dict[str, Any]]]:
    """The ledger's row of each claim's primary contrast, study by study; the seed is `runs`.

    `only_clear` leaves out claims whose contrast of pass@k has an interval that holds 0: without
    an effect none of their verdicts can be false.
    """
    generator, study = np.random.default_rng(runs), worlds.simulated_study()
    tests = [test for one in claims.values() for test in (one.primary, *one.secondary)]
    kinds = {type(test) for test in tests}
    wanted = worlds.keys_of(claims.values())
    for start in range(0, studies, CHUNK):
        count = min(CHUNK, studies - start)
        pairs = differences(wanted, world, runs, count, generator, shifts)
        for rows in worlds.comparison_rows(pairs, world):
            trained = worlds.histories(runs, generator) if Recorded in kinds else {}
            shown = worlds.exhibits(kinds, runs, generator)
            measures = Measured(comparisons=rows, histories=trained, exhibits=shown)
            yield {
                name: judged(name, claim, study, measures)[0]
                for name, claim in claims.items()
                if not only_clear or _may_be_clear(claim.primary, rows)
            }


def _may_be_clear(test: Test, rows: Mapping[Pair, Mapping[str, Any]]) -> bool:
    """Whether the interval of the test's difference of pass@k excludes 0; True of other tests."""
    if not isinstance(test, PassAtK):
        return True
    pair = test.method, test.other, test.k_in(worlds.simulated_study())
    here = [rows[worlds.MODEL, benchmark, *pair] for benchmark in worlds.BENCHMARKS[test.exhibit]]
    low, high = average(here).interval()
    return bool(low[0] > 0 or high[0] < 0)


def is_false(claim: Claim, verdict: str) -> bool:
    """Whether a verdict is false where there is no effect."""
    if claim.primary.direction == "not up":
        return verdict == "contradicted"
    return verdict in ("supported", "contradicted")


def measured(share: float, name: str, studies: int) -> Record:
    """A share with its standard error, which is at least that of one study in all."""
    spread = max(share * (1.0 - share), 1.0 / studies)
    return {name: round(share, 4), "error": round((spread / studies) ** 0.5, 4), "studies": studies}


def difference_coverage(ratio: float, runs: int, studies: int) -> float:
    """How often the interval of a difference of 0 over 60 problems holds it.

    Problems have effects shared by runs (SD 0.2), `ratio` is SE over runs by SE over problems.
    """
    generator, problems = np.random.default_rng(runs), 60
    spread = ratio * 0.2 * np.sqrt(runs / problems) if runs > 1 else 0.0
    values = (
        0.2 * generator.standard_normal((1, problems, studies))
        + spread * generator.standard_normal((runs, 1, studies))
        + 0.1 * generator.standard_normal((runs, problems, studies))
    )
    low, high = intervals.interval_of_difference(values, worlds.DRAWS)
    return float(((low <= 0) & (high >= 0)).mean())


def effect_coverage(shift: float, runs: int, studies: int) -> float:
    """How often the interval of a difference of pass@k on sheets, with their strata, holds it.

    A method is moved by `shift` logits, so that differences are skewed. A single run stands for
    itself and has no effect of its own.
    """
    key = ("grpo_branch", "grpo", SHEETS, PRIMARY_K)
    world, shifts = World(run=0.25 if runs > 1 else 0.0), {("grpo_branch", SHEETS): shift}

    def drawn(count: int, size: int, seed: int) -> np.ndarray:
        return differences([key], world, count, size, np.random.default_rng(seed), shifts)[key]

    truth = float(drawn(1, 20_000, 1_000).mean())
    known = worlds.groups(SHEETS, world)
    low, high = intervals.interval_of_difference(drawn(runs, studies, runs), worlds.DRAWS, known)
    return float(((low <= truth) & (truth <= high)).mean())


def share_coverage(a: float, b: float, runs: int, studies: int) -> float:
    """How often the interval of mean pass@64 over 60 problems holds it; rates are Beta(a, b)."""
    generator = np.random.default_rng(runs)
    solved = generator.beta(a, b, (1, 60, studies))
    truth = 1.0 - np.exp(betaln(a, b + 64) - betaln(a, b))
    table = pass_at_k(SAMPLES, np.arange(SAMPLES + 1), np.array([64]))[:, 0]
    values = table[generator.binomial(SAMPLES, np.broadcast_to(solved, (runs, 60, studies)))]
    low, high = intervals.interval_of_share(values, worlds.DRAWS)
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
