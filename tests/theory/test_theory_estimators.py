"""KL estimators as losses: their exact expected gradients, and where ascent with them ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from ascent import follow
from closed_gradients import (
    forward_kl_gradient,
    reverse_kl_gradient,
    reward_gradient,
    sampled_forward_gradient,
)
from enumerated import Instance, close, each_tree, logs, numbers, visits
from fixed_points import forward_stationary, reverse_stationary, token_fixed_point

from sage.method.anchors import forward_kl_exact, pseudo_kl
from sage.theory.credit import ESTIMATORS, expected_gradient
from sage.theory.spaces import TokenTree
from sage.theory.toy import sage_policy

CLOSED = {
    "k1": lambda tree, logits, anchor: torch.zeros_like(logits),
    "k2": reverse_kl_gradient,
    "k3": forward_kl_gradient,
    "k3_corrected": reverse_kl_gradient,
    "sampled": sampled_forward_gradient,
}


@each_tree
@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("guided", [False, True])
def test_expected_gradients_on_policy(tree: TokenTree, name: str, guided: bool) -> None:
    one = Instance(tree)
    anchor = one.anchor if guided else one.reference
    found = expected_gradient(tree, one.logits, anchor, ESTIMATORS[name])
    close(found, CLOSED[name](tree, one.logits, anchor))


def test_expected_gradients_by_hand() -> None:
    tree, logits, anchor = TokenTree(2, 1), numbers(0.0, 0.0)[None], logs(1.0, 0.5)[None]
    half = 0.25 * math.log(2.0)  # policy (1/2, 1/2); leash log(1/2), 0
    by_hand = {"k1": 0.0, "k2": -half / 1.0, "k3": -0.25, "k3_corrected": -half / 1.0}
    by_hand["sampled"] = -math.log(2.0) / 2  # total log 2, weights (log 2, 0)
    for name, first in by_hand.items():
        found = expected_gradient(tree, logits, anchor, ESTIMATORS[name])
        close(found, numbers(first, -first)[None])


def gradient_of(function: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    free = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(torch.log_softmax(free, dim=-1)), free)
    return found


@each_tree
def test_closed_gradients_are_those_of_the_divergences(tree: TokenTree) -> None:
    one = Instance(tree)
    d, square = visits(tree, one.policy), lambda p: one.anchor.exp() * (one.anchor - p) ** 2
    pairs = [
        (reverse_kl_gradient, lambda p: (d * pseudo_kl(p, one.anchor)).sum()),
        (forward_kl_gradient, lambda p: (d * pseudo_kl(one.anchor, p)).sum()),
        (sampled_forward_gradient, lambda p: (d * square(p).sum(-1)).sum() / 2),
        (
            partial(reverse_kl_gradient, future=True),
            lambda p: pseudo_kl(one.whole(p), one.whole(one.anchor)),
        ),
    ]
    for closed, divergence in pairs:
        close(closed(tree, one.logits, one.anchor), gradient_of(divergence, one.logits))
    exact = gradient_of(lambda p: d @ forward_kl_exact(p, one.anchor), one.logits)
    normalised = torch.log_softmax(one.anchor, dim=-1)  # the exact form normalises each state
    close(exact, forward_kl_gradient(tree, one.logits, normalised))


@each_tree
def test_corrected_k3_is_the_reverse_kl_off_policy_too_and_k3_is_not(tree: TokenTree) -> None:
    one = Instance(tree)
    old = visits(tree, torch.log_softmax(one.other, dim=-1))

    def gradient(name: str) -> torch.Tensor:
        return expected_gradient(tree, one.logits, one.anchor, ESTIMATORS[name], one.other)

    reverse = gradient_of(lambda p: (old * pseudo_kl(p, one.anchor)).sum(), one.logits)
    forward = gradient_of(lambda p: (old * pseudo_kl(one.anchor, p)).sum(), one.logits)
    close(gradient("k3_corrected"), reverse)
    assert not torch.allclose(gradient("k3"), forward, atol=1e-3)


@each_tree
def test_a_guide_of_states_alone_cancels_or_scales_beta(tree: TokenTree) -> None:
    """As the branch guide: one factor for all tokens of a state."""
    one = Instance(tree)
    guided = one.reference + one.state_guide

    def gradient(anchor: torch.Tensor, name: str) -> torch.Tensor:
        return expected_gradient(tree, one.logits, anchor, ESTIMATORS[name])

    for name in ("k2", "k3_corrected"):
        close(gradient(guided, name), gradient(one.reference, name))
    close(gradient(guided, "k3"), one.state_guide.exp() * gradient(one.reference, "k3"))
    with_credit = partial(reverse_kl_gradient, tree, one.logits, future=True)
    same = torch.allclose(with_credit(guided), with_credit(one.reference), atol=1e-6)
    assert same == (tree.length == 1)


def test_noise_drawn_anew_for_every_token_averages_out() -> None:
    """As the random guide: factors 0.7 and 1.3, equally likely for each token by itself."""
    one = Instance(TokenTree(3, 1))
    signs = TokenTree(2, 3).completions.double() * 2.0 - 1.0
    noisy = [one.reference + torch.log(1.0 + 0.3 * row)[None] for row in signs]
    for name in ("k2", "k3", "k3_corrected"):
        at = [expected_gradient(one.tree, one.logits, a, ESTIMATORS[name]) for a in noisy]
        close(
            torch.stack(at).mean(0),
            expected_gradient(one.tree, one.logits, one.reference, ESTIMATORS[name]),
        )


FIXED = {"k2": reverse_stationary, "k3_corrected": reverse_stationary, "k3": forward_stationary}


@each_tree
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("guided", [False, True])
def test_where_ascent_with_an_estimator_ends(tree: TokenTree, name: str, guided: bool) -> None:
    one, beta = Instance(tree), 0.5
    anchor = one.anchor if guided else one.reference

    def direction(logits: torch.Tensor) -> torch.Tensor:
        leash = expected_gradient(tree, logits, anchor, ESTIMATORS[name])
        return reward_gradient(tree, logits, one.reward) - beta * leash

    step_size = 1.0 if name == "k3" else 1.0 / beta
    reached = one.whole(follow(tree, direction, one.logits, step_size)).exp()
    closed = token_fixed_point(tree, anchor, one.reward, beta, FIXED[name])
    close(reached, one.whole(closed).exp(), atol=1e-6)
    whole = FIXED[name](one.whole(anchor), one.reward, beta).exp()  # Eq. 4, Eq. 27
    assert torch.allclose(reached, whole, rtol=0.0, atol=1e-6) == (tree.length == 1)


@each_tree
def test_only_credit_for_later_tokens_leads_to_eq_4(tree: TokenTree) -> None:
    one, beta = Instance(tree), 0.5

    def direction(logits: torch.Tensor) -> torch.Tensor:
        leash = reverse_kl_gradient(tree, logits, one.anchor, future=True)
        return reward_gradient(tree, logits, one.reward) - beta * leash

    reached = follow(tree, direction, one.logits, 1.0 / beta, steps=tree.length + 30)
    closed = sage_policy(one.whole(one.reference), one.whole(one.guide), one.reward, beta)
    close(one.whole(reached).exp(), closed.exp(), atol=1e-6)


def test_fixed_points_of_k3_by_hand() -> None:
    """beta = 1, anchor (1, 1/2) of mass 3/2, r = (0, 1): 1/l + 0.5/(l - 1) = 1, l = 2."""
    found = forward_stationary(logs(1.0, 0.5), numbers(0.0, 1.0), 1.0)
    close(found.exp(), numbers(0.5, 0.5))  # and l = E[r] + beta M = 1/2 + 3/2
