"""BNPO's Beta density against its definition, and over the groups of several draws."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from rollout_groups import NAN, REWARDS
from scipy.stats import beta

from sage.method.planners import Chosen, Draw
from sage.rivals.bnpo import BetaNormalised
from sage.training.drawing import ProcessSlices
from sage.training.planning import Generation, chosen_rows
from sage.training.shaping import Shaping


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


def test_what_is_not_scored_has_no_part_in_the_beta_density() -> None:
    plain = BetaNormalised().advantages(REWARDS)
    unscored = torch.full((4, 1), NAN)
    wide = torch.cat([torch.cat([REWARDS, torch.full((1, 4), NAN)]), unscored], dim=1)
    got = BetaNormalised().advantages(wide)
    torch.testing.assert_close(got[:3, :4], plain)
    assert not got[3].any()
    assert not got[:, 4].any()


def test_beta_of_equal_rates_stays_finite() -> None:
    rewards = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert torch.isfinite(BetaNormalised().advantages(rewards)).all()


@pytest.mark.parametrize(
    ("rewards", "message"),
    [([[1.0, 0.0]], "at least two prompts"), ([[1.0, -0.5], [0.0, 1.0]], "rewards must be 0 or 1")],
)
def test_one_prompt_or_a_length_penalty_is_refused_for_beta(
    rewards: list[list[float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        BetaNormalised().advantages(torch.tensor(rewards))


def test_groups_of_several_draws_share_one_beta_density() -> None:
    rewards = torch.tensor([[[1.0, 1, 1, 1], [1, 0, 0, 0]], [[0, 1, 0, 0], [1, 1, 0, 1]]])
    beta = BetaNormalised()
    parts = [
        {"reward": draw.flatten(), "advantages": beta.advantages(draw).flatten()}
        | {"completion_ids": torch.zeros(8, 1, dtype=torch.long)}
        for draw in rewards
    ]
    generation = Generation([{}, {}], parts[0], rollouts=4)
    generation.add(parts[1], torch.arange(2, 4).repeat_interleave(4), Draw(prompts=2))
    kept = Chosen(torch.tensor([1, 2]), torch.ones(4, 4, dtype=torch.bool))
    shaping, shares = Shaping(advantage=beta), ProcessSlices(Accelerator(cpu=True), 4, 0)
    rows = chosen_rows(generation, kept, shaping, True, shares)
    right = rows["advantages"][rows["reward"] == 1]
    assert right[0] == right[1]  # both groups have one right completion of four
    of_both = beta.advantages(torch.stack([rewards[0, 1], rewards[1, 0]]))
    torch.testing.assert_close(rows["advantages"], of_both.flatten(), rtol=0, atol=0)
