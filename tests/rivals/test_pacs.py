"""PACS by hand and against the gradient of its loss; what does not go with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from method_entries import ROWS
from token_signals import signals

from sage.rivals.pacs import Pacs
from sage.study import Algorithm


def test_pacs_on_policy_by_hand() -> None:
    """All scores are 0. One right of four: weights 2 and 2/3, slopes -1 and 1/3 each.

    A completion's pull is minus its own slope plus the mean of the others' slopes.
    """
    of = signals(torch.zeros(4, 2), [0] * 4, [1.0, 0.0, 0.0, 0.0])
    got = Pacs().token_advantages(of)
    torch.testing.assert_close(got[0], torch.full((2,), 1.0 + 1 / 3))
    torch.testing.assert_close(got[1], torch.full((2,), -(1 / 3 - (-1 + 2 / 3) / 3)))


@pytest.mark.parametrize("rewards", [[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
def test_pacs_has_the_gradient_of_its_loss(rewards: list[float]) -> None:
    """The loss of the paper by autograd, on two prompts, off policy."""
    torch.manual_seed(1)
    free = (-torch.rand(8, 3, dtype=torch.double)).requires_grad_()
    old = free.detach() + 0.3 * torch.randn(8, 3, dtype=torch.double)
    mask = (torch.arange(3) < torch.tensor([3, 2, 1, 3, 3, 2, 3, 1])[:, None]).double()
    earned = [float(each) for each in [*rewards, 1, 1, 0, 0]]
    scores = 0.7 * ((free - old) * mask).sum(1)
    loss = torch.zeros((), dtype=torch.double)
    for first in (0, 4):
        group, right = scores[first : first + 4], torch.tensor(earned[first : first + 4]).double()
        for i in range(4):
            of_class = (right == right[i]).sum()
            both = 2 if 0 < right.sum() < 4 else 1
            others = (group.sum() - group[i]) / 3
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(
                group[i] - others, right[i]
            )
            loss = loss + 4 / (both * of_class) * entropy
    (wanted,) = torch.autograd.grad(loss, free)
    of = signals(free.detach(), [0] * 4 + [1] * 4, earned, old_log_probs=old, mask=mask)
    advantages = Pacs(beta=0.7).token_advantages(of)
    ratio = (free.detach() - old).exp()
    torch.testing.assert_close(-advantages * ratio * mask, wanted)


def test_pacs_looks_at_each_prompt_alone_also_where_groups_are_ragged() -> None:
    torch.manual_seed(2)
    log_probs, old = -torch.rand(6, 3), -torch.rand(6, 3)
    rewards, groups = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0], [0, 0, 0, 0, 1, 1]
    both = Pacs().token_advantages(signals(log_probs, groups, rewards, old_log_probs=old))
    for own in (slice(0, 4), slice(4, 6)):
        of = signals(log_probs[own], groups[own], rewards[own], old_log_probs=old[own])
        torch.testing.assert_close(both[own], Pacs().token_advantages(of))


def test_pacs_refuses_a_part_of_a_group() -> None:
    of = signals(torch.zeros(2, 2), [0, 0], [1.0, 0.0], group_sizes=torch.tensor([4, 4]))
    with pytest.raises(ValueError, match="whole groups"):
        Pacs().token_advantages(of)


@pytest.mark.parametrize("last", [0.0, 1.0])
def test_pacs_leaves_out_completions_whose_loss_is_masked(last: float) -> None:
    torch.manual_seed(2)
    log_probs, old = -torch.rand(4, 3), -torch.rand(4, 3)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
    rewards = [1.0, 0.0, 0.0, last]
    of = signals(log_probs, [0] * 4, rewards, old_log_probs=old, mask=mask)
    rest = signals(log_probs[:3], [0] * 3, rewards[:3], old_log_probs=old[:3], mask=mask[:3])
    got = Pacs().token_advantages(of)
    torch.testing.assert_close(got[:3], Pacs().token_advantages(rest))
    assert got.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip_low": 0.2}, "pacs is a loss without ratios, which a clip would cut"),
        ({"loss": "grpo"}, "loss must be dr_grpo, not grpo"),
        ({"advantage": "centred"}, "takes rewards, not advantages"),
        ({"kl": "reverse", "estimator": "k1_reward"}, "and so does credit: pacs; choose"),
        ({"planner": "dars"}, "needs groups of one size, which planner: dars"),
    ],
)
def test_choices_that_conflict_are_refused_with_the_reason(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Algorithm.model_validate(ROWS["pacs"] | changes)
