"""GDPO's advantages by hand, where they are GRPO's, and in training with two rewards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rollout_groups import NAN, REWARDS
from trainers import small_trainer

from sage.method.advantages import GroupNormalised, Groups
from sage.rivals.gdpo import Gdpo

FIRST = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
SECOND = torch.tensor([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
ROW = {"title": "x", "loss": "grpo", "kl": "none", "advantage": "gdpo"}


def advantages_of(*parts: torch.Tensor) -> torch.Tensor:
    stacked = torch.stack(parts, dim=-1)
    return Gdpo().advantages(stacked.sum(dim=-1), Groups(stacked, ("a", "b", "c")[: len(stacked)]))


def test_each_reward_is_normalised_in_its_group_by_hand() -> None:
    """1.5 and -0.5 of the first reward, 0.866 of the second; their sums have a deviation of 0.889.

    The first rollout of the first group and its second earn 1 each: one advantage to GRPO.
    """
    sums = torch.tensor([[0.634, 0.366, 0.366, -1.366], [0.866, 0.866, -0.866, -0.866]])
    torch.testing.assert_close(advantages_of(FIRST, SECOND), sums / 0.8893, rtol=2e-3, atol=0)


def test_with_one_reward_it_is_grpos_up_to_a_factor() -> None:
    grpo = GroupNormalised().advantages(REWARDS)
    torch.testing.assert_close(advantages_of(REWARDS), grpo / (grpo.std() + 1e-4))
    assert advantages_of(torch.ones(2, 4)).tolist() == [[0.0] * 4] * 2


def test_rollouts_that_are_missing_do_not_count() -> None:
    missing = torch.full((2, 1), NAN)
    got = advantages_of(*(torch.cat([part, missing], dim=1) for part in (FIRST, SECOND)))
    torch.testing.assert_close(got[:, :4], advantages_of(FIRST, SECOND))
    assert got[:, 4].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("planner", [None, "unsolved_only"])
def test_training_hands_over_each_reward(parent: Path, tmp_path: Path, planner: str | None) -> None:
    row = ROW | {"rewards": ["correct", "tagged"]} | ({"planner": planner} if planner else {})
    trainer = small_trainer(parent, row, tmp_path, reward=None)
    trainer.model.train()
    first, second = ([float(i % n == 0) for i in range(16)] for n in (3, 4))
    trainer.reward_funcs[:] = [lambda **_: first, lambda **_: second]
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    parts = batch["reward_parts"].view(4, 4, 2)
    assert parts.sum(dim=-1).flatten().tolist() == batch["reward"].tolist()
    wanted = Gdpo().advantages(parts.sum(dim=-1), Groups(parts, tuple("abcd")))
    with_loss = batch["completion_mask"].any(dim=1)
    assert with_loss.any()
    torch.testing.assert_close(batch["advantages"][with_loss], wanted.flatten()[with_loss])
