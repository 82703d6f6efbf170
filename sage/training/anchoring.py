"""The anchor that TRL's KL term measures against, at the one place where TRL hands over log-probs.

During a loss call TRL asks for the policy's log-probs and entropies. Once they are computed,
those of the reference are replaced, in a copy of the loss's inputs, by the log-probs of the anchor
q * pi_ref, with q computed from those very tensors. TRL's own KL term then measures against the
anchor, whatever the loss type, with no further forward pass. Other divergences use the same seam
(`as_k3_input`); the exact forward KL alone reads the completions once more, with policy and
reference.

The tallies say what is logged of it: how large q is, and how much of a group's advantages it makes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator

from sage.method.anchors import LogProbs, shaped_anchor
from sage.method.guides import Moment, Noise, Signals, guide_log_factors
from sage.training.drawing import OLD, Shares
from sage.training.shaping import Divergence, Shaping, loss_mask

REFERENCE = "ref_per_token_logps"
"""TRL's name, in a batch, of the reference's log-probs."""

# Where exp(-x) is below float32's resolution of 1, so that k3(-x) = x - 1 with slope 1.
_LINEAR = 20.0

ADDED = _LINEAR - 1.0
"""What `as_k3_input` adds to TRL's KL term of each token."""

_NEAR = 1e-6  # exp(log q) need not give back the clamp to the last bit

_DIFFERS = 1e-3
"""Advantages with a standard deviation below it come from equal rewards: it is rounding."""


@dataclass
class LossCall:
    """What is known within one `_compute_loss`: nothing of it outlives the call.

    `inputs` are a shallow copy of TRL's, so that what replaces them does not compound over the
    iterations of a generation. `moment` is the mode (train or eval) and the optimizer step. What
    follows is set when TRL has the log-probs: `[B, T]` those of the `reference`, which is None
    without a KL term, `log_probs` of the policy, `entropies`, `reference_entropies` if a guide
    asks for them, and `log_factors` (log q); the last layer's `states` `[B, T, D]` if a credit rule
    does; and `reward_kl`, sum and number of the tokens' KL where that is in the reward.
    """

    inputs: dict[str, Any]
    moment: tuple[str, int]
    reference: torch.Tensor | None = None
    log_probs: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    entropies: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    reference_entropies: torch.Tensor | None = None
    log_factors: torch.Tensor | None = None
    states: list[torch.Tensor] = field(default_factory=list)
    reward_kl: torch.Tensor | None = None

    @property
    def training(self) -> bool:
        """Whether the policy learns from it."""
        return self.moment[0] == "train"

    @property
    def mask(self) -> torch.Tensor:
        """1 on tokens with loss, `[B, T]`."""
        return loss_mask(self.inputs)

    @property
    def old_log_probs(self) -> torch.Tensor:
        """Log-probs of the policy that drew, `[B, T]`; TRL leaves them out while it is this one."""
        old = self.inputs.get(OLD)
        return self.log_probs.detach() if old is None else old

    def take(self, log_probs: torch.Tensor, entropies: torch.Tensor) -> None:
        """Take what TRL has read; old log-probs that are NaN are those of the policy as it is."""
        self.log_probs, self.entropies = log_probs, entropies
        self.reference = self.inputs.get(REFERENCE)
        if (old := self.inputs.get(OLD)) is not None:
            self.inputs[OLD] = torch.where(old.isnan(), log_probs.detach().to(old.dtype), old)

    def replace_k3(self, values: torch.Tensor) -> None:
        """Have TRL's KL term of each token be `values` `[B, T]`, plus `ADDED`."""
        self.inputs[REFERENCE] = as_k3_input(self.log_probs, values)

    def diverge(self, divergence: Divergence, shares: Shares) -> None:
        """Have TRL's KL term be `divergence` at the drawn tokens, plus `ADDED`."""
        seen = LogProbs(
            policy=self.log_probs,
            anchor=self.inputs[REFERENCE],
            old=self.old_log_probs,
            entropies=self.entropies.detach(),
            mask=self.mask,
            advantages=self.inputs["advantages"],
            everyone=shares.of_the_micro_batch if self.training else lambda rows: rows,
        )
        self.replace_k3(divergence(seen))


class Guidance:
    """Asks a guide for q, once per micro-batch, shapes the anchor with it, and sums up q.

    `seed` is the run's.
    """

    def __init__(self, shares: Shares, clamp: tuple[float, float], seed: int) -> None:
        self._shares, self._seed = shares, seed
        self._tally = GuideTally(shares.accelerator, clamp)

    def shape(self, call: LossCall, shaping: Shaping, total_steps: int) -> dict[str, float]:
        """Put the anchor in the reference's place; what is logged of q in this moment so far."""
        guide: Any = shaping.guide
        inputs, mask = call.inputs, call.mask
        own = (call.log_probs.detach(), call.entropies.detach(), mask)
        signals = Signals(*own, reference_entropies=call.reference_entropies)
        if call.training and hasattr(guide, "observe"):
            guide.observe(signals, inputs[REFERENCE], inputs["advantages"])
        moment = self._moment(call, shaping.schedule_per_call, total_steps)
        call.log_factors = guide_log_factors(guide, signals, moment, *shaping.clamp)
        inputs[REFERENCE] = shaped_anchor(inputs[REFERENCE], call.log_factors)
        return self._tally.add(call.moment, call.log_factors.exp(), mask.bool())

    def _moment(self, call: LossCall, per_call: bool, total_steps: int) -> Moment:
        """The step, from the trainer's own state, and noise named by seed, step and completion.

        Both come back with a checkpoint, and evaluation neither advances nor disturbs them.
        """
        mode, step = call.moment
        noise = Noise(f"{self._seed}|{mode}|{step}", call.inputs["rollout"].tolist())
        if per_call:  # the calls of all processes, one after the other
            accelerator, parts = self._shares.accelerator, self._shares.micro_batches
            before = self._tally.calls(call.moment) if call.training else 0
            place = accelerator.process_index // self._shares.sharing
            step = step * parts + before * min(accelerator.num_processes, parts) + place
        return Moment(step, total_steps, noise)


