"""W-REINFORCE (arXiv 2506.01347): wrong rollouts count in full, right ones little.

    A = lambda for a right rollout, -1 for a wrong one

whatever the rest of the group is. With lambda 0 only wrong rollouts count: negative-sample
reinforcement.

Its authors take lambda 0.1, 4 steps a generation, a mean over tokens and an entropy bonus of 0.001.
Here it is lambda 0.1, 1 step, a mean per completion and no bonus, so that one thing is changed
against `grpo_no_kl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sage.fields import NonNegativeFloat, about
from sage.method import Tensor
from sage.method.advantages import check_rewards


@dataclass(frozen=True)
class WeightedReinforce:
    """λ for a right rollout, -1 for a wrong one, without the group."""

    weight: Annotated[
        NonNegativeFloat, about("advantage of a right rollout, λ", unit="advantage")
    ] = 0.1

    binary: ClassVar[str] = "tells right from wrong rollouts"

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1."""
        check_rewards(rewards, binary=True)
        return (rewards * (self.weight + 1) - 1).nan_to_num(nan=0.0)
