"""What a step of each rival costs over one of GRPO: whole steps, rollouts and all, in turn.

Two trainers on the mini study's settings step in turn in one process. Their learning rate is 0, so
both draw the same completions of a random model; each completion ends in an answer, which RLPR
reads. Counted is processor time, which other programs on the machine disturb least. GRPO here has a
KL term, whose reference costs a forward pass; rows without one save it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback

from benchmarks.paired import Comparison, overhead
from benchmarks.random_policy import random_policy
from benchmarks.training import ROOT
from sage.exhibits import load_study
from sage.grading import Grader
from sage.policies import save_checkpoint
from sage.problems.sets import draw_problems
from sage.prompting import completion
from sage.training import rl
from sage.training.answers import plain_ids
from sage.training.trainer import SageTrainer

STEPS, WARM_UP = 12, 2
ROWS = ("grpo_learned", "verl_rank", "verl_rank_branch", "rlpr", "rlpr_branch")
LIMIT = 2.0


class Answering(SageTrainer):
    """Its completions end in an answer, as those of a trained policy do."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        ids, log_probs = super()._generate_single_turn(*args, **kwargs)
        end = plain_ids(self._tokenizer, completion("", "7"))
        return [[*row[: -len(end)], *end][-len(row) :] for row in ids], log_probs


class Turns(TrainerCallback):
    """Lets trainers step in turn, and takes the processor time of the steps."""

    def __init__(self, turn: threading.Semaphore, other: threading.Semaphore) -> None:
        self._turn, self._other, self._start = turn, other, 0.0
        self.seconds: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._turn.acquire()
        self._start = time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(time.process_time() - self._start)
        self._other.release()


def comparisons(rows: tuple[str, ...] = ROWS, steps: int = STEPS) -> Iterator[Comparison]:
    """Seconds per step of each row over grpo's."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "parent"
        save_checkpoint(*random_policy(hidden_size=64), parent)
        for row in rows:
            times = _step_times((row, "grpo"), parent, Path(folder), steps)
            yield overhead(f"a step of {row} over one of grpo", times, LIMIT)


def _step_times(
    rows: tuple[str, str], parent: Path, scratch: Path, steps: int
) -> list[tuple[float, ...]]:
    """Seconds of each step after the warm-up, for both rows."""
    turns = threading.Semaphore(1), threading.Semaphore(0)
    watches = Turns(turns[0], turns[1]), Turns(turns[1], turns[0])
    threads = []
    for row, watch in zip(rows, watches, strict=True):
        trainer = _trainer(row, parent, scratch / row, steps)
        trainer.add_callback(watch)
        threads.append(threading.Thread(target=trainer.train))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(zip(*(watch.seconds[WARM_UP:] for watch in watches), strict=True))


def _trainer(row: str, parent: Path, scratch: Path, steps: int) -> SageTrainer:
    study = load_study("methods", ROOT / "config")
    settings = study.model("tiny").rl.model_copy(update={"steps": steps})
    problems = draw_problems(
        settings.problems, study.study.problems[settings.problems].model_dump()
    )
    algorithm = study.algorithms[row]
    config = rl.grpo_config(settings, algorithm, 1, "cpu", scratch)
    config.save_strategy, config.disable_tqdm, config.learning_rate = "no", True, 0.0
    trainer = rl.build_trainer(Answering, parent, problems, settings, algorithm, config, Grader())
    trainer.remove_callback(PrinterCallback)
    return trainer


if __name__ == "__main__":
    for comparison in comparisons(tuple(sys.argv[1:]) or ROWS):
        print(comparison.record(), flush=True)
