"""UCPO by hand, and what it leaves as it is."""

from __future__ import annotations

import random
from dataclasses import replace

import torch
from token_signals import signals

from sage.rivals.ucpo import Ucpo


def test_ucpo_shares_the_right_ones_advantage_out_by_hand() -> None:
    """Two right ones whose mean token probabilities are 1/2 and 1/4, so 1/q is as 1 to 2."""
    old = torch.tensor([[0.5, 0.5], [0.25, 1.0], [0.5, 0.5]]).log()
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    of = signals(old, [0, 0, 0], [1.0, 1.0, 0.0], mask=mask)
    # (1 - tau) + tau 2 (1/3) and (1 - tau) + tau 2 (2/3), tau = .3, times A = 1/3.
    got = Ucpo(tau=0.3).token_advantages(of)
    expected = torch.tensor([[0.9 / 3], [1.1 / 3], [-2.0 / 3]]).expand(3, 2)
    torch.testing.assert_close(got, expected)


def test_ucpo_keeps_the_sum_of_a_group_and_reduces_to_grpo() -> None:
    rng = random.Random(3)
    for _ in range(50):
        groups = [group for group in range(3) for _ in range(rng.randint(2, 6))]
        rewards = [float(rng.random() < 0.5) for _ in groups]
        log_probs = -3.0 * torch.rand(len(groups), 4).double()
        of = signals(log_probs, groups, rewards)
        plain = of.advantages[:, None].expand_as(log_probs)
        torch.testing.assert_close(Ucpo(tau=0.0).token_advantages(of), plain)
        got = Ucpo(tau=0.7).token_advantages(of)[:, 0]
        for group in range(3):
            own = of.groups == group
            torch.testing.assert_close(got[own].sum(), of.advantages[own].sum())
            right = own & (of.rewards > 0)
            if right.sum() == 1:
                torch.testing.assert_close(got[right], of.advantages[right])


def test_ucpo_leaves_out_right_completions_whose_loss_is_masked() -> None:
    """Three right ones, the last without a token under the loss: the first two share."""
    old = torch.tensor([[0.5], [0.25], [0.1]]).log()
    of = signals(old, [0, 0, 0], [1.0, 1.0, 1.0], mask=torch.tensor([[1], [1], [0]]))
    of = replace(of, advantages=torch.ones(3))
    got = Ucpo(tau=0.3).token_advantages(of)[:, 0]
    torch.testing.assert_close(got, torch.tensor([0.9, 1.1, 1.0]))  # 1/q is as 1 to 2
