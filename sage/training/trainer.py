"""TRL's GRPO with a shaped anchor, at small seams and without a copy of TRL's loss.

During a loss call TRL asks for the policy's log-probs and entropies. `SageTrainer` lets it
compute them and then, in a shallow copy of the loss's inputs, replaces the reference's
log-probs by those of the anchor q * pi_ref, with q computed from those very tensors. TRL's
own KL term then measures against the anchor, whatever the loss type, with no further
forward pass. The buffered inputs are never changed, so nothing compounds over iterations.

Other divergences use the same seam (`as_k3_input`); the exact forward KL alone reads the
completions once more, with the policy and with the reference. Other advantages and dynamic
sampling sit where TRL hands on scored rollouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from sage.anchors import forward_kl_exact, shaped_anchor
from sage.guides import GuideFunction, Moment, Signals, guide_log_factors
from sage.training.passes import PassSampler
from sage.training.rollouts import informative_groups, join, take_groups

Divergence = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Advantage = Callable[[torch.Tensor], torch.Tensor]

# Where exp(-x) is below float32's resolution of 1, so that k3(-x) = x - 1 with slope 1.
_LINEAR = 20.0


@dataclass(frozen=True)
class Shaping:
    """What a row adds to TRL's GRPO; the defaults add nothing.

    `divergence` replaces TRL's k3 by another per-token function of the policy's and the
    anchor's log-probs, `exact_forward_kl` by the sum over the vocabulary; `advantage` maps
    rewards `[N, G]` to advantages; `max_refills` bounds how often groups without a gradient
    are replaced (dynamic sampling); `mask_truncated` takes the loss from completions that were
    cut off. With `schedule_per_call` schedules advance with every loss
    call, as in the official release, and not once per optimizer step.
    """

    guide: GuideFunction | None = None
    clamp: tuple[float, float] = (0.6, 1.4)
    schedule_per_call: bool = False
    divergence: Divergence | None = None
    exact_forward_kl: bool = False
    advantage: Advantage | None = None
    max_refills: int = 0
    mask_truncated: bool = False

    @property
    def replaces_k3(self) -> bool:
        """Whether TRL's KL term is made to carry another divergence."""
        return self.divergence is not None or self.exact_forward_kl

    @property
    def shapes_kl(self) -> bool:
        """Whether anything is done to the KL term at all."""
        return self.guide is not None or self.replaces_k3


