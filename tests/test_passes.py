"""The order of prompts, pass by pass."""

from __future__ import annotations

from trl.trainer.utils import RepeatSampler

from sage.training.passes import PassSampler


def sampler() -> RepeatSampler:
    return RepeatSampler(range(7), mini_repeat_count=2, batch_size=3, repeat_count=1, seed=5)


def test_a_resumed_run_takes_the_order_of_its_own_pass() -> None:
    whole = sampler()
    passes = [list(whole) for _ in range(3)]
    assert passes[0] != passes[2]
    for number, expected in enumerate(passes):
        resumed = PassSampler.like(sampler())
        resumed.set_epoch(number)
        assert list(resumed) == expected
        resumed.set_epoch(number)  # told twice, as accelerate does
        assert list(resumed) == expected
