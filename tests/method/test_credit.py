"""The KL in the reward against numbers worked by hand."""

from __future__ import annotations

import math

import torch
from token_signals import signals

from sage.method.anchors import LogProbs, k3
from sage.method.credit import K1InReward

LN2 = math.log(2.0)


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
