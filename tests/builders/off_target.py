"""Mass on reward-invalid completions: SAGE against forward-KL RLVR (App. A.4).

With rewards 0 and 1 the sufficient condition of Eq. 32, taken over all pairs, is the separation of
Eq. 30 in other words. It fails where valid completions are rare: forward KL leaves at most
beta / lambda on invalid ones however rare the valid are, Eq. 4 needs pi_ref(C) e^(1/beta) >> 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from fixed_points import forward_kl_policy

from sage.theory.toy import sage_policy, valid_completions


@dataclass(frozen=True)
class OffTargetComparison:
    """SAGE (Eq. 26) and forward KL (Eq. 27) on the same instances.

    `log_ratio` `[..., N]` is log(pi_SAGE / pi_FKL) by Eq. 29, without the reference. The rest is
    `[...]`: `separated` is Eq. 30 (every invalid completion has a smaller ratio than every valid
    one), `sufficient` Eq. 32, and the masses are those on invalid completions (Eq. 31).
    """

    log_ratio: torch.Tensor
    separated: torch.Tensor
    sufficient: torch.Tensor
    sage_mass: torch.Tensor
    forward_kl_mass: torch.Tensor


def _highest(values: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(~among, -math.inf).amax(dim=-1)


def _lowest(values: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(~among, math.inf).amin(dim=-1)


def compare_off_target(
    log_reference: torch.Tensor, log_guide: torch.Tensor, reward: torch.Tensor, beta: float
) -> OffTargetComparison:
    """Compare the two stationary policies off target (Eq. 29-32).

    All arguments are `[..., N]`; rewards are 0 or 1. Raises ValueError on other rewards, on an
    instance without both valid and invalid completions, or if beta is not positive.
    """
    valid = valid_completions(reward)
    if not bool((valid.any(dim=-1) & ~valid.all(dim=-1)).all()):
        raise ValueError("every instance needs at least one valid and one invalid completion")
    log_sage = sage_policy(log_reference, log_guide, reward, beta)
    forward = forward_kl_policy(log_reference, reward, beta)
    log_z = torch.logsumexp(log_reference + log_guide + reward / beta, dim=-1, keepdim=True)
    # lambda - r, from the gap lambda - 1: it keeps its digits where the gap is tiny
    log_remaining = torch.log(forward.gap[..., None] + (1.0 - reward))
    log_ratio = log_guide + reward / beta + log_remaining - math.log(beta) - log_z
    preference = _highest(log_guide, ~valid) - _lowest(log_guide, valid)
    bound = 1.0 / beta + torch.log(forward.gap) - torch.log(forward.multiplier)
    return OffTargetComparison(
        log_ratio=log_ratio,
        separated=_highest(log_ratio, ~valid) < _lowest(log_ratio, valid),
        sufficient=preference < bound,
        sage_mass=log_sage.exp().masked_fill(valid, 0.0).sum(dim=-1),
        forward_kl_mass=forward.log_policy.exp().masked_fill(valid, 0.0).sum(dim=-1),
    )
