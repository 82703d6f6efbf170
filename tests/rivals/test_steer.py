"""STEER's weights by hand, and token by token on random groups."""

from __future__ import annotations

import math

import pytest
import torch
from token_signals import signals

from sage.rivals.steer import Steer


def test_steer_weighs_the_largest_change_least_by_hand() -> None:
    """On policy |A| (1 - pi) |log pi + H|: 0, 0.5 (1 - 0.5) 0.5 and 0.5 (1 - 0.25) 0.5."""
    log_probs = torch.tensor([[1.0, 0.5, 0.25], [1.0, 1.0, 1.0]]).log()
    entropies = torch.tensor([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]) - log_probs
    of = signals(log_probs, [0, 0], [1.0, 0.0], entropies=entropies)
    linear = torch.tensor([1.2, 1.2 - 0.4 * 0.125 / 0.1875, 0.8])
    got = Steer().token_advantages(of)
    torch.testing.assert_close(got[0], 0.5 * linear)
    torch.testing.assert_close(got[1], torch.full((3,), -0.5 * 1.2))
    rate = -math.log(0.8) / 0.1875
    exponential = torch.tensor([1.0, math.exp(-rate * 0.125), 0.8])
    got = Steer(form="exponential").token_advantages(of)
    torch.testing.assert_close(got[0], 0.5 * exponential)


@pytest.mark.parametrize("rewards", [[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("form", ["linear", "exponential"])
def test_steer_on_random_groups_token_by_token(rewards: list[float], form: str) -> None:
    torch.manual_seed(sum(rewards))
    log_probs, old = -torch.rand(4, 5).mul(3), -torch.rand(4, 5).mul(3)
    entropies, mask = torch.rand(4, 5), (torch.arange(5) < torch.tensor([[5], [3], [1], [4]])).int()
    of = signals(log_probs, [0] * 4, rewards, old_log_probs=old, entropies=entropies, mask=mask)
    change = {
        (i, t): abs(
            of.advantages[i].item()
            / math.exp(old[i, t])
            * math.exp(log_probs[i, t])
            * (1 - math.exp(log_probs[i, t]))
            * (log_probs[i, t].item() + entropies[i, t].item())
        )
        for i in range(4)
        for t in range(5)
        if mask[i, t]
    }
    low, high = min(change.values()), max(change.values())
    got = Steer(form=form).token_advantages(of)
    for (i, t), value in change.items():
        if form == "exponential":
            weight = max(0.8, math.exp(math.log(0.8) / max(high, 0.02) * value))
        else:
            weight = 1.2 - 0.4 * (value - low) / (high - low) if high > low else 1.0
        assert got[i, t].item() == pytest.approx(weight * of.advantages[i].item(), rel=1e-4)


def test_steer_with_weights_of_one_is_grpo() -> None:
    of = signals(-torch.rand(4, 5), [0, 0, 1, 1], [1.0, 0.0, 1.0, 0.0])
    got = Steer(lowest=1.0, highest=1.0).token_advantages(of)
    torch.testing.assert_close(got, of.advantages[:, None].expand(4, 5))
