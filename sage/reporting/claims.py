"""The paper's claims as tests on measured files, and the verdicts that follow from numbers alone.

`config/claims.yaml` states each claim as tests: which measurement, which rows, which way. What a
test finds comes from `sage.reporting.evidence`; here findings become verdicts by fixed rules, so
that nobody decides one by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sage.evaluation.intervals import holm
from sage.reporting.evidence import Finding
from sage.study.strict import Name, Positive, PositiveFloat, Strict

LEVEL = 0.05
"""A finding is clear where its p, adjusted after Holm for the places of its test, is below this."""

Verdict = Literal["supported", "contradicted", "inconclusive", "not run"]
"""Of a test or a claim."""

Seen = Literal["supported", "contradicted", "inconclusive", "so in one run", "not so in one run"]
"""Of a finding. What one training run shows is true of that run, and no verdict on a method."""

Direction = Literal["up", "down", "same", "not up"]


class Comparison(Strict):
    """A difference, `row` minus `other`, that goes one way. `exhibit` lends model and benchmarks.

    `up` and `down` say that the difference is clear. `same` says that it lies within `margin`,
    `not up` that it is below `margin`, in every place: absence of evidence is no evidence of
    absence, and one place that keeps to it says nothing of the others.
    """

    exhibit: Name
    row: Name
    other: Name
    direction: Direction
    margin: PositiveFloat | None = None

    @model_validator(mode="after")
    def _margin_where_needed(self) -> Comparison:
        if (self.direction in ("same", "not up")) != (self.margin is not None):
            raise ValueError(
                f"direction {self.direction!r}: margin belongs to 'same' and 'not up', and only "
                "to them"
            )
        return self


class PassAtK(Comparison):
    """pass@k, problem by problem (metrics/comparisons.parquet)."""

    test: Literal["pass_at_k"]
    k: Positive | Literal["largest"]
    benchmarks: Annotated[list[Name], Field(min_length=1)] | None = None


class PatternShare(Comparison):
    """The share of correct solutions that show a pattern (the exhibit's metrics)."""

    test: Literal["pattern"]
    pattern: Name


class Tail(Comparison):
    """The share of responses above the base's 95th percentile of perplexity."""

    test: Literal["tail"]


class Recorded(Comparison):
    """A quantity of the training histories, over the whole run or a third of it.

    `relative` compares ratios instead of differences.
    """

    test: Literal["history"]
    key: Name
    stage: Literal["early", "mid", "late"] | None = None
    relative: bool = False


class StepTime(Comparison):
    """The time of learning from the same completions, as a ratio (the exhibit's metrics)."""

    test: Literal["step_time"]


AnyTest = Annotated[
    PassAtK | PatternShare | Tail | Recorded | StepTime, Field(discriminator="test")
]


class Claim(Strict):
    """What the paper claims, where, and the tests that all must hold."""

    claim: str
    source: str
    tests: Annotated[list[AnyTest], Field(min_length=1)]


_LEDGER = TypeAdapter(dict[Name, Claim])


def load_claims(path: Path) -> dict[str, Claim]:
    """The ledger by the claims' names. Raises ValueError naming the file, the key and the fault."""
    try:
        return _LEDGER.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML ({error})") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']} (seen: {fault['input']!r})"
            for fault in error.errors()
        )
        raise ValueError(f"{path}: {faults}") from error


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
