"""The ledger on simulated studies without an effect: a short version of the benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import (
    PLACEBO,
    ROOT,
    World,
    beta_with,
    differences,
    false_share,
    fitted,
    simulated_study,
    verdict_rates,
)
from sage.claims.tests import Claim, load_claims
from sage.study import ResolvedStudy

STUDIES = 60


@pytest.fixture(scope="module")
def study() -> ResolvedStudy:
    return simulated_study()


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    name = "accuracy_and_coverage"
    return {name: load_claims(ROOT / "config/claims.yaml")[name]}


def test_problems_have_the_reference_runs_pass_at_1_and_64() -> None:
    """Beta(1, 3): pass@1 is 1/4, pass@64 is 1 - 3 / (3 + 64)."""
    assert beta_with(1 / 4, 1 - 3 / 67) == pytest.approx((1.0, 3.0), rel=1e-3)
    a, b = fitted()["harder"]
    assert a / (a + b) == pytest.approx(0.0911, abs=1e-3)


@pytest.mark.parametrize("world", [World(), PLACEBO], ids=["no effect", "base against base"])
def test_without_an_effect_few_studies_decide(
    world: World, study: ResolvedStudy, claims: dict[str, Claim]
) -> None:
    """Eight or more false verdicts of 60 have a probability of 0.7 % where 5 % are false."""
    ((name, seen),) = verdict_rates(study, claims, world, 3, STUDIES, rng=1)[0].items()
    print(dict(seen))
    assert sum(seen.values()) == STUDIES
    assert false_share(claims[name], seen, STUDIES) * STUDIES < 8


def test_a_large_loss_is_found_and_never_taken_for_a_gain(
    study: ResolvedStudy, claims: dict[str, Claim]
) -> None:
    shifts = {("grpo_branch", benchmark): -2.0 for benchmark in study.benchmarks_of("table1")}
    found = differences(claims, study, World(), 5, 40, np.random.default_rng(0), shifts)
    assert np.mean([found[key].mean() for key in found if key[-1] > 1]) < -0.15
    ((_, seen),) = verdict_rates(study, claims, World(), 5, 40, 1, shifts)[0].items()
    assert seen["contradicted"] > 30
    assert seen["supported"] == 0


def test_opposite_effects_on_two_benchmarks_are_not_support(
    study: ResolvedStudy, claims: dict[str, Claim]
) -> None:
    first, second, *_ = study.benchmarks_of("table1")
    shifts = {("grpo_branch", first): -1.5, ("grpo_branch", second): 1.5}
    ((_, seen),) = verdict_rates(study, claims, World(), 5, 40, 1, shifts)[0].items()
    assert seen["supported"] <= 4
