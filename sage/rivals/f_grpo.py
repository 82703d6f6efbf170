"""F-GRPO (arXiv 2602.06717): prompts that are solved often weigh less.

p is the share of a prompt's G rollouts that are right:

    A = (1 - p)^gamma A of GRPO

With gamma 0 it is GRPO. Prompts solved by half of their rollouts weigh 2^-gamma, so the step is
smaller as well: compare at rates tuned for each.

Here the weight is on GRPO. Which gamma its authors use is not known here; 1 is this project's
choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from sage.fields import about
from sage.method.advantages import GroupNormalised, check_rewards

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FocalGrpo:
    """GRPO's advantages, of a prompt less the more often it is solved."""

    gamma: Annotated[
        float, Field(ge=0.0), about("power of the share of wrong rollouts", unit="exponent")
    ] = 1.0

    binary: ClassVar[str] = "weighs prompts by their share of right rollouts"

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1."""
        check_rewards(rewards, binary=True)
        missed = (1.0 - rewards.nanmean(dim=1, keepdim=True)).clamp(min=0.0)
        weight = missed.nan_to_num() ** self.gamma  # of a prompt that nothing scored, with A = 0
        return weight * GroupNormalised().advantages(rewards)
