"""The chance level of pass@k: what a policy would score if the problems had other answers.

pass@k counts an answer, however it came about. Where answers are few, a policy that guesses often
solves much at a large k. Here each problem is graded against the answers of all other problems
instead of its own: exactly, by the same estimator, over every other answer. What is left when the
problem no longer has anything to do with its answer is luck.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from sage.evaluation.pass_at_k import pass_at_k

Answers = Mapping[Hashable, int]
"""How many of a problem's samples gave each answer; samples without one are left out."""


def chance_of_pass_at_k(
    answers: Sequence[Answers],
    golds: Sequence[Hashable],
    n: int,
    ks: np.ndarray,
    alike: Sequence[Hashable] | None = None,
) -> np.ndarray:
    """pass@k of each problem against the right answers of others: `[P]` problems to `[P, K]`.

    The mean over all other problems whose answer differs; `n` samples were drawn of each. With
    `alike` `[P]` only problems of an equal entry count as others, such as puzzles of one size. NaN
    where there is no other answer. Raises ValueError if the lengths differ or a count exceeds `n`.
    """
    groups = [None] * len(golds) if alike is None else list(alike)
    if not len(answers) == len(golds) == len(groups):
        raise ValueError(
            f"{len(answers)} problems with answers, {len(golds)} right answers, "
            f"{len(groups)} groups"
        )
    sizes: dict[Hashable, dict[Hashable, int]] = {}
    for gold, group in zip(golds, groups, strict=True):
        golds_of_group = sizes.setdefault(group, {})
        golds_of_group[gold] = golds_of_group.get(gold, 0) + 1
    levels = np.full((len(golds), len(ks)), np.nan)
    for place, (counts, gold, group) in enumerate(zip(answers, golds, groups, strict=True)):
        others = {other: times for other, times in sizes[group].items() if other != gold}
        if not others:
            continue
        correct = np.array([counts.get(other, 0) for other in others])
        weights = np.array(list(others.values()), dtype=float)
        levels[place] = weights @ pass_at_k(n, correct, ks) / weights.sum()
    return levels
