"""Advantages of the rollouts of a group, from their rewards.

Each is a class that holds its settings and maps rewards `[N, G]` of N prompts to advantages
`[N, G]`. `binary` says that rewards must be 0 or 1. The first two are what TRL computes in
training, which the tests hold against them. Torch is not imported here: a study is read without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

EPSILON = 1e-4


@dataclass(frozen=True)
class GroupNormalised:
    """GRPO: the reward less the group's mean, over its standard deviation (unbiased) + 1e-4."""

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`."""
        _check(rewards)
        mean, std = rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)
        return (rewards - mean) / (std + EPSILON)


@dataclass(frozen=True)
class Centred:
    """Dr. GRPO: the reward less the group's mean."""

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`."""
        _check(rewards)
        return rewards - rewards.mean(dim=1, keepdim=True)


@dataclass(frozen=True)
class BetaNormalised:
    """BNPO (arXiv 2506.02864): the centred reward over a Beta density fitted over the prompts.

    p is a group's success rate; a and b are the moment estimates from mean m and unbiased
    variance v of p over the prompts, alpha = max(1, 1 + a/3), beta = max(1, 1 + b/3); the
    weight 1 / BetaPDF(p) is at most 1e6.
    """

    binary: ClassVar[bool] = True

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        """Why it does not go with the algorithm's other choices."""
        yield from _not_binary(algorithm, "fits a Beta density to success rates")

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        """Why it does not go with a model's settings of RL."""
        if rl.prompts_per_step < 2:
            yield (
                "fits a Beta density over the prompts of a step, so prompts_per_step must be at "
                f"least 2, not {rl.prompts_per_step}"
            )

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`. Raises ValueError with one prompt, or rewards not 0 or 1."""
        _check(rewards, binary=True)
        if rewards.shape[0] < 2:
            raise ValueError("BNPO's Beta distribution needs at least two prompts a step")
        rates = rewards.double().mean(dim=1)
        mean, variance = rates.mean(), rates.var()
        common = mean * (1 - mean) / variance.clamp(min=1e-12) - 1
        alpha = (1 + mean * common / 3).clamp(min=1.0)
        beta = (1 + (1 - mean) * common / 3).clamp(min=1.0)
        log_norm = alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
        log_density = (alpha - 1).xlogy(rates) + (beta - 1).xlogy(1 - rates) - log_norm
        weight = (-log_density).exp().clamp(max=1e6)
        return (weight[:, None] * (rewards - rates[:, None])).to(rewards.dtype)


def _not_binary(algorithm: Any, why: str) -> Iterator[str]:
    """A conflict if the algorithm's reward is anything but correctness."""
    kinds = [reward.kind for reward in algorithm.rewards]
    if kinds != ["correct"]:
        yield f"{why}, so rewards must be [correct] alone, not [{', '.join(kinds)}]"


def _check(rewards: torch.Tensor, binary: bool = False) -> None:
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [prompts, rollouts >= 2], not {tuple(rewards.shape)}")
    if binary and not bool(((rewards == 0) | (rewards == 1)).all()):
        raise ValueError(f"rewards must be 0 or 1, but range to {rewards.min()}, {rewards.max()}")
