"""What a run logs of the tokens of a step, whatever parts it is run in: q, and sampler's gaps."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from accelerate import Accelerator

from sage.runtime.faults import Fault


class SamplerFault(Fault, RuntimeError):
    """The sampler or the trainer gives probabilities that are no numbers."""


_NEAR = 1e-6  # exp(log q) need not give back the clamp to the last bit


class GuideTally:
    """Sums over all processes and over all micro-batches of the same moment."""

    def __init__(self, accelerator: Accelerator, clamp: tuple[float, float]) -> None:
        self._accelerator = accelerator
        self._clamp = clamp
        self._moment: Hashable = None
        self._sums = [0.0] * 6
        self._ends = [float("inf")] * 2

    def add(self, moment: Hashable, factors: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
        """The log of `moment` so far, with `factors` where `mask`, both `[B, T]`, counted in.

        `log_q` is the mean over completions of log q(x, y), the sum over a completion's tokens
        (nats). Every process must call it. Without a token there is nothing to log.
        """
        lowest, highest = self._clamp
        clamped = (factors <= lowest + _NEAR) | (factors >= highest - _NEAR)
        parts = (torch.ones_like(factors), factors, factors > 1.0, clamped, factors.log())
        of_tokens = [(part * mask).sum(dtype=torch.float64) for part in parts]
        sums = torch.stack([*of_tokens, mask.any(dim=1).sum(dtype=torch.float64)])
        least = factors.masked_fill(~mask, torch.inf).min()
        most = factors.masked_fill(~mask, -torch.inf).max()
        sums = self._accelerator.reduce(sums, reduction="sum")
        ends = self._accelerator.gather(torch.stack([least, -most])[None]).amin(dim=0)
        if moment != self._moment:
            self._moment, self._sums, self._ends = moment, [0.0] * 6, [float("inf")] * 2
        self._sums = [a + b for a, b in zip(self._sums, sums.tolist(), strict=True)]
        self._ends = [min(a, b) for a, b in zip(self._ends, ends.tolist(), strict=True)]
        tokens, total, amplified, at_clamp, of_logs, completions = self._sums
        if tokens == 0:
            return {}
        return {
            "q_mean": total / tokens,
            "q_min": self._ends[0],
            "q_max": -self._ends[1],
            "amplified_share": amplified / tokens,
            "clamped_share": at_clamp / tokens,
            "log_q": of_logs / completions,
        }


class GapTally:
    """Gaps between sampler and trainer, over all processes and micro-batches of a moment."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._moment: Hashable = None
        self._sums = torch.zeros(3, dtype=torch.float64)
        self._largest = 0.0

    def add(
        self, moment: Hashable, gaps: torch.Tensor, cap: float, mask: torch.Tensor
    ) -> dict[str, float]:
        """The log of `moment` so far, with `gaps` (nats) where `mask`, both `[B, T]`, counted in.

        `clipped_share` is that of tokens with exp(gap) above `cap`. Every process must call it.
        Without a token there is nothing to log. Raises SamplerFault, in every process, where a
        token in `mask` has a gap that is not a number.
        """
        of_process = (gaps.isnan() & mask).sum(dtype=torch.float64)
        unknown = int(self._accelerator.reduce(of_process, reduction="sum"))
        if unknown:
            raise SamplerFault(
                f"{unknown} sampled tokens have a log-probability that is not a number, of the "
                "sampler or of the policy that is trained; what was learnt from such tokens would "
                "be noise, so the run ends. Look for the first step whose loss is not finite; if "
                "there is none, the sampler is at fault: try it with precision float32"
            )
        gaps = gaps.masked_fill(~mask, 0.0)
        parts = (torch.ones_like(gaps), gaps.abs(), (gaps.exp() > cap).to(gaps))
        sums = torch.stack([(part * mask).sum(dtype=torch.float64) for part in parts])
        largest = self._accelerator.gather((gaps.abs() * mask).max()[None]).max().item()
        if moment != self._moment:
            self._moment, self._sums, self._largest = moment, torch.zeros_like(self._sums), 0.0
        self._sums = self._sums + self._accelerator.reduce(sums, reduction="sum").cpu()
        self._largest = max(self._largest, largest)
        tokens, total, clipped = self._sums.tolist()
        if tokens == 0:
            return {}
        return {
            "gap_mean": total / tokens,
            "gap_max": self._largest,
            "clipped_share": clipped / tokens,
        }
