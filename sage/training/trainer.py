"""TRL's GRPO with a shaped anchor, at small seams and without a copy of TRL's loss.

During a loss call TRL asks for the policy's log-probs and entropies. `SageTrainer` lets it
compute them and then, in a shallow copy of the loss's inputs, replaces the reference's
log-probs by those of the anchor q * pi_ref, with q computed from those very tensors. TRL's
own KL term then measures against the anchor, whatever the loss type, with no further
forward pass. The buffered inputs are never changed, so nothing compounds over iterations.

Other divergences use the same seam (`as_k3_input`); the exact forward KL alone reads the
completions once more, with the policy and with the reference. Other advantages and dynamic
sampling sit where TRL hands on scored rollouts.

In several processes each holds a slice of the completions of a generation. What is done here
does not depend on how many there are: noise is named by a completion's place in the whole
generation, dynamic sampling chooses from the groups of all processes, and means over the
tokens of a micro-batch are taken over all processes that share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from accelerate.utils import set_seed
from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.models.utils import prepare_fsdp
from trl.trainer.utils import add_fused_lm_head

from sage.anchors import forward_kl_exact, shaped_anchor
from sage.guides import GuideFunction, Moment, Noise, Signals, guide_log_factors
from sage.training.passes import PassSampler
from sage.training.rollouts import gathered, informative_groups, join, take_groups
from sage.training.tally import GuideTally

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
    completion also ends once it holds one of `stop_texts`, whatever tokens they take.
    `micro_batches` is the number of parts that all processes together run a step in; by default
    each accumulates that of its own arguments. Raises ValueError for a guide or a divergence
    without a KL term, and for settings of TRL that go past the seam.
    """

    def __init__(
        self,
        *args: Any,
        shaping: Shaping | None = None,
        reference: PreTrainedModel | None = None,
        stop_texts: Sequence[str] = (),
        micro_batches: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.use_vllm:  # which seeds torch with 0, whatever the seed of the run
            set_seed(self.args.seed, device_specific=True)
        self._shaping = shaping or Shaping()
        self._stop_texts = tuple(stop_texts)
        if not self.use_vllm and not all(map(self._ends_with_one_token, self._stop_texts)):
            self._stop_at_texts()
        if self.is_fsdp_enabled:  # parts of the weights are with processes that draw more tokens
            policy = self.accelerator.unwrap_model(self.model)
            policy.generate = partial(policy.generate, synced_gpus=True)
        if self._shaping.shapes_kl:
            self._check_seam()
        if reference is not None and self.beta != 0.0:
            add_fused_lm_head(reference, temperature=self.temperature)
            self.ref_model = self._prepared_reference(reference)
        self._micro_batches = micro_batches or self.args.gradient_accumulation_steps
        # How many processes run one micro-batch together.
        self._sharing = max(1, self.accelerator.num_processes // self._micro_batches)
        self._tally = GuideTally(self.accelerator, self._shaping.clamp)
        self._loss_inputs: dict[str, Any] = {}
        self._entropies = torch.empty(0)
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

    def _prepared_reference(self, reference: PreTrainedModel) -> Any:
        if self.is_fsdp_enabled:
            return prepare_fsdp(reference, self.accelerator)
        return self.accelerator.prepare_model(reference, evaluation_mode=True)

    # The anchor --------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._loss_inputs = dict(inputs)
        try:
            loss = super()._compute_loss(model, self._loss_inputs)
            if self._sharing > 1 and model.training:
                loss = self._over_the_micro_batch(loss, inputs)
        finally:
            self._loss_inputs, self._entropies = {}, torch.empty(0)
        if self._shaping.replaces_k3:
            self._metrics[self._mode(model)]["kl"][-1] -= _LINEAR - 1.0
        return loss

    def _over_the_micro_batch(self, loss: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """`loss` with TRL's means over this process's tokens turned into means over all tokens
        of the micro-batch that it shares with others; averaged over processes, as gradients are.
        """
        if self.loss_type != "bnpo" and not self.entropy_coef:
            return loss
        mask = _loss_mask(inputs)
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
        mask = _loss_mask(inputs)
        log_factors = guide_log_factors(
            guide,
            Signals(log_probs=log_probs.detach(), entropies=entropies.detach(), mask=mask),
            self._moment(mode, inputs["rollout"].tolist()),
            *self._shaping.clamp,
        )
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
                with self.accelerator.unwrap_model(model).disable_adapter():
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
        if self._shaping.max_refills > 0 and self.model_wrapped.training:
            batch = self._refilled(batch, len(inputs))
        # A completion's place in the generation; on the CPU, where its noise is drawn.
        batch["rollout"] = torch.arange(len(inputs)) + self._first_row(len(inputs))
        return batch

    def _first_row(self, rows: int) -> int:
        """Where this process's `rows` completions begin among those of all processes."""
        return int(self.accelerator.process_index * rows)

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
            start = self._first_row(len(inputs))
            batch["advantages"] = advantages[start : start + len(inputs)]
        return batch

    def _refilled(self, batch: dict[str, Any], rows: int) -> dict[str, Any]:
        """Dynamic sampling: groups without a gradient give way to groups of other prompts.

        All processes hold the groups of all, choose alike, and take their own `rows` of what is
        chosen. What is still missing after `max_refills` draws is filled with groups that have
        no gradient.
        """
        rollouts = int(self.num_generations or 1)
        padding = dict.fromkeys(("prompt_ids", "completion_ids"), self._tokenizer.pad_token_id)
        groups = rows * self.accelerator.num_processes // rollouts
        good: list[dict[str, Any]] = []
        spare: list[dict[str, Any]] = []
        refills = 0
        while True:
            whole = gathered(batch, self.accelerator, padding)
            informative = informative_groups(whole["advantages"], rollouts)
            for part, chosen in ((good, informative), (spare, ~informative)):
                part.append(take_groups(whole, chosen.nonzero()[:, 0], rollouts))
            found = sum(len(part["advantages"]) for part in good) // rollouts
            if found >= groups or refills == self._shaping.max_refills:
                break
            refills += 1
            batch = self._scored(self._other_prompts(groups, refills, rows))
        joined = join([*good, *spare], padding)
        first = self._first_row(rows)
        result = {key: value[first : first + rows] for key, value in joined.items()}
        result["num_items_in_batch"] = self._tokens_of(result)
        self._metrics["train"]["refills"].append(float(refills))
        return result

    def _tokens_of(self, batch: dict[str, Any]) -> torch.Tensor:
        """Completion tokens with loss, over all processes."""
        return self.accelerator.gather(_loss_mask(batch).sum()).sum()

    def _other_prompts(self, groups: int, refill: int, rows: int) -> list[dict[str, Any]]:
        """This process's rows of `groups` prompts drawn at random, each repeated for its group."""
        name = f"{self.args.seed}|refill|{self.state.global_step}|{refill}"
        digest = hashlib.sha256(name.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        dataset: Any = self.train_dataset
        indices = torch.randperm(len(dataset), generator=generator)[:groups].tolist()
        repeated = [i for i in indices for _ in range(int(self.num_generations or 1))]
        first = self._first_row(rows)
        return [dataset[i] for i in repeated[first : first + rows]]

    def _mode(self, model: Any) -> str:
        return "train" if model.training else "eval"


def _loss_mask(inputs: dict[str, Any]) -> torch.Tensor:
    """1 on completion tokens with loss, `[B, T]`."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def as_k3_input(log_probs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Reference log-probs for which TRL's k3 is `values` plus a constant; `[B, T]`.

    k3 of a strongly negative log ratio -x is x - 1, with slope one, to float32's precision.
    So ref = log_probs - values - 20 makes TRL's term values + 19, whose gradient is that of
    `values`, in every one of its loss aggregations. `values` must not be negative.
    """
    return log_probs.float() - values.float() - _LINEAR
