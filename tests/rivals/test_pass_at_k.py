"""Pass@k training's advantages by hand, and counted over all sets of rollouts."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from rollout_groups import REWARDS

from sage.method.advantages import Centred
from sage.rivals.pass_at_k import PassAtK

GROUPS = [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0]]


def chance_of_a_right_one(rewards: list[float], k: int, with_index: int | None = None) -> float:
    """Share of the sets of k rollouts (that hold a given one) in which one is right; counted."""
    sets = [
        chosen
        for chosen in itertools.combinations(range(len(rewards)), k)
        if with_index is None or with_index in chosen
    ]
    return sum(any(rewards[i] for i in chosen) for chosen in sets) / len(sets)


def test_pass_at_k_by_hand() -> None:
    """One right of four, k = 2: R = 1/2, s = 1/2; right 1; wrong (1/2 - 2/3) / (1/2) = -1/3."""
    got = PassAtK(k=2).advantages(REWARDS[:1])
    torch.testing.assert_close(got, torch.tensor([[1.0, -1 / 3, -1 / 3, -1 / 3]]))


@pytest.mark.parametrize("rewards", GROUPS)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_mean_over_all_sets(rewards: list[float], k: int) -> None:
    """A set's reward is whether it holds a right one; a rollout's advantage its sets' mean."""
    mean = chance_of_a_right_one(rewards, k)
    deviation = math.sqrt(mean * (1 - mean))
    expected = [
        (chance_of_a_right_one(rewards, k, i) - mean) / deviation if deviation else 0.0
        for i in range(5)
    ]
    got = PassAtK(k=k).advantages(torch.tensor([rewards], dtype=torch.double))
    assert got[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_pass_at_1_is_grpo_with_the_biased_deviation() -> None:
    rewards = REWARDS.double()
    biased = rewards.std(dim=1, correction=0, keepdim=True)
    expected = Centred().advantages(rewards) / biased.where(biased > 0, biased + 1)
    torch.testing.assert_close(PassAtK(k=1).advantages(rewards), expected)
