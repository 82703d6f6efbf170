"""The loss measured against a shaped anchor, at the one place where TRL hands over log-probs.

During a loss call TRL asks for the policy's log-probs and entropies. `AnchoredLoss` lets it
compute them and then, in a shallow copy of the loss's inputs, replaces the reference's
log-probs by those of the anchor q * pi_ref, with q computed from those very tensors. TRL's
own KL term then measures against the anchor, whatever the loss type, with no further
forward pass. The buffered inputs are never changed, so nothing compounds over iterations.

Other divergences use the same seam (`as_k3_input`); the exact forward KL alone reads the
completions once more, with the policy and with the reference.
"""

from __future__ import annotations

from typing import Any

import torch
from trl import GRPOTrainer
from trl.trainer.utils import use_adapter

from sage.method.anchors import LogProbs, forward_kl_exact, shaped_anchor
from sage.method.guides import GuideFunction, Moment, Noise, Signals, guide_log_factors
from sage.training.shaping import Shaping, loss_mask
from sage.training.tally import GuideTally

MEANS_OVER_COMPLETIONS = ("grpo", "sapo", "dr_grpo", "luspo")
"""TRL's losses that divide by the number of completions; the others divide by that of tokens."""

# Where exp(-x) is below float32's resolution of 1, so that k3(-x) = x - 1 with slope 1.
_LINEAR = 20.0


