"""Gradients of the divergences in closed form, in the logits of a policy on a token tree.

The tests hold to them what autograd finds for KL estimators used as losses.
"""

from __future__ import annotations

import torch
from enumerated import action_values, visits

from sage.theory.spaces import TokenTree


def reward_gradient(tree: TokenTree, logits: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
    """grad E_pi[r] in the logits, `[S, V]`: d(s) pi(v|s) (Q(s, v) - V(s)), `reward` `[N]`."""
    log_table = torch.log_softmax(logits.detach(), dim=-1)
    return _policy_gradient(tree, log_table, action_values(tree, log_table, reward))


def reverse_kl_gradient(
    tree: TokenTree, logits: torch.Tensor, log_anchor: torch.Tensor, future: bool = False
) -> torch.Tensor:
    """The gradient of the reverse KL in the logits, `[S, V]`, for any positive anchor `[S, V]`.

    Without `future`, sum_s d(s) grad KL~(pi(.|s) || a(.|s)) with the visits d held fixed: that of
    k2 and corrected k3, whatever the anchor's mass. With `future`, the gradient of the pseudo-KL
    of whole completions (Eq. 5): each token also answers for the leash log pi - log a of the
    tokens after it, as when k1 is part of the reward.
    """
    log_table = torch.log_softmax(logits.detach(), dim=-1)
    leash = log_table - log_anchor
    if future:
        nothing = log_table.new_zeros(tree.n_completions)
        leash = action_values(tree, log_table, nothing, per_step=leash)
    return _policy_gradient(tree, log_table, leash)


def forward_kl_gradient(
    tree: TokenTree, logits: torch.Tensor, log_anchor: torch.Tensor
) -> torch.Tensor:
    """sum_s d(s) grad KL~(a(.|s) || pi(.|s)), d held fixed: d(s) (M(s) pi(v|s) - a(v|s)); `[S, V]`.

    That of k3. M(s) is the anchor's mass in s: an unnormalised anchor pulls towards a/M, M times
    as strongly.
    """
    return _pull(tree, torch.log_softmax(logits.detach(), dim=-1), log_anchor.exp())


def sampled_forward_gradient(
    tree: TokenTree, logits: torch.Tensor, log_anchor: torch.Tensor
) -> torch.Tensor:
    """sum_s d(s) grad E_a[log^2(a/pi)]/2, d held fixed; `[S, V]`.

    That of rho log rho - rho + 1: its value is unbiased for the forward KL, but as a loss it
    weighs each token's pull, a(v|s), by log(a/pi). It agrees with the forward KL only to second
    order around pi = a; k3 is the loss with the forward KL's gradient.
    """
    log_table = torch.log_softmax(logits.detach(), dim=-1)
    return _pull(tree, log_table, log_anchor.exp() * (log_anchor - log_table))


def _policy_gradient(
    tree: TokenTree, log_table: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """d(s) pi(v|s) (values(s, v) - E_pi[values(s, .)]), `[S, V]`."""
    policy = log_table.exp()
    centred = values - (policy * values).sum(dim=-1, keepdim=True)
    return visits(tree, log_table)[:, None] * policy * centred


def _pull(tree: TokenTree, log_table: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """-sum_s d(s) sum_v weights(s, v) grad log pi(v|s), `[S, V]`."""
    total = weights.sum(dim=-1, keepdim=True)
    return visits(tree, log_table)[:, None] * (total * log_table.exp() - weights)
