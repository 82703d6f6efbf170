"""Token-level credit against numbers worked by hand and computations of its own."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from sage.method.anchors import LogProbs, k3
from sage.method.credit import K1InReward, Pacs, Steer, TokenSignals, Ucpo, Uniqueness
from sage.study import Algorithm

LN2 = math.log(2.0)


def signals(
    log_probs: torch.Tensor, groups: list[int], rewards: list[float], **more: Any
) -> TokenSignals:
    """On policy unless said otherwise; centred advantages."""
    ids, earned = torch.tensor(groups), torch.tensor(rewards, dtype=log_probs.dtype)
    sizes = (ids[:, None] == ids[None, :]).sum(1)
    means = torch.stack([earned[ids == each].mean() for each in ids])
    settings = {
        "old_log_probs": log_probs,
        "entropies": torch.zeros_like(log_probs),
        "mask": torch.ones_like(log_probs),
        "advantages": earned - means,
        "rewards": earned,
        "groups": ids,
        "group_sizes": sizes,
        "rows": torch.arange(len(ids)),
    }
    return TokenSignals(log_probs=log_probs, **(settings | more))


# The KL in the reward ------------------------------------------------------------------


def test_the_leash_of_later_tokens_is_charged_to_earlier_ones_by_hand() -> None:
    """Two completions: leashes ln 2 at each of two tokens, and 0; A = 1/2 and -1/2."""
    log_probs = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    reference = torch.tensor([[0.25, 0.25], [0.5, 0.5]]).log()
    of = signals(log_probs, [0, 0], [1.0, 0.0], reference_log_probs=reference, kl_coefficient=0.1)
    # Leashes to come: (2 ln 2, ln 2) and (0, 0); less their means (ln 2, ln 2 / 2).
    expected = torch.tensor(
        [[0.5 - 0.1 * LN2, 0.5 - 0.05 * LN2], [-0.5 + 0.1 * LN2, -0.5 + 0.05 * LN2]]
    )
    torch.testing.assert_close(K1InReward().token_advantages(of), expected)


def test_padding_carries_no_leash_and_completions_may_differ_in_length() -> None:
    log_probs = torch.tensor([[0.5, 0.5], [0.5, 0.9]]).log()
    reference = torch.tensor([[0.25, 0.25], [0.25, 0.1]]).log()
    mask = torch.tensor([[1, 1], [1, 0]])
    of = signals(
        log_probs, [0, 0], [0.0, 0.0],
        mask=mask, reference_log_probs=reference, kl_coefficient=1.0,
    )  # fmt: skip
    got = K1InReward().token_advantages(of)
    # Leashes to come: (2 ln 2, ln 2) and (ln 2, 0).
    torch.testing.assert_close(got[0], torch.tensor([-0.5 * LN2, -0.5 * LN2]))
    torch.testing.assert_close(got[1, 0], torch.tensor(0.5 * LN2))


def test_factors_of_earlier_tokens_count_unless_the_guide_is_causal() -> None:
    log_probs = torch.full((2, 2), 0.5).log()
    factors = torch.tensor([[2.0, 4.0], [1.0, 1.0]]).log()
    common = {"reference_log_probs": log_probs, "log_factors": factors, "kl_coefficient": 1.0}
    causal, whole = (
        K1InReward().token_advantages(
            signals(log_probs, [0, 0], [0.0, 0.0], causal=causal, **common)
        )[0]
        for causal in (True, False)
    )
    # log q to come: (3 ln 2, 2 ln 2); of the whole completion: 3 ln 2; half of it is centred away.
    torch.testing.assert_close(causal, torch.tensor([1.5 * LN2, 1.0 * LN2]))
    torch.testing.assert_close(whole, torch.tensor([1.5 * LN2, 1.5 * LN2]))


def test_a_policy_at_its_anchor_is_plain_grpo() -> None:
    log_probs = torch.randn(4, 3)
    of = signals(
        log_probs, [0, 0, 1, 1], [1.0, 0.0, 1.0, 1.0],
        reference_log_probs=log_probs, kl_coefficient=0.3,
    )  # fmt: skip
    got = K1InReward().token_advantages(of)
    torch.testing.assert_close(got, of.advantages[:, None].expand(4, 3))


def test_without_others_of_its_prompt_a_completion_keeps_its_own_leash() -> None:
    log_probs, reference = torch.tensor([[0.5]]).log(), torch.tensor([[0.25]]).log()
    of = signals(
        log_probs, [0], [0.0],
        group_sizes=torch.tensor([4]), reference_log_probs=reference, kl_coefficient=1.0,
    )  # fmt: skip
    torch.testing.assert_close(K1InReward().token_advantages(of), torch.tensor([[-0.75 * LN2]]))


def test_what_is_logged_as_the_kl_is_k3() -> None:
    log_probs, anchor = torch.randn(2, 3), torch.randn(2, 3)
    seen = LogProbs(policy=log_probs, anchor=anchor, old=log_probs)
    assert torch.equal(K1InReward().values(seen), k3(log_probs, anchor))


# STEER ---------------------------------------------------------------------------------


def test_steer_weighs_the_largest_change_least_by_hand() -> None:
    """On policy |A| (1 - pi) |log pi + H|: 0, 0.5 (1 - 0.5) 0.5 and 0.5 (1 - 0.25) 0.5."""
    log_probs = torch.tensor([[1.0, 0.5, 0.25], [1.0, 1.0, 1.0]]).log()
    entropies = torch.tensor([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]) - log_probs
    of = signals(log_probs, [0, 0], [1.0, 0.0], entropies=entropies)
    linear = torch.tensor([1.2, 1.2 - 0.4 * 0.125 / 0.1875, 0.8])
    got = Steer().token_advantages(of)
    torch.testing.assert_close(got[0], 0.5 * linear)
    torch.testing.assert_close(got[1], torch.full((3,), -0.5 * 1.2))
    rate = -math.log(0.8) / 0.1875
    exponential = torch.tensor([1.0, math.exp(-rate * 0.125), 0.8])
    got = Steer(form="exponential").token_advantages(of)
    torch.testing.assert_close(got[0], 0.5 * exponential)


@pytest.mark.parametrize("rewards", [[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("form", ["linear", "exponential"])
def test_steer_on_random_groups_token_by_token(rewards: list[float], form: str) -> None:
    torch.manual_seed(sum(rewards))
    log_probs, old = -torch.rand(4, 5).mul(3), -torch.rand(4, 5).mul(3)
    entropies, mask = torch.rand(4, 5), (torch.arange(5) < torch.tensor([[5], [3], [1], [4]])).int()
    of = signals(log_probs, [0] * 4, rewards, old_log_probs=old, entropies=entropies, mask=mask)
    change = {
        (i, t): abs(
            of.advantages[i].item()
            / math.exp(old[i, t])
            * math.exp(log_probs[i, t])
            * (1 - math.exp(log_probs[i, t]))
            * (log_probs[i, t].item() + entropies[i, t].item())
        )
        for i in range(4)
        for t in range(5)
        if mask[i, t]
    }
    low, high = min(change.values()), max(change.values())
    got = Steer(form=form).token_advantages(of)
    for (i, t), value in change.items():
        if form == "exponential":
            weight = max(0.8, math.exp(math.log(0.8) / max(high, 0.02) * value))
        else:
            weight = 1.2 - 0.4 * (value - low) / (high - low) if high > low else 1.0
        assert got[i, t].item() == pytest.approx(weight * of.advantages[i].item(), rel=1e-4)


def test_steer_with_weights_of_one_is_grpo() -> None:
    of = signals(-torch.rand(4, 5), [0, 0, 1, 1], [1.0, 0.0, 1.0, 0.0])
    got = Steer(lowest=1.0, highest=1.0).token_advantages(of)
    torch.testing.assert_close(got, of.advantages[:, None].expand(4, 5))


# PACS ----------------------------------------------------------------------------------


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


class Meeting:
    """Hands each of two processes, here threads, the rows of both, padded to one length."""

    def __init__(self) -> None:
        self._barrier, self._rows = Barrier(2, timeout=20), [torch.empty(0)] * 2

    def everyone(self, process: int, rows: torch.Tensor) -> torch.Tensor:
        self._rows[process] = rows
        self._barrier.wait()
        longest = max(part.shape[-1] for part in self._rows)
        both = torch.cat(
            [pad(part, (0, longest - part.shape[-1])) if part.ndim > 1 else part
             for part in self._rows]
        )  # fmt: skip
        self._barrier.wait()
        return both


@pytest.mark.parametrize("rule", [K1InReward(), Pacs(), Steer()], ids=lambda r: type(r).__name__)
def test_a_micro_batch_in_two_processes_is_as_in_one(rule: Any) -> None:
    """One prompt's completions in two processes, which pad to different lengths."""
    torch.manual_seed(2)
    log_probs, old = -torch.rand(4, 3), -torch.rand(4, 3)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]])
    whole = signals(
        log_probs, [0] * 4, [1.0, 0.0, 0.0, 0.0],
        old_log_probs=old, mask=mask, entropies=torch.rand(4, 3), reference_log_probs=old,
        log_factors=torch.rand(4, 3), kl_coefficient=0.2,
    )  # fmt: skip
    meeting = Meeting()

    def run(process: int) -> torch.Tensor:
        part = {
            name: (value[2 * process :][:2, : 3 - process] if value.ndim > 1
                   else value[2 * process :][:2])
            if isinstance(value, torch.Tensor) else value
            for name, value in vars(whole).items()
        }  # fmt: skip
        part["everyone"] = partial(meeting.everyone, process)
        return rule.token_advantages(TokenSignals(**part))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (0, 1))
    expected = rule.token_advantages(whole) * mask
    torch.testing.assert_close(first * mask[:2], expected[:2])
    torch.testing.assert_close(second * mask[2:, :2], expected[2:, :2])


