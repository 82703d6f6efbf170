"""What a guide costs: loss and gradient with and without it, on the same completions (section 4.3).

A step draws completions and learns from them; guides act on the second part alone. So one trainer
draws a micro-batch once, as in training, and then computes loss and gradient under each method's
shaping in turn, round after round, and learns nothing. What slows a machine slows neighbouring
measurements alike: their ratio is what counts, not either time (`sage.analysis.step_times`). A GPU
is timed by the clock, a CPU by the processor time that it spends, which other programs disturb
less. As a share of a whole step, with its drawing, the cost is smaller.
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

from sage.grading import Grader
from sage.problems.record import read_problems
from sage.study import RL, Algorithm
from sage.training.rl import build_trainer, grpo_config, shaping_of
from sage.training.trainer import SageTrainer, Shaping

COLUMNS = ["algorithm", "round", "seconds", "completions", "tokens"]
"""A measurement a row: seconds for loss and gradient of `tokens` completion tokens."""

WARM_UP = 3
"""Rounds before the first that counts: caches and kernels are made in them."""


def one_micro_batch(settings: RL) -> RL:
    """`settings` for a single step that draws a micro-batch of the same size, in whole groups."""
    size = settings.prompts_per_step * settings.rollouts // settings.micro_batches
    prompts = max(1, size // settings.rollouts)
    changes = {
        "steps": 1,
        "prompts_per_step": prompts,
        "micro_batches": max(1, prompts * settings.rollouts // size),
        "steps_per_generation": 1,
        "iterations": 1,
        "engine": "transformers",
    }
    return settings.model_copy(update=changes)


class Stopwatch(SageTrainer):
    """Times loss and gradient of its first micro-batch under `shapings`, and learns nothing."""

    shapings: Mapping[str, Shaping]
    rounds: int
    times: pd.DataFrame

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """In place of a step of training; its measurements are in `times`, with COLUMNS."""
        model.train()
        batch = self._prepare_inputs(inputs)
        completions, tokens = len(batch["completion_mask"]), int(batch["completion_mask"].sum())
        names, rows = list(self.shapings), []
        for turn in tqdm(range(-WARM_UP, self.rounds), desc="timing", unit="round", mininterval=5):
            first = turn % len(names)  # each goes first in its turn
            for name in [*names[first:], *names[:first]]:
                seconds = self._seconds(model, batch, self.shapings[name])
                rows.append((name, turn, seconds, completions, tokens))
        table = pd.DataFrame(rows, columns=COLUMNS)
        self.times = table[table["round"] >= 0].reset_index(drop=True)
        self.control.should_training_stop = True
        return torch.zeros((), device=self.accelerator.device)

    def _seconds(self, model: Any, batch: dict[str, Any], shaping: Shaping) -> float:
        self._shaping = shaping
        start = self._now()
        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, batch)
        self.accelerator.backward(loss)
        self._end_step()
        seconds = self._now() - start
        model.zero_grad()
        return seconds

    def _now(self) -> float:
        if self.accelerator.device.type != "cuda":
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

    Returns COLUMNS, a row per algorithm and round.
    """
    small = one_micro_batch(settings)
    first = next(iter(algorithms.values()))
    with tempfile.TemporaryDirectory() as scratch, Grader(workers=1) as grader:
        config = grpo_config(small, first, 1, device, Path(scratch))
        config.save_strategy = "no"
        asked = read_problems(problems)
        watch = build_trainer(Stopwatch, parent, asked, small, first, config, grader)
        watch.shapings = {name: shaping_of(row) for name, row in algorithms.items()}
        watch.rounds = rounds
        watch.train()
    return watch.times
