"""Advantages of single tokens, set where the anchor is shaped: at the log-probs of the loss.

TRL reads the advantages after it has asked for log-probs, and takes `[B, T]`. `CreditedLoss` puts a
rule's advantages into the shallow copy of the loss's inputs, so that the buffered ones stay as they
are and each iteration over a generation starts from them. TRL shuffles the completions of a
generation before it cuts them into micro-batches; a rule compares completions of one prompt, so
here they are put back in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sage.method.credit import CreditRule, TokenSignals
from sage.training.anchoring import AnchoredLoss
from sage.training.shaping import loss_mask


class CreditedLoss(AnchoredLoss):
    """An anchored loss whose advantages are those of `shaping.token_rule`, if it has one."""

    model: Any
    _buffered_inputs: Any
    _kl: torch.Tensor | None = None
    _in_order: Any = None
    _states: list[torch.Tensor] | None = None

    def _check_credit(self, rule: CreditRule) -> None:
        """Raise ValueError for what the rule cannot work with."""
        if self.args.use_liger_kernel:
            raise ValueError("liger's kernels take no advantages of tokens; switch them off")
        if (reason := getattr(rule, "single_turn", None)) and getattr(self, "tools", None):
            raise ValueError(f"the credit rule {type(rule).__name__} {reason}")
        planner, whole = self._shaping.planning, getattr(rule, "whole_groups", False)
        if whole and planner is not None and getattr(planner, "ragged", True):
            raise ValueError(
                f"the credit rule {type(rule).__name__} needs the whole group of a prompt in a "
                f"micro-batch, but the planner {type(planner).__name__} may leave groups of any "
                "size"
            )
        if whole and not self._groups_are_whole():
            raise ValueError(
                f"the credit rule {type(rule).__name__} needs the whole group of a prompt in a "
                f"micro-batch, but {self.accelerator.num_processes} processes with "
                f"{self.args.per_device_train_batch_size} completions each cut groups of "
                f"{self.num_generations}; lower micro_batches"
            )

    def _groups_are_whole(self) -> bool:
        """Whether completions of one prompt are always in one micro-batch."""
        arguments: Any = self.args
        rows, parts = arguments.per_device_train_batch_size, arguments.steps_per_generation
        processes, size = self.accelerator.num_processes, int(self.num_generations or 1)
        place = [
            (process // self._sharing, part)
            for process in range(processes)
            for part in range(parts)
            for _ in range(rows)
        ]
        groups = [place[i : i + size] for i in range(0, len(place), size)]
        return all(len(set(group)) == 1 for group in groups)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        inputs = super()._prepare_inputs(generation_batch)
        if self._shaping.token_rule is None or not self.model.training:
            return inputs
        if self._buffered_inputs is not self._in_order:
            self._buffered_inputs = self._in_order = ordered(self._buffered_inputs)
        return self._in_order[self._step % len(self._in_order)]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        if self._kl is not None:
            total, tokens = self.accelerator.reduce(self._kl, reduction="sum").tolist()
            self._metrics[self._mode(model)]["kl"][-1] = total / max(tokens, 1.0)
            self._kl = None
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        rule = self._shaping.token_rule if self._loss_inputs else None
        self._states = [] if getattr(rule, "hidden_states", False) else None
        try:
            output = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **kwargs
            )
            if rule is not None:
                self._give_credit(rule, output[0].detach(), output[1].detach())
        finally:
            self._states = None
        return output

    @torch.no_grad()
    def _give_credit(
        self, rule: CreditRule, log_probs: torch.Tensor, entropies: torch.Tensor
    ) -> None:
        inputs = self._loss_inputs
        mask, anchor = loss_mask(inputs), inputs.get("ref_per_token_logps")
        old = inputs.get("old_per_token_logps")
        device, factors = log_probs.device, self._log_factors
        inputs["advantages"] = rule.token_advantages(
            TokenSignals(
                log_probs=log_probs,
                old_log_probs=log_probs if old is None else old,
                entropies=entropies,
                mask=mask,
                advantages=inputs["advantages"],
                rewards=inputs["reward"],
                groups=inputs["group"].to(device),
                group_sizes=inputs["group_size"].to(device),
                rows=inputs["rollout"].to(device),
                reference_log_probs=(
                    anchor if anchor is None or factors is None else anchor - factors
                ),
                log_factors=factors,
                causal=getattr(self._shaping.guide, "causal", False),
                kl_coefficient=self.beta,
                everyone=self._of_the_micro_batch,
                hidden_states=torch.cat(self._states) if self._states else None,
                training=self.model.training,
            )
        )
        if self._shaping.kl_in_reward and anchor is not None:
            # TRL's k3 of a policy to itself is 0, and so is its gradient.
            inputs["ref_per_token_logps"] = log_probs
            leash = (anchor - log_probs).exp() - (anchor - log_probs) - 1.0
            self._kl = torch.stack([(leash * mask).sum().double(), mask.sum().double()])

    def _of_the_micro_batch(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of this process `[B, ...]` with those of all that share its micro-batch."""
        if self._sharing == 1 or not self.model.training:
            return rows
        padded = rows
        if rows.ndim > 1:
            padded = self.accelerator.pad_across_processes(rows, dim=1)
        every = self.accelerator.gather(padded)
        first = self.accelerator.process_index // self._sharing * self._sharing * len(rows)
        return every[first : first + self._sharing * len(rows)]


def ordered(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a generation, their rows in the order of `rollout`; parts keep their size."""
    order = torch.cat([part["rollout"] for part in parts]).argsort()
    size = len(parts[0]["rollout"])
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
