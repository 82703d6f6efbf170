"""Advantages against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import beta

from sage.advantages import BetaNormalised, Centred, GroupNormalised

REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])


def test_group_normalised_by_hand() -> None:
    got = GroupNormalised().advantages(REWARDS)
    torch.testing.assert_close(got[0], torch.tensor([0.75, -0.25, -0.25, -0.25]) / 0.5001)
    torch.testing.assert_close(got[1], torch.zeros(4))
    deviation = math.sqrt(1 / 3) + 1e-4
    torch.testing.assert_close(got[2], torch.tensor([0.5, 0.5, -0.5, -0.5]) / deviation)


def test_centred_by_hand() -> None:
    assert Centred().advantages(REWARDS)[0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_beta_normalised_follows_its_definition() -> None:
    rates = REWARDS.mean(dim=1).double()
    m, v = rates.mean().item(), rates.var().item()
    common = m * (1 - m) / v - 1
    a, b = max(1.0, 1 + m * common / 3), max(1.0, 1 + (1 - m) * common / 3)
    for row, rate in enumerate(rates.tolist()):
        weight = min(1 / max(float(beta.pdf(rate, a, b)), 1e-300), 1e6)
        expected = (REWARDS[row] - rate) * weight
        torch.testing.assert_close(
            BetaNormalised().advantages(REWARDS)[row], expected, rtol=1e-5, atol=1e-6
        )


def test_beta_of_equal_rates_stays_finite() -> None:
    rewards = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert torch.isfinite(BetaNormalised().advantages(rewards)).all()


def test_one_prompt_is_refused_for_beta() -> None:
    with pytest.raises(ValueError, match="at least two prompts"):
        BetaNormalised().advantages(torch.tensor([[1.0, 0.0]]))


def test_rewards_other_than_right_and_wrong_are_refused_for_beta() -> None:
    """A length penalty would make it NaN."""
    with pytest.raises(ValueError, match="rewards must be 0 or 1"):
        BetaNormalised().advantages(torch.tensor([[1.0, -0.5], [0.0, 1.0]]))


@pytest.mark.parametrize("shape", [(4,), (3, 1)])
def test_rewards_without_groups_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rewards must be"):
        Centred().advantages(torch.zeros(shape))
