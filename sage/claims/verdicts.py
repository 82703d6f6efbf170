"""Verdicts that follow from numbers alone.

What a test finds comes from `sage.claims.evidence`; here findings become verdicts by fixed rules,
so that nobody decides one by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from sage.claims.evidence import Finding
from sage.claims.tests import Comparison
from sage.evaluation.intervals import holm

LEVEL = 0.05
"""A finding is clear where its p, adjusted after Holm for the places of its test, is below this."""

Verdict = Literal["supported", "contradicted", "inconclusive", "not run"]
"""Of a test or a claim."""

Seen = Literal["supported", "contradicted", "inconclusive", "so in one run", "not so in one run"]
"""Of a finding. What one training run shows is true of that run, and no verdict on a method."""


def verdicts(test: Comparison, findings: Sequence[Finding]) -> list[Seen]:
    """The verdict of each finding, p adjusted after Holm over those that have one.

    A finding without a p, and any of a margin, is judged by its interval alone; one without
    either is inconclusive.
    """
    adjusted = holm(np.array([finding.p for finding in findings]))
    return [
        _verdict(test, finding, float(p)) for finding, p in zip(findings, adjusted, strict=True)
    ]


def of_test(test: Comparison, found: Sequence[Seen]) -> Verdict:
    """One verdict of a test's findings: clear somewhere and nowhere against it, or reversed.

    What keeps to a margin must do so everywhere, and fails where one place is beyond it.
    """
    if not found:
        return "not run"
    if test.margin is not None:
        if "contradicted" in found:
            return "contradicted"
        return "supported" if set(found) == {"supported"} else "inconclusive"
    if "supported" in found and "contradicted" not in found:
        return "supported"
    if "contradicted" in found and "supported" not in found:
        return "contradicted"
    return "inconclusive"


def of_claim(tests: Sequence[Verdict]) -> Verdict:
    """One verdict of a claim's tests: all must hold, and one that fails is enough against it."""
    if "contradicted" in tests:
        return "contradicted"
    if all(verdict == "supported" for verdict in tests):
        return "supported"
    return "not run" if all(verdict == "not run" for verdict in tests) else "inconclusive"


def _verdict(test: Comparison, finding: Finding, p: float) -> Seen:
    low, high = finding.low, finding.high
    if math.isnan(low + high) or low == high:  # without width it says nothing of others
        return "inconclusive"
    if test.margin is None:
        clear = math.isnan(p) or p < LEVEL
        above, below = clear and low > 0, clear and high < 0
        right, wrong = (above, below) if test.direction == "up" else (below, above)
    else:
        right, wrong = high < test.margin, low > test.margin
        if test.direction == "same":
            right, wrong = right and low > -test.margin, wrong or high < -test.margin
    if not (right or wrong):
        return "inconclusive"
    if finding.runs == 1:
        return "so in one run" if right else "not so in one run"
    return "supported" if right else "contradicted"
