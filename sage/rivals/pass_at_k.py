"""Pass@k training (arXiv 2508.10751): the advantages of sets of k rollouts, in closed form.

With w wrong ones among the G rollouts of a prompt, the chance R that a set of k holds a right one:

    R = 1 - C(w, k) / C(G, k),   s = sqrt(R (1 - R))
    A = (1 - R) / s                                       for a right rollout
    A = (1 - R - C(w - 1, k - 1) / C(G - 1, k - 1)) / s   for a wrong one

and 0 for all where s is 0, and in a group of which fewer than k rollouts are scored. With k = 1
this is GRPO's with the biased standard deviation.

Its authors take k = 4 and no KL term, as here.
"""

from __future__ import annotations

from dataclasses import dataclass

from sage.method import Tensor
from sage.method.advantages import OfSets, chance_of_none, check_rewards, right_counts


@dataclass(frozen=True)
class PassAtK(OfSets):
    """Sets of k rollouts are rewarded for a right one among them."""

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1, or G below k."""
        check_rewards(rewards, binary=True)
        count, right = right_counts(rewards, self.k)
        failure = chance_of_none(count, right, self.k)
        deviation = ((1 - failure) * failure).sqrt()
        of_wrong = failure - chance_of_none(count - 1, right, self.k - 1)
        advantages = rewards.double() * (failure - of_wrong) + of_wrong
        usable = deviation > 0
        scaled = (advantages / deviation.where(usable, deviation + 1)) * usable
        return scaled.nan_to_num(nan=0.0).to(rewards.dtype)
