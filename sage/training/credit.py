"""Advantages of single tokens, set where the anchor is shaped: at the log-probs of the loss.

TRL reads the advantages after it has asked for log-probs, and takes `[B, T]`. A rule's advantages
are put into the copy of the loss's inputs, so that each iteration over a generation starts from
the buffered ones. TRL shuffles the completions of a generation before it cuts them into
micro-batches; a rule compares completions of one prompt, so they are put back in order.

What separates the sampler's probabilities from the trainer's is corrected here as well. Both
compute the same policy, but round differently: in a short dtype, in another engine. Behind a filter
(top-k, top-p, min-p) the sampler's are of another distribution and not compared. The gap of a token
is the difference of its log-probs, trainer's minus sampler's; a token that the sampler has no
number for counts as without a gap. With `token` each token's advantage is weighted by exp(gap), at
most `cap` (truncated importance sampling); the KL term is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sage.method.anchors import k3
from sage.method.credit import CreditRule, TokenSignals
from sage.runtime.faults import Fault
from sage.training.anchoring import LossCall
from sage.training.drawing import REFERENCE, ProcessSlices
from sage.training.shaping import Shaping
from sage.training.tallies import Tally

SAMPLED = "sampling_per_token_logps"
"""TRL's name, in a batch, of what `_generate_single_turn` gives as log-probs."""


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
        leash = k3(log_probs, anchor)
        call.reward_kl = (leash * mask).sum().double()


class SamplerFault(Fault, RuntimeError):
    """The sampler or the trainer gives probabilities that are no numbers."""


@dataclass(frozen=True)
class Correction:
    """`kind` is `none`, or `token`: each token's advantage times a ratio of at most `cap`."""

    kind: str = "none"
    cap: float = 3.0


def gap_log(
    tally: Tally,
    moment: Hashable,
    trained: torch.Tensor,
    sampled: torch.Tensor,
    cap: float,
    mask: torch.Tensor,
) -> dict[str, float]:
    """The log of `moment` so far, with the gaps of `trained` and `sampled` log-probs counted in.

    All are `[B, T]`, in nats, and count where `mask`. `clipped_share` is that of tokens with
    exp(gap) above `cap`. Every process must call it. Without a token there is nothing to log; one
    that the sampler gave no number (a NaN in `sampled`) is left out, as TRL does. Raises
    SamplerFault, in every process, where another token in `mask` has a gap that is not a number, or
    the sampler gave none for any token.
    """
    unscored = sampled.isnan() & mask
    unknown, mask = trained.isnan() & mask, mask & ~unscored
    gaps = (trained - sampled).masked_fill(~mask | unknown, 0.0)
    parts = (torch.ones_like(gaps), gaps.abs(), gaps.exp() > cap)
    largest = (gaps.abs() * mask).max()
    sums, ends = tally.add(
        moment, [unknown, unscored, *(part * mask for part in parts)], [-largest]
    )
    without, unscored_tokens, tokens, total, clipped = sums
    without += 0 if tokens else unscored_tokens
    if without:
        raise SamplerFault(
            f"{without:.0f} sampled tokens have a log-probability that is not a number, of the "
            "sampler or of the policy that is trained; what was learnt from such tokens would be "
            "noise, so the run ends. Look for the first step whose loss is not finite; if there is "
            "none, the sampler is at fault: try it with precision float32"
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
    trained, sampled = call.old_log_probs.detach().float(), inputs[SAMPLED]
    log = gap_log(gaps, call.moment, trained, sampled, correction.cap, mask)
    if correction.kind == "none":
        return log
    weights = (
        (trained - sampled)
        .masked_fill(~mask | sampled.isnan(), 0.0)
        .exp()
        .clamp(max=correction.cap)
    )
    if loss_type == "vespo":  # which knows such weights, and puts them into its own
        inputs["importance_sampling_ratio"] = weights
        return log
    advantages = inputs["advantages"]
    inputs["advantages"] = weights * (advantages[:, None] if advantages.ndim == 1 else advantages)
    return log
