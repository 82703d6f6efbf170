"""What a run would save if the seeds of a method trained in one process and drew together.

Five policies, adapters to one base, draw the completions of a step: one after the other, and in
one decode whose products are batched over the policies. Compared are processor seconds, of the
drawing and, with the steps of a real trainer of the mini study's size, of a whole step. Reading
whole completions, as the rest of a step does, is compared as well.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from transformers import PrinterCallback, TrainerCallback

from benchmarks.paired import Comparison, compared
from benchmarks.random_policy import random_policy
from benchmarks.training import ROOT
from sage.exhibits import load_study
from sage.grading import Grader
from sage.policies import load_model, save_checkpoint
from sage.problems.sets import draw_problems
from sage.prompting import prompt_ids
from sage.sampling.decoders import Decoding, Prompts, padded
from sage.sampling.fused import FusedDecoder
from sage.sampling.fused_rows import FusedRows
from sage.sampling.interface import Completion, Request
from sage.sampling.stops import end_ids
from sage.sampling.transformers_engine import TransformersSampler
from sage.training import rl
from sage.training.trainer import SageTrainer

SEEDS, STEPS, WARM_UP, ROUNDS = 5, 12, 3, 10
PRODUCTS = ("qkv", "out", "gate_up", "down")


class StackedDecoder(FusedDecoder):
    """Policies that differ in their layers' products alone, as adapters to one base do.

    The i-th equal part of the rows belongs to the i-th policy; each has as many different prompts.
    """

    def __init__(self, decoders: Sequence[FusedDecoder]) -> None:
        self.__dict__.update(decoders[0].__dict__)
        self._policies, self._layers = len(decoders), []
        for layers in zip(*(decoder._layers for decoder in decoders), strict=True):
            joined = copy.copy(layers[0])
            for name in PRODUCTS:
                weights = torch.stack([getattr(layer, name) for layer in layers])
                setattr(joined, name, weights.transpose(1, 2).contiguous())
            self._layers.append(joined)

    def _product(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        rows = x.reshape(self._policies, -1, x.shape[-1])
        y = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias, rows, weight)
        return y.view(*x.shape[:-1], -1)

    def start(self, prompts: Prompts, room: int, rows: int) -> tuple[Decoding, torch.Tensor]:
        decoding = FusedRows(self, room, rows * self._policies)
        logits = decoding.read(*padded(prompts, self.device))
        return _EqualRows(decoding, self._policies, len(prompts) // self._policies), logits


class _EqualRows:
    """As many rows of each policy: of one with fewer, a row of its own is taken more than once."""

    def __init__(self, rows: FusedRows, policies: int, size: int) -> None:
        self._rows, self._policies, self._size = rows, policies, size
        self._places = torch.arange(policies * size)  # of the rows that are wanted

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        filled = tokens.new_zeros(self._policies * self._size)
        filled[self._places] = tokens
        return self._rows.step(filled)[self._places]

    def keep(self, rows: torch.Tensor) -> None:
        wanted = self._places[rows]
        policy = F.one_hot(wanted // self._size, self._policies)
        size = int(policy.sum(dim=0).max())
        rank = (policy.cumsum(dim=0) * policy).sum(dim=1) - 1
        places = wanted // self._size * size + rank
        kept = (torch.arange(self._policies) * self._size).repeat_interleave(size)
        kept[places] = wanted
        self._rows.keep(kept)
        self._places, self._size = places, size


class Steps(TrainerCallback):
    """Processor seconds of each step of the training process."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._start = time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(time.process_time() - self._start)


