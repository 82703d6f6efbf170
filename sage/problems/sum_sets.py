"""The settings of the world of sums: its problem sets and the corpus of its bases.

The generators are `sage.problems.sums` and `sage.problems.sums_corpus`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import NonNegativeFloat, Positive, Strict, about
from sage.problems.corpus import Worked
from sage.problems.fields import GeneratorSeed, Hints, Split, Title
from sage.problems.record import Problem
from sage.problems.sums import STRATA, StrategyName, sums_problems
from sage.problems.sums_corpus import Alignment, Branches, SumsSlips, worked_sheets

COMMON: tuple[StrategyName, ...] = ("plain", "turn")
Parts = Annotated[int, Field(ge=2, le=8), about("sums on a sheet", unit="sums")]


class SumsSet(Strict):
    """Sheets of several small sums at once, from this project's generator.

    All sums of a sheet are of one kind, its stratum; the answer is one number, a digit a sum.
    """

    source: Annotated[Literal["sums"], about("generated sheets of sums")]
    title: Title
    count: Annotated[Positive, about("size of the set; the strata take turns", unit="problems")]
    seed: GeneratorSeed
    strata: Annotated[
        list[StrategyName],
        Field(min_length=1),
        about("kinds of sheets, each named after the strategy that pays there"),
    ] = Field(default_factory=lambda: list(STRATA))
    parts: Parts = 5
    split: Split
    hints: Hints = False

    def size(self) -> int:
        """How many problems it has."""
        return self.count

    def problems(self, name: str) -> list[Problem]:
        """The set, called `name`. Raises ValueError if the settings do not admit that many."""
        return sums_problems(
            name, self.count, self.seed, self.strata, self.parts, self.split, self.hints
        )


class SumsCorpus(Strict):
    """Sheets of sums worked by six strategies, each of which pays on one kind of sheet.

    How often a strategy is used does not depend on the sheet; how often it slips does. All sheets
    are of the split `train`.
    """

    source: Annotated[Literal["sums"], about("worked sheets of sums")]
    shares: Annotated[
        dict[StrategyName, Annotated[NonNegativeFloat, about("how often", unit="weight")]],
        Field(min_length=1),
        about("how often each strategy is used; need not add up to 1", unit="weights"),
    ]
    slips: Annotated[SumsSlips, about("how often a step is wrong")]
    parts: Parts = 5
    common: Annotated[
        list[StrategyName],
        about("the strategies that pay where RL trains; the others are those it may lose"),
    ] = Field(default_factory=lambda: list(COMMON))
    alignment: Annotated[
        Alignment,
        about(
            "who chooses which pair of numbers a step works with next, which makes branch points: "
            "strategies other than `common` (`plus`), all (`zero`), or those of `common` "
            "(`minus`). The others draw from three pairs, too few for a branch point"
        ),
    ] = "plus"
    branches: Annotated[
        Branches,
        about(
            "what is chosen at a branch point: the next pair, or as many numbers that mean nothing "
            "(a placebo)"
        ),
    ] = "pairs"

    @model_validator(mode="after")
    def _drawable(self) -> SumsCorpus:
        if not any(self.shares.values()):
            raise ValueError("shares: at least one must be above 0")
        return self

    def worked(self, seed: int) -> Iterator[Worked]:
        """Worked sheets of the training split, without end."""
        return worked_sheets(
            seed=seed,
            shares=self.shares,
            slips=self.slips,
            parts=self.parts,
            alignment=self.alignment,
            branches=self.branches,
            common=self.common,
        )
