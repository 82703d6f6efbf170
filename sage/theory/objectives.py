"""What RLVR maximises, computed exactly: expected reward minus a leash (Eq. 1, 3, 5, 6, 8, 19).

All functions are differentiable in the policy and take log-probabilities in nats. The flat ones
work on the last dimension, `[..., N]`, so that many instances are computed at once; those with a
token tree also say how the leash divides over tokens.
"""

from __future__ import annotations

import torch

from sage.method.anchors import pseudo_kl, shaped_anchor
from sage.theory.spaces import TokenTree, per_token, sequence_log_probs, visits


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


def forward_kl_objective(
    log_policy: torch.Tensor, log_anchor: torch.Tensor, reward: torch.Tensor, beta: float
) -> torch.Tensor:
    """E_pi[r] - beta KL~(anchor || pi), `[..., N]` to `[...]` (App. A.4).

    Raises ValueError unless beta is positive.
    """
    check_coefficient("beta", beta)
    return expected_reward(log_policy, reward) - beta * pseudo_kl(log_anchor, log_policy)


def entropy_bonus_objective(
    log_policy: torch.Tensor,
    log_reference: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    alpha: float,
) -> torch.Tensor:
    """E_pi[r] - beta KL(pi || pi_ref) + alpha H(pi), `[..., N]` to `[...]` (Eq. 19).

    Raises ValueError unless alpha and beta are positive.
    """
    check_coefficient("alpha", alpha)
    entropy = -(log_policy.exp() * log_policy).sum(dim=-1)
    return reverse_kl_objective(log_policy, log_reference, reward, beta) + alpha * entropy


def expected_leash(
    tree: TokenTree,
    log_table: torch.Tensor,
    log_reference: torch.Tensor,
    log_guide: torch.Tensor,
) -> torch.Tensor:
    """E_pi[log pi - log pi_ref - log q_t] at each token position, `[T]` (Eq. 8).

    The arguments are tables `[S, V]`. Up to the constant sum(q pi_ref) - 1 their sum is the
    pseudo-KL of whole completions.
    """
    leash = per_token(tree, log_table - shaped_anchor(log_reference, log_guide))
    return sequence_log_probs(tree, log_table).exp() @ leash


def token_pseudo_kl(
    tree: TokenTree, log_table: torch.Tensor, log_anchor: torch.Tensor
) -> torch.Tensor:
    """sum_s d(s) KL~(pi(.|s) || anchor(.|s)) over visited states, a scalar.

    This is what per-token estimators estimate, and not Eq. 5 of whole completions: it is the sum
    of the expected leash plus sum_s d(s) (M(s) - 1), M(s) the anchor's mass in state s, which
    depends on the policy through the visits d. They agree if every M(s) is 1.
    """
    return (visits(tree, log_table) * pseudo_kl(log_table, log_anchor)).sum()
