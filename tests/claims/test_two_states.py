"""Runs in two states are named, and their mean decides nothing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import two_state_coverage
from sage.claims.evidence import Finding
from sage.claims.tests import PassAtK
from sage.claims.verdicts import of_finding, two_states, unseen_share, usual_gap

TEST = PassAtK.model_validate(
    {"test": "pass_at_k", "exhibit": "table1", "method": "a", "other": "b", "k": 1}
    | {"direction": "up", "margin": 0.02}
)


def finding(*runs: float) -> Finding:
    mean = float(np.mean(runs))
    ends = {"low_90": mean / 2, "high_90": 1.5 * mean}
    return Finding("", mean, mean / 2, 1.5 * mean, 0.001, 60, "problems", 5, by_run=runs, **ends)


def test_collapsed_runs_and_the_others_are_two_states() -> None:
    found = finding(0.31, -0.12, 0.30, -0.11, 0.28)
    assert two_states(TEST, found) == ([-0.12, -0.11], [0.28, 0.30, 0.31])
    assert of_finding(TEST, found, found.p) == "inconclusive"


@pytest.mark.parametrize(
    "runs",
    [
        (0.31, 0.12, 0.30, 0.11, 0.28),  # all on one side: each state supports it
        (0.03, -0.01, 0.03, -0.01, 0.02),  # four points apart, less than three margins
        (0.31, -0.12, 0.15, -0.02, 0.25),  # spread out
        (0.31, -0.12, 0.30),  # three runs
    ],
)
def test_other_runs_are_in_one_state(runs: tuple[float, ...]) -> None:
    assert two_states(TEST, finding(*runs)) is None
    assert of_finding(TEST, finding(*runs), 0.001) == "supported"


def test_without_a_margin_nothing_is_named() -> None:
    test = TEST.model_copy(update={"margin": None})
    assert two_states(test, finding(0.31, -0.12, 0.30, -0.11, 0.28)) is None


@pytest.mark.parametrize("runs", [4, 5, 10])
def test_one_normal_state_is_seldom_taken_for_two(runs: int) -> None:
    """In 5 % of studies, by the definition of the usual gap; ranges of 20 margins are large."""
    rng = np.random.default_rng(runs)
    found = [
        two_states(TEST, finding(*rng.normal(0.0, 0.5, runs).tolist())) is not None
        for _ in range(1_000)
    ]
    assert 0.02 < np.mean(found) < 0.08
    assert usual_gap(4) > usual_gap(5) > usual_gap(10)


def test_no_run_of_five_leaves_45_percent() -> None:
    """0.549^5 = 0.05."""
    assert unseen_share(5) == pytest.approx(0.451, abs=0.001)


def test_two_states_are_named_or_their_mean_is_held() -> None:
    record = two_state_coverage(TEST, share=0.2, runs=5, studies=600)
    one_state = 0.8**5 + 0.2**5
    assert record["named"] == pytest.approx(1.0 - one_state, abs=0.08)
    assert record["covered"] >= 0.93
    # A state that no run was in is not seen: in 33 % of studies the mean over all is not held.
    assert record["over all"] < 0.9
