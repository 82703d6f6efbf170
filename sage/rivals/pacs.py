"""PACS (arXiv 2509.02522): learns which completions are right, by binary cross-entropy.

    s_i   = beta sum_t (log pi - log pi_old)
    psi_i = s_i - mean of the group's other s_j
    loss  = cross-entropy of (psi_i, r_i), both classes of a prompt weighing the same

The advantages are minus its derivative in each completion's log-probability, divided by the
probability ratio, which the loss of a policy gradient brings in. Completions without a token under
the loss (`mask_truncated`) or a reward are left out.

Its authors take 4 steps a generation. Here it is 1, at which the ratio is 1, every psi is 0 and
PACS is a class-balanced REINFORCE; set `rl: {steps_per_generation: 4}` to exercise it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from sage.fields import PositiveFloat, about
from sage.method import Tensor
from sage.method.credit import TokenSignals, equal_rows


@dataclass(frozen=True)
class Pacs:
    """Learns to tell right from wrong completions of a prompt, by cross-entropy."""

    beta: Annotated[PositiveFloat, about("weight of a completion's log ratio", unit="per nat")] = (
        1.0
    )
    whole_groups: ClassVar[bool] = True
    binary: ClassVar[str] = "learns to tell right from wrong completions"

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.clip_low is not None or algorithm.clip_high is not None:
            yield (
                "is a loss without ratios, which a clip would cut to none; write clip_low: null "
                "and clip_high: null"
            )
        if algorithm.loss != "dr_grpo":
            yield (
                f"sums over the tokens of a completion, so loss must be dr_grpo, not "
                f"{algorithm.loss}"
            )
        if algorithm.advantage.kind != "group":
            yield (
                f"takes rewards, not advantages; advantage: {algorithm.advantage} would have no "
                "effect"
            )

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`. Raises ValueError if a group is not whole."""
        log_ratios = (signals.log_probs - signals.old_log_probs) * signals.mask
        scores = self.beta * log_ratios.double().sum(dim=1)
        everyone = signals.everyone
        all_scores, rewards, groups = map(everyone, (scores, signals.rewards, signals.groups))
        together = equal_rows(groups, groups)
        if bool((together.sum(dim=1) != everyone(signals.group_sizes)).any()):
            raise ValueError("PACS needs whole groups in a micro-batch")
        scored = ~rewards.isnan()
        together *= (everyone(signals.mask.sum(dim=1) > 0) & scored)[None, :]
        sizes = together.sum(dim=1)
        rest = (sizes - 1).clamp(min=1.0)
        others = (together @ all_scores - all_scores) / rest
        right = (rewards > 0).double()
        of_class = together @ right * right + (together @ (1 - right)) * (1 - right)
        classes = 1.0 + (of_class < sizes).double()
        weight = sizes / (classes * of_class.clamp(min=1.0))
        slope = weight * ((all_scores - others).sigmoid() - right)
        pull = slope - (together @ slope - slope) / rest
        place = (signals.rows[:, None] == everyone(signals.rows)[None, :]).int().argmax(dim=1)
        own = -self.beta * (pull * scored)[place]
        return (own[:, None] / log_ratios.double().exp()).to(signals.advantages.dtype)
