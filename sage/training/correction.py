"""What separates the sampler's probabilities from the trainer's, and a correction for it.

Both compute the same policy, but round differently: in a short dtype, in another engine. A
sampler's probabilities are behind its filters (top-k, top-p, min-p), which the trainer's are not.
The gap of a token is the difference of its log-probs, trainer's minus sampler's. With the
correction `token` each token's advantage is weighted by exp(gap), at most `cap` (truncated
importance sampling); the KL term, which is the same in expectation only if nothing is weighted,
stays as TRL computes it: unweighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from trl import GRPOTrainer

from sage.training.shaping import loss_mask
from sage.training.tally import GapTally

SAMPLED = "sampling_per_token_logps"
"""TRL's name, in a batch, of what `_generate_single_turn` gives as log-probs."""


@dataclass(frozen=True)
class Correction:
    """`token` weights each token's advantage by the ratio of probabilities, up to `cap`."""

    kind: Literal["none", "token"] = "none"
    cap: float = 3.0


class CorrectedSampling(GRPOTrainer):
    """GRPOTrainer that logs the gap between sampler and trainer, and corrects for it.

    It goes in front of the class that shapes the loss (`sage.training.anchoring`), and so weights
    the advantages that this one leaves.
    """

    _correction: Correction
    _gaps: GapTally
    _loss_inputs: dict[str, Any]

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        output = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        if SAMPLED in self._loss_inputs:
            mode = "train" if model.training else "eval"
            self._correct(self._loss_inputs, output[0], mode)
        return output

    def _correct(self, inputs: dict[str, Any], log_probs: torch.Tensor, mode: str) -> None:
        """Log the gap; with `token`, weight the advantages in `inputs`.

        `log_probs` `[B, T]` are the trainer's; where the policy has moved since the rollouts
        were drawn, TRL keeps those of that time in `inputs`.
        """
        at_that_time = inputs.get("old_per_token_logps")
        ours = (log_probs if at_that_time is None else at_that_time).detach().float()
        mask = loss_mask(inputs).bool()
        gap = ours - inputs[SAMPLED]
        moment = (mode, self.state.global_step)
        found = self._gaps.add(moment, gap, self._correction.cap, mask)
        gap = gap.masked_fill(~mask, 0.0)
        for name, value in found.items():
            self._metrics[mode][f"sampler/{name}"] = [value]
        if self._correction.kind == "none":
            return
        weights = gap.exp().clamp(max=self._correction.cap)
        if self.loss_type == "vespo":  # which knows such weights, and puts them into its own
            inputs["importance_sampling_ratio"] = weights
            return
        advantages = inputs["advantages"]
        inputs["advantages"] = weights * (
            advantages[:, None] if advantages.ndim == 1 else advantages
        )
