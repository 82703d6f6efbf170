"""What an algorithm adds to TRL's GRPO, and which completion tokens its loss counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sage.anchors import LogProbs
from sage.credit import CreditRule
from sage.guides import GuideFunction

Divergence = Callable[[LogProbs], torch.Tensor]
Advantage = Callable[[torch.Tensor], torch.Tensor]
Keeps = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Shaping:
    """What a row adds to TRL's GRPO; the defaults add nothing.

    `divergence` replaces TRL's k3 by another per-token function of the log-probs,
    `exact_forward_kl` by the sum over the vocabulary; `advantage` maps rewards `[N, G]` to
    advantages, `credit` those to advantages of tokens; with `kl_in_reward` it holds the KL term
    as well, and TRL's own is switched off. `keeps` says of correctness and
    rewards, both `[N, G]`, which groups are trained on, and `max_refills` bounds how often the
    others are replaced (dynamic sampling); `mask_truncated` takes the loss from completions that
    were cut off. With `schedule_per_call` schedules advance with every loss call, as in the
    official release, and not once per optimizer step.
    """

    guide: GuideFunction | None = None
    clamp: tuple[float, float] = (0.6, 1.4)
    schedule_per_call: bool = False
    divergence: Divergence | None = None
    exact_forward_kl: bool = False
    advantage: Advantage | None = None
    credit: CreditRule | None = None
    kl_in_reward: bool = False
    keeps: Keeps | None = None
    max_refills: int = 0
    mask_truncated: bool = False

    @property
    def replaces_k3(self) -> bool:
        """Whether TRL's KL term is made to carry another divergence."""
        return self.divergence is not None or self.exact_forward_kl

    @property
    def shapes_kl(self) -> bool:
        """Whether anything is done to the KL term at all."""
        return self.guide is not None or self.replaces_k3 or self.kl_in_reward


def loss_mask(inputs: dict[str, Any]) -> torch.Tensor:
    """1 on completion tokens with loss, `[B, T]`."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask
