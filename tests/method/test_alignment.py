"""Dose and alignment of a guide, against finite differences of pass@k on a policy listed whole."""

from __future__ import annotations

import itertools

import pytest
import torch

from sage.method.advantages import GroupNormalised
from sage.method.alignment import (
    alignment,
    at_equal_length,
    dose_in_loss,
    dose_in_reward,
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
