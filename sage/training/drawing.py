"""Rollouts drawn by a sampler of this project, from the policy as it is at that moment.

A `Drawer` takes the place of TRL's generation. Each completion has a random stream named by the
run's seed, the step, the draw within the step and its place in the whole generation. So what is
drawn depends neither on the size of batches nor on the number of processes, and a run that is
resumed where a generation begins draws what it would have drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sage.sampling.interface import Completion, Request
from sage.training.ends import EndedCompletions


class Drawer(Protocol):
    """Draws completions of a policy that is being trained."""

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        """A completion per request, with log-probs, from `policy` as it is now."""
        ...


MakeDrawer = Callable[["DrawnRollouts"], Drawer]
"""Makes the drawer of a trainer, when its first rollouts are drawn."""


class DrawnRollouts(EndedCompletions):
    """GRPOTrainer whose rollouts come from the drawer that `_make_drawer` makes; None: TRL's."""

    _make_drawer: MakeDrawer | None = None
    _drawer: Drawer | None = None
    _drawn: tuple[tuple[str, int], int] = (("", 0), 0)
    _wanted_rows: int | None = None
    """How many completions of all processes are wanted, where rows behind them only fill up."""

    def _first_row(self, rows: int) -> int:
        """Where this process's `rows` completions begin among those of all processes."""
        return int(self.accelerator.process_index * rows)

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if self._make_drawer is None:
            return super()._generate_single_turn(prompt_ids, *args, **kwargs)
        if self._drawer is None:
            self._drawer = self._make_drawer(self)
        model: Any = self.model
        moment = ("train" if model.training else "eval", self.state.global_step)
        draw = self._drawn[1] + 1 if self._drawn[0] == moment else 0
        self._drawn = (moment, draw)
        run = (self.args.seed, *moment, draw)
        first = self._first_row(len(prompt_ids))
        # A process that only fills up draws one all the same: drawing may be done together.
        wanted = len(prompt_ids) if self._wanted_rows is None else max(1, self._wanted_rows - first)
        requests = [
            Request(tuple(ids), rollout_stream(*run, first + row))
            for row, ids in enumerate(prompt_ids[:wanted])
        ]
        policy = self.accelerator.unwrap_model(model)
        drawn = self._drawer.draw(policy, requests)
        missing = len(prompt_ids) - len(drawn)
        return (
            [list(one.token_ids) for one in drawn] + [[self._tokenizer.pad_token_id]] * missing,
            [list(one.log_probs) for one in drawn] + [[0.0]] * missing,
        )


def rollout_stream(seed: int, mode: str, step: int, draw: int, place: int) -> str:
    """The name of a rollout's random stream; different rollouts have different names.

    Neither model nor algorithm is part of it: runs of one seed draw with the same numbers, which
    makes their comparison sharper.
    """
    return json.dumps(["rollout", seed, mode, step, draw, place])
