"""F-GRPO's weights by hand, on random groups, and where they are GRPO's."""

from __future__ import annotations

import pytest
import torch
from rollout_groups import REWARDS

from sage.rivals.f_grpo import FocalGrpo


def test_prompts_solved_often_weigh_less_by_hand() -> None:
    """One right of four: GRPO's 1.5 and -0.5, times 3/4; two of four: 0.75 ** 0.5, halved."""
    got = FocalGrpo(gamma=1.0).advantages(REWARDS)
    torch.testing.assert_close(
        got[0], 0.75 * torch.tensor([1.5, -0.5, -0.5, -0.5]), rtol=3e-4, atol=0
    )
    assert got[1].tolist() == [0.0] * 4
    half = 0.5 * 0.75**0.5
    torch.testing.assert_close(got[2], torch.tensor([half, half, -half, -half]), rtol=3e-4, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_random_groups_one_by_one(gamma: float) -> None:
    torch.manual_seed(1)
    rewards = (torch.rand(30, 8) < torch.rand(30, 1)).float()
    got = FocalGrpo(gamma=gamma).advantages(rewards)
    for row, group in zip(got, rewards, strict=True):
        plain = (group - group.mean()) / (group.std() + 1e-4)
        torch.testing.assert_close(row, (1 - group.mean().item()) ** gamma * plain)
