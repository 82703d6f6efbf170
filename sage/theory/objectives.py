"""What RLVR maximises, computed exactly: expected reward minus a leash (Eq. 1, 3, 5, 6).

The functions are differentiable in the policy, take log-probabilities in nats and work on the last
dimension, `[..., N]`, so that many instances are computed at once.
"""

from __future__ import annotations

import torch

from sage.method.anchors import pseudo_kl


def check_coefficient(name: str, value: float) -> None:
    """Raise ValueError unless the coefficient `value` is positive."""
    if not value > 0:
        raise ValueError(f"{name} is {value} but must be positive")


def expected_reward(log_policy: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
    """E_pi[r], `[..., N]` to `[...]`."""
    return (log_policy.exp() * reward).sum(dim=-1)


def reverse_kl_objective(
    log_policy: torch.Tensor, log_anchor: torch.Tensor, reward: torch.Tensor, beta: float
) -> torch.Tensor:
    """E_pi[r] - beta KL~(pi || anchor), `[..., N]` to `[...]`.

    Eq. 1 with the reference as anchor, Eq. 6 with log q + log pi_ref. Raises ValueError unless
    beta is positive.
    """
    check_coefficient("beta", beta)
    return expected_reward(log_policy, reward) - beta * pseudo_kl(log_policy, log_anchor)
