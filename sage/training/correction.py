"""What separates the sampler's probabilities from the trainer's, and a correction for it.

Both compute the same policy, but round differently: in a short dtype, in another engine. A
sampler's probabilities are behind its filters (top-k, top-p, min-p), which the trainer's are not.
The gap of a token is the difference of its log-probs, trainer's minus sampler's. With the
correction `token` each token's advantage is weighted by exp(gap), at most `cap` (truncated
importance sampling); the KL term, which is the same in expectation only if nothing is weighted,
stays as TRL computes it: unweighted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from accelerate import Accelerator

from sage.runtime.faults import Fault
from sage.training.anchoring import LossCall

SAMPLED = "sampling_per_token_logps"
"""TRL's name, in a batch, of what `_generate_single_turn` gives as log-probs."""


class SamplerFault(Fault, RuntimeError):
    """The sampler or the trainer gives probabilities that are no numbers."""


@dataclass(frozen=True)
class Correction:
    """`token` weights each token's advantage by the ratio of probabilities, up to `cap`."""

    kind: Literal["none", "token"] = "none"
    cap: float = 3.0


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


def correct(
    call: LossCall, correction: Correction, gaps: GapTally, loss_type: str
) -> dict[str, float]:
    """Weight the advantages in `call`, with `token`; what is logged of the gaps so far.

    Where the policy has moved since the rollouts were drawn, TRL keeps the log-probs of that time.
    """
    inputs, mask = call.inputs, call.mask.bool()
    gap = call.old_log_probs.detach().float() - inputs[SAMPLED]
    log = gaps.add(call.moment, gap, correction.cap, mask)
    if correction.kind == "none":
        return log
    weights = gap.masked_fill(~mask, 0.0).exp().clamp(max=correction.cap)
    if loss_type == "vespo":  # which knows such weights, and puts them into its own
        inputs["importance_sampling_ratio"] = weights
        return log
    advantages = inputs["advantages"]
    inputs["advantages"] = weights * (advantages[:, None] if advantages.ndim == 1 else advantages)
    return log
