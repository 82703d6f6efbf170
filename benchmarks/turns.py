"""Trainers that step in turn in one process, so that a busy machine slows neighbouring steps alike.

Each trainer runs in a thread of its own, but one at a time, from its first line to its last: what
is measured of a step is that step's alone. A trainer that fails stops the others, and its error is
raised.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import TrainerCallback


class Stopped(Exception):
    """Ends a trainer because another one has failed."""


class Turns:
    """Who steps when: `order` names trainers by their number, a step each.

    `clock` tells the time in seconds; `seconds` has those of each trainer's steps.
    """

    def __init__(self, order: Sequence[int], clock: Callable[[], float]) -> None:
        self._order, self._clock, self._at = order, clock, 0
        self._baton = threading.Condition()
        self._error: Exception | None = None
        self.seconds: list[list[float]] = [[] for _ in set(order)]

    def run(self, trainers: Sequence[Any]) -> None:
        """Train all; raises what one of them raises."""
        threads = []
        for number, trainer in enumerate(trainers):
            trainer.add_callback(_Turn(self, number))
            threads.append(threading.Thread(target=self._train, args=(trainer,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _train(self, trainer: Any) -> None:
        with self._baton:
            try:
                if self._error is None:
                    trainer.train()
            except Stopped:
                pass
            except Exception as error:
                self._error = error
            finally:
                self._baton.notify_all()

    def wait(self, number: int) -> float:
        """Lets others run until it is this trainer's turn; returns the time."""
        self._baton.wait_for(lambda: self._error or self._order[self._at] == number)
        if self._error is not None:
            raise Stopped
        return self._clock()

    def end(self, number: int, start: float) -> None:
        """Notes the seconds of a step, and gives the next trainer its turn."""
        self.seconds[number].append(self._clock() - start)
        self._at += 1
        self._baton.notify_all()


class _Turn(TrainerCallback):
    """The callback of one trainer."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns, self._number, self._start = turns, number, 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self._start = self._turns.wait(self._number)

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self._turns.end(self._number, self._start)


def pairs_in_turn(
    pair: Sequence[Any], steps: int, warm_up: int, clock: Callable[[], float] | None = None
) -> list[tuple[float, float]]:
    """Seconds of two trainers' steps behind the warm-up, in the order A B B A A B B A ...

    `steps` is how many each is set to train. Without a `clock` it is that of the wall.
    """
    order = [number for turn in range(steps) for number in ((0, 1) if turn % 2 == 0 else (1, 0))]
    turns = Turns(order, clock or wall_time)
    turns.run(pair)
    return list(zip(*(seconds[warm_up:] for seconds in turns.seconds), strict=True))


def wall_time() -> float:
    """The time in seconds, when the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
