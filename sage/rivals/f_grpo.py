"""F-GRPO (arXiv 2602.06717): prompts that are solved often weigh less.

p is the share of a prompt's G rollouts that are right:

    A = (1 - p)^gamma A of GRPO

With gamma 0 it is GRPO. Prompts solved by half of their rollouts weigh 2^-gamma, so the step is
smaller as well: compare at rates tuned for each.

Its authors tune gamma among 0.5, 1 and 2 for each model and method, and take 0.5 in six of nine
cases, else 1; that is from others' notes of their Table 6. Here it is 1, and the weight is on GRPO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sage.fields import NonNegativeFloat, about
from sage.method import Tensor
from sage.method.advantages import GroupNormalised, check_rewards


@dataclass(frozen=True)
class FocalGrpo:
    """GRPO's advantages, of a prompt less the more often it is solved."""

    gamma: Annotated[
        NonNegativeFloat, about("power of the share of wrong rollouts", unit="exponent")
    ] = 1.0

    binary: ClassVar[str] = "weighs prompts by their share of right rollouts"

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1."""
        check_rewards(rewards, binary=True)
        missed = (1.0 - rewards.nanmean(dim=1, keepdim=True)).clamp(min=0.0)
        weight = missed.nan_to_num() ** self.gamma  # of a prompt that nothing scored, with A = 0
        return weight * GroupNormalised().advantages(rewards)
