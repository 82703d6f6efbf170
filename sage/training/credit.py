"""Advantages of single tokens, set where the anchor is shaped: at the log-probs of the loss.

TRL reads the advantages after it has asked for log-probs, and takes `[B, T]`. A rule's advantages
are put into the copy of the loss's inputs, so that the buffered ones stay as they are and each
iteration over a generation starts from them. TRL shuffles the completions of a generation before it
cuts them into micro-batches; a rule compares completions of one prompt, so they are put back in
order.

What separates the sampler's probabilities from the trainer's is corrected here as well. Both
compute the same policy, but round differently: in a short dtype, in another engine. Neither
counts its filters (top-k, top-p, min-p): a sampler gives the log-probs of before they take tokens
away. The gap of a token is the difference of its log-probs, trainer's minus sampler's. A token for
which the sampler knows none has no gap and the weight 1, as in TRL. With the correction `token`
each token's advantage is weighted by exp(gap), at most `cap` (truncated importance sampling); the
KL term, which is the same in expectation only if nothing is weighted, stays as TRL computes it:
unweighted.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sage.method.anchors import k3
from sage.method.credit import CreditRule, TokenSignals
from sage.method.planners import Planner
from sage.runtime.faults import Fault
from sage.training.anchoring import REFERENCE, LossCall, Tally
from sage.training.drawing import ProcessSlices
from sage.training.shaping import Shaping

SAMPLED = "sampling_per_token_logps"
"""TRL's name, in a batch, of what `_generate_single_turn` gives as log-probs."""


def check_credit(
    rule: CreditRule, planner: Planner | None, tools: bool, shares: ProcessSlices, args: Any
) -> None:
    """Raise ValueError for what the rule cannot work with.

    `tools` says whether the policy calls any; `args` are TRL's settings.
    """
    if args.use_liger_kernel:
        raise ValueError("liger's kernels take no advantages of tokens; switch them off")
    if (reason := getattr(rule, "single_turn", None)) and tools:
        raise ValueError(f"the credit rule {type(rule).__name__} {reason}")
    whole = getattr(rule, "whole_groups", False)
    if whole and planner is not None and getattr(planner, "ragged", True):
        raise ValueError(
            f"the credit rule {type(rule).__name__} needs the whole group of a prompt in a "
            f"micro-batch, but the planner {type(planner).__name__} may leave groups of any "
            "size"
        )
    # A process that shares a micro-batch has only part of its completions in a row.
    processes, rows = shares.accelerator.num_processes, args.per_device_train_batch_size
    together = rows if args.steps_per_generation > 1 else rows * shares.sharing
    if whole and together % shares.group:
        raise ValueError(
            f"the credit rule {type(rule).__name__} needs the whole group of a prompt in a "
            f"micro-batch, but {processes} processes with {rows} completions each cut groups of "
            f"{shares.group}; lower micro_batches"
        )


def ordered(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a generation, their rows in the order of `rollout`; parts keep their size."""
    places = torch.cat([part["rollout"] for part in parts])
    order, size = places.argsort(), len(parts[0]["rollout"])
    if torch.equal(places[order], places):
        return list(parts)
    rows = {
        key: torch.cat([part[key] for part in parts])[order.to(value.device)].split(size)
        for key, value in parts[0].items()
        if isinstance(value, torch.Tensor) and value.ndim > 0
    }
    return [part | {key: rows[key][i] for key in rows} for i, part in enumerate(parts)]


@torch.no_grad()
def give_credit(
    rule: CreditRule, call: LossCall, shaping: Shaping, kl_coefficient: float, shares: ProcessSlices
) -> None:
    """Put the rule's advantages `[B, T]` in the place of those of completions."""
    inputs, factors, mask = call.inputs, call.log_factors, call.mask
    log_probs, anchor = call.log_probs.detach(), inputs.get(REFERENCE)
    device = log_probs.device
    inputs["advantages"] = rule.token_advantages(
        TokenSignals(
            log_probs=log_probs,
            old_log_probs=call.old_log_probs,
            entropies=call.entropies.detach(),
            mask=mask,
            advantages=inputs["advantages"],
            rewards=inputs["reward"],
            groups=inputs["group"].to(device),
            group_sizes=inputs["group_size"].to(device),
            rows=inputs["rollout"].to(device),
            reference_log_probs=call.reference,
            log_factors=factors,
            causal=getattr(shaping.guide, "causal", False),
            kl_coefficient=kl_coefficient,
            everyone=shares.of_the_micro_batch if call.training else lambda rows: rows,
            hidden_states=torch.cat(call.states) if call.states else None,
            strategies=inputs.get("strategy"),
            training=call.training,
        )
    )
    if shaping.kl_in_reward and anchor is not None:
        # TRL's k3 of a policy to itself is 0, and so is its gradient.
        inputs[REFERENCE] = log_probs
        call.kl = k3(log_probs, anchor)


class SamplerFault(Fault, RuntimeError):
    """The sampler or the trainer gives probabilities that are no numbers."""


@dataclass(frozen=True)
class Correction:
    """`kind` is `none`, or `token`: each token's advantage times a ratio of at most `cap`."""

    kind: str = "none"
    cap: float = 3.0


def gap_log(
    tally: Tally,
    period: Hashable,
    gaps: torch.Tensor,
    cap: float,
    mask: torch.Tensor,
    faulty: torch.Tensor,
) -> dict[str, float]:
    """The log of `period` so far, with `gaps` (nats) where `mask`, both `[B, T]`, counted in.

    `clipped_share` is that of tokens with exp(gap) above `cap`. Tokens without a gap (NaN) do not
    count. Every process must call it. Without a token there is nothing to log. Raises SamplerFault,
    in every process, where a token in `mask` is `faulty`, or none has a gap.
    """
    known = mask & ~gaps.isnan()
    gaps = gaps.masked_fill(~known, 0.0)
    parts = [mask & faulty, mask, known, gaps.abs(), gaps.exp() > cap]
    sums, ends = tally.add(period, [part * mask for part in parts], [-gaps.abs().max()])
    without, drawn, tokens, total, clipped = sums
    if without or (drawn and not tokens):
        raise SamplerFault(
            f"{without or drawn:.0f} sampled tokens have a log-probability that is not a number, "
            "of the sampler or of the policy that is trained; what was learnt from such tokens "
            "would be noise, so the run ends. Look for the first step whose loss is not finite; if "
            "there is none, the sampler is at fault: try it with precision float32"
        )
    if tokens == 0:
        return {}
    return {"gap_mean": total / tokens, "gap_max": -ends[0], "clipped_share": clipped / tokens}


def correct(
    call: LossCall, correction: Correction, gaps: Tally, loss_type: str
) -> dict[str, float]:
    """Weight the advantages in `call`, with `token`; what is logged of the gaps so far.

    Where the policy has moved since the rollouts were drawn, TRL keeps the log-probs of that time.
    """
    inputs, mask = call.inputs, call.mask.bool()
    old = call.old_log_probs.detach().float()
    gap = old - inputs[SAMPLED]
    log = gap_log(gaps, call.period, gap, correction.cap, mask, old.isnan())
    if correction.kind == "none":
        return log
    weights = gap.masked_fill(~mask | gap.isnan(), 0.0).exp().clamp(max=correction.cap)
    if loss_type == "vespo":  # which knows such weights, and puts them into its own
        inputs["importance_sampling_ratio"] = weights
        return log
    advantages = inputs["advantages"]
    inputs["advantages"] = weights * (advantages[:, None] if advantages.ndim == 1 else advantages)
    return log
