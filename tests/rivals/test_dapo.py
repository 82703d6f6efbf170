"""DAPO's dynamic sampling and its penalty for length, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from method_entries import ROWS
from rollout_groups import drawn
from trainers import logged, small_trainer

from sage.method.planners import DynamicSampling
from sage.method.rewards import Completion
from sage.rivals.dapo import Mixed, Overlong


def test_an_overlong_completion_is_punished_softly() -> None:
    lengths = (0, 6, 7, 8, 10, 12)
    scores = [Overlong(margin_tokens=4).score(Completion("", "1", False, n, 10)) for n in lengths]
    assert scores == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


def test_a_group_of_wrong_completions_is_not_kept_for_its_length_penalty() -> None:
    correct = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    rewards = correct + torch.tensor([[0.0, -0.5], [0.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    assert Mixed().keep(correct, rewards).tolist() == [False, True, False, False]


class Filling(Mixed):
    """A filter that leaves the loss to groups that it does not keep."""

    drops = False


def test_dynamic_sampling_puts_kept_groups_first() -> None:
    planner = DynamicSampling(Mixed(), max_refills=2)
    first = drawn([[1.0, 1], [0, 1], [0, 0]], rollouts=2)
    draw = planner.further(first)
    assert draw is not None
    assert (draw.more, draw.prompts) == (None, 3)
    second = replace(drawn([[1.0, 1], [0, 1], [0, 0], [1, 0], [0, 0], [1, 1]], 2, 2), prompts=3)
    assert planner.further(second) is not None
    assert planner.further(replace(second, draws=3)) is None
    assert planner.chosen(second).prompts.tolist() == [1, 3, 0]
    assert DynamicSampling(Filling(), max_refills=2).chosen(second).loss is None
    dropping = DynamicSampling(Mixed(), max_refills=0)
    assert dropping.further(first) is None
    loss = dropping.chosen(first).loss
    assert loss is not None
    assert loss.tolist() == [False, True, False]
    enough = replace(second, prompts=2)
    assert planner.further(enough) is None
    assert planner.chosen(enough).prompts.tolist() == [1, 3]


def test_nothing_is_learnt_from_wrong_completions_of_unequal_lengths(
    parent: Path, tmp_path: Path
) -> None:
    """Their rewards differ by the penalty, but no group is kept, and none can take their place."""
    trainer = small_trainer(parent, ROWS["dapo_full"], tmp_path, reward=None, steps=1)
    trainer.reward_funcs[:] = [
        lambda completion_ids, **_: [0.0] * len(completion_ids),
        lambda completion_ids, **_: [-len(ids) / 24 for ids in completion_ids],
    ]
    (row,) = logged(trainer)
    assert row["reward_std"] > 0.01
    assert (row["grad_norm"], row["loss"], row["zero_advantages"]) == (0.0, 0.0, 1.0)
