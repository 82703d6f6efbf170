"""The overhead of a guide, and what drawing rollouts ourselves saves: trainers that step in turn.

The first pair is a step of grpo_branch beside a step of grpo, time and memory. The second is a step
whose rollouts we draw beside one whose rollouts TRL generates, with a random model in which one
token in twenty ends a completion, so that lengths vary as those of a trained one do. All trainers
run for real, one step each in turn, with a learning rate of 0: so a policy stays what it is, and
the first pair draws the same completions. It is tiny on a CPU and has about 80 M parameters on a
GPU. Memory is the peak of a separate process; on a GPU, the peak of its tensors.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.paired import Comparison, compared, overhead
from benchmarks.sampling import random_policy
from benchmarks.turns import pairs_in_turn, still_trainer
from sage.exhibits import load_study
from sage.policies import build_tiny, save_checkpoint, train_tokenizer
from sage.tasks import Grader, draw_problems
from sage.training.pretrain import draw_documents
from sage.training.trainer import SageTrainer

ROOT = Path(__file__).resolve().parents[1]
STEPS, WARM_UP = 40, 5
ON_A_GPU = {"hidden_size": 768, "intermediate_size": 2304, "layers": 12, "heads": 12}
LIMITS = {"cpu": (1.03, 1.02), "cuda": (1.02, 1.02)}


class Timed(SageTrainer):
    """The trainer of the workflow; `speeds` are tokens per second of each drawing."""

    speeds: list[float]

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        drawn = super()._generate_single_turn(*args, **kwargs)
        seconds = time.perf_counter() - start
        self.speeds = [*getattr(self, "speeds", []), sum(map(len, drawn[0])) / seconds]
        return drawn


class OfTrl(Timed):
    """The same with TRL's generation and its padding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"make_drawer": None, "trims": False})


KINDS = {kind.__name__: kind for kind in (Timed, OfTrl)}


def comparisons() -> Iterator[Comparison]:
    """The overhead of a guide in time and memory, then what our rollouts save."""
    yield from of_a_guide("cpu", STEPS)
    yield from of_rollouts(STEPS)


def of_a_guide(device: str, steps: int) -> Iterator[Comparison]:
    """Seconds of a step and peak memory of a run, beside those of plain GRPO."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_parent(folder / "parent", ON_A_GPU if device == "cuda" else {})
        pair = [
            ("Timed", row, folder / "parent", folder, device) for row in ("grpo_branch", "grpo")
        ]
        times = pairs_in_turn([_trainer(*one, steps) for one in pair], steps, WARM_UP)
        yield overhead("a step of grpo_branch over one of grpo", times, LIMITS[device][0])
        peaks = _peaks(pair)
        yield overhead("peak memory of grpo_branch over grpo", [peaks], LIMITS[device][1], "GiB")


def of_rollouts(steps: int) -> Iterator[Comparison]:
    """Tokens per second of drawing, seconds a step, and peak memory, beside TRL's generation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(*random_policy(hidden_size=96), folder / "parent")
        pair = [(kind, "grpo", folder / "parent", folder / kind, "cpu") for kind in KINDS]
        trainers = [_trainer(*one, steps) for one in pair]
        times = pairs_in_turn(trainers, steps, WARM_UP)
        speeds = list(zip(*(trainer.speeds[WARM_UP:] for trainer in trainers), strict=True))
        what = "drawing a step's 64 completions, against TRL's generate"
        yield compared(what, [a / b for a, b in speeds], "at least 2.5", speeds, "tokens/s")
        what = "a step with our rollouts, against one with TRL's"
        yield compared(what, [theirs / ours for ours, theirs in times], "at least 1.5", times)
        yield overhead("peak memory with our rollouts over TRL's", [_peaks(pair)], 1.02, "GiB")


def write_parent(folder: Path, changes: dict[str, int]) -> None:
    """A random model of the mini study's, with `changes` to its sizes, and its tokenizer."""
    base = load_study("mini", ROOT / "config").model("sums").base
    settings = base.pretraining.model_copy(update={"documents": 2_000})
    texts = [problem + solution for problem, solution in draw_documents(base.corpus, settings)]
    tokenizer = train_tokenizer(texts, base.architecture.vocab_size)
    architecture = base.architecture.model_copy(update=changes)
    save_checkpoint(build_tiny(architecture, tokenizer, 0), tokenizer, folder)


def _trainer(kind: str, row: str, parent: Path, scratch: Path, device: str, steps: int) -> Timed:
    """A still trainer with the mini study's settings."""
    study = load_study("mini", ROOT / "config")
    settings = study.rl("sums").model_copy(update={"steps": steps})
    drawn = study.study.problems[settings.problems].model_dump()
    problems, method = draw_problems(settings.problems, drawn), study.algorithms[row]
    each = KINDS[kind], parent, problems, settings, method, scratch / row, Grader(), device
    trainer: Timed = still_trainer(*each)
    return trainer


def _peaks(pair: list[tuple[str, str, Path, Path, str]]) -> tuple[float, ...]:
    """The peak memory of both, each in a process of its own, in GiB."""
    peaks = []
    for one in pair:
        command = [sys.executable, "-m", "benchmarks.training", *map(str, one)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks.append(float(done.stdout.splitlines()[-1]))
    return tuple(peaks)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    kind, row, parent, scratch, device = sys.argv[1:]
    _trainer(kind, row, Path(parent), Path(scratch), device, 8).train()
    if device == "cuda":
        print(torch.cuda.max_memory_allocated() / 2**30)
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
