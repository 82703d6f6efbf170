"""The paper's claims as typed tests on measured files, read from `config/claims.yaml`.

Each test says which measurement, which rows, which way. What it finds comes from
`sage.claims.evidence`; what follows from that is decided in `sage.claims.verdicts`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import Name, Positive, PositiveFloat, Strict
from sage.study.reading import read_as

Direction = Literal["up", "down", "not up"]

HEADLINES = 3
"""As many claims as fit the first screen of the report."""


class Comparison(Strict):
    """A difference, `row` minus `other`, that goes one way. `exhibit` lends model and benchmarks.

    `up` and `down` say that there is one, `not up` that it is below `margin`. With `up` and
    `down`, `margin` is the smallest difference that would matter: a test that finds none may find
    that there is none of that size.
    """

    exhibit: Name
    row: Name
    other: Name
    direction: Direction
    margin: PositiveFloat | None = None

    @model_validator(mode="after")
    def _margin_where_needed(self) -> Comparison:
        if self.direction == "not up" and self.margin is None:
            raise ValueError("direction 'not up' needs a margin")
        return self

    @property
    def null(self) -> float:
        """The difference that a p-value is about."""
        return self.margin if self.direction == "not up" and self.margin else 0.0


class PassAtK(Comparison):
    """pass@k, problem by problem, the mean over benchmarks (metrics/comparisons.parquet).

    `k` `half` is the largest power of two of which 2k samples of a problem were drawn, and at
    most what one evaluation seed draws: at k = n sampling noise alone is some points.
    `benchmarks` are those of the exhibit unless named.
    """

    test: Literal["pass_at_k"]
    k: Positive | Literal["half"]
    benchmarks: Annotated[list[Name], Field(min_length=1)] | None = None


class PatternShare(Comparison):
    """The share of correct solutions that show a pattern, on problems that both rows solve."""

    test: Literal["pattern"]
    pattern: Name


class Tail(Comparison):
    """The share of responses above the base's 95th percentile of perplexity, by problem."""

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
    """What the paper claims, where, and the tests of it.

    `primary` alone decides: one contrast, with the margin below which a difference would not
    matter. `secondary` tests are shown, and can only take a verdict back.
    A `headline` claim stands in the sentences that open the report, of which there are at most
    HEADLINES.
    """

    claim: str
    source: str
    headline: bool = False
    primary: AnyTest
    secondary: list[AnyTest] = Field(default_factory=list)

    @model_validator(mode="after")
    def _margin_of_the_primary(self) -> Claim:
        if self.primary.margin is None:
            raise ValueError("the primary test needs a margin")
        return self


def load_claims(path: Path) -> dict[str, Claim]:
    """The ledger by the claims' names. Raises ValueError naming the file, the key and the fault."""
    claims = read_as(dict[Name, Claim], path)
    headlines = [name for name, claim in claims.items() if claim.headline]
    if len(headlines) > HEADLINES:
        raise ValueError(
            f"{path}: {', '.join(headlines)} have headline: true; at most {HEADLINES} claims may"
        )
    return claims
