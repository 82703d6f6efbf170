"""Verdicts that follow from numbers alone.

What a test finds comes from `sage.claims.evidence`; here findings become verdicts by fixed rules,
so that nobody decides one by hand.

- The primary contrast of a claim decides it, by one test: in its direction or against it with
  p < 0.05 and an interval that excludes 0. Where its 90 % interval also lies within the margin, the
  effect is there and smaller than matters; where that is all, there is no difference.
- No difference is about means and about runs: of the training runs, fewer than FAR_SHARE may be
  far from each other (FAR margins), with 95 % confidence. A method that loses so much in one run
  of five is not the same, and few runs may show none of them.
- Training runs may fall into two states: some collapse, or learn what others do not. Where they are
  seen in both, on both sides of the null, their mean is that of no run, and there is no verdict.
- Everything else is secondary: its p-values are adjusted together (Holm), whichever way they
  point, and the same numbers count once. Some secondary tests are parts of the claim's sentence;
  each part holds, does not hold or is open.
- A claim about pass@k is not testable where luck is more than 5 % of it
  (`sage.evaluation.chance.LUCKY`).
- A claim about policies that differ in a guide whose dose, in the reward or in the loss, is below
  its least (`sage.evaluation.histories`) has its verdict with a note, for the dose was found by
  training: such a guide was hardly tested, and a small p is of whatever else training did.
- A secondary finding that is no part of the claim can take a verdict back and never make one, so
  a claim with no effect behind it gets a false verdict in at most 5 % of studies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from scipy.special import betaincinv

from sage.claims.evidence import Finding
from sage.claims.tests import Comparison
from sage.evaluation.curves import LEVEL
from sage.evaluation.intervals import holm

FAR = 3.0
"""A run is far where its difference is more than so many margins. A mean can be a margin off
through fewer than a third of the runs only if these are far."""

FAR_SHARE = 0.3
"""No difference is found where more of the runs than this may be far: by nine runs, none far."""

USUAL = 0.95
"""Runs are in two states where the gap between them is wider than in this share of normal samples,
in units of the wider state."""

Verdict = Literal[
    "supported",
    "contradicted",
    "smaller than matters",
    "no difference",
    "inconclusive",
    "not testable",
    "not run",
]
"""Of a test or a claim. `smaller than matters`: significant, and within the margin. `no
difference`: none larger than the margin. `not testable`: the study cannot see what the claim is
about, whatever its numbers."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Seen = Literal[
    "supported",
    "contradicted",
    "smaller than matters",
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

    With `equivalence` it may be about the margin too.
    """
    low, high = finding.low, finding.high
    if math.isnan(low + high + p) or low == high:  # runs that agree to the digit say nothing
        return "inconclusive"
    clear = p < LEVEL
    if two_states(test, finding):
        return "inconclusive"
    above, below = clear and low > test.null, clear and high < test.null
    right, wrong = (above, below) if test.direction == "up" else (below, above)
    within = equivalence and means_within(test, finding)
    if right or wrong:
        if finding.runs == 1:
            return "so in one run" if right else "not so in one run"
        return "smaller than matters" if within else "supported" if right else "contradicted"
    return "no difference" if within and far_share(test, finding) < FAR_SHARE else "inconclusive"


def means_within(test: Comparison, finding: Finding) -> bool:
    """Whether the 90 % interval lies within the margin: two one-sided tests at 5 %.

    Never by one training run, or where the margin is what the test is about.
    """
    return (
        test.direction != "not up"
        and test.margin is not None
        and finding.runs != 1
        and -test.margin < finding.low_90
        and finding.high_90 < test.margin
    )


def far_share(test: Comparison, finding: Finding) -> float:
    """The largest share of far runs that the runs allow at 95 % (Clopper and Pearson).

    0 where the finding is not about training runs; with several bases, of bases.
    """
    runs = len(finding.by_run)
    far = sum(abs(value) > FAR * (test.margin or math.inf) for value in finding.by_run)
    return float(betaincinv(far + 1, runs - far, 0.95)) if far < runs else float(runs > 0)


def two_states(test: Comparison, finding: Finding) -> tuple[list[float], list[float]] | None:
    """The effects of single runs in the lower and in the upper of two states; None for one state.

    There are two if the widest gap between neighbouring runs is more than FAR margins and wider, by
    the range of either side, than in USUAL normal samples, and runs are on both sides of the null.
    Three runs show no states, but their interval is wide. With several bases it is about these.
    """
    runs = np.sort(finding.by_run)
    if len(runs) < 4 or not test.margin or not runs[0] < test.null < runs[-1]:
        return None
    gap, wider, place = (float(each[0]) for each in _widest_gap(runs[None]))
    if gap <= FAR * test.margin or gap <= usual_gap(len(runs)) * wider:
        return None
    return runs[: int(place)].tolist(), runs[int(place) :].tolist()


def _widest_gap(runs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sorted `runs` `[N, S]`: the widest gap, the wider range beside it, and the runs below."""
    gaps = np.diff(runs, axis=1)
    at = gaps.argmax(axis=1)
    rows = np.arange(len(runs))
    wider = np.maximum(runs[rows, at] - runs[:, 0], runs[:, -1] - runs[rows, at + 1])
    return gaps[rows, at], wider, at + 1


@lru_cache
def usual_gap(runs: int) -> float:
    """The widest gap over the wider range that USUAL samples of so many normal runs stay below."""
    gap, wider, _ = _widest_gap(
        np.sort(np.random.default_rng(0).standard_normal((20_000, runs)), axis=1)
    )
    return float(np.quantile(gap / wider, USUAL))


def unseen_share(runs: int) -> float:
    """The largest share of runs in a state that none of `runs` was in, at 95 % confidence."""
    return 1.0 - 0.05 ** (1.0 / runs)


def adjusted(findings: Sequence[Finding]) -> tuple[list[float], int]:
    """p of each after Holm over all, and over how many tests: the same numbers are one."""
    keys = [(f.place, f.effect, f.low, f.high, f.p) for f in findings]
    p = np.array([key[-1] for key in dict.fromkeys(keys)])
    by_key = dict(zip(dict.fromkeys(keys), holm(p), strict=True))
    return [float(by_key[key]) for key in keys], int((~np.isnan(p)).sum())


def of_claim(
    primary: Seen | None,
    places: Sequence[Seen] = (),
    secondary: Sequence[Seen] = (),
    runs: int | None = None,
) -> tuple[Verdict, str]:
    """The verdict of a claim, and why it is inconclusive where that is known.

    `primary` is the verdict of its primary contrast (None: not run), which rests on `runs` training
    runs of a row, if any, `places` those of the benchmarks that this is the mean of, `secondary`
    those of further tests but its parts. An effect on one benchmark and its opposite on another are
    no support; nor is a mean of no effect none where its benchmarks have one.
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
        case "smaller than matters":
            against = {"supported", "contradicted"} <= set(places)
        case "no difference":
            against = bool({"supported", "contradicted"} & set(places))
        case _:
            return "inconclusive", ONE_RUN if runs == 1 else ""
    return ("inconclusive", APART) if against else (primary, "")
