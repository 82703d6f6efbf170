"""Verdicts that follow from numbers alone.

What a test finds comes from `sage.claims.evidence`; here findings become verdicts by fixed rules,
so that nobody decides one by hand.

- The primary contrast of a claim decides it, by one test: in its direction or against it with
  p < 0.05 and an interval that excludes 0, or within the margin with an interval that does.
- Everything else is secondary: its p-values are adjusted together (Holm), whichever way they
  point, and the same numbers count once.
- A claim about pass@k is not testable where luck is more than 5 % of it
  (`sage.evaluation.chance.LUCKY`).
- Methods that differ in a guide whose dose is below `sage.claims.strength.LEAST_DOSE` are never
  found to be without a difference: the guide is untested at this dose.
- A secondary finding can take a verdict back and never make one, so a claim with no effect behind
  it gets a false verdict in at most 5 % of studies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from sage.claims.evidence import Finding
from sage.claims.tests import Comparison
from sage.evaluation.intervals import holm

LEVEL = 0.05
"""A finding is clear where its p, adjusted where there are several, is below this."""

Verdict = Literal[
    "supported",
    "contradicted",
    "no difference",
    "inconclusive",
    "untested at this dose",
    "not testable",
    "not run",
]
"""Of a test or a claim. `no difference`: none larger than the margin. `untested at this dose`: the
guide acted too weakly to make one. `not testable`: the study cannot see what the claim is about,
whatever its numbers."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Seen = Literal[
    "supported",
    "contradicted",
    "no difference",
    "inconclusive",
    "so in one run",
    "not so in one run",
]
"""Of a finding. What one training run shows is true of that run, and no verdict on a method."""

ONE_RUN = "one training run"
APART = "other findings go the other way"
"""Why a claim is inconclusive, where more problems or samples would not help."""


def of_finding(test: Comparison, finding: Finding, p: float, equivalence: bool = False) -> Seen:
    """The verdict of a finding with an adjusted `p`; NaN is no p, and says nothing.

    With `equivalence` it may be that there is no difference larger than the margin: the 90 %
    interval lies within it, which is two one-sided tests at 5 %.
    """
    low, high = finding.low, finding.high
    if math.isnan(low + high + p) or low == high:  # runs that agree to the digit say nothing
        return "inconclusive"
    clear = p < LEVEL
    above, below = clear and low > test.null, clear and high < test.null
    right, wrong = (above, below) if test.direction == "up" else (below, above)
    if right or wrong:
        if finding.runs == 1:
            return "so in one run" if right else "not so in one run"
        return "supported" if right else "contradicted"
    if (
        equivalence
        and test.direction != "not up"
        and test.margin is not None
        and finding.runs != 1
        and -test.margin < finding.low_90
        and finding.high_90 < test.margin
    ):
        return "no difference"
    return "inconclusive"


def of_secondary(findings: Sequence[tuple[Comparison, Finding]]) -> list[Seen]:
    """The verdict of each, p adjusted after Holm over all; the same numbers are one test."""
    keys = [(f.place, f.effect, f.low, f.high, f.p) for _, f in findings]
    p = {key: key[-1] for key in keys}
    adjusted = dict(zip(p, holm(np.array(list(p.values()))), strict=True))
    return [
        of_finding(test, finding, float(adjusted[key]))
        for (test, finding), key in zip(findings, keys, strict=True)
    ]


def of_claim(
    primary: Seen | None,
    places: Sequence[Seen] = (),
    secondary: Sequence[Seen] = (),
    runs: int | None = None,
) -> tuple[Verdict, str]:
    """The verdict of a claim, and why it is inconclusive where that is known.

    `primary` is the verdict of its primary contrast (None: not run), which rests on `runs` training
    runs of a row, if any, `places` those of the benchmarks that this is the mean of, `secondary`
    those of further tests. An effect on one benchmark and its opposite on another are no support;
    nor is a mean of no effect none where its benchmarks have one.
    """
    match primary:
        case None:
            return "not run", ""
        case "so in one run" | "not so in one run":
            return "inconclusive", ONE_RUN
        case "supported":
            against = "contradicted" in (*places, *secondary)
        case "contradicted":
            against = "supported" in places
        case "no difference":
            against = bool({"supported", "contradicted"} & set(places))
        case _:
            return "inconclusive", ONE_RUN if runs == 1 else ""
    return ("inconclusive", APART) if against else (primary, "")
