"""GDPO (arXiv 2601.05242): each reward is normalised in its group before they are added up.

r_f is the reward of kind f, of F that a method names; std is unbiased, and 1e-4 is added to it:

    S = sum over f of (r_f - mean of the group) / std of the group
    A = (S - mean of S) / std of S   over all rollouts of a generation

Sums such as 1 + 0 and 0 + 1 are one advantage to GRPO, and two here where the groups differ in how
often each reward is given. With one reward it is GRPO times one factor for the whole generation.

Its authors can weigh the terms of S; here all weigh alike, as the rewards of a method do. That is
from its abstract and the authors' public description; the 1e-4 is GRPO's.
"""

from __future__ import annotations

from dataclasses import dataclass

from sage.method import Tensor
from sage.method.advantages import EPSILON, GroupNormalised, Groups, check_rewards


@dataclass(frozen=True)
class Gdpo:
    """Each reward counts by how far it is from its own mean in the group."""

    def advantages(self, rewards: Tensor, groups: Groups) -> Tensor:
        """See above; `[N, G]` from `groups.parts` `[N, G, F]`."""
        check_rewards(rewards)
        plain = GroupNormalised()
        total = rewards.new_zeros(rewards.shape)
        for part in groups.parts.unbind(dim=-1):
            total = total + plain.advantages(part)
        scored = total[rewards.isfinite()]
        if len(scored) < 2:
            return total * 0.0
        whole = (total - scored.mean()) / (scored.std() + EPSILON)
        return whole.masked_fill(~rewards.isfinite(), 0.0)
