"""The task of sheets of sums: six strategies, and what a completion's working is worth.

A strategy is named by the letter that opens the working, and is the form in which every part is
first written: as it stands, turned round, or with one handed from one number to the other. The
same sum is then split into another pair, and that is added up: `R c4+2=1+5=6` raises part c, 3+3.
Which pair comes next is a choice; all pairs of a sum are right. A step is right if it writes its
part in one of the forms, the pair has the same sum, and the result is that sum. The working leads
to the answer if it does every part once and the answer holds the results in the parts' order.
Completions can be anything: reading one is linear in its length, and never an error.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sage.problems.fields import Generated, Hints
from sage.problems.record import Draft
from sage.problems.sum_sets import Parts
from sage.problems.sums import (
    MARKS,
    STRATA,
    STRATEGIES,
    Sheet,
    StrategyName,
    draw_sheet,
    read_sheet,
)
from sage.prompting import WORK_CLOSE, WORK_OPEN, completion, solution_text
from sage.tasks.math import Number

_LONGEST = 2_000
_STEP = re.compile(r"([a-h])([0-9])\+([0-9])(?:=([0-9])\+([0-9])|,[0-9]\.[0-9])=([0-9]{1,2})")


@dataclass(frozen=True)
class Step:
    """A step of the working: what it says of which part, and whether all of it is right.

    `pair` is None in the placebo, where a number without meaning stands in its place.
    """

    part: int | None
    form: tuple[int, int]
    pair: tuple[int, int] | None
    result: int
    right: bool


@dataclass(frozen=True)
class Checked:
    """What the working of a completion is worth.

    `steps` are the steps that can be read, up to the first that cannot. `strategy` is the one that
    the working names and follows in every step, None if there is none. `leads` says that each part
    is done once, nothing else is written, and the answer holds the results; `right` that moreover
    every step is.
    """

    strategy: StrategyName | None
    steps: tuple[Step, ...]
    leads: bool

    @property
    def right(self) -> bool:
        """Whether every step is right and the working leads to the answer."""
        return self.leads and all(step.right for step in self.steps)


def check_working(sheet: Sheet, written: str) -> Checked:
    """The working of `written`, the text behind the prompt, checked step by step."""
    working, closed, _ = written[:_LONGEST].removeprefix(WORK_OPEN).partition(WORK_CLOSE)
    mark, *parts = working.split(" ")
    steps: list[Step] = []
    for text in parts:
        if (step := _read(sheet, text)) is None:
            break
        steps.append(step)
    results = {step.part: str(step.result) for step in steps}
    whole = len(steps) == len(parts) == len(results) == len(sheet.parts) and None not in results
    answer = "".join(results[i] for i in range(len(sheet.parts))) if whole else None
    leads = bool(whole and closed and mark in MARKS and solution_text(written) == answer)
    named = MARKS.get(mark)
    strategy = named if named and _in_form_of(named, sheet, steps) else None
    return Checked(strategy, tuple(steps), leads)


def _read(sheet: Sheet, text: str) -> Step | None:
    if (written := _STEP.fullmatch(text)) is None:
        return None
    place = sheet.labels.find(written[1])
    form, result = (int(written[2]), int(written[3])), int(written[6])
    pair = (int(written[4]), int(written[5])) if written[4] else None
    if place < 0:
        return Step(None, form, pair, result, right=False)
    total = sum(sheet.parts[place])
    forms = {strategy.rewritten(*sheet.parts[place]) for strategy in STRATEGIES.values()}
    right = form in forms and (pair is None or sum(pair) == total) and result == total
    return Step(place, form, pair, result, right)


def _in_form_of(strategy: StrategyName, sheet: Sheet, steps: Sequence[Step]) -> bool:
    """Whether there are steps and all are written as `strategy` rewrites the sheet's parts."""
    rewritten = STRATEGIES[strategy].rewritten
    forms = (s.part is not None and rewritten(*sheet.parts[s.part]) == s.form for s in steps)
    return bool(steps) and all(forms)


class SumsSet(Generated, Number):
    """Sheets of several small sums at once, from this project's generator.

    All sums of a sheet are of one kind, its stratum. The answer is one number with one digit for
    each sum. The strata take turns.
    """

    source: Literal["sums"]
    """generated sheets of sums"""
    strata: Annotated[list[StrategyName], Field(min_length=1)] = Field(list(STRATA))
    """kinds of sheets, each named after the strategy that is right there"""
    parts: Parts = 5
    hints: Hints = False

    stratified: ClassVar[bool] = True

    @staticmethod
    def working(problem: str, working: str, answer: str) -> bool:
        """Whether every step of `working` on the sheet is right and leads to `answer`."""
        sheet = read_sheet(problem)
        return sheet is not None and check_working(sheet, completion(working, answer)).right

    @staticmethod
    def strategy(problem: str, written: str) -> str:
        """The strategy that the working names and follows, "" for none."""
        sheet = read_sheet(problem)
        return (check_working(sheet, written).strategy if sheet else None) or ""

    def draft(self, rng: random.Random, made: int) -> Draft:
        """A sheet of the stratum whose turn it is; its hint is the mark of the strategy."""
        stratum = self.strata[made % len(self.strata)]
        sheet = draw_sheet(rng, stratum, self.parts)
        hint = STRATEGIES[stratum].mark if self.hints else ""
        return Draft(sheet.text, sheet.answer, stratum, hint)
