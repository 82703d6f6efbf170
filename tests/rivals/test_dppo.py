"""DPPO's mask by hand, token by token on random groups, and where it is GRPO."""

from __future__ import annotations

import math

import pytest
import torch
from method_entries import ROWS
from token_signals import signals

from sage.rivals.dppo import Dppo
from sage.study import Algorithm


def test_only_tokens_that_moved_too_far_and_would_move_on_are_left_out_by_hand() -> None:
    """From 0.5 to 0.7, 0.6 and 0.3, and a rare token to 50 times its chance, for A of 0.5, -0.5."""
    old = torch.tensor([[0.5, 0.5, 0.5, 0.001]] * 2).log()
    now = torch.tensor([[0.7, 0.6, 0.3, 0.05]] * 2).log()
    got = Dppo().token_advantages(signals(now, [0, 0], [1.0, 0.0], old_log_probs=old))
    assert got.tolist() == [[0.0, 0.5, 0.5, 0.5], [-0.5, -0.5, 0.0, -0.5]]


@pytest.mark.parametrize("divergence", ["tv", "kl"])
def test_random_groups_token_by_token(divergence: str) -> None:
    torch.manual_seed(2)
    now, old = -torch.rand(4, 6).mul(2), -torch.rand(4, 6).mul(2)
    of = signals(now, [0] * 4, [1.0, 0.0, 0.0, 1.0], old_log_probs=old)
    got = Dppo(delta=0.1, divergence=divergence).token_advantages(of)  # type: ignore[arg-type]
    left_out = 0
    for i in range(4):
        for t in range(6):
            p, m = math.exp(now[i, t]), math.exp(old[i, t])
            kl = m * math.log(m / p) + (1 - m) * math.log((1 - m) / (1 - p))
            far = (abs(p - m) if divergence == "tv" else kl) > 0.1
            on = far and (p - m) * of.advantages[i].item() > 0
            left_out += on
            assert got[i, t].item() == (0.0 if on else of.advantages[i].item())
    assert 0 < left_out < 24


def test_on_policy_it_is_grpo() -> None:
    of = signals(-torch.rand(4, 5), [0, 0, 1, 1], [1.0, 0.0, 1.0, 0.0])
    for rule in (Dppo(), Dppo(divergence="kl")):
        assert torch.equal(rule.token_advantages(of), of.advantages[:, None].expand(4, 5))


def test_a_clip_beside_it_is_refused() -> None:
    with pytest.raises(ValueError, match="clip_low and clip_high must be null"):
        Algorithm.model_validate(ROWS["dppo"] | {"clip_low": 0.2, "clip_high": 0.2})
