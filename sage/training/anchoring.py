"""The anchor that TRL's KL term measures against, at the one place where TRL hands over log-probs.

During a loss call TRL asks for the policy's log-probs and entropies. Once they are computed,
those of the reference are replaced, in a copy of the loss's inputs, by the log-probs of the anchor
q * pi_ref, with q computed from those very tensors. TRL's own KL term then measures against the
anchor, whatever the loss type, with no further forward pass. Other divergences use the same seam
(`as_k3_input`); the exact forward KL alone reads the completions once more, with policy and
reference.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from accelerate import Accelerator

from sage.method.anchors import LogProbs, shaped_anchor
from sage.method.guides import Moment, Noise, Signals, guide_log_factors
from sage.runtime.faults import Fault
from sage.training.drawing import OLD, REFERENCE, ProcessSlices
from sage.training.first_call import FirstCall
from sage.training.shaping import Estimator, Shaping, loss_mask
from sage.training.tallies import Tally

_LINEAR = 20.0  # exp(-x) is below float32's resolution of 1, so k3(-x) = x - 1 with slope 1

ADDED = _LINEAR - 1.0
"""What `as_k3_input` adds to TRL's KL term of each token."""

MEANS_OVER_COMPLETIONS = ("grpo", "sapo", "dr_grpo", "luspo")
"""TRL's losses that divide by the number of completions; the others divide by that of tokens."""

_NEAR = 1e-6  # exp(log q) need not give back the clamp to the last bit

