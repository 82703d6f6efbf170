"""A step of training whose rollouts we draw against one whose rollouts TRL generates.

Two trainers on the mini study's settings run step by step in turn. The policy is a random model in
which one token in twenty ends a completion, so that lengths vary as those of a trained one do.
Compared are tokens per second of drawing a step's completions, the time of whole steps, and the
peak memory of a process of its own.
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

from transformers import PrinterCallback

from benchmarks.paired import Comparison, compared, overhead
from benchmarks.random_policy import random_policy
from benchmarks.training import ROOT
from benchmarks.turns import pairs_in_turn
from sage.exhibits import load_study
from sage.grading import Grader
from sage.policies import save_checkpoint
from sage.problems.sets import draw_problems
from sage.training import rl
from sage.training.trainer import SageTrainer

STEPS, WARM_UP = 25, 5


class Ours(SageTrainer):
    """The trainer of the workflow; `speeds` are tokens per second of each drawing."""

    speeds: list[float]

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        drawn = super()._generate_single_turn(*args, **kwargs)
        seconds = time.perf_counter() - start
        self.speeds = [*getattr(self, "speeds", []), sum(map(len, drawn[0])) / seconds]
        return drawn


class Trls(Ours):
    """The same with TRL's generation and its padding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"make_drawer": None, "trims": False})


def comparisons(steps: int = STEPS) -> Iterator[Comparison]:
    """Tokens per second of drawing, seconds a step, and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "parent"
        save_checkpoint(*random_policy(hidden_size=96), parent)
        trainers = [_trainer(kind, parent, Path(folder), steps) for kind in (Ours, Trls)]
        times = pairs_in_turn(trainers, steps, WARM_UP)
        speeds = list(zip(*(trainer.speeds[WARM_UP:] for trainer in trainers), strict=True))
        name = "drawing a step's 64 completions, against TRL's generate"
        yield compared(name, [a / b for a, b in speeds], "at least 2.5", speeds, "tokens/s")
        name = "a step with our rollouts, against one with TRL's"
        yield compared(name, [theirs / ours for ours, theirs in times], "at least 1.5", times)
        peaks = tuple(_peak_in_own_process(kind.__name__, parent, folder) for kind in (Ours, Trls))
        yield overhead("peak memory with our rollouts over TRL's", [peaks], 1.02, "GiB")


def _trainer(kind: type[Ours], parent: Path, scratch: Path, steps: int) -> Ours:
    study = load_study("mini", ROOT / "config")
    settings = study.model("sums").rl.model_copy(update={"steps": steps})
    entry = study.study.problems[settings.problems]
    problems = draw_problems(settings.problems, entry.model_dump())
    algorithm = study.algorithms["grpo"]
    config = rl.grpo_config(settings, algorithm, 1, "cpu", scratch / kind.__name__)
    config.save_strategy, config.disable_tqdm = "no", True
    trainer = rl.build_trainer(kind, parent, problems, settings, algorithm, config, Grader())
    trainer.remove_callback(PrinterCallback)
    return trainer


def _peak_in_own_process(kind: str, parent: Path, scratch: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rollouts", kind, str(parent), scratch],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    kind, parent, scratch = sys.argv[1:]
    _trainer({"Ours": Ours, "Trls": Trls}[kind], Path(parent), Path(scratch), 8).train()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
