"""The order of prompts, pass by pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl, TrainerState
from trl.trainer.utils import RepeatSampler

from sage.training.drawing import start_at_epoch
from sage.training.trainer import SageTrainer


def sampler() -> RepeatSampler:
    return RepeatSampler(range(7), mini_repeat_count=2, batch_size=3, repeat_count=1, seed=5)


def test_a_resumed_run_takes_the_order_of_its_own_pass() -> None:
    whole = sampler()
    passes = [list(whole) for _ in range(3)]
    assert passes[0] != passes[2]
    for number, expected in enumerate(passes):
        resumed = sampler()
        loader = DataLoader(range(7), sampler=resumed, batch_size=2)
        for _ in range(2):  # told again, after the pass
            start_at_epoch(loader, number)
            assert list(resumed) == expected


def batches(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_resumed_within_a_pass_takes_the_order_of_that_pass(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loader() -> Any:
        order = RepeatSampler(range(24), mini_repeat_count=1, batch_size=4, seed=5)
        plain: Any = DataLoader(range(24), sampler=order, batch_size=2)
        return prepare_data_loader(
            plain, num_processes=processes, process_index=0, put_on_device=False
        )

    taken: list[list[int]] = []

    def resume(_: Trainer, *, train_dataloader: Any, epoch: int) -> None:
        rest = skip_first_batches(train_dataloader, 2)  # as transformers does
        taken.extend(batches(rest))

    monkeypatch.setattr(Trainer, "_run_epoch", resume)
    whole = loader()
    first, second = batches(whole), batches(whole)
    assert first != second
    trainer = object.__new__(SageTrainer)
    trainer.args = SimpleNamespace(
        num_iterations=1, steps_per_generation=1, gradient_accumulation_steps=1
    )
    trainer._step = 8
    trainer.state = TrainerState(global_step=8, max_steps=12)
    trainer.control = TrainerControl()
    trainer._run_epoch(train_dataloader=loader(), epoch=1)
    assert taken == second[2:]
