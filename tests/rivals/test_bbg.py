"""BBG's weights by hand, by integration over the posterior, and where they are GRPO's."""

from __future__ import annotations

import math

import pytest
import torch
from method_entries import ROWS
from rollout_groups import REWARDS

from sage.method.advantages import GroupNormalised
from sage.rivals.bbg import BoundaryGated
from sage.rivals.w_reinforce import WeightedReinforce
from sage.study import Algorithm


def test_what_a_success_adds_by_hand() -> None:
    """n = 4, k = 2: u(m) = 2 E[1 - p] = 2 (5 - m) / 6, over u(0) 1 - m / 5."""
    got = BoundaryGated(k=2, tau=0.0).weights(torch.tensor([[0.0] * 4, *REWARDS.tolist()]))
    torch.testing.assert_close(got[:, 0], torch.tensor([1.0, 0.8, 0.2, 0.6]).double())
    signed = BoundaryGated(k=2, tau=0.0, signed=True).advantages(
        torch.tensor([[0.0] * 4, [1, 0, 0, 0]])
    )
    torch.testing.assert_close(signed, torch.tensor([[-1.0] * 4, [0.8, -0.8, -0.8, -0.8]]))
    # u(m) / (n + 1) is (5 - m) / 15: 1/3, 4/15, 1/5, 1/15 with 0, 1, 2 and 4 right.
    assert (BoundaryGated(k=2, tau=0.21).weights(REWARDS) > 0)[:, 0].tolist() == [
        True,
        False,
        False,
    ]
    assert (BoundaryGated(k=2, tau=0.19).weights(REWARDS) > 0)[:, 0].tolist() == [True, False, True]


@pytest.mark.parametrize(("k", "tau"), [(4, 0.0), (16, 0.01)])
def test_random_groups_by_integration_over_the_posterior(k: int, tau: float) -> None:
    torch.manual_seed(1)
    rewards = (torch.rand(20, 8) < torch.rand(20, 1)).float()
    p = (torch.arange(20_000).double() + 0.5) / 20_000

    def gain(right: int) -> float:
        density = p**right * (1 - p) ** (8 - right)
        return float((density * k * (1 - p) ** (k - 1)).sum() / density.sum())

    got = BoundaryGated(k=k, tau=tau).advantages(rewards)
    plain = GroupNormalised().advantages(rewards)
    for row, group, without in zip(got, rewards, plain, strict=True):
        right = int(group.sum())
        weight = gain(right) / gain(0) * (gain(right) >= tau * 9)
        torch.testing.assert_close(row, weight * without, rtol=1e-4, atol=1e-6)
    kept = [m for m in range(9) if gain(m) >= 0.01 * 9]
    assert k == 4 or kept == [0, 1, 2, 3]


def test_with_one_sample_it_is_grpo_or_signed_reinforce() -> None:
    for rewards in (REWARDS, torch.tensor([[1.0, 0.0, math.nan], [0.0, 0.0, 1.0]])):
        one = BoundaryGated(k=1)
        torch.testing.assert_close(one.advantages(rewards), GroupNormalised().advantages(rewards))
        torch.testing.assert_close(
            BoundaryGated(k=1, signed=True).advantages(rewards),
            WeightedReinforce(weight=1.0).advantages(rewards),
        )


def test_a_planner_that_drops_what_is_learnt_from_is_refused() -> None:
    signed = {"advantage": {"kind": "bbg", "settings": {"signed": True}}}
    with pytest.raises(ValueError, match="without a right rollout, which advantage bbg learns"):
        Algorithm.model_validate(ROWS["bbg"] | signed | {"planner": "dars"})
    Algorithm.model_validate(ROWS["bbg"] | {"planner": "dars"})
