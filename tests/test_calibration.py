"""The ledger on simulated studies without an effect: a short version of the benchmark."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.calibration import false_share, json_by_row, measured, verdict_rates
from benchmarks.worlds import (
    PLACEBO,
    ROOT,
    World,
    beta_with,
    differences,
    fitted,
    simulated_study,
)
from sage.claims.tests import Claim, load_claims
from sage.study import ResolvedStudy

STUDIES = 60


@pytest.fixture(scope="module")
def study() -> ResolvedStudy:
    return simulated_study()


@pytest.fixture(scope="module")
def claim() -> Claim:
    return load_claims(ROOT / "config/claims.yaml")["accuracy_and_coverage"]


def test_problems_have_the_kept_runs_pass_at_1_and_64() -> None:
    """Beta(1, 3): pass@1 is 1/4, pass@64 is 1 - 3 / (3 + 64)."""
    assert beta_with(1 / 4, 1 - 3 / 67) == pytest.approx((1.0, 3.0), rel=1e-3)
    a, b = fitted()["harder"]
    assert a / (a + b) == pytest.approx(0.0911, abs=1e-3)


@pytest.mark.parametrize("world", [World(), PLACEBO], ids=["no effect", "base against base"])
def test_without_an_effect_few_studies_decide(
    world: World, study: ResolvedStudy, claim: Claim
) -> None:
    """Eight or more false verdicts of 60 have a probability of 0.7 % where 5 % are false."""
    seen = verdict_rates(study, claim, world, 3, STUDIES, rng=1)
    print(dict(seen))
    assert sum(seen.values()) == STUDIES
    assert false_share(claim, seen, STUDIES) * STUDIES < 8


def test_a_large_loss_is_found_and_never_taken_for_a_gain(
    study: ResolvedStudy, claim: Claim
) -> None:
    shifts = {("grpo_branch", benchmark): -2.0 for benchmark in study.benchmarks_of("table1")}
    found = differences(claim, study, World(), 5, 40, np.random.default_rng(0), shifts)
    assert np.mean([found[key].mean() for key in found if key[-1] > 1]) < -0.15
    seen = verdict_rates(study, claim, World(), 5, 40, 1, shifts)
    assert seen["contradicted"] > 30
    assert seen["supported"] == 0


def test_opposite_effects_on_two_benchmarks_are_not_support(
    study: ResolvedStudy, claim: Claim
) -> None:
    first, second, *_ = study.benchmarks_of("table1")
    shifts = {("grpo_branch", first): -1.5, ("grpo_branch", second): 1.5}
    seen = verdict_rates(study, claim, World(), 5, 40, 1, shifts)
    assert seen["supported"] <= 4


def test_a_share_has_the_binomial_standard_error() -> None:
    """0.05 of 500: sqrt(0.05 x 0.95 / 500) = 0.0097; none of 500: that of one, about 0.002."""
    assert measured(0.05, "false", 500) == {"false": 0.05, "error": 0.0097, "studies": 500}
    assert measured(0.0, "false", 500)["error"] == 0.002


def test_the_tables_are_kept_with_a_record_in_each_line() -> None:
    content = {"command": "x", "tables": {"a": [{"runs": 3}, {"runs": 5}], "b": [{"runs": 1}]}}
    text = json_by_row(content)
    assert json.loads(text) == content
    assert '   {"runs": 5}\n' in text
