"""What a guide costs: loss and gradient with and without it, on the same completions (section 4.3).

One trainer draws a micro-batch once, as in training, and then computes loss and gradient under each
method's shaping in turn, round after round, and learns nothing. What slows a machine slows
neighbouring measurements alike: their ratio is what counts (`sage.exhibits.step_times`). A GPU is
timed by the clock, a CPU by the processor time that it spends, which other programs disturb less.
As a share of a whole step, with its drawing, the cost is smaller.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm
from transformers import TrainerCallback

from sage.problems.record import read_problems
from sage.runtime.devices import see_one_device
from sage.study import RL, Algorithm
from sage.tasks import Grader
from sage.training.rl import build_trainer, grpo_config, shaping_of
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

COLUMNS = ["algorithm", "round", "seconds", "completions", "tokens"]
"""A measurement a row: seconds for loss and gradient of `tokens` completion tokens."""

WARM_UP = 3
"""Rounds before the first that counts: caches and kernels are made in them."""


def one_micro_batch(settings: RL) -> RL:
    """`settings` for a single step that draws a micro-batch of the same size, in whole groups."""
    size = settings.prompts_per_step * settings.rollouts // settings.micro_batches
    prompts = max(1, size // settings.rollouts)
    parts = max(1, prompts * settings.rollouts // size)
    once = {"steps": 1, "steps_per_generation": 1, "iterations": 1, "engine": "transformers"}
    return settings.model_copy(update=once | {"prompts_per_step": prompts, "micro_batches": parts})


class Stopwatch(TrainerCallback):
    """Times loss and gradient of a first micro-batch of `trainer` under `shapings`.

    It does so before the first step, and ends training there: nothing is learnt. What was measured
    is in `times`, with COLUMNS.
    """

    def __init__(self, trainer: SageTrainer, shapings: Mapping[str, Shaping], rounds: int) -> None:
        self._trainer, self._shapings, self._rounds = trainer, shapings, rounds
        self.times = pd.DataFrame(columns=COLUMNS)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure, now that the policy is where it is trained."""
        trainer: Any = self._trainer
        trainer.model_wrapped.train()
        trainer.current_gradient_accumulation_steps = args.gradient_accumulation_steps
        batch = trainer._prepare_inputs(next(iter(kwargs["train_dataloader"])))
        completions, tokens = len(batch["completion_mask"]), int(batch["completion_mask"].sum())
        names, rows = list(self._shapings), []
        for turn in tqdm(range(-WARM_UP, self._rounds), desc="timing", unit="round", mininterval=5):
            first = turn % len(names)  # each goes first in its turn
            for name in [*names[first:], *names[:first]]:
                trainer.shaping = self._shapings[name]
                rows.append((name, turn, self._seconds(trainer, batch), completions, tokens))
        table = pd.DataFrame(rows, columns=COLUMNS)
        self.times = table[table["round"] >= 0].reset_index(drop=True)
        control.should_training_stop = True

    def _seconds(self, trainer: Any, batch: dict[str, Any]) -> float:
        start = self._now()
        with trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(trainer.model_wrapped, batch)
        trainer.accelerator.backward(loss)
        trainer.end_step()
        seconds = self._now() - start
        trainer.model_wrapped.zero_grad()
        return seconds

    def _now(self) -> float:
        if self._trainer.accelerator.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def step_times(
    parent: Path,
    problems: Path,
    settings: RL,
    algorithms: Mapping[str, Algorithm],
    rounds: int,
    device: str,
) -> pd.DataFrame:
    """Times of `algorithms`, which differ in their guide alone, from the checkpoint `parent`.

    Returns COLUMNS, a row per method and round.
    """
    see_one_device()
    small = one_micro_batch(settings)
    first = next(iter(algorithms.values()))
    with tempfile.TemporaryDirectory() as scratch:
        config = grpo_config(small, first, 1, device, Path(scratch))
        config.save_strategy = "no"
        asked = read_problems(problems)
        trainer = build_trainer(SageTrainer, parent, asked, small, first, config, Grader())
        shapings = {name: shaping_of(row) for name, row in algorithms.items()}
        watch = Stopwatch(trainer, shapings, rounds)
        trainer.add_callback(watch)
        trainer.train()
    return watch.times
