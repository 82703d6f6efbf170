"""What a run logs of its guide, by hand."""

import math

import pytest
import torch
from accelerate import Accelerator

from sage.training.anchoring import GuideTally


def test_sums_of_two_micro_batches_of_a_moment_by_hand() -> None:
    tally = GuideTally(Accelerator(cpu=True), (0.5, 2.0))
    factors = torch.tensor([[2.0, 1.0, 4.0], [0.5, 1.0, 9.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    first = tally.add(("train", 1), factors, mask)
    assert first == pytest.approx(
        {
            "q_mean": 3.5 / 3,
            "q_min": 0.5,
            "q_max": 2.0,
            "amplified_share": 1 / 3,
            "clamped_share": 2 / 3,
            "log_q": 0.0,  # log 2 of one completion, -log 2 of the other
        }
    )
    more = torch.tensor([[1.5, 1.5]])
    both = tally.add(("train", 1), more, torch.tensor([[True, True]]))
    assert both["log_q"] == pytest.approx(2 * math.log(1.5) / 3)
    assert both["amplified_share"] == pytest.approx(3 / 5)
    again = tally.add(("train", 2), more, torch.tensor([[True, False]]))
    assert again["log_q"] == pytest.approx(math.log(1.5))
    assert again["q_mean"] == pytest.approx(1.5)


def test_a_completion_without_tokens_counts_for_nothing() -> None:
    tally = GuideTally(Accelerator(cpu=True), (0.5, 2.0))
    factors = torch.full((2, 2), 1.5)
    mask = torch.tensor([[True, True], [False, False]])
    assert tally.add(0, factors, mask)["log_q"] == pytest.approx(2 * math.log(1.5))
    assert tally.add(1, factors, torch.zeros(2, 2, dtype=torch.bool)) == {}
