"""The chance level of pass@k, and pass@k that counts correct working only.

pass@k counts an answer, however it came about. Where answers are few, a policy that guesses often
solves much at a large k. Two controls stand beside it. The chance level grades each problem
against the answers of all others instead of its own, exactly and by the same estimator: what is
left when a problem has nothing to do with its answer is luck. And where a problem set can check
the steps of a solution, only those samples count whose working is correct.

How many answers would be right for other problems is found without grading each pair: answers get a
key that equal ones share; routes are walked instead, where start and goal fit. A key knows less
than the grader: two forms of one expression that only the grader sees to be equal count as
different, so a chance level may be a little too low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import Curves, run_table
from sage.evaluation.intervals import interval_of_share
from sage.evaluation.pass_at_k import pass_at_k
from sage.grading.assignments import names_in, parse_assignment
from sage.grading.exact import spaced
from sage.grading.quantities import read_quantity
from sage.grading.tidy import tidy
from sage.grading.walks import counts_arriving
from sage.problems.record import Kind, Problem
from sage.problems.working import CHECKERS

LUCKY = 0.05
"""A chance level above this share of pass@k is too much for a claim about solving problems."""

_LONGEST = 500
"""Characters of an answer that are looked at, as in grading."""


def chance_level(
    answers: Sequence[Mapping[str, int]], problems: Sequence[Problem], n: int, ks: np.ndarray
) -> np.ndarray:
    """pass@k of each problem against the answers of others, as often as they occur: `[P, K]`.

    `answers` are those of its `n` samples, with counts. NaN where no other problem has another
    answer. Puzzles are compared with those of their size alone, for others have answers of another
    form. Raises ValueError unless there are as many answers as problems, all of one kind.
    """
    kinds = {problem.kind for problem in problems}
    if len(answers) != len(problems) or len(kinds) > 1:
        raise ValueError(
            f"answers of {len(answers)} problems for {len(problems)} of the kinds {sorted(kinds)}"
        )
    groups = [problem.level if problem.kind == "knights" else "" for problem in problems]
    keys = [
        problem.answer if problem.kind == "route" else answer_key(problem.answer, problem.kind)
        for problem in problems
    ]
    golds = Counter(zip(groups, keys, strict=True))
    levels = np.full((len(problems), len(ks)), np.nan)
    for place, (given, own_group, own) in enumerate(zip(answers, groups, keys, strict=True)):
        others = {
            gold: times
            for (group, gold), times in golds.items()
            if group == own_group and gold != own
        }
        if others:
            right = np.array(_counts_right(given, [*others], *kinds))
            weights = np.array([*others.values()], dtype=float)
            levels[place] = weights @ pass_at_k(n, right, ks) / weights.sum()
    return levels


def chance_table(counts: pd.DataFrame, draws: int) -> pd.DataFrame:
    """The controls of pass@k, per run and pooled over training seeds, for k = 1, 2, 4, … n.

    Columns: those of `run_table`, `stratum` (empty for all problems; pooled, each stratum follows),
    k, `value` (pass@k), `chance` (the same against other problems' answers; NaN where it cannot be
    computed), `worked` with `low` and `high` (pass@k of samples with correct working and its 95 %
    interval; NaN where the source has no checker) and `reliable`, the share of problems solved in
    at least half of the samples. `counts` are those of `sage.evaluation.counts`.
    """

    def measure(curves: Curves, runs: slice) -> Iterator[dict[str, Any]]:
        fixed = runs == slice(None) and curves.groups is not None and not curves.groups.drawn
        strata = np.array(curves.groups.labels if fixed and curves.groups else ())
        working = curves.of_working()
        known = np.full_like(curves.values, np.nan) if working is None else working.values
        for stratum in ["", *np.unique(strata)]:
            kept = strata == stratum if stratum else np.ones(len(curves.problems), dtype=bool)
            worked = known[runs][:, kept]
            low, high = interval_of_share(worked, draws, groups=None if stratum else curves.groups)
            chance = curves.chance[runs][:, kept].reshape(-1, len(curves.ks))
            yield {
                "stratum": str(stratum),
                "k": curves.ks,
                "value": curves.values[runs][:, kept].mean(axis=(0, 1)),
                "chance": pd.DataFrame(chance).mean().to_numpy(),  # of those that are known
                "worked": worked.mean(axis=(0, 1)),
                "low": low,
                "high": high,
                "reliable": float((2 * curves.correct[runs][:, kept] >= curves.n).mean()),
                "n_problems": int(kept.sum()),
            }

    return run_table(counts, measure)


def checks_working(problems: Sequence[Problem]) -> bool:
    """Whether there are problems, and the working of all can be checked."""
    return bool(problems) and all(problem.source in CHECKERS for problem in problems)


def _counts_right(answers: Mapping[str, int], golds: Sequence[Any], kind: Kind) -> list[int]:
    """How many of `answers`, each with its count, equal each of `golds` (keys); `[J]`."""
    if kind == "route":
        return counts_arriving(answers, golds)
    counts: Counter[Hashable] = Counter()
    for answer, count in answers.items():
        counts[answer_key(answer, kind)] += count
    return [counts[gold] for gold in golds]


@lru_cache(maxsize=100_000)
def answer_key(answer: str, kind: Kind) -> Hashable:
    """What equal answers share: a number's value, an assignment, else the tidy text.

    Raises ValueError for a kind of which it is not known.
    """
    answer = answer[:_LONGEST]
    if kind == "knights":
        roles = parse_assignment(answer, names_in(answer))
        return None if roles is None else frozenset(roles.items())
    if kind not in ("math", "number"):
        raise ValueError(f"no chance level is known for answers of the kind {kind!r}")
    text = spaced(tidy(answer))
    quantity = read_quantity(text)
    return text if quantity is None else (quantity.value, quantity.unit)