def as_k3_input(log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Reference log-probs for which TRL's k3 is `values` plus a constant; `[B, T]`.

    k3 of a strongly negative log ratio -x is x - 1, with slope one, to float32's precision.
    So ref = log_probs - values - 20 makes TRL's term values + 19, whose gradient is that of
    `values`, in every one of its loss aggregations; the loss and `kl` are logged without the 19
    (`ADDED`). `values` must not be negative.
    """
    return log_probs.float() - values.float() - _LINEAR


def mean_of_one(loss_type: str, inputs: dict[str, Any], args: Any, training: bool) -> torch.Tensor:
    """What TRL's loss makes of 1 at each token: the weight of a constant in its KL term.

    `args` are TRL's settings; a loss that is accumulated is divided once more by the parts.
    """
    mask = loss_mask(inputs).float()
    lengths = mask.sum(dim=1)
    if loss_type in ("cispo", "dapo", "vespo"):
        tokens = inputs["num_items_in_batch"].clamp(min=1.0) / args.world_size
        return lengths.sum() / (tokens / args.steps_per_generation if training else tokens)
    return {
        "bnpo": (lengths.sum() > 0).float(),
        "dr_grpo": lengths.sum() / (len(mask) * args.max_completion_length),
        "luspo": lengths.mean(),
    }.get(loss_type, (lengths > 0).float().mean())


class GuideTally:
    """Sums over all processes and over all micro-batches of the same moment."""

    def __init__(self, accelerator: Accelerator, clamp: tuple[float, float]) -> None:
        self._accelerator = accelerator
        self._clamp = clamp
        self._moment: Hashable = None
        self._calls = 0
        self._sums = [0.0] * 6
        self._ends = [float("inf")] * 2

    def calls(self, moment: Hashable) -> int:
        """How many micro-batches of `moment` this process has counted in."""
        return self._calls if moment == self._moment else 0

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
            self._calls = 0
        self._calls += 1
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


class DoseTally:
    """How strongly the KL term and the guide tell completions of a group apart, as advantages do.

    Only differences within a group teach anything. The guide adds beta * log q(x, y) to the reward
    of a completion (Eq. 3), the KL term takes beta * log(pi / pi_ref) away; both are sums over its
    tokens with loss. A dose is the standard deviation of these within a group, averaged over
    groups, in units of the advantages' own: their standard deviation within a group, averaged over
    the groups whose rewards differ.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._moment: Hashable = None
        self._groups, self._rows = torch.empty(0), torch.empty(0)

    def add(self, call: LossCall, kl_coefficient: float, generation: int) -> dict[str, float]:
        """The log of the moment of `call` so far: `kl_dose`, and with a guide `guide_dose`.

        A group is known by its number in the `generation` of that number; what is compared are its
        completions that the optimizer step learns from, of all processes. Every process must call
        it. Nothing is logged until a group with different rewards is among them.
        """
        assert call.reference is not None
        mask, advantages = call.mask, call.inputs["advantages"]
        terms = [call.log_probs.detach() - call.reference]
        terms += [] if call.log_factors is None else [call.log_factors]
        sums = [kl_coefficient * (term.float() * mask).sum(dim=1) for term in terms]
        groups = call.inputs["group"].to(mask.device) + generation * 2**32
        # Rows without a token only fill up, or are not learnt from.
        groups = self._accelerator.gather(groups.masked_fill(~mask.bool().any(dim=1), -1)).cpu()
        rows = self._accelerator.gather(torch.stack([advantages.float(), *sums], dim=1)).cpu()
        if (call.moment, len(terms)) != self._moment:  # a stopwatch changes methods within a step
            self._moment = (call.moment, len(terms))
            self._groups, self._rows = groups[:0], rows[:0]
        self._groups = torch.cat([self._groups, groups[groups >= 0]])
        self._rows = torch.cat([self._rows, rows[groups >= 0]])
        spreads = spreads_within(self._rows.double(), self._groups)
        differ = spreads[:, 0] > _DIFFERS
        if not differ.any():
            return {}
        doses = spreads[:, 1:].mean(dim=0) / spreads[differ, 0].mean()
        return dict(zip(("kl_dose", "guide_dose"), doses.tolist(), strict=False))


def spreads_within(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Standard deviations of `values` `[N, K]` within each group, `[M, K]`.

    `groups` `[N]` names the group of each row. They are roots of unbiased variances, as TRL's of
    rewards; a group of one row has none and is left out.
    """
    _, places, counts = groups.unique(return_inverse=True, return_counts=True)
    sizes = counts[:, None].to(values)
    sums = values.new_zeros(len(counts), values.shape[1])
    off = values - (sums.index_add(0, places, values) / sizes)[places]
    several = counts > 1
    return (sums.index_add(0, places, off.square())[several] / (sizes[several] - 1)).sqrt()