def test_ucpo_leaves_out_right_completions_whose_loss_is_masked() -> None:
    """Three right ones, the last without a token under the loss: the first two share."""
    old = torch.tensor([[0.5], [0.25], [0.1]]).log()
    of = signals(old, [0, 0, 0], [1.0, 1.0, 1.0], mask=torch.tensor([[1], [1], [0]]))
    of = replace(of, advantages=torch.ones(3))
    got = Ucpo(tau=0.3).token_advantages(of)[:, 0]
    torch.testing.assert_close(got, torch.tensor([0.9, 1.1, 1.0]))  # 1/q is as 1 to 2


@pytest.mark.parametrize("right_only", [True, False])
def test_uniqueness_leaves_out_completions_whose_loss_is_masked(right_only: bool) -> None:
    """Two follow one strategy, but only one of them is learned from."""
    mask = torch.tensor([[1], [0], [1]])
    strategies = torch.tensor([7, 7, 9])
    of = signals(torch.zeros(3, 1), [0] * 3, [1.0] * 3, mask=mask, strategies=strategies)
    of = replace(of, advantages=torch.ones(3))
    got = Uniqueness(alpha=1.0, right_only=right_only).token_advantages(of)[:, 0]
    torch.testing.assert_close(got, torch.ones(3))


# What does not go together -------------------------------------------------------------

