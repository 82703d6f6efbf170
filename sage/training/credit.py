"""Advantages of single tokens, set where the anchor is shaped: at the log-probs of the loss.

TRL reads the advantages after it has asked for log-probs, and takes `[B, T]`. A rule's advantages
are put into the copy of the loss's inputs, so that the buffered ones stay as they are and each
iteration over a generation starts from them. TRL shuffles the completions of a generation before it
cuts them into micro-batches; a rule compares completions of one prompt, so they are put back in
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sage.method.anchors import k3
from sage.method.credit import CreditRule, TokenSignals
from sage.method.planners import Planner
from sage.training.anchoring import REFERENCE, LossCall
from sage.training.drawing import Shares
from sage.training.shaping import Shaping


def check_credit(
    rule: CreditRule, planner: Planner | None, tools: bool, shares: Shares, args: Any
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
    rows, parts = args.per_device_train_batch_size, args.steps_per_generation
    processes = shares.accelerator.num_processes
    if whole and not _groups_are_whole(rows, parts, processes, shares.sharing, shares.group):
        raise ValueError(
            f"the credit rule {type(rule).__name__} needs the whole group of a prompt in a "
            f"micro-batch, but {processes} processes with {rows} completions each cut groups of "
            f"{shares.group}; lower micro_batches"
        )


def _groups_are_whole(rows: int, parts: int, processes: int, sharing: int, size: int) -> bool:
    """Whether completions of one prompt are always in one micro-batch."""
    place = [
        (process // sharing, part)
        for process in range(processes)
        for part in range(parts)
        for _ in range(rows)
    ]
    groups = [place[i : i + size] for i in range(0, len(place), size)]
    return all(len(set(group)) == 1 for group in groups)


def ordered(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a generation, their rows in the order of `rollout`; parts keep their size."""
    places = torch.cat([part["rollout"] for part in parts])
    order, size = places.argsort(), len(parts[0]["rollout"])
    if torch.equal(places[order], places):
        return list(parts)
    whole = {
        key: value
        if not isinstance(value, torch.Tensor) or value.ndim == 0
        else torch.cat([part[key] for part in parts])[order.to(value.device)]
        for key, value in parts[0].items()
    }
    return [
        {
            key: value[i * size : (i + 1) * size]
            if isinstance(value, torch.Tensor) and value.ndim > 0
            else value
            for key, value in whole.items()
        }
        for i in range(len(parts))
    ]


@torch.no_grad()
def give_credit(
    rule: CreditRule, call: LossCall, shaping: Shaping, kl_coefficient: float, shares: Shares
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
            reference_log_probs=anchor if anchor is None or factors is None else anchor - factors,
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
        call.reward_kl = torch.stack([(leash * mask).sum().double(), mask.sum().double()])