class AnchoredLoss(GRPOTrainer):
    """GRPOTrainer whose loss follows `shaping`; the class that uses it calls `_start_anchoring`.

    `micro_batches` is the number of parts that all processes together run a step in.
    """

    _shaping: Shaping

    def _start_anchoring(self, micro_batches: int) -> None:
        self._micro_batches = micro_batches
        # How many processes run one micro-batch together.
        self._sharing = max(1, self.accelerator.num_processes // self._micro_batches)
        self._tally = GuideTally(self.accelerator, self._shaping.clamp)
        self._loss_inputs: dict[str, Any] = {}
        self._entropies = torch.empty(0)
        self._log_factors: torch.Tensor | None = None
        self._asked = (-1, 0)  # optimizer step, and how often the guide was asked in it

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._loss_inputs = dict(inputs)
        try:
            loss = super()._compute_loss(model, self._loss_inputs)
            if self._shaping.replaces_k3:
                loss = loss - self.beta * (_LINEAR - 1.0) * self._mean_of_one(model, inputs)
            if "real_share" in inputs:
                loss = self._over_real_rows(loss, inputs)
            if self._sharing > 1 and model.training:
                loss = self._over_the_micro_batch(loss, inputs)
        finally:
            self._loss_inputs, self._entropies, self._log_factors = {}, torch.empty(0), None
        if self._shaping.replaces_k3:
            logged = self._metrics[self._mode(model)]["kl"]
            if logged[-1] != 0.0:  # TRL's mean over no token
                logged[-1] -= _LINEAR - 1.0
        return loss

    def _mean_of_one(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """What TRL's loss makes of 1 at each token: the weight of a constant in its KL term."""
        settings: Any = self.args
        mask = loss_mask(inputs).float()
        lengths = mask.sum(dim=1)
        if self.loss_type in ("cispo", "dapo", "vespo"):
            tokens = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
            if model.training:
                tokens = tokens / settings.steps_per_generation
            weight = lengths.sum() / tokens
        else:
            allowed = len(mask) * settings.max_completion_length
            weight = {
                "bnpo": (lengths.sum() > 0).float(),
                "dr_grpo": lengths.sum() / allowed,
                "luspo": lengths.mean(),
            }.get(self.loss_type, (lengths > 0).float().mean())
        return weight / (self.current_gradient_accumulation_steps if model.training else 1.0)

    def _over_real_rows(self, loss: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """`loss` with TRL's mean over completions turned into one over those that are real.

        Where a generation was filled up with rows without loss, `real_share` of all its rows are
        real. Losses that are means over tokens count no such row, and neither does the entropy.
        """
        if self.loss_type not in MEANS_OVER_COMPLETIONS:
            return loss
        mask, parts = loss_mask(inputs), self.current_gradient_accumulation_steps
        entropy = (self._entropies * mask).sum() / mask.sum().clamp(min=1)
        bonus = self.entropy_coef * entropy / parts
        return (loss + bonus) / inputs["real_share"] - bonus

    def _over_the_micro_batch(self, loss: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """`loss` with TRL's means over this process's tokens turned into means over all tokens
        of the micro-batch that it shares with others; averaged over processes, as gradients are.
        """
        if self.loss_type != "bnpo" and not self.entropy_coef:
            return loss
        mask = loss_mask(inputs)
        own = mask.sum().clamp(min=1)
        counts = self.accelerator.gather(mask.sum()).view(-1, self._sharing).sum(dim=1)
        total = counts[self.accelerator.process_index // self._sharing].clamp(min=1)
        weight = mask.sum() * self._sharing / total
        if self.loss_type == "bnpo":
            return loss * weight
        entropy = (self._entropies * mask).sum() / own
        return loss - (weight - 1.0) * self.entropy_coef * entropy

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        output = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, **kwargs
        )
        inputs, log_probs = self._loss_inputs, output[0]
        if inputs:
            self._entropies = output[1]
            if (old := inputs.get("old_per_token_logps")) is not None:
                # NaN where the policy is still the one that drew (`sage.training.planned`).
                now = log_probs.detach().to(old.dtype)
                inputs["old_per_token_logps"] = torch.where(old.isnan(), now, old)
            if self._shaping.guide is not None:
                self._shape_anchor(
                    self._shaping.guide, inputs, log_probs, output[1], self._mode(model)
                )
            if self._shaping.exact_forward_kl:
                values = self._exact_forward_kl(model, input_ids, attention_mask, logits_to_keep)
                inputs["ref_per_token_logps"] = as_k3_input(log_probs, values)
            elif self._shaping.divergence is not None:
                old = inputs.get("old_per_token_logps")
                old = log_probs.detach() if old is None else old
                seen = LogProbs(log_probs, inputs["ref_per_token_logps"], old)
                values = self._shaping.divergence(seen)
                inputs["ref_per_token_logps"] = as_k3_input(log_probs, values)
        return output

    def _shape_anchor(
        self,
        guide: GuideFunction,
        inputs: dict[str, Any],
        log_probs: torch.Tensor,
        entropies: torch.Tensor,
        mode: str,
    ) -> None:
        mask = loss_mask(inputs)
        signals = Signals(log_probs=log_probs.detach(), entropies=entropies.detach(), mask=mask)
        if mode == "train" and hasattr(guide, "observe"):
            guide.observe(signals, inputs["ref_per_token_logps"], inputs["advantages"])
        log_factors = guide_log_factors(
            guide,
            signals,
            self._moment(mode, inputs["rollout"].tolist()),
            *self._shaping.clamp,
        )
        self._log_factors = log_factors
        inputs["ref_per_token_logps"] = shaped_anchor(inputs["ref_per_token_logps"], log_factors)
        moment = (mode, self.state.global_step)
        for name, value in self._tally.add(moment, log_factors.exp(), mask.bool()).items():
            self._metrics[mode][f"sage/{name}"] = [value]

    def _exact_forward_kl(
        self, model: Any, input_ids: Any, attention_mask: Any, length: int
    ) -> torch.Tensor:
        """KL(reference || policy) at the states of the last `length` tokens, `[B, T]`."""

        def logits(network: Any) -> torch.Tensor:
            with self.accelerator.autocast():
                output = network(input_ids, attention_mask, logits_to_keep=length + 1)
            return output.logits[:, :-1].float() / self.temperature

        policy = logits(model)
        with torch.no_grad():
            if self.ref_model is not None:
                reference = logits(self.ref_model)
            else:
                unwrapped = self.accelerator.unwrap_model(model)
                # Where the policy came with an adapter, TRL keeps a copy of it.
                kept = "ref" if "ref" in unwrapped.peft_config else None
                with use_adapter(unwrapped, adapter_name=kept):
                    reference = logits(model)
        return forward_kl_exact(policy, reference)

    def _moment(self, mode: str, rollouts: list[int]) -> Moment:
        """The step, from the trainer's own state, and noise named by seed, step and completion.

        Both come back with a checkpoint, and evaluation neither advances nor disturbs them.
        """
        step, call = self.state.global_step, 0
        if mode == "train":
            call = self._asked[1] + 1 if self._asked[0] == step else 0
            self._asked = (step, call)
        noise = Noise(f"{self.args.seed}|{mode}|{step}", rollouts)
        if self._shaping.schedule_per_call:  # the calls of all processes, one after the other
            at_once = min(self.accelerator.num_processes, self._micro_batches)
            place = self.accelerator.process_index // self._sharing
            step = step * self._micro_batches + call * at_once + place
        return Moment(step, self.state.max_steps, noise)

    def _mode(self, model: Any) -> str:
        return "train" if model.training else "eval"


def as_k3_input(log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Reference log-probs for which TRL's k3 is `values` plus a constant; `[B, T]`.

    k3 of a strongly negative log ratio -x is x - 1, with slope one, to float32's precision.
    So ref = log_probs - values - 20 makes TRL's term values + 19, whose gradient is that of
    `values`, in every one of its loss aggregations; the loss and `kl` are logged without the 19.
    `values` must not be negative.
    """
    return log_probs.float() - values.float() - _LINEAR
