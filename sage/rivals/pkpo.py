"""PKPO (arXiv 2505.15201, Eq. 33: s^(loo-1)): an unbiased gradient of pass@k.

Of each set of k rollouts a rollout is credited with what it adds to the set's best reward. With c
right ones among the G rollouts of a prompt:

    A = k C(G - c, k - 1) / C(G - 1, k - 1)   for a right rollout
    A = 0                                     for a wrong one

A group of which fewer than k rollouts are scored has 0. With k = 1 this is the reward itself. k
must be below G: at k = G a group has a gradient only if exactly one of its rollouts is right.

Its authors sum gradients over rollouts. Here A is G times theirs, for the loss takes a mean; the
scale is the learning rate's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sage.method import Tensor
from sage.method.advantages import OfSets, chance_of_none, check_rewards, right_counts


@dataclass(frozen=True)
class Pkpo(OfSets):
    """A right rollout is credited with what it adds to the sets of k that hold it."""

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        yield from super().conflicts_with_run(rl)
        if rl.rollouts == self.k:
            yield (
                f"takes sets of k = {self.k} of a prompt's {rl.rollouts} rollouts: of a whole "
                "group only a single right rollout would be credited; choose a smaller k"
            )

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1, or G below k."""
        check_rewards(rewards, binary=True)
        count, right = right_counts(rewards, self.k)
        # k - 1 others drawn from the G - 1 others, all wrong: C(G - c, k - 1) / C(G - 1, k - 1).
        alone = chance_of_none(count - 1, right - 1, self.k - 1)
        return (rewards.double() * self.k * alone).nan_to_num(nan=0.0).to(rewards.dtype)