def comparisons() -> Iterator[Comparison]:
    """Drawing, a whole step, and reading; raises RuntimeError if other tokens are drawn."""
    study = load_study("mini", ROOT / "config")
    settings = study.model("sums").rl.model_copy(update={"steps": STEPS})
    entry = study.study.problems[settings.problems]
    problems = draw_problems(settings.problems, entry.model_dump())
    algorithm = study.algorithms["grpo"]
    grader = Grader()
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "parent"
        model, tokenizer = random_policy(hidden_size=64)
        save_checkpoint(model, tokenizer, parent)
        config = rl.grpo_config(settings, algorithm, 1, "cpu", Path(folder) / "run")
        config.save_strategy, config.disable_tqdm = "no", True
        trainer = rl.build_trainer(
            SageTrainer, parent, problems, settings, algorithm, config, grader
        )
        steps = Steps()
        trainer.add_callback(steps)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        decoders = [_policy(parent, seed) for seed in range(SEEDS)]
        ends = end_ids(model.generation_config, tokenizer)
        size, sampling = settings.prompts_per_step * settings.rollouts, settings.sampling

        def sampler(decoder: FusedDecoder) -> Callable[[list[Request]], list[Completion]]:
            drawing = TransformersSampler(decoder, tokenizer, ends, SEEDS * size, progress=False)
            return lambda requests: drawing._batch(requests, sampling, log_probs=True)

        alone, joint = [sampler(one) for one in decoders], sampler(StackedDecoder(decoders))

        def apart(asked: list[list[Request]]) -> list[Completion]:
            return [one for draw, own in zip(alone, asked, strict=True) for one in draw(own)]

        def together(asked: list[list[Request]]) -> list[Completion]:
            return joint([request for own in asked for request in own])

        prompts = [tuple(prompt_ids(tokenizer, problem.problem)) for problem in problems]
        times = []
        for turn in range(ROUNDS):
            asked = [
                [
                    Request(prompts[8 * (SEEDS * turn + seed) + i // 8], f"{turn}|{seed}|{i}")
                    for i in range(size)
                ]
                for seed in range(SEEDS)
            ]
            one, drawn = _processor(apart, asked)
            other, again = _processor(together, asked)
            if [c.token_ids for c in drawn] != [c.token_ids for c in again]:
                raise RuntimeError("policies that draw together draw other tokens than alone")
            times.append((one / SEEDS, other / SEEDS))
        times = times[1:]
        name = f"drawing for {SEEDS} seeds in one decode, against one after the other (processor)"
        yield compared(name, [a / b for a, b in times], "at least 1", [t[::-1] for t in times])
        step = statistics.median(steps.seconds[WARM_UP:])
        saved = [(step - a + b, step) for a, b in times]
        name = f"a step of a run that draws with {SEEDS - 1} others, over one alone (processor)"
        yield compared(name, [a / b for a, b in saved], "at most 1", saved)
        yield _reading(model, size, sampling.max_tokens)


def _policy(parent: Path, seed: int) -> FusedDecoder:
    """The base with a change of its own in every product."""
    decoder = FusedDecoder(load_model(parent))
    torch.manual_seed(seed)
    for layer in decoder._layers:
        for name in PRODUCTS:
            getattr(layer, name).add_(0.002 * torch.randn_like(getattr(layer, name)))
    return decoder


def _processor(
    draw: Callable[[list[list[Request]]], list[Completion]], asked: list[list[Request]]
) -> tuple[float, list[Completion]]:
    start = time.process_time()
    drawn = draw(asked)
    return time.process_time() - start, drawn


@torch.no_grad()
def _reading(model: Any, size: int, tokens: int) -> Comparison:
    """Logits of all completions, as the reference pass computes them."""
    ids = torch.randint(3, model.config.vocab_size, (SEEDS * size, tokens))
    times = []
    for _ in range(4):
        start = time.process_time()
        for part in ids.split(size):
            model(input_ids=part)
        middle = time.process_time()
        model(input_ids=ids)
        times.append(((time.process_time() - middle) / SEEDS, (middle - start) / SEEDS))
    name = f"reading the completions of {SEEDS} seeds at once, against one after the other"
    return compared(name, [b / a for a, b in times[1:]], "at most 1.25", times[1:])
