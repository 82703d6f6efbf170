"""Numbers that are logged: sums over micro-batches and processes, entries of TRL's log, pass@k."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

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


class Evaluated:
    """Means over the problems of one evaluation, of which there are `problems` if that is known.

    TRL's are means over batches, also where the last is smaller. Processes that run out of problems
    begin again, which counts no second time.
    """

    def __init__(self, problems: int | None = None) -> None:
        self._problems, self._scores = problems, torch.empty(0)

    def means(self, scores: torch.Tensor, group: int, names: Sequence[str]) -> dict[str, float]:
        """The means so far, over completions of `step/{name}`, over problems of pass@k.

        `scores` `[R, F]` are those of all processes' completions in the next batch, by `names`;
        NaN where there is none. A completion is right where the second, the first reward, is above
        0. pass@k is for k = 1, 2, 4, … up to a `group`'s size, over problems with as many scored.
        """
        scores = scores.view(-1, group, len(names)).cpu()
        self._scores = torch.cat([self._scores.view(-1, *scores.shape[1:]), scores])
        self._scores = self._scores[: self._problems]
        first = self._scores[..., 1]
        right = (first > 0).float().masked_fill(first.isnan(), torch.nan)
        sizes = [2**power for power in range(group.bit_length())]
        averages = self._scores.flatten(0, 1).nanmean(dim=0).tolist()
        return {f"pass@{k}": pass_at_k(right, k).nanmean().item() for k in sizes} | {
            f"step/{name}": average for name, average in zip(names, averages, strict=True)
        }
