"""Dose and alignment of a guide, against finite differences of pass@k on a policy listed whole."""

from __future__ import annotations

import itertools

import pytest
import torch

from sage.method.advantages import GroupNormalised
from sage.method.alignment import (
    alignment,
    at_equal_length,
    coverage_weights,
    dose_in_loss,
    dose_in_reward,
    guide_credit,
    length_correlation,
    spread,
    spread_without_noise,
)

POLICY = torch.tensor([0.55, 0.25, 0.15, 0.05], dtype=torch.float64)
RIGHT = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
LOG_Q = torch.tensor([0.3, -0.2, -0.5, 0.9], dtype=torch.float64)


def pass_at(k: int, strength: float) -> float:
    """pass@k of the policy tilted by q to a power."""
    tilted = (POLICY.log() + strength * LOG_Q).softmax(0)
    return 1.0 - float(1.0 - tilted @ RIGHT) ** k


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_its_expectation_is_the_derivative_of_pass_at_k(k: int) -> None:
    """Over all 4^5 groups of five completions, each with its probability."""
    groups = torch.tensor(list(itertools.product(range(4), repeat=5)))
    chance = POLICY[groups].prod(dim=1)
    mean = float(chance @ alignment(RIGHT[groups], LOG_Q[groups], k))
    assert mean == pytest.approx((pass_at(k, 1e-5) - pass_at(k, -1e-5)) / 2e-5, rel=1e-7)


def test_alignment_by_hand_and_where_it_is_zero() -> None:
    """Right, wrong, wrong, wrong with L = 3, 0, 1, 2: the credit is k, the mean outside 1."""
    rewards, log_q = torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([[3.0, 0.0, 1.0, 2.0]])
    assert alignment(rewards, log_q, 1).item() == pytest.approx((3 - 1) / 4)
    assert alignment(rewards, log_q, 2).item() == pytest.approx(2 * (3 - 1) / 4)
    same = torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]])
    assert alignment(same, log_q.expand(2, 4), 2).tolist() == [0.0, 0.0]
    shifted = alignment(rewards, log_q + 7.0, 3)
    torch.testing.assert_close(shifted, alignment(rewards, log_q, 3))  # a prompt's constant is none
    with pytest.raises(ValueError, match="k is 4, but must be from 1 to 3"):
        alignment(rewards, log_q, 4)


def test_doses_by_hand() -> None:
    """SD(L) is 1 and 3, those of advantages 1 and, where none is right, left out."""
    log_q = torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 6.0]])
    advantages = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert dose_in_reward(log_q, advantages, 0.05) == pytest.approx(0.05 * 2)
    grpo = GroupNormalised().advantages(torch.tensor([[1.0, 0, 0], [1.0, 1, 0]]))
    assert dose_in_reward(log_q, grpo, 0.05) == pytest.approx(0.05 * 2, rel=1e-3)
    q, other = torch.tensor([[1.0, 1.4, 9.0]]), torch.tensor([[1.2, 1.0, 1.0]])
    mask = torch.tensor([[1, 1, 0]])
    expected = 0.1 * ((0.04 / 2 + 0.16 / 2) / 2) ** 0.5
    assert dose_in_loss(q, other, mask, 0.1) == pytest.approx(expected)
    assert dose_in_loss(q, q, mask, 0.1) == 0.0


def test_at_equal_length_nothing_is_left_of_what_length_explains() -> None:
    lengths = torch.tensor([[1.0, 2, 3, 6], [4.0, 4, 8, 9]])
    assert spread(at_equal_length(3 * lengths + 5, lengths)).item() == pytest.approx(0, abs=1e-12)
    assert length_correlation(-3 * lengths, lengths) == pytest.approx(-1)
    assert length_correlation(torch.ones(2, 4), lengths) == 0
    alone = torch.tensor([[1.0, -1, -1, 1]])
    equal = torch.full((1, 4), 7.0)
    torch.testing.assert_close(at_equal_length(alone, equal), alone.double())


def test_noise_is_no_dose() -> None:
    torch.manual_seed(3)
    signal, noise = torch.randn(200, 16), torch.randn(4, 200, 16)
    assert spread_without_noise(signal + 2 * noise).item() == pytest.approx(1.0, abs=0.1)
    assert spread_without_noise(noise).item() < 0.15
    assert spread_without_noise(signal[None]) == spread(signal)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_weights_of_coverage_give_the_gradient_of_pass_at_k(k: int) -> None:
    """Over all groups of five completions: a softmax's scores, weighted, against autograd."""
    groups = torch.tensor(list(itertools.product(range(4), repeat=5)))
    chance = POLICY[groups].prod(dim=1)
    scores = torch.eye(4, dtype=torch.float64) - POLICY  # of completion y: e_y - pi
    mean = torch.einsum("n,ng,ngv->v", chance, coverage_weights(RIGHT[groups], k), scores[groups])
    logits = POLICY.log().requires_grad_()
    (1.0 - (1.0 - logits.softmax(0) @ RIGHT) ** k).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(mean, logits.grad)


@pytest.mark.parametrize("causal", [True, False])
def test_the_credit_of_a_guide_gives_the_gradient_of_its_mean(causal: bool) -> None:
    """Over all pairs of completions of two tokens, the first of which decides on the second.

    A causal guide's factor depends on its state alone; another's on the whole completion.
    """
    torch.manual_seed(0)
    logits = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)  # root, after 0, after 1
    paths = torch.tensor(list(itertools.product(range(2), repeat=2)))
    states = torch.stack([torch.zeros(4, dtype=torch.long), paths[:, 0] + 1], dim=1)
    factors = torch.randn(3, dtype=torch.float64)[states] if causal else torch.randn(4, 2).double()
    token = logits.log_softmax(1)[states, paths]
    (mean_of_q,) = torch.autograd.grad(
        (token.sum(1).exp() * factors.sum(1)).sum(), logits, retain_graph=True
    )
    both = torch.tensor(list(itertools.product(range(4), repeat=2)))
    chance = token.sum(1).exp().detach()[both].prod(dim=1)
    credit = guide_credit(factors[both], torch.ones(16, 2, 2), causal)
    surrogate = (chance[:, None, None] * credit * token[both]).sum(0).mean(0).sum()
    (found,) = torch.autograd.grad(surrogate, logits)
    torch.testing.assert_close(found, mean_of_q)
