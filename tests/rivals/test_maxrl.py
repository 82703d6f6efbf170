"""MaxRL's advantages by hand, and as an unbiased gradient of terms of log p."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from sage.rivals.maxrl import MaxRl


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
