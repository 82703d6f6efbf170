"""Where a KL estimator leads when it is used as a per-token loss, in exact expectation.

On policy k1 has no gradient, k2 and corrected k3 descend the reverse KL, k3 the forward KL, and
the sampled forward KL neither. All act state by state, without credit for later states, so over
several tokens none has Eq. 4 as its fixed point (tests/fixed_points.py has those that they have). A
guide that is equal for all tokens of a state, as the branch guide is, then cancels under k2 and
corrected k3 and under k3 multiplies beta in that state; only with credit does it act as in Eq. 4.
That is so for losses that sum over tokens: a mean per completion weighs a token by what follows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from sage.method.anchors import forward_kl_sampled, k1, k2, k3, k3_corrected
from sage.theory.spaces import TokenTree, per_token

Estimator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

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
