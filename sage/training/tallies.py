"""Numbers that are logged: sums over micro-batches and processes, entries of TRL's log, pass@k."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from accelerate import Accelerator

from sage.method.advantages import pass_at_k


class Tally:
    """Sums and smallest values of a moment, over all processes and its micro-batches so far."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._moment: Hashable = None
        self._calls, self._sums, self._least = 0, [0.0], [float("inf")]

    def calls(self, moment: Hashable) -> int:
        """How many micro-batches of `moment` this process has counted in."""
        return self._calls if moment == self._moment else 0

    def add(
        self, moment: Hashable, terms: list[torch.Tensor], least: list[torch.Tensor]
    ) -> tuple[list[float], list[float]]:
        """The sums of all elements of each of the `terms`, and the smallest of each `least`.

        Every process must call it.
        """
        sums = torch.stack([term.sum(dtype=torch.float64) for term in terms])
        sums = self._accelerator.reduce(sums, reduction="sum").tolist()
        ends = self._accelerator.gather(torch.stack(least)[None]).amin(dim=0).tolist()
        if moment != self._moment:
            self._moment, self._calls = moment, 0
            self._sums, self._least = [0.0] * len(sums), [float("inf")] * len(ends)
        self._calls += 1
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)]
        self._least = [min(a, b) for a, b in zip(self._least, ends, strict=True)]
        return self._sums, self._least


class StepLog:
    """An entry of TRL's log for each moment; TRL logs the mean of the entries since it last did."""

    def __init__(self) -> None:
        self._moments: dict[str, Hashable] = {}

    def put(
        self, log: dict[str, list[float]], moment: Hashable, values: Mapping[str, float]
    ) -> None:
        """Have the `values` of `moment` so far, by name, be its entries in the `log`."""
        for name, value in values.items():
            entries = log.setdefault(name, [])
            if entries and self._moments.get(name) == moment:
                entries.pop()
            entries.append(value)
            self._moments[name] = moment


class Solved:
    """pass@k over the problems of one evaluation, of which there are `problems` if that is known.

    Processes that run out of problems begin again, which counts no second time.
    """

    def __init__(self, problems: int | None = None) -> None:
        self._problems, self._right = problems, torch.empty(0)

    def pass_at_k(self, correct: torch.Tensor, group: int) -> dict[str, float]:
        """The mean over the problems so far, for k = 1, 2, 4, … up to a `group`'s size.

        `correct` `[R]` has the first rewards of all processes' completions in the next batch: a
        completion is right where it is above 0, and not scored where it is NaN. Problems with fewer
        than k that are scored do not count.
        """
        correct = correct.view(-1, group).cpu()
        right = (correct > 0).float().masked_fill(correct.isnan(), torch.nan)
        self._right = torch.cat([self._right.view(-1, group), right])[: self._problems]
        sizes = [2**power for power in range(group.bit_length())]
        return {f"pass@{k}": pass_at_k(self._right, k).nanmean().item() for k in sizes}
