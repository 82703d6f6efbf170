"""Advantages against numbers worked by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from scipy.stats import beta

from sage.method.advantages import (
    BetaNormalised,
    Centred,
    GroupNormalised,
    MaxRl,
    PassAtK,
    Pkpo,
    WeightedReinforce,
)

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


# Rivals --------------------------------------------------------------------------------

GROUPS = [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0]]
RAGGED = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, math.nan, math.nan]])


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


def test_maxrl_by_hand() -> None:
    """Of four: one right, (1 - 1/4) / (1/4) = 3, others -1. Order 2: 1 + (4 - c) / 3 for right."""
    groups = torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 0, 0], [0.0, 0, 0, 0], [1.0, 1, 1, 1]])
    expected = torch.tensor([[3.0, -1, -1, -1], [1, 1, -1, -1], [0, 0, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(MaxRl().advantages(groups), expected)
    second = torch.tensor([[2.0, 0, 0, 0], [5 / 3, 5 / 3, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    torch.testing.assert_close(MaxRl(order=2).advantages(groups), second)
    torch.testing.assert_close(MaxRl(order=1).advantages(groups), groups)  # REINFORCE
    by_share = groups / groups.mean(dim=1, keepdim=True).clamp(min=0.25)
    torch.testing.assert_close(MaxRl(order=4).advantages(groups), by_share)


@pytest.mark.parametrize(("order", "terms"), [(1, 1), (2, 2), (3, 3), (4, 4), (None, 3)])
@pytest.mark.parametrize("p", [0.2, 0.7])
def test_maxrl_is_an_unbiased_gradient_of_the_first_terms_of_log_p(
    order: int | None, terms: int, p: float
) -> None:
    """d/dp of -sum over k of (1 - p)^k / k is the sum of (1 - p)^(k - 1); see PKPO's test."""
    total = 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=4):
        chance = p ** sum(rewards) * (1 - p) ** (4 - sum(rewards))
        group = torch.tensor([rewards], dtype=torch.double)
        credits = MaxRl(order=order).advantages(group)[0].tolist()
        scores = [1 / p if each else -1 / (1 - p) for each in rewards]
        total += chance * sum(c * s for c, s in zip(credits, scores, strict=True)) / 4
    assert total == pytest.approx(sum((1 - p) ** k for k in range(terms)))


def test_maxrl_leaves_out_rollouts_that_are_missing() -> None:
    got = MaxRl().advantages(torch.tensor([[1.0, 0.0, math.nan], [1.0, 0.0, 0.0]]))
    torch.testing.assert_close(got, torch.tensor([[1.0, -1.0, 0.0], [2.0, -1.0, -1.0]]))


def test_w_reinforce_knows_no_group() -> None:
    got = WeightedReinforce(weight=0.1).advantages(REWARDS)
    torch.testing.assert_close(got[0], torch.tensor([0.1, -1.0, -1.0, -1.0]))
    torch.testing.assert_close(got[1], torch.full((4,), 0.1))
    negative = WeightedReinforce(weight=0.0).advantages(REWARDS)
    assert negative[1].tolist() == [0.0] * 4  # negative samples only
    plain = WeightedReinforce(weight=1.0).advantages(REWARDS)  # REINFORCE with rewards of +-1
    torch.testing.assert_close(plain, 2 * REWARDS - 1)


@pytest.mark.parametrize(
    "advantage",
    [GroupNormalised(), Centred(), PassAtK(k=2), Pkpo(k=2), WeightedReinforce()],
    ids=lambda advantage: type(advantage).__name__,
)
def test_missing_rollouts_leave_the_others_as_in_a_smaller_group(advantage: Any) -> None:
    got = advantage.advantages(RAGGED)
    torch.testing.assert_close(got[:1], advantage.advantages(RAGGED[:1]))
    torch.testing.assert_close(got[1:, :3], advantage.advantages(RAGGED[1:, :3]))
    assert got[1, 3:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("advantage", [PassAtK(k=4), Pkpo(k=4)])
def test_sets_larger_than_a_group_are_refused(advantage: Any) -> None:
    with pytest.raises(ValueError, match="3 rollouts, fewer than k = 4"):
        advantage.advantages(RAGGED)
