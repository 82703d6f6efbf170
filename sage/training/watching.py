"""Watches training while it runs: warns in the log, and ends a run that its settings say to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState

from sage.runtime.faults import Fault
from sage.study.watch import Sign, Watch
from sage.training.checkpoints import checkpoints
from sage.training.history import history_rows
from sage.training.processes import rank
from sage.training.signs import Finding, current

Rows = Callable[[Sequence[dict[str, Any]]], list[dict[str, Any]]]


class TrainingStopped(Fault, RuntimeError):
    """Training has gone wrong in a way that the study says to stop at."""


class Watching(TrainerCallback):
    """Looks for signs after each logged step, before a checkpoint of that step is written.

    So a checkpoint never holds the weights of a step that is not finite. `place` is the section
    of the study that has the settings, if one has; `rows` makes history rows of the trainer's log.
    """

    def __init__(
        self, watch: Watch, scratch: Path, place: str | None = "rl.watch", rows: Rows = history_rows
    ) -> None:
        self._watch, self._scratch, self._place, self._rows = watch, scratch, place, rows
        self._seen: set[Sign] = set()

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Print each new sign. Raises TrainingStopped for one of `stop`."""
        present = current(self._rows(state.log_history[-4 * self._watch.patience :]), self._watch)
        for finding in present:
            if finding.sign not in self._seen and rank() == 0:
                print(f"WARNING: {described(finding)} ({finding.sign})", flush=True)
        self._seen = {finding.sign for finding in present}
        for finding in present:
            if finding.sign in self._watch.stop:
                raise TrainingStopped(self._reason(finding))

    def _reason(self, finding: Finding) -> str:
        good = [path for step, path in checkpoints(self._scratch) if step < finding.first]
        last = (
            f"the last checkpoint before it is {good[-1]}"
            if good
            else f"there is no checkpoint from before it in {self._scratch}"
        )
        otherwise = (
            f", or take {finding.sign} out of {self._place}.stop and run again, which continues "
            "from the newest checkpoint"
        )
        return (
            f"training is stopped: {described(finding)}; {last}. Change the settings of the run"
            + (otherwise if self._place else "")
        )


def described(finding: Finding) -> str:
    """A finding in words, such as ``in steps 3 to 22 no answer is correct``."""
    one = finding.first == finding.last
    steps = f"step {finding.last}" if one else f"steps {finding.first} to {finding.last}"
    return f"in {steps} {finding.text}"
