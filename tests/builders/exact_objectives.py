"""Objectives beside the reverse KL, and what divides over tokens, computed exactly (App. A, Eq. 8).

The flat functions work on the last dimension, `[..., N]`; log-probabilities are in nats.
"""

from __future__ import annotations

import torch
from enumerated import visits

from sage.method.anchors import pseudo_kl, shaped_anchor
from sage.theory.credit import check_coefficient, reverse_kl_objective
from sage.theory.spaces import TokenTree, per_token, sequence_log_probs


def forward_kl_objective(
    log_policy: torch.Tensor, log_anchor: torch.Tensor, reward: torch.Tensor, beta: float
) -> torch.Tensor:
    """E_pi[r] - beta KL~(anchor || pi), `[..., N]` to `[...]` (App. A.4).

    Raises ValueError unless beta is positive.
    """
    check_coefficient("beta", beta)
    expected_reward = (log_policy.exp() * reward).sum(dim=-1)
    return expected_reward - beta * pseudo_kl(log_anchor, log_policy)


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


def entropy_bonus_policy(
    log_reference: torch.Tensor, reward: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    """log pi*, pi* ∝ pi_ref^(beta/(alpha+beta)) exp(r/(alpha+beta)) (Eq. 21); `[..., N]`.

    One temperature for all completions: those of equal reward keep their order. Raises ValueError
    unless alpha and beta are positive.
    """
    check_coefficient("alpha", alpha)
    check_coefficient("beta", beta)
    return torch.log_softmax((beta * log_reference + reward) / (alpha + beta), dim=-1)


def conditionals(tree: TokenTree, log_masses: torch.Tensor) -> torch.Tensor:
    """The autoregressive policy `[S, V]` of positive masses over completions.

    `log_masses` `[N]` need not be normalised: pi(v|s) is the mass below (s, v) over that below s.
    """
    mass, blocks = log_masses, []
    for _ in range(tree.length):
        mass = mass.view(-1, tree.vocabulary)
        blocks.append(torch.log_softmax(mass, dim=-1))
        mass = torch.logsumexp(mass, dim=-1)
    return torch.cat(blocks[::-1])
