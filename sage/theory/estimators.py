"""Where a KL estimator leads when it is used as a per-token loss, in exact expectation.

On policy k1 has no gradient, k2 and corrected k3 descend the reverse KL, k3 the forward KL, and
the sampled forward KL neither. All act state by state, without credit for later states, so over
several tokens none has Eq. 4 as its fixed point: `token_fixed_point` gives the one they have. A
guide that is equal for all tokens of a state, as the branch guide is, then cancels under k2 and
corrected k3 and under k3 multiplies beta in that state; only with credit does it act as in Eq. 4.
That is so for losses that sum over tokens: a mean per completion weighs a token by what follows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from sage.method.anchors import forward_kl_sampled, k1, k2, k3, k3_corrected
from sage.theory.spaces import TokenTree, action_values, per_token, visits
from sage.theory.stationary import forward_kl_policy, rlvr_policy

Estimator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Stationary = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]

ESTIMATORS: dict[str, Estimator] = {
    "k1": lambda policy, anchor, _: k1(policy, anchor),
    "k2": lambda policy, anchor, _: k2(policy, anchor),
    "k3": lambda policy, anchor, _: k3(policy, anchor),
    "k3_corrected": k3_corrected,
    "sampled": lambda policy, anchor, _: forward_kl_sampled(policy, anchor),
}
"""Losses per token, `[N, T]`, of the log-probabilities under policy, anchor and old policy."""


def expected_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_anchor: torch.Tensor,
    estimator: Estimator,
    behaviour: torch.Tensor | None = None,
    token_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """E[sum_t w_t grad estimator(...)] over completions, by autograd, in the logits; `[S, V]`.

    `logits` and `log_anchor` are `[S, V]`; an anchor that depends on the whole completion is
    `[N, T]`. Completions are drawn from the old policy, `behaviour` (logits `[S, V]`), which by
    default is the policy itself. `token_weights` w `[N, T]` are those of a loss aggregation, 1 by
    default: a sum over tokens.
    """
    tree.check(logits, "logits")
    drawn_from = (logits if behaviour is None else behaviour).detach()
    free = logits.detach().clone().requires_grad_()
    policy = per_token(tree, torch.log_softmax(free, dim=-1))
    old = per_token(tree, torch.log_softmax(drawn_from, dim=-1))
    whole = log_anchor.shape == policy.shape
    loss = estimator(policy, log_anchor if whole else per_token(tree, log_anchor), old)
    if token_weights is not None:
        loss = loss * token_weights
    (gradient,) = torch.autograd.grad((old.sum(dim=-1).exp() @ loss).sum(), free)
    return gradient


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


def reverse_stationary(log_anchor: torch.Tensor, values: torch.Tensor, beta: float) -> torch.Tensor:
    """log pi, pi ∝ a exp(values / beta): the fixed point of k2 and corrected k3 in one state.

    `[..., V]`. Raises ValueError unless beta is positive.
    """
    return rlvr_policy(log_anchor, values, beta)


def forward_stationary(log_anchor: torch.Tensor, values: torch.Tensor, beta: float) -> torch.Tensor:
    """log pi, pi = beta a / (lambda - values): the fixed point of k3 in one state, `[..., V]`.

    lambda = E_pi[values] + beta M, M the anchor's mass: ascent on E[r] - beta k3 stands still
    where pi (values - E_pi[values]) + beta (a - M pi) = 0. Raises ValueError unless beta is
    positive.
    """
    return forward_kl_policy(log_anchor, values, beta).log_policy


def token_fixed_point(
    tree: TokenTree,
    log_anchor: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    stationary: Stationary,
) -> torch.Tensor:
    """Fixed point of ascent on E[r] - beta (per-token loss), log-probabilities `[S, V]`.

    The visits d(s) of reward and loss cancel, so each state solves its own problem with the
    rewards Q(s, v) = E_pi[r | s, v] of the policy below it, from the last token back to the first.
    `stationary` is `reverse_stationary` or `forward_stationary`; `log_anchor` is `[S, V]`,
    `reward` `[N]`. For one token this is Eq. 4 or Eq. 27; for more, Eq. 4 has the soft value
    beta log E_a[exp(r / beta)] in the place of Q, and Eq. 27 a single lambda. Raises ValueError
    unless beta is positive.
    """
    tree.check(log_anchor, "log_anchor")
    value, blocks = reward, []
    for anchor in reversed(tree.by_depth(log_anchor)):
        values = value.view(-1, tree.vocabulary)
        blocks.append(stationary(anchor, values, beta))
        value = (blocks[-1].exp() * values).sum(dim=-1)
    return torch.cat(blocks[::-1])
