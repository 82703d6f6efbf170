"""Closed forms that only tests need: under a forward KL (Eq. 27), and of losses per token.

Everything maps log-probabilities and rewards over the last dimension, `[..., N]`, to the
log-probabilities of the stationary policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from enumerated import by_depth

from sage.theory.credit import check_coefficient
from sage.theory.spaces import TokenTree
from sage.theory.toy import rlvr_policy

NEWTON_STEPS = 200

Stationary = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]


@dataclass(frozen=True)
class ForwardKLSolution:
    """The stationary policy of forward-KL RLVR.

    `log_policy` is `[..., N]`; `gap` `[...]` is lambda - max r > 0, kept beside `multiplier`
    `[...]`, lambda, because the difference would lose its digits.
    """

    log_policy: torch.Tensor
    gap: torch.Tensor
    multiplier: torch.Tensor


def forward_kl_policy(
    log_anchor: torch.Tensor, reward: torch.Tensor, beta: float
) -> ForwardKLSolution:
    """pi* = beta a / (lambda - r), lambda > max r (Eq. 27), for any positive anchor a.

    Multiplying by lambda - r and summing gives lambda = E_pi*[r] + beta sum(a). Newton's method is
    run on 1/sum(pi) - 1 as a function of the gap: it is increasing and concave, so the iterates
    climb to the root from the lower bound max(r + beta a) - max r without overshooting. Raises
    ValueError unless beta is positive, ArithmeticError if the root is not found.
    """
    check_coefficient("beta", beta)
    weight = beta * log_anchor.exp()
    weight, below = torch.broadcast_tensors(weight, reward.amax(dim=-1, keepdim=True) - reward)
    gap = (weight - below).amax(dim=-1, keepdim=True)
    closest = 64.0 * torch.finfo(gap.dtype).eps
    for _ in range(NEWTON_STEPS):
        total = (weight / (gap + below)).sum(dim=-1, keepdim=True)
        slope = (weight / (gap + below) ** 2).sum(dim=-1, keepdim=True)
        step = total * (total - 1.0) / slope
        gap = gap + step
        if bool((step.abs() <= closest * gap).all()):
            break
    else:
        raise ArithmeticError(
            f"no multiplier found in {NEWTON_STEPS} steps; last relative step "
            f"{float((step / gap).abs().max()):.1e}"
        )
    log_policy = math.log(beta) + log_anchor - torch.log(gap + below)
    highest = reward.amax(dim=-1)
    return ForwardKLSolution(log_policy, gap.squeeze(-1), highest + gap.squeeze(-1))


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
    for anchor in reversed(by_depth(tree, log_anchor)):
        values = value.view(-1, tree.vocabulary)
        blocks.append(stationary(anchor, values, beta))
        value = (blocks[-1].exp() * values).sum(dim=-1)
    return torch.cat(blocks[::-1])
