"""Base against base: real samples under the names of all rows decide no claim."""

from __future__ import annotations

import pytest

from benchmarks.placebo import ROOT, false_ones, halves, verdicts
from sage.claims.tests import load_claims


@pytest.mark.parametrize("runs", [3, 8])
def test_the_base_under_all_names_decides_no_claim(runs: int) -> None:
    claims = load_claims(ROOT / "config/claims.yaml")
    found = verdicts(claims, runs, seed=0)
    not_run = {name for name, verdict in found.items() if verdict == "not run"}
    assert not_run == {"gradient_norms", "overhead"}, "these need histories and times"
    assert not false_ones(claims, found)


def test_halves_of_the_same_runs_seldom_differ() -> None:
    """Eight pairs of method and benchmark at two k; 5 % of contrasts may have p below 0.05."""
    shares = {what: float((p < 0.05).mean()) for what, p in halves(deals=3).items()}
    print(shares)
    assert max(shares.values()) < 0.12
