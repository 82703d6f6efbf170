"""PKPO's credit by hand, from its definition, and as an unbiased gradient of pass@k."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from rollout_groups import REWARDS

from sage.rivals.pkpo import Pkpo


def test_pkpo_by_hand() -> None:
    """Of four, k = 2. One right: all three others are wrong, 2. Two right: 2 of 3 others, 4/3."""
    groups = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    expected = torch.tensor([[2.0, 0, 0, 0], [4 / 3, 4 / 3, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(Pkpo(k=2).advantages(groups), expected)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [0.2, 0.7])
def test_pkpo_is_an_unbiased_gradient_of_pass_at_k(k: int, p: float) -> None:
    """Over all groups of four with success rate p, as the loss takes it: the mean over rollouts.

    E[mean_i A_i d log P(r_i)] must be d/dp (1 - (1 - p)^k) = k (1 - p)^(k - 1).
    """
    total = 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=4):
        right = sum(rewards)
        chance = p**right * (1 - p) ** (4 - right)
        credits = Pkpo(k=k).advantages(torch.tensor([rewards], dtype=torch.double))[0].tolist()
        scores = [1 / p if each else -1 / (1 - p) for each in rewards]
        total += chance * sum(c * s for c, s in zip(credits, scores, strict=True)) / 4
    assert total == pytest.approx(k * (1 - p) ** (k - 1))


@pytest.mark.parametrize("k", [2, 3])
def test_pkpo_credits_what_a_rollout_adds_to_its_sets(k: int) -> None:
    """From the definition: over all sets of k, their best reward with and without the rollout."""
    for rewards in itertools.product([0.0, 1.0], repeat=5):
        added = [0.0] * 5
        for chosen in itertools.combinations(range(5), k):
            for i in chosen:
                others = [rewards[j] for j in chosen if j != i]
                added[i] += max(max(others), rewards[i]) - max(others)
        got = Pkpo(k=k).advantages(torch.tensor([rewards], dtype=torch.double))[0]
        assert got.tolist() == pytest.approx([5 * each / math.comb(5, k) for each in added])


def test_pkpo_with_k_1_is_the_reward() -> None:
    torch.testing.assert_close(Pkpo(k=1).advantages(REWARDS), REWARDS)