ROW: dict[str, Any] = {"title": "x", "loss": "grpo", "kl": "none"}
PACS = ROW | {"loss": "dr_grpo", "credit": "pacs", "clip_low": None, "clip_high": None}
OVERLONG = ["correct", {"kind": "overlong", "settings": {"margin_tokens": 4}}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PACS | {"clip_low": 0.2}, "pacs is a loss without ratios, which a clip would cut"),
        (PACS | {"loss": "grpo"}, "loss must be dr_grpo, not grpo"),
        (PACS | {"advantage": "centred"}, "takes rewards, not advantages"),
        (PACS | {"rewards": OVERLONG}, r"rewards must be \[correct\] alone, not \[correct, over"),
        (PACS | {"kl": "reverse", "estimator": "k1_reward"}, "and so does credit: pacs; choose"),
        (ROW | {"advantage": "beta", "rewards": OVERLONG}, "fits a Beta density to success rates"),
        (ROW | {"advantage": "pass_at_k", "rewards": OVERLONG}, "pass_at_k counts right rollouts"),
        (ROW | {"advantage": "pkpo", "rewards": OVERLONG}, "pkpo counts right rollouts"),
        (ROW | {"advantage": "w_reinforce", "rewards": OVERLONG}, "tells right from wrong"),
        (ROW | {"credit": "uniqueness", "rewards": OVERLONG}, "weights right completions only"),
    ],
)
def test_choices_that_conflict_are_refused_with_the_reason(
    row: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Algorithm.model_validate(row)


def test_pacs_without_conflicts_is_accepted() -> None:
    assert Algorithm.model_validate(PACS).clip_low is None
