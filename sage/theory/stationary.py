"""Closed forms of the policies that RLVR and SAGE end at (Eq. 2, 4).

Every function maps log-probabilities and rewards over the last dimension, `[..., N]`, to the
log-probabilities of the stationary policy.
"""

from __future__ import annotations

import torch

from sage.theory.objectives import check_coefficient


def rlvr_policy(log_reference: torch.Tensor, reward: torch.Tensor, beta: float) -> torch.Tensor:
    """log pi*, pi* ∝ pi_ref exp(r / beta) (Eq. 2); `[..., N]`.

    Raises ValueError unless beta is positive.
    """
    check_coefficient("beta", beta)
    return torch.log_softmax(log_reference + reward / beta, dim=-1)


def sage_policy(
    log_reference: torch.Tensor, log_guide: torch.Tensor, reward: torch.Tensor, beta: float
) -> torch.Tensor:
    """log pi*, pi* ∝ q pi_ref exp(r / beta) (Eq. 4); `[..., N]`, `log_guide` being log q.

    Raises ValueError unless beta is positive.
    """
    return rlvr_policy(log_reference + log_guide, reward, beta)
