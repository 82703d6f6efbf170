"""DARS: how many rollouts it draws, against its formula, and what it trains on."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
import torch
from method_entries import ROWS
from pydantic import ValidationError
from rollout_groups import NAN, drawn

from sage.method.advantages import Centred
from sage.rivals.dapo import Mixed
from sage.rivals.dars import Dars, extra_rollouts
from sage.study import Algorithm
from sage.training.shaping import Shaping


def test_dars_draws_what_the_formula_says() -> None:
    right, eight = torch.arange(9), torch.full((9,), 8)
    # 1 of 8: S = 2/8 x 7/8 = 0.21875; (4 - 1.75) / S = 10.29, and (7 - 1.75) / S = 24 exactly.
    # None of 8 counts as 1/16: S = 0.1171875; (4 - 0.9375) / S = 26.13, and 56 exactly.
    assert extra_rollouts(right, eight, 56, "equal").tolist() == [27, 11, 3, 1, 0, 0, 0, 0, 0]
    assert extra_rollouts(right, eight, 56, "hardness").tolist() == [56, 24, 8, 3, 0, 0, 0, 0, 0]
    assert extra_rollouts(right, eight, 24, "equal").tolist() == [24, 11, 3, 1, 0, 0, 0, 0, 0]
    assert extra_rollouts(right, eight, 0, "hardness").tolist() == [0] * 9


@pytest.mark.parametrize("weighting", ["equal", "hardness"])
def test_dars_evens_out_the_sum_of_absolute_advantages(weighting: Any) -> None:
    """With p kept, the least number of rollouts whose sum of |A| reaches the target."""
    rng = random.Random(5)
    for _ in range(200):
        size, cap = rng.randint(2, 20), rng.randint(20, 90)
        right = rng.randint(0, size)
        counts, room = (torch.tensor([n]) for n in (right, size)), max(cap - size, 0)
        more = int(extra_rollouts(*counts, room, weighting))
        p = Fraction(right, size) if right else Fraction(1, 2 * size)
        target = Fraction(size, 2) * (2 * (1 - p) if weighting == "hardness" else 1)
        per_rollout = 2 * p * (1 - p)
        if p >= Fraction(1, 2):
            assert more == 0
            continue
        assert more <= cap - size
        assert more == cap - size or (size + more) * per_rollout >= target
        assert more == 0 or (size + more - 1) * per_rollout < target


def test_dars_trains_on_mixed_groups_alone() -> None:
    first = drawn([[0.0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    draw = Dars(cap=8).further(first)
    assert draw is not None
    assert draw.more is not None
    # 1 of 4: 64 / (2 x 6) - 4 = 1.33; none: 64 / 7 - 4 = 5.14, of which the cap leaves 4.
    assert draw.more.tolist() == [4, 2, 0, 0]
    assert not draw.guided
    after = drawn(
        [
            [0, 0, 0, 0, 0, 1, 0, 0],
            [1, 0, 0, 0, 0, 0, NAN, NAN],
            [1, 1, 1, 0, NAN, NAN, NAN, NAN],
            [1, 1, 1, 1, NAN, NAN, NAN, NAN],
        ],
        draws=2,
    )
    assert Dars(cap=8).further(after) is None
    chosen = Dars(cap=8).chosen(after)
    assert chosen.prompts.tolist() == [0, 1, 2]
    assert torch.equal(chosen.rows, after.present)
    table = after.rewards[chosen.prompts]
    advantages = Centred().advantages(table)
    assert advantages[0].tolist() == [-0.125] * 5 + [0.875] + [-0.125] * 2
    torch.testing.assert_close(advantages[1], torch.tensor([5.0, -1, -1, -1, -1, -1, 0, 0]) / 6)
    assert advantages[2].tolist() == [0.25, 0.25, 0.25, -0.75, 0, 0, 0, 0]


def test_dars_without_a_mixed_group_keeps_first_rollouts() -> None:
    after = drawn([[0.0] * 8, [1.0] * 4 + [NAN] * 4], draws=2)
    chosen = Dars(cap=8).chosen(after)
    assert chosen.prompts is None
    assert chosen.rows.sum(dim=1).tolist() == [4, 4]
    assert Centred().advantages(after.rewards.where(chosen.rows, NAN)).abs().sum() == 0


def test_choices_that_do_not_go_with_dars_are_refused() -> None:
    row = ROWS["dars"]
    with pytest.raises(ValidationError, match="filter 'mixed' and planner 'dars' both choose"):
        Algorithm.model_validate({**row, "filter": {"kind": "mixed", "max_refills": 1}})
    with pytest.raises(ValueError, match="filter Mixed and planner Dars both choose"):
        Shaping(filter=Mixed(), planner=Dars())
    with pytest.raises(ValidationError, match="planner: dars may keep a single prompt"):
        Algorithm.model_validate({**row, "advantage": "beta"})
    for kind, settings in (("maxrl", {"order": 2}), ("pkpo", {"k": 1})):
        with pytest.raises(ValidationError, match="drops prompts whose rollouts are all right"):
            Algorithm.model_validate({**row, "advantage": {"kind": kind, "settings": settings}})
    Algorithm.model_validate({**row, "advantage": "maxrl"})
