"""Advantages against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from rollout_groups import REWARDS

from sage.method.advantages import Centred, GroupNormalised


def test_group_normalised_by_hand() -> None:
    got = GroupNormalised().advantages(REWARDS)
    torch.testing.assert_close(got[0], torch.tensor([0.75, -0.25, -0.25, -0.25]) / 0.5001)
    torch.testing.assert_close(got[1], torch.zeros(4))
    deviation = math.sqrt(1 / 3) + 1e-4
    torch.testing.assert_close(got[2], torch.tensor([0.5, 0.5, -0.5, -0.5]) / deviation)


def test_centred_by_hand() -> None:
    assert Centred().advantages(REWARDS)[0].tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("shape", [(4,), (3, 1)])
def test_rewards_without_groups_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rewards must be"):
        Centred().advantages(torch.zeros(shape))
