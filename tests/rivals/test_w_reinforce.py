"""W-REINFORCE by hand."""

from __future__ import annotations

import torch
from rollout_groups import REWARDS

from sage.rivals.w_reinforce import WeightedReinforce


def test_w_reinforce_knows_no_group() -> None:
    got = WeightedReinforce(weight=0.1).advantages(REWARDS)
    torch.testing.assert_close(got[0], torch.tensor([0.1, -1.0, -1.0, -1.0]))
    torch.testing.assert_close(got[1], torch.full((4,), 0.1))
    negative = WeightedReinforce(weight=0.0).advantages(REWARDS)
    assert negative[1].tolist() == [0.0] * 4  # negative samples only
    plain = WeightedReinforce(weight=1.0).advantages(REWARDS)  # REINFORCE with rewards of +-1
    torch.testing.assert_close(plain, 2 * REWARDS - 1)
