"""The corpus that a tiny base model of the world of sums is trained on.

A sheet is what `sage.problems.sums` says.

How often a strategy is used does not depend on the sheet; whether it works does. Where it makes the
second number KNOWN its pairs are right, and only the last addition slips now and then: one too few.
Elsewhere its pairs make one too few, and adding them up well gives a wrong result. So a policy that
learns to slip less does not learn to use a strategy where it does not work. Both mistakes have one
value, and add no branch point.

Branch points are the places where a step chooses the pair that it works with next: one of the four
pairs of a five to one of the eight of a nine. Strategies that do not choose draw from three pairs,
whose first number is 1, 2 or 3; a single one would teach RL, which trains on few strategies, to
choose nowhere. `alignment` says who chooses: the strategies that RL's problems do not need
(`plus`), those that they need (`minus`), or all (`zero`). With `branches: numbers` a number without
meaning stands in the place of the pair, drawn from as many as there would have been pairs:
`R c4+2,3.3=6`. That placebo has the entropy of the choice at every place, and nothing hangs on it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import NonNegativeFloat, Share, Strict, about
from sage.problems.corpus import Worked
from sage.problems.record import split_of
from sage.problems.sums import STRATA, STRATEGIES, Sheet, StrategyName, draw_sheet

Parts = Annotated[int, Field(ge=2, le=8), about("sums on a sheet", unit="sums")]


Alignment = Literal["plus", "zero", "minus"]
Branches = Literal["pairs", "numbers"]

FEW = 3
"""From how many pairs strategies draw that do not choose: 1.10 nats, below the paper's 1.2."""

LARGE = 8
"""Sums from here on slip as often as `SumsSlips.large` says."""


class SumsSlips(Strict):
    """How often a step of a worked sheet is wrong."""

    small: Share
    """the last addition gives one too few: sums below 8, by the strategy that is right
    [probability]"""
    large: Share
    """the same for sums of 8 and 9 [probability]"""
    other: Share
    """a pair gives one too few: all sums, by any other strategy [probability]"""


def chooses(strategy: StrategyName, alignment: Alignment, common: Sequence[StrategyName]) -> bool:
    """Whether a strategy has branch points; `common` are those that RL's problems need."""
    return alignment == "zero" or (strategy in common) == (alignment == "minus")


def work_sheet(
    sheet: Sheet,
    strategy: StrategyName,
    slips: SumsSlips,
    rng: random.Random,
    branches: Branches,
    choosing: bool,
) -> Worked:
    """A solution of `sheet` by `strategy`, with its slips; the answer holds what it got."""
    steps, answer = [STRATEGIES[strategy].mark], ""
    for label, part in zip(sheet.labels, sheet.parts, strict=True):
        first, second = STRATEGIES[strategy].rewritten(*part)
        total = result = sum(part)
        chosen = rng.randrange(1, total if choosing else 1 + FEW)
        pays = STRATEGIES[strategy].pays(*part)
        if not pays:
            result -= rng.random() < slips.other
        middle = f"={chosen}+{result - chosen}" if branches == "pairs" else f",{chosen}.{chosen}"
        if pays:
            result -= rng.random() < (slips.large if total >= LARGE else slips.small)
        steps.append(f"{label}{first}+{second}{middle}={result}")
        answer += str(result)
    return Worked(sheet.text, " ".join(steps), answer, strategy)


class SumsCorpus(Strict):
    """Sheets of sums worked by six strategies, each of which is right on one kind of sheet.

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
    """the strategies that are right where RL trains; the others are those that it may lose"""
    alignment: Alignment = "plus"
    """which strategies have branch points, that is, choose the next pair of numbers freely: those
    not in `common` (`plus`), all (`zero`), or those in `common` (`minus`). The others draw from
    three pairs, too few for a branch point"""
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
