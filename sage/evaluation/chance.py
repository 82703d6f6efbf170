"""The chance level of pass@k, and pass@k that counts correct working only.

pass@k counts an answer, however it came about. Where answers are few, a policy that guesses often
solves much at a large k. Two controls stand beside it. The chance level grades each problem
against the answers of all others instead of its own, exactly and by the same estimator: what is
left when a problem has nothing to do with its answer is luck. And where a problem set can check
the steps of a solution, only those samples count whose working is correct.

How many answers would be right for other problems says the problems' task (`sage.tasks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import Curves, run_table
from sage.evaluation.intervals import interval_of_share
from sage.evaluation.pass_at_k import pass_at_k
from sage.problems.record import Problem
from sage.tasks import task_of

LUCKY = 0.05
"""A chance level above this share of pass@k is too much for a claim about solving problems."""


def chance_level(
    answers: Sequence[Mapping[str, int]], problems: Sequence[Problem], n: int, ks: np.ndarray
) -> np.ndarray:
    """pass@k of each problem against the answers of others, as often as they occur: `[P, K]`.

    `answers` are those of its `n` samples, with counts. NaN where no other problem has another
    answer, and for a task without a chance level. Puzzles are compared with those of their size
    alone, for others have answers of another form. Raises ValueError unless there are as many
    answers as problems, all of one kind, and for a kind that nobody knows.
    """
    kinds = {problem.kind for problem in problems}
    if len(answers) != len(problems) or len(kinds) > 1:
        raise ValueError(
            f"answers of {len(answers)} problems for {len(problems)} of the kinds {sorted(kinds)}"
        )
    levels = np.full((len(problems), len(ks)), np.nan)
    task = task_of(*kinds)
    if not task.has_chance:
        return levels
    groups = [task.peers(problem) for problem in problems]
    keys = [task.gold_key(problem.answer) for problem in problems]
    golds = Counter(zip(groups, keys, strict=True))
    for place, (given, own_group, own) in enumerate(zip(answers, groups, keys, strict=True)):
        others = {
            gold: times
            for (group, gold), times in golds.items()
            if group == own_group and gold != own
        }
        if others:
            right = np.array(task.counts_right(given, [*others]))
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
    return bool(problems) and all(
        task_of(problem.kind, problem.source).working for problem in problems
    )
