"""Advantages of the rollouts of a group, from their rewards.

The first two are what TRL computes in training, which the tests hold against them.
"""

from __future__ import annotations

import torch

EPSILON = 1e-4


def group_normalised(rewards: torch.Tensor) -> torch.Tensor:
    """GRPO: (r - mean) / (std + 1e-4) within each group, unbiased std; `[N, G]`."""
    _check(rewards)
    mean, std = rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)
    return (rewards - mean) / (std + EPSILON)


def centred(rewards: torch.Tensor) -> torch.Tensor:
    """Dr. GRPO: r - mean within each group; `[N, G]`."""
    _check(rewards)
    return rewards - rewards.mean(dim=1, keepdim=True)


def beta_normalised(rewards: torch.Tensor) -> torch.Tensor:
    """BNPO (arXiv 2506.02864): (r - p) / Beta density of p, fitted over prompts; `[N, G]`.

    p is a group's success rate; a and b are the moment estimates from mean m and unbiased
    variance v of p over the prompts, alpha = max(1, 1 + a/3), beta = max(1, 1 + b/3); the
    weight is at most 1e6. Rewards must be 0 or 1. Raises ValueError with one prompt only.
    """
    _check(rewards)
    if rewards.shape[0] < 2:
        raise ValueError("BNPO's Beta distribution needs at least two prompts a step")
    rates = rewards.double().mean(dim=1)
    mean, variance = rates.mean(), rates.var()
    common = mean * (1 - mean) / variance.clamp(min=1e-12) - 1
    alpha = (1 + mean * common / 3).clamp(min=1.0)
    beta = (1 + (1 - mean) * common / 3).clamp(min=1.0)
    log_norm = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
    log_density = torch.xlogy(alpha - 1, rates) + torch.xlogy(beta - 1, 1 - rates) - log_norm
    weight = torch.exp(-log_density).clamp(max=1e6)
    return (weight[:, None] * (rewards - rates[:, None])).to(rewards.dtype)


def _check(rewards: torch.Tensor) -> None:
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [prompts, rollouts >= 2], not {tuple(rewards.shape)}")
