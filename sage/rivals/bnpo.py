"""BNPO (arXiv 2506.02864): the centred reward over a Beta density fitted to success rates.

p is a group's success rate, m and v are mean and unbiased variance of p over the prompts of a step:

    a, b  = m s, (1 - m) s   with s = m (1 - m) / v - 1
    alpha = max(1, 1 + a / 3),   beta = max(1, 1 + b / 3)
    A     = (r - p) / BetaPDF(p; alpha, beta),   the weight at most 1e6

TRL's loss `bnpo`, named after the same paper, is only a mean over the tokens of the local batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from sage.method import Tensor
from sage.method.advantages import check_rewards


@dataclass(frozen=True)
class BetaNormalised:
    """Prompts weigh by a Beta density that is fitted to the success rates of a step."""

    kind: ClassVar[str] = "beta"
    binary: ClassVar[str] = "fits a Beta density to success rates"

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        if rl.prompts_per_step < 2:
            yield (
                "fits a Beta density over the prompts of a step, so prompts_per_step must be at "
                f"least 2, not {rl.prompts_per_step}"
            )

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError with one prompt, or rewards not 0 or 1."""
        check_rewards(rewards, binary=True)
        if rewards.shape[0] < 2:
            raise ValueError("BNPO's Beta distribution needs at least two prompts a step")
        rates = rewards.double().nanmean(dim=1)
        scored = rates[~rates.isnan()]  # prompts without a scored rollout have no rate
        mean, variance = scored.mean(), scored.var()
        common = mean * (1 - mean) / variance.clamp(min=1e-12) - 1
        alpha = (1 + mean * common / 3).clamp(min=1.0)
        beta = (1 + (1 - mean) * common / 3).clamp(min=1.0)
        log_norm = alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
        log_density = (alpha - 1).xlogy(rates) + (beta - 1).xlogy(1 - rates) - log_norm
        weight = (-log_density).exp().clamp(max=1e6)
        advantages = weight[:, None] * (rewards - rates[:, None])
        return advantages.nan_to_num(nan=0.0).to(rewards.dtype)
