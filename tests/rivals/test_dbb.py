"""DBB's estimate by hand over two steps, where it is the group's own, and in a resumed run."""

from __future__ import annotations

from pathlib import Path

import torch
from rollout_groups import RAGGED, REWARDS
from trainers import assert_same_run, odd_sum, unbroken_and_resumed

from sage.method.advantages import Groups
from sage.rivals.dbb import Dbb

ROW = {"title": "x", "loss": "grpo", "kl": "none", "advantage": "dbb"}


def asked(rule: Dbb, rewards: list[list[float]], *problems: str) -> torch.Tensor:
    table = torch.tensor(rewards)
    return rule.advantages(table, Groups(table[..., None], problems))


def test_a_problem_is_known_from_earlier_steps_by_hand() -> None:
    """Counts 1.5 and 3.5, so p 0.3; then 0.75 and 5.75, so p 0.1154 where all four are wrong."""
    rule = Dbb(discount=0.5, prior=1.0)
    first = asked(rule, [[1.0, 0.0, 0.0, 0.0]], "a")
    torch.testing.assert_close(first[0, :2], torch.tensor([1.5272, -0.6545]), rtol=1e-3, atol=0)
    assert asked(rule, [[1.0, 0.0, 0.0, 0.0]], "a").equal(first)  # once a step
    rule.end_step(lambda each: each)
    again = asked(rule, [[0.0] * 4, [0.0] * 4], "a", "new")
    torch.testing.assert_close(again[:, 0], torch.tensor([-0.3610, -0.3333]), rtol=1e-3, atol=0)
    rule.end_step(lambda each: each)
    assert rule.state_dict() == {"counts": {"a": [0.75, 5.75], "new": [0.5, 4.5]}}
    other = Dbb(discount=0.5)
    other.load_state_dict(rule.state_dict())
    assert asked(other, [[1.0, 0.0]], "a").equal(asked(rule, [[1.0, 0.0]], "a"))


def test_two_groups_of_a_problem_are_one_with_more_rollouts() -> None:
    parted = asked(Dbb(), [[1.0, 0.0], [1.0, 1.0]], "a", "a")
    torch.testing.assert_close(parted.flatten(), asked(Dbb(), [[1.0, 0.0, 1.0, 1.0]], "a")[0])


def test_without_memory_and_prior_it_is_the_group_alone() -> None:
    rule = Dbb(discount=0.0, prior=0.0)
    got = rule.advantages(REWARDS, Groups(REWARDS[..., None], ("a", "b", "c")))
    deviation = REWARDS.std(dim=1, correction=0, keepdim=True) + 1e-4
    torch.testing.assert_close(got, (REWARDS - REWARDS.mean(dim=1, keepdim=True)) / deviation)


def test_rollouts_that_are_missing_do_not_count() -> None:
    got = Dbb().advantages(RAGGED, Groups(RAGGED[..., None], ("a", "b")))
    torch.testing.assert_close(got[1:, :3], asked(Dbb(), [[1.0, 0.0, 0.0]], "b"))
    assert got[1, 3:].tolist() == [0.0, 0.0]


def test_a_resumed_run_equals_an_unbroken_one(parent: Path, tmp_path: Path) -> None:
    whole, resumed = unbroken_and_resumed(parent, ROW, tmp_path, reward=odd_sum)
    assert_same_run(whole, resumed)
    assert len(whole.shaping.advantage.state_dict()["counts"]) > 4
