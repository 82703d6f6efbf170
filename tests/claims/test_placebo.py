"""Halves of the same real runs, taken for two methods, seldom differ."""

from __future__ import annotations

from benchmarks.placebo import halves


def test_halves_of_the_same_runs_seldom_differ() -> None:
    """Eight pairs of method and benchmark at two k; 5 % of contrasts may have p below 0.05."""
    shares = {what: float((p < 0.05).mean()) for what, p in halves(deals=3).items()}
    print(shares)
    assert max(shares.values()) < 0.12