class SageTrainer(GRPOTrainer):
    """GRPOTrainer with `shaping`; without any it is GRPOTrainer.

    `reference` takes the place of the policy at the start as what the KL term refers to. A
    completion also ends once it holds one of `stop_texts`, whatever tokens they take. Raises
    ValueError for a guide or a divergence without a KL term, and for settings of TRL that go
    past the seam.
    """

    def __init__(
        self,
        *args: Any,
        shaping: Shaping | None = None,
        reference: PreTrainedModel | None = None,
        stop_texts: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._shaping = shaping or Shaping()
        self._stop_texts = tuple(stop_texts)
        if not self.use_vllm and not all(map(self._ends_with_one_token, self._stop_texts)):
            self._stop_at_texts()
        if self._shaping.shapes_kl:
            self._check_seam()
        if reference is not None and self.beta != 0.0:
            add_fused_lm_head(reference, temperature=self.temperature)
            self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)
        self._loss_inputs: dict[str, Any] | None = None
        self._rewards = torch.empty(0)
        self._asked = (-1, 0)  # optimizer step, and how often the guide was asked in it

    def _check_seam(self) -> None:
        if self.beta == 0.0:
            raise ValueError("a guide or a divergence needs a KL term, but the coefficient is 0")
        if self.args.use_liger_kernel:
            raise ValueError(
                "liger's kernels replace the forward pass that hands log-probs and entropies to "
                "the guide; use_liger_kernel must be off"
            )
        if self._shaping.replaces_k3 and getattr(self.args, "use_bias_correction_kl", False):
            raise ValueError("use_bias_correction_kl corrects k3 only; another divergence is set")

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> PassSampler:
        """TRL's, made to keep its order when a run is resumed after its first pass."""
        return PassSampler.like(super()._get_train_sampler(*args, **kwargs))

    # The anchor --------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if not self._shaping.shapes_kl:
            return super()._compute_loss(model, inputs)
        self._loss_inputs = dict(inputs)
        try:
            loss = super()._compute_loss(model, self._loss_inputs)
        finally:
            self._loss_inputs = None
        if self._shaping.replaces_k3:
            self._metrics[self._mode(model)]["kl"][-1] -= _LINEAR - 1.0
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        output = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, **kwargs
        )
        inputs, log_probs = self._loss_inputs, output[0]
        if inputs is not None:
            if self._shaping.guide is not None:
                self._shape_anchor(
                    self._shaping.guide, inputs, log_probs, output[1], self._mode(model)
                )
            if self._shaping.exact_forward_kl:
                values = self._exact_forward_kl(model, input_ids, attention_mask, logits_to_keep)
                inputs["ref_per_token_logps"] = as_k3_input(log_probs, values)
            elif self._shaping.divergence is not None:
                values = self._shaping.divergence(log_probs, inputs["ref_per_token_logps"])
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
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        log_factors = guide_log_factors(
            guide,
            Signals(log_probs=log_probs.detach(), entropies=entropies.detach(), mask=mask),
            self._moment(mode),
            *self._shaping.clamp,
        )
        inputs["ref_per_token_logps"] = shaped_anchor(inputs["ref_per_token_logps"], log_factors)
        self._log_guide(torch.exp(log_factors[mask.bool()]), mode)

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
                with self.accelerator.unwrap_model(model).disable_adapter():
                    reference = logits(model)
        return forward_kl_exact(policy, reference)

    def _moment(self, mode: str) -> Moment:
        """The step, from the trainer's own state, and noise named by seed, step and call.

        Both come back with a checkpoint, and evaluation neither advances nor disturbs them.
        """
        step, call = self.state.global_step, 0
        if mode == "train":
            call = self._asked[1] + 1 if self._asked[0] == step else 0
            self._asked = (step, call)
        generator = self._generator(f"{mode}|{step}|{call}")
        if self._shaping.schedule_per_call:
            step = step * self.args.gradient_accumulation_steps + call
        return Moment(step, self.state.max_steps, generator)

    def _log_guide(self, factors: torch.Tensor, mode: str) -> None:
        if factors.numel() == 0:
            return
        lowest, highest = self._shaping.clamp
        near = 1e-6  # exp(log q) need not give back the clamp to the last bit
        summary = {
            "q_mean": factors.mean(),
            "q_min": factors.min(),
            "q_max": factors.max(),
            "amplified_share": (factors > 1.0).float().mean(),
            "clamped_share": (
                ((factors <= lowest + near) | (factors >= highest - near)).float().mean()
            ),
        }
        for name, value in summary.items():
            self._metrics[mode][f"sage/{name}"].append(value.item())

    # Ends of completions -----------------------------------------------------------------

    def _ends_with_one_token(self, text: str) -> bool:
        """Whether `text` is a single token that generation already stops at."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return len(ids) == 1 and ids[0] in self.eos_token_ids

    def _stop_at_texts(self) -> None:
        """Have transformers look for the stop texts, for which it needs the tokenizer."""
        self.generation_config.stop_strings = list(self._stop_texts)
        self.generation_kwargs["stop_strings"] = list(self._stop_texts)
        policy = self.accelerator.unwrap_model(self.model)
        policy.generate = partial(policy.generate, tokenizer=self._tokenizer)

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        completions, *rest = super()._generate_single_turn(*args, **kwargs)
        padding = self._tokenizer.pad_token_id
        for ids in completions:  # what follows a stop text is padding, and no end-of-text token
            while len(ids) > 1 and ids[-1] == padding and ids[-2] == padding:
                ids.pop()
            if len(ids) > 1 and ids[-1] == padding and self._holds_stop(ids[:-1]):
                ids.pop()
        return completions, *rest

    def _holds_stop(self, ids: list[int]) -> bool:
        text = self._tokenizer.decode(ids[-64:])
        return any(stop in text for stop in self._stop_texts)

    def _truncated(self, batch: dict[str, Any]) -> torch.Tensor:
        """Which completions were cut off at the length limit, `[B]`."""
        lengths = batch["completion_mask"].sum(dim=1)
        last = batch["completion_ids"].gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
        ends = torch.tensor(self.eos_token_ids, device=last.device)
        cut = (lengths >= self.max_completion_length) & ~torch.isin(last, ends)
        for row in cut.nonzero()[:, 0].tolist():
            cut[row] = not self._holds_stop(batch["completion_ids"][row, : lengths[row]].tolist())
        return cut

    # Rollouts ----------------------------------------------------------------------------

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._rewards = super()._calculate_rewards(*args, **kwargs)
        return self._rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = self._scored(inputs)
        if self._shaping.max_refills == 0 or not self.model_wrapped.training:
            return batch
        return self._refilled(batch, inputs)

    def _scored(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        truncated = self._truncated(batch)
        mode = "train" if self.model_wrapped.training else "eval"
        share = self.accelerator.gather(truncated).float().mean().item()
        self._metrics[mode]["completions/clipped_ratio"][-1] = share
        if self._shaping.mask_truncated:
            batch["completion_mask"] = batch["completion_mask"] * ~truncated[:, None]
            batch["num_items_in_batch"] = self._tokens_of(batch)
        if self._shaping.advantage is not None:
            weighted = (self._rewards * self.reward_weights.to(self._rewards)).nansum(dim=1)
            advantages = self._shaping.advantage(
                weighted.view(-1, int(self.num_generations or 1))
            ).flatten()
            start = self.accelerator.process_index * len(inputs)
            batch["advantages"] = advantages[start : start + len(inputs)]
        return batch

    def _refilled(self, batch: dict[str, Any], inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Dynamic sampling: groups without a gradient give way to groups of other prompts.

        Every process draws as often as any needs to. What is still missing after
        `max_refills` draws is filled with groups that have no gradient.
        """
        rollouts = int(self.num_generations or 1)
        groups = len(inputs) // rollouts
        good: list[dict[str, Any]] = []
        spare: list[dict[str, Any]] = []
        refills = 0
        while True:
            informative = informative_groups(batch["advantages"], rollouts)
            for part, chosen in ((good, informative), (spare, ~informative)):
                indices = chosen.nonzero()[:, 0]
                part.append(take_groups(batch, indices, rollouts))
            found = sum(len(part["advantages"]) for part in good) // rollouts
            missing = torch.tensor(max(groups - found, 0), device=self.accelerator.device)
            if self.accelerator.gather(missing).max() == 0 or refills == self._shaping.max_refills:
                break
            refills += 1
            batch = self._scored(self._other_prompts(groups, refills))
        padding = dict.fromkeys(("prompt_ids", "completion_ids"), self._tokenizer.pad_token_id)
        joined = join([*good, *spare], padding)
        result = take_groups(
            joined, torch.arange(groups, device=joined["advantages"].device), rollouts
        )
        result["num_items_in_batch"] = self._tokens_of(result)
        self._metrics["train"]["refills"].append(float(refills))
        return result

    def _tokens_of(self, batch: dict[str, Any]) -> torch.Tensor:
        """Completion tokens with loss, over all processes."""
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        return self.accelerator.gather(mask.sum()).sum()

    def _other_prompts(self, groups: int, refill: int) -> list[dict[str, Any]]:
        """Rows of the training set drawn at random, each repeated for its group."""
        generator = self._generator(f"refill|{self.state.global_step}|{refill}")
        dataset: Any = self.train_dataset
        indices = torch.randperm(len(dataset), generator=generator)[:groups].tolist()
        return [dataset[i] for i in indices for _ in range(int(self.num_generations or 1))]

    def _generator(self, name: str) -> torch.Generator:
        """A generator of the run's seed, this process and `name`."""
        text = f"{self.args.seed}|{self.accelerator.process_index}|{name}"
        digest = hashlib.sha256(text.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def _mode(self, model: Any) -> str:
        return "train" if model.training else "eval"


def as_k3_input(log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Reference log-probs for which TRL's k3 is `values` plus a constant; `[B, T]`.

    k3 of a strongly negative log ratio -x is x - 1, with slope one, to float32's precision.
    So ref = log_probs - values - 20 makes TRL's term values + 19, whose gradient is that of
    `values`, in every one of its loss aggregations. `values` must not be negative.
    """
    return log_probs.float() - values.float() - _LINEAR
