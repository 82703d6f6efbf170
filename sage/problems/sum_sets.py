"""The settings of the world of sums: its problem sets and the corpus of its bases.

A sheet is what `sage.problems.sums` says, worked as `sage.problems.sums_corpus` says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import NonNegativeFloat, Strict, about
from sage.problems.corpus import Worked
from sage.problems.fields import Generated, Hints
from sage.problems.record import Draft, split_of
from sage.problems.sums import STRATA, STRATEGIES, StrategyName, draw_sheet
from sage.problems.sums_corpus import Alignment, Branches, SumsSlips, chooses, work_sheet

Parts = Annotated[int, Field(ge=2, le=8), about("sums on a sheet", unit="sums")]


class SumsSet(Generated):
    """Sheets of several small sums at once, from this project's generator.

    All sums of a sheet are of one kind, its stratum; the answer is one number, a digit a sum. The
    strata take turns.
    """

    source: Literal["sums"]
    """generated sheets of sums"""
    strata: Annotated[list[StrategyName], Field(min_length=1)] = Field(list(STRATA))
    """kinds of sheets, each named after the strategy that pays there"""
    parts: Parts = 5
    hints: Hints = False

    def draft(self, rng: random.Random, made: int) -> Draft:
        """A sheet of the stratum whose turn it is; its hint is the mark of the strategy."""
        stratum = self.strata[made % len(self.strata)]
        sheet = draw_sheet(rng, stratum, self.parts)
        hint = STRATEGIES[stratum].mark if self.hints else ""
        return Draft(sheet.text, sheet.answer, stratum, hint)


class SumsCorpus(Strict):
    """Sheets of sums worked by six strategies, each of which pays on one kind of sheet.

    How often a strategy is used does not depend on the sheet; how often it slips does. All sheets
    are of the split `train`.
    """

    source: Literal["sums"]
    """worked sheets of sums"""
    shares: Annotated[
        dict[StrategyName, Annotated[NonNegativeFloat, about("how often", unit="weight")]],
        Field(min_length=1),
    ]
    """how often each strategy is used; need not add up to 1 [weights]"""
    slips: SumsSlips
    """how often a step is wrong"""
    parts: Parts = 5
    common: list[StrategyName] = Field(["plain", "turn"])
    """the strategies that pay where RL trains; the others are those it may lose"""
    alignment: Alignment = "plus"
    """who chooses which pair of numbers a step works with next, which makes branch points:
    strategies other than `common` (`plus`), all (`zero`), or those of `common` (`minus`). The
    others draw from three pairs, too few for a branch point"""
    branches: Branches = "pairs"
    """what is chosen at a branch point: the next pair, or as many numbers that mean nothing (a
    placebo)"""

    @model_validator(mode="after")
    def _drawable(self) -> SumsCorpus:
        if not any(self.shares.values()):
            raise ValueError("shares: at least one must be above 0")
        return self

    def worked(self, seed: int) -> Iterator[Worked]:
        """Worked sheets of the training split, without end."""
        rng = random.Random(f"sums corpus/{seed}")
        names, weights = list(self.shares), list(self.shares.values())
        while True:
            sheet = draw_sheet(rng, rng.choice(STRATA), self.parts)
            strategy = rng.choices(names, weights)[0]
            choosing = chooses(strategy, self.alignment, self.common)
            worked = work_sheet(sheet, strategy, self.slips, rng, self.branches, choosing)
            if split_of(sheet.text) == "train":
                yield worked