_STEP_MEANS = ("kl", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean")
"""TRL's names of means over tokens; `kl` is the first where there is one."""

_DIFFERS = 1e-3
"""Advantages with a standard deviation below it come from equal rewards: it is rounding."""


class NegativeTerm(Fault, ValueError):
    """An estimator gave a KL term below 0, which TRL's k3 cannot stand for."""


@dataclass
class LossCall:
    """What is known within one `_compute_loss`: nothing of it outlives the call.

    `inputs` are a shallow copy of TRL's, so that what replaces them does not compound over the
    iterations of a generation. `moment` is the mode (train or eval), the optimizer step and the
    number of evaluations begun. The rest is set when TRL has the log-probs: `[B, T]` those of the
    `reference` (None without a KL term) and of the policy, entropies, and `log_factors` (log q);
    the last layer's `states` `[B, T, D]`; `reward_kl`, the sum of the tokens' KL where that is in
    the reward; whether TRL's k3 is `replaced`.
    """

    inputs: dict[str, Any]
    moment: tuple[str, int, int]
    reference: torch.Tensor | None = None
    log_probs: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    entropies: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    reference_entropies: torch.Tensor | None = None
    log_factors: torch.Tensor | None = None
    states: list[torch.Tensor] = field(default_factory=list)
    reward_kl: torch.Tensor | None = None
    replaced: bool = False

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
        """Have TRL's KL term of each token be `values` `[B, T]`, plus `ADDED`.

        Raises NegativeTerm for values so far below 0 that the term would be another.
        """
        lowest = float((values.detach() * self.mask).min())
        if lowest < -1.0:  # down to there `as_k3_input` is as exact as float32
            raise NegativeTerm(
                f"the estimator gave a KL term of {lowest:.3g} at a token, but a term must not be "
                "negative: in the loss it would be another number; square it, or take rho - log "
                "rho - 1 as k3 does"
            )
        self.inputs[REFERENCE], self.replaced = as_k3_input(self.log_probs, values), True

    def seen(self, shares: ProcessSlices) -> LogProbs:
        """What an estimator may look at."""
        return LogProbs(
            policy=self.log_probs,
            anchor=self.inputs[REFERENCE],
            old=self.old_log_probs,
            entropies=self.entropies.detach(),
            mask=self.mask,
            advantages=self.inputs["advantages"],
            everyone=shares.of_the_micro_batch if self.training else lambda rows: rows,
        )


class TokenMeans:
    """Means over all tokens with loss of a step; TRL's are over micro-batches, long or short.

    Of ratios of whole sequences (`by_sequence`) the mean is over rows.
    """

    def __init__(self, accelerator: Accelerator, by_sequence: bool) -> None:
        self._accelerator, self._by_sequence = accelerator, by_sequence
        self._tally = Tally(accelerator)

    def add(self, call: LossCall, logged: dict[str, list[float]]) -> dict[str, float]:
        """The means of the moment so far, by TRL's names after `step/`; none without a token.

        `logged` ends with TRL's means of `call`. Its KL is left there without what
        `LossCall.replace_k3` adds, and is that in the rewards if it is in these.
        """
        names = [name for name in _STEP_MEANS if logged.get(name)]
        tokens = call.mask.sum().double()
        # Where completions have one token, TRL's means are over all rows; one without loss has 0.
        weight = torch.full_like(tokens, len(call.mask)) if call.mask.shape[1] == 1 else tokens
        by_row = [self._by_sequence and name.startswith("clip_ratio") for name in names]
        ones = torch.ones_like(tokens)
        terms = [
            (ones if rows else weight) * logged[name][-1]
            for name, rows in zip(names, by_row, strict=True)
        ]
        if call.replaced:
            terms[0] = terms[0] - tokens * ADDED
            logged["kl"][-1] -= ADDED if logged["kl"][-1] else 0.0  # 0 without a token
        if call.reward_kl is not None:
            terms[0] = call.reward_kl
            sums = self._accelerator.reduce(torch.stack([terms[0], tokens]), reduction="sum")
            logged["kl"][-1] = (sums[0] / sums[1].clamp(min=1)).item()
        (count, calls, *totals), _ = self._tally.add(call.moment, [tokens, ones, *terms], [tokens])
        return {
            f"step/{name}": total / (calls if rows else count)
            for name, total, rows in zip(names, totals, by_row, strict=True)
            if rows or count
        }


class Guidance:
    """Asks a guide for q, once per micro-batch, shapes the anchor with it, and sums up q."""

    def __init__(self, shares: ProcessSlices, seed: int) -> None:
        self._shares, self._seed, self._tally = shares, seed, Tally(shares.accelerator)
        self._is_first = True

    def shape(self, call: LossCall, shaping: Shaping, total_steps: int) -> dict[str, float]:
        """Put the anchor in the reference's place; what is logged of q in this moment so far.

        The step is the trainer's own, and noise is named by seed, step and completion. Both come
        back with a checkpoint, and evaluation neither advances nor disturbs them.
        """
        guide: Any = shaping.guide
        inputs, mask, (mode, step, _) = call.inputs, call.mask, call.moment
        own = (call.log_probs.detach(), call.entropies.detach(), mask)
        signals = Signals(*own, reference_entropies=call.reference_entropies)
        if call.training and hasattr(guide, "observe"):
            guide.observe(signals, inputs[REFERENCE], inputs["advantages"])
        noise = Noise(f"{self._seed}|{mode}|{step}", inputs["rollout"].tolist())
        if shaping.schedule_per_call:  # the calls of all processes, one after the other
            accelerator, parts = self._shares.accelerator, self._shares.micro_batches
            before = self._tally.calls(call.moment) if call.training else 0
            place = accelerator.process_index // self._shares.sharing
            step = step * parts + before * min(accelerator.num_processes, parts) + place
            total_steps *= parts
        moment = Moment(step, total_steps, noise)
        asked = FirstCall(guide) if self._is_first else guide
        self._is_first = self._is_first and not mask.any()  # nothing was checked without a token
        call.log_factors = guide_log_factors(asked, signals, moment, *shaping.clamp)
        inputs[REFERENCE] = shaped_anchor(inputs[REFERENCE], call.log_factors)
        factors = call.log_factors.exp()
        return guide_log(self._tally, call.moment, factors, mask.bool(), shaping.clamp)


def guide_log(
    tally: Tally,
    moment: Hashable,
    factors: torch.Tensor,
    mask: torch.Tensor,
    clamp: tuple[float, float],
) -> dict[str, float]:
    """The log of q in `moment` so far, with `factors` where `mask`, both `[B, T]`, counted in.

    `log_q` is the mean over completions of log q(x, y), the sum over a completion's tokens (nats).
    Without a token there is nothing to log.
    """
    clamped = (factors <= clamp[0] + _NEAR) | (factors >= clamp[1] - _NEAR)
    parts = (torch.ones_like(factors), factors, factors > 1.0, clamped, factors.log())
    sums, ends = tally.add(
        moment,
        [*(part * mask for part in parts), mask.any(dim=1)],
        [
            factors.masked_fill(~mask, torch.inf).min(),
            -factors.masked_fill(~mask, -torch.inf).max(),
        ],
    )
    tokens, total, amplified, at_clamp, of_logs, completions = sums
    if tokens == 0:
        return {}
    return {
        "q_mean": total / tokens,
        "q_min": ends[0],
        "q_max": -ends[1],
        "amplified_share": amplified / tokens,
        "clamped_share": at_clamp / tokens,
        "log_q": of_logs / completions,
    }


def as_k3_input(log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Reference log-probs for which TRL's k3 is `values` plus a constant; `[B, T]`.

    k3 of a strongly negative log ratio -x is x - 1, with slope one, to float32's precision.
    So ref = log_probs - values - 20 makes TRL's term values + 19, whose gradient is that of
    `values`, in every one of its loss aggregations; the loss and `kl` are logged without the 19
    (`ADDED`). `values` must not be negative.
    """
    return log_probs.float() - values.float() - _LINEAR


def undo_offset(
    loss: torch.Tensor,
    call: LossCall,
    shares: ProcessSlices,
    args: Any,
    entropy_coef: float,
    parts: float,
) -> torch.Tensor:
    """TRL's `loss` less what the seam adds to it, as a loss of real rows and of a micro-batch.

    `args` are TRL's settings and `entropy_coef` is the weight of its entropy bonus; a loss that is
    accumulated is divided by the `parts`.
    """
    inputs, mask, kind = call.inputs, call.mask, args.loss_type
    bonus = entropy_coef * (call.entropies * mask).sum() / mask.sum().clamp(min=1)
    if call.replaced:
        ones = mean_of_one(kind, inputs, args, call.training)
        loss = loss - args.beta * ADDED * (ones / parts)
    if "real_share" in inputs and kind in MEANS_OVER_COMPLETIONS:
        # TRL's mean, but not its bonus, counts the rows that only fill up.
        loss = (loss + bonus / parts) / inputs["real_share"] - bonus / parts
    if shares.sharing > 1 and call.training:
        # TRL's means over tokens, of the whole loss or of its bonus, are this process's.
        if kind == "bnpo":
            loss = loss * shares.weight(mask.sum())
        elif entropy_coef:
            loss = loss - (shares.weight(mask.sum()) - 1.0) * bonus
    return loss


def mean_of_one(
    loss_type: str, inputs: Mapping[str, Any], args: Any, training: bool
) -> torch.Tensor:
    """What TRL's loss makes of 1 at each token: the weight of a constant in its KL term."""
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


def guide_pushes(
    estimator: Estimator, seen: LogProbs, log_factors: torch.Tensor, of_state: bool
) -> torch.Tensor:
    """What a guide in the loss adds to the weight of each token's gradient, `[B, T]`.

    That is the derivative of the estimator's value by the token's log-prob, without the guide minus
    with it. What all tokens of a state are given alike teaches nothing. A guide `of_state` gives
    them what it would where policy and reference agree, which is taken off; for other guides
    nothing is, so that theirs is an upper bound.
    """

    def weights(anchor: torch.Tensor) -> torch.Tensor:
        policy = seen.policy.detach().requires_grad_()
        with torch.enable_grad():
            values = estimator.values(replace(seen, policy=policy, anchor=anchor))
            return torch.autograd.grad(values.sum(), policy)[0]

    policy, reference = seen.policy.detach(), seen.anchor - log_factors
    pushes = weights(reference) - weights(seen.anchor)
    if of_state:
        pushes -= weights(policy) - weights(policy + log_factors)
    return pushes


class DoseTally:
    """How strongly the KL term and the guide tell completions of a group apart, as advantages do.

    Only differences within a group teach anything. The guide adds beta * log q(x, y) to the reward
    of a completion (Eq. 3), the KL term takes beta * log(pi / pi_ref) away; both are sums over its
    tokens with loss. A dose is the standard deviation of these within a group, averaged over
    groups, in units of the advantages' own: their standard deviation within a group, averaged over
    the groups whose rewards differ. They are the advantages of completions, also where a credit
    rule gives tokens others. In the loss a guide acts on single tokens: its dose there is beta
    times the root mean square of its `guide_pushes` over tokens with loss, in the same units.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._now: tuple[Hashable, int, int] = (None, -1, 0)
        self._groups, self._rows = torch.empty(0), torch.empty(0)

    def add(
        self,
        call: LossCall,
        kl_coefficient: float,
        generation: int,
        last: bool = True,
        pushes: torch.Tensor | None = None,
    ) -> dict[str, float]:
        """The log of `call` and those before it: `kl_dose`, and with a guide `guide_dose`; with its
        `pushes` also `loss_dose`.

        A group is known by its number in the pass over a `generation` of that number. Groups are
        whole, of all processes, also where several steps learn from parts of them: nothing is
        logged before the `last` micro-batch, nor without a group with different rewards. Every
        process must call it.
        """
        assert call.reference is not None
        mask, advantages = call.mask, call.inputs["advantages"]
        terms = [call.log_probs.detach() - call.reference]
        terms += [] if call.log_factors is None else [call.log_factors]
        sums = [kl_coefficient * (term.float() * mask).sum(dim=1) for term in terms]
        if pushes is not None:
            sums += [(pushes.float().square() * mask).sum(dim=1), mask.float().sum(dim=1)]
        groups = call.inputs["group"].to(mask.device) + generation * 2**32
        # Rows without a token only fill up, or are not learnt from; unscored ones are in no group.
        outside = ~mask.bool().any(dim=1)
        if "reward" in call.inputs:
            outside = outside | call.inputs["reward"].isnan().to(mask.device)
        groups = self._accelerator.gather(groups.masked_fill(outside, -1)).cpu()
        rows = self._accelerator.gather(torch.stack([advantages.float(), *sums], dim=1)).cpu()
        moment, before, width = self._now
        # A generation may take several steps, and a step several generations.
        if (moment != call.moment and before != generation) or width != len(sums):
            self._groups, self._rows = groups[:0], rows[:0]
        self._now = (call.moment, generation, len(sums))
        self._groups = torch.cat([self._groups, groups[groups >= 0]])
        self._rows = torch.cat([self._rows, rows[groups >= 0]])
        rows = self._rows.double()
        spreads = spreads_within(rows[:, : 1 + len(terms)], self._groups)
        differ = spreads[:, 0] > _DIFFERS
        if not (last and differ.any()):
            return {}
        unit = spreads[differ, 0].mean()
        doses = [*(spreads[:, 1:].mean(dim=0) / unit).tolist()]
        if pushes is not None:
            squares, tokens = rows[:, -2:].sum(dim=0)
            doses.append(float(kl_coefficient * (squares / tokens).sqrt() / unit))
        return dict(zip(("kl_dose", "guide_dose", "loss_dose"), doses, strict=False))


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
