"""Trainers that step in turn in one process, so that a busy machine slows neighbouring steps alike.

Each trainer runs in a thread of its own, but one at a time, from its first line to its last: what
is measured of a step is that step's alone. A trainer that fails stops the others, and its error is
raised.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from sage.problems.record import Problem
from sage.study import RL, Algorithm
from sage.tasks import Grader
from sage.training import rl


class Stopped(Exception):
    """Ends a trainer because another one has failed."""


class Turns:
    """Who steps when: `order` names trainers by number, a step each; `clock` is in seconds."""

    def __init__(self, order: Sequence[int], clock: Callable[[], float]) -> None:
        self.order, self.clock = deque(order), clock
        self.baton, self.errors = threading.Condition(), list[Exception]()


class Stepper(TrainerCallback):
    """The callback of one trainer; `seconds` are those of its steps."""

    def __init__(self, turns: Turns, number: int) -> None:
        self.turns, self.number, self.start = turns, number, 0.0
        self.seconds: list[float] = []

    def train(self, trainer: Any) -> None:
        """Train, or note the error for all."""
        with self.turns.baton:
            trainer.add_callback(self)
            try:
                if not self.turns.errors:
                    trainer.train()
            except Stopped:
                pass
            except Exception as error:
                self.turns.errors.append(error)
            finally:
                self.turns.baton.notify_all()

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        turns = self.turns
        turns.baton.wait_for(lambda: turns.errors or turns.order[0] == self.number)
        if turns.errors:
            raise Stopped
        self.start = turns.clock()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(self.turns.clock() - self.start)
        self.turns.order.popleft()
        self.turns.baton.notify_all()


def pairs_in_turn(
    pair: Sequence[Any], steps: int, warm_up: int, clock: Callable[[], float] | None = None
) -> list[tuple[float, float]]:
    """Seconds of two trainers' steps behind the warm-up, in the order A B B A A B B A ...

    `steps` is how many each is set to train. Without a `clock` it is that of the wall. Raises what
    one of them raises.
    """
    order = [number for turn in range(steps) for number in ((0, 1) if turn % 2 == 0 else (1, 0))]
    turns = Turns(order, clock or wall_time)
    steppers = [Stepper(turns, number) for number in (0, 1)]
    made = zip(steppers, pair, strict=True)
    threads = [threading.Thread(target=one.train, args=(trainer,)) for one, trainer in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if turns.errors:
        raise turns.errors[0]
    return list(zip(*(one.seconds[warm_up:] for one in steppers), strict=True))


def wall_time() -> float:
    """The time in seconds, when the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def still_trainer(
    kind: Any,
    parent: Path,
    problems: Sequence[Problem],
    settings: RL,
    algorithm: Algorithm,
    scratch: Path,
    grader: Grader,
    device: str = "cpu",
) -> Any:
    """A trainer of this class that learns nothing and saves nothing."""
    config = rl.grpo_config(settings, algorithm, 1, device, scratch)
    config.save_strategy, config.disable_tqdm, config.learning_rate = "no", True, 0.0
    trainer = rl.build_trainer(kind, parent, problems, settings, algorithm, config, grader)
    trainer.remove_callback(PrinterCallback)
    return trainer
