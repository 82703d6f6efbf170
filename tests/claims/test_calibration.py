"""The ledger on studies without an effect, simulated or halves of real ones."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from benchmarks.calibration import (
    COVERED,
    IN_ALL,
    OUTSIDE,
    _collapsing,
    ledgers,
    measured,
    of_equality,
    of_world,
    worlds_apart,
)
from benchmarks.calibration_page import json_by_row
from benchmarks.placebo import halves
from benchmarks.worlds import (
    ROOT,
    SHEETS,
    World,
    beta_with,
    differences,
    fitted,
    kept_runs,
    keys_of,
    shift_for,
)
from sage.claims.tests import Claim, load_claims

STUDIES = 150


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    return load_claims(ROOT / "config/claims.yaml")


def test_problems_have_the_kept_runs_pass_at_1_and_64() -> None:
    """Beta(1, 3): pass@1 is 1/4, pass@64 is 1 - 3 / (3 + 64)."""
    assert beta_with(1 / 4, 1 - 3 / 67) == pytest.approx((1.0, 3.0), rel=1e-3)
    a, b = fitted()["harder"]
    assert a / (a + b) == pytest.approx(0.0911, abs=1e-3)


def test_runs_move_the_strata_as_the_kept_ones_did() -> None:
    """20 runs of four worlds, each from its world's mean."""
    strata, levels, moves = kept_runs()
    assert (len(strata), levels.shape, moves.shape) == (6, (6,), (20, 6))
    np.testing.assert_allclose(moves.reshape(4, 5, 6).sum(axis=1), 0.0, atol=1e-9)


@pytest.mark.parametrize("runs", [3, 10])
@pytest.mark.parametrize("title", [*COVERED, *OUTSIDE])
def test_without_an_effect_few_studies_decide(
    title: str, runs: int, claims: dict[str, Claim]
) -> None:
    """18 or more false verdicts of 150 have a probability of 0.05 % where 5 % are false."""
    asked = {name: claims[name] for name in IN_ALL}
    *records, any_one = of_world(asked, title, runs, STUDIES)
    for record in (*records, any_one):
        print(json.dumps(record))
    false = [round(record["false"] * STUDIES) for record in records]
    if title in COVERED:
        assert max(false) < 18
    elif runs == 3:  # what is not known cannot be allowed for
        *known, _ = of_world(asked, title.split(",")[0], runs, STUDIES)
        assert sum(false) > sum(record["false"] * STUDIES for record in known)


@pytest.mark.parametrize("what", [*worlds_apart()])
def test_no_difference_is_rare_where_there_is_one(what: str, claims: dict[str, Claim]) -> None:
    """Ten runs; 3 % of 150 studies more than allowed have a probability of 1 %."""
    record = of_equality(claims, what, 10, STUDIES)
    print(json.dumps(record))
    assert record["no difference"] <= record["means alone"]
    if what.startswith("a margin") and "10 %" not in what:
        assert record["no difference"] < 0.1
    assert of_equality(claims, what, 5, 20)["no difference"] == 0.0  # five runs are too few


def test_a_large_loss_is_found_and_never_taken_for_a_gain(claims: dict[str, Claim]) -> None:
    name = "accuracy_and_coverage"
    shifts = {("grpo_branch", benchmark): -2.0 for benchmark in (SHEETS, "harder")}
    keys, rng = keys_of([claims[name]]), np.random.default_rng(0)
    pairs = differences(keys, World(), 5, 40, rng, shifts)
    assert np.mean([pairs[key].mean() for key in pairs if key[-1] > 1]) < -0.1
    rows = ledgers({name: claims[name]}, World(), 5, 40, shifts)
    seen = Counter(row[name]["verdict"] for row in rows)
    assert seen["contradicted"] > 30
    assert seen["supported"] == 0


def test_a_share_of_collapsing_runs_loses_a_margin_in_the_mean() -> None:
    """A run in five loses five points of pass@16, so that the mean is one point off."""
    world = _collapsing(0.2)
    key = ("grpo_branch", "grpo", SHEETS, 16)
    assert world.loss == pytest.approx(-shift_for(-0.05, 16, [SHEETS]))
    by_run = differences([key], world, 20, 30, np.random.default_rng(0))[key].mean(axis=1)
    assert by_run.mean() == pytest.approx(-0.01, abs=0.004)
    assert (by_run < -0.03).mean() == pytest.approx(0.2, abs=0.06)


def test_a_share_has_the_binomial_standard_error() -> None:
    """0.05 of 500: sqrt(0.05 x 0.95 / 500) = 0.0097; none of 500: that of one, about 0.002."""
    assert measured(0.05, "false", 500) == {"false": 0.05, "error": 0.0097, "studies": 500}
    assert measured(0.0, "false", 500)["error"] == 0.002


def test_the_tables_are_kept_with_a_record_in_each_line() -> None:
    content = {"command": "x", "tables": {"a": [{"runs": 3}, {"runs": 5}], "b": [{"runs": 1}]}}
    text = json_by_row(content)
    assert json.loads(text) == content
    assert '   {"runs": 5}\n' in text


def test_halves_of_the_same_runs_seldom_differ() -> None:
    """Eight pairs of method and benchmark at two k; 5 % of contrasts may have p below 0.05."""
    shares = {what: float((p < 0.05).mean()) for what, p in halves(deals=3).items()}
    print(shares)
    assert max(shares.values()) < 0.12
