"""TRL's GRPO with what this project adds: one step of training, hook by hook.

`SageTrainer` copies none of TRL's loss. It overrides the places where TRL hands something over,
each once, and they stand below in the order of a step:

1. `_run_epoch`: a pass over the problems begins, in the order of its number, also after a resume.
2. `_generate_and_score_completions` makes a generation. TRL draws and scores completions, of which
   a planner may ask for more (`planning`); then their advantages and masks are set. Within TRL's
   part `_generate_single_turn` draws with this project's samplers (`drawing`), and
   `_calculate_rewards` adds what rewards without a verifier and rules for strategies ask for.
3. `_prepare_inputs` hands out a micro-batch; where tokens get credit, its rows are in order.
4. `_compute_loss` opens a `LossCall` around TRL's loss, and puts that right for rows that only fill
   up and for processes that share a micro-batch. Within it TRL asks for log-probs
   (`_get_per_token_logps_and_entropies`), and reads what the loss is made of after that. So there
   the reference becomes the anchor, k3 another divergence (`anchoring`), advantages those of
   tokens (`credit`). Padding is never read (`trimming`).
5. `end_step`: choices learn that do; what they remember is in every checkpoint (`shaping`).

What is refused before the first step is in `start`; what a method's choices compute, as pure
functions of tensors, in `sage.method` and `sage.rivals`. A `GenerationCall` is open during 2 and a
`LossCall` during 4; nothing in them outlives them.

In several processes each holds a slice of a generation, and what is done does not depend on how
many there are, but for three things: of a generation that serves several steps, TRL deals each
process its own completions out to these steps; loss bnpo and rules that rank the tokens of a
micro-batch (SCOPE, STEER) depend on what is in one; and TRL's own generation, without
`make_drawer`, draws in each process from a generator of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import gather_object, set_seed
from transformers import PreTrainedModel, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing, prepare_fsdp
from trl.trainer.utils import add_fused_lm_head, use_adapter

from sage.method.anchors import K3, K3Corrected, LogProbs
from sage.method.planners import Draw, Planner
from sage.study.types import SAGE
from sage.training import anchoring, credit, drawing, planning, settings, start, tallies
from sage.training.anchoring import LossCall
from sage.training.drawing import OLD, REFERENCE, Examples, GenerationCall, MakeDrawer, Rollouts
from sage.training.rewards import READS_ANSWER, strategies_of, with_answer_probabilities
from sage.training.shaping import Shaping
from sage.training.trimming import one_pass, trimmed, with_states

PAPER = {
    "title": SAGE.title,
    "id": str(SAGE.arxiv),
    "citation": f"@article{{sage, title = {{{{{SAGE.title}}}}}, "
    f"author = {{{SAGE.authors.replace(', ', ' and ')}}}, year = {SAGE.year}, "
    f"eprint = {{arXiv:{SAGE.arxiv}}}}}",
}
"""What the model card of a policy trained with a guide cites."""

_OWN = ("pass@", "step/", "sage/", "sampler/", "zero_advantages")
"""How names of numbers begin that TRL does not log."""

STATE = "choices.pt"
"""The file of a checkpoint that holds what the choices remember."""


class SageTrainer(GRPOTrainer):
    """TRL's GRPOTrainer with `shaping`; without any it is GRPOTrainer.

    It takes all arguments of GRPOTrainer: model, reward functions, `args` (GRPOConfig, vLLM's
    settings included), data sets, adapter. TRL's `beta` is 0 unless set, and a guide needs a KL
    term; for the paper's k3, set `use_bias_correction_kl=False` as well. Further arguments:

    - `shaping`: guide, estimator, advantage, credit rule, filter or planner
      (`sage.training.shaping`).
    - `reference`: a model that the KL term refers to, instead of the policy at the start.
    - `stop_texts`: a completion also ends once it holds one of them, whatever tokens they take.
    - `make_drawer`: what draws rollouts instead of TRL (`transformers_rollouts` or `vllm_rollouts`
      of `sage.training.drawers`); `correction` then weights tokens by what the sampler's
      probabilities differ from the trainer's.
    - `trims`: log-probs are computed without padding, of a prompt once for its group, and of small
      passes on a CPU at once; they equal TRL's but for rounding.
    - `micro_batches`: into how many parts all processes together cut a step; by default each
      accumulates `gradient_accumulation_steps` of its own.

    With TRL's `eval_dataset` it logs pass@k while it trains, for k up to `num_generations_eval`.

    Raises ValueError for a policy without a trainable parameter, for a guide or an estimator
    without a KL term, for too few problems, for images, and for settings of TRL that go past the
    seam. Warns where the policy is not the KL term's reference before the first update.
    """

    model: Any
    args: Any  # TRL types it as any trainer's
    ref_model: Any
    _buffered_inputs: Any

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *others: Any,
        shaping: Shaping | None = None,
        reference: PreTrainedModel | None = None,
        stop_texts: Sequence[str] = (),
        micro_batches: int | None = None,
        make_drawer: MakeDrawer | None = None,
        correction: credit.Correction | None = None,
        trims: bool = False,
        **more: Any,
    ) -> None:
        beta, syncs = (args.beta, args.sync_ref_model) if args else (0.0, False)
        if args and reference is not None:  # TRL would load another, and hold it beside this one
            args.beta, args.sync_ref_model = 0.0, False
        try:
            super().__init__(model, reward_funcs, args, *others, **more)
        finally:
            if args:
                args.beta, args.sync_ref_model = beta, syncs
        self.beta = beta
        if self.use_vllm:  # which seeds torch with 0, whatever the seed of the run
            set_seed(self.args.seed, device_specific=True)
        self.shaping, self.stop_texts = shaping or Shaping(), tuple(stop_texts)
        if said := str(self.shaping):  # for the model card
            self._name = f"{'SAGE' if self.shaping.guide else 'GRPO'} ({said})"
        if self.shaping.guide:
            self._paper, self._tag_names = PAPER, [*self._tag_names, "sage"]
            self.model.add_model_tags(self._tag_names)
        if self.mask_truncated_completions:  # TRL knows no end but EOS, and empties masks too early
            self.mask_truncated_completions = False
            self.shaping = replace(self.shaping, mask_truncated=True)
        self._correction, self._trims = correction or credit.Correction(), trims
        self._starts = start.StartsAtReference(chosen=reference is not None)
        group, padding = int(self.num_generations or 1), cast(int, self._tokenizer.pad_token_id)
        parts = micro_batches or self.args.gradient_accumulation_steps
        self._shares = drawing.ProcessSlices(self.accelerator, group, padding, parts)
        self._ends = drawing.StopRule(self._tokenizer, self.stop_texts, self.eos_token_ids)
        make = partial(make_drawer, self) if make_drawer else None
        self._draws = drawing.NamedDraws(make, self.args.seed, padding) if make else None
        self._guidance = anchoring.Guidance(self._shares, self.args.seed)
        self._doses = anchoring.DoseTally(self.accelerator)
        self._gaps = tallies.Tally(self.accelerator)
        by_sequence = self.importance_sampling_level == "sequence"
        self._means = anchoring.TokenMeans(self.accelerator, by_sequence)
        self._entries, self._evaluations = tallies.StepLog(), 0
        self._evaluated, self._set = tallies.Evaluated(), ""
        self._generation: GenerationCall | None = None
        self._loss: LossCall | None = None
        settings.check(self)
        for network in filter(None, (self.model, self.ref_model, reference)):
            start.count_positions(network)
        if self._draws is None and not self.use_vllm:
            policy = self.accelerator.unwrap_model(self.model)
            self._ends.have_trl_stop(self, policy)
            if self.is_fsdp_enabled:  # parts of the weights are with processes that draw more
                policy.generate = partial(policy.generate, synced_gpus=True)
        if reference is not None and self.beta != 0.0:
            wide = self.args.cast_lm_head_to_fp32
            add_fused_lm_head(reference, self.temperature, cast_lm_head_to_fp32=wide)
            self.ref_model = (
                prepare_fsdp(reference, self.accelerator)
                if self.is_fsdp_enabled
                else self.accelerator.prepare_model(reference, evaluation_mode=True)
            )
        self.add_callback(_Learning(self))

    # 1. A pass over the problems

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """A pass; none in a run resumed after its last step, where transformers takes one more."""
        if self.state.global_step < self.state.max_steps and not self.control.should_training_stop:
            settings.check_resumed(self)
            drawing.start_at_epoch(kwargs["train_dataloader"], kwargs["epoch"])
            super()._run_epoch(*args, **kwargs)

    # 2. A generation of rollouts

    def _generate_and_score_completions(self, inputs: Examples) -> Rollouts:
        """The completions of a generation with rewards, advantages and masks: this process's."""
        training, planner = self.model_wrapped.training, self.shaping.planning
        log = self._metrics["train" if training else "eval"]
        group = self._shares.group if training else self.num_generations_eval or 1
        shares = replace(self._shares, group=group)
        score = super()._generate_and_score_completions
        self._generation = call = GenerationCall(
            score, self.shaping, shares, self._ends, self.state, log
        )
        try:
            if planner is not None and training:
                rows = self._planned(planner, call, inputs)
                zeros = (rows["advantages"] == 0).float().mean()
                batch = planning.shared_out(rows, self.args.steps_per_generation or 1, shares)
            else:
                batch = planning.in_groups(call.groups(inputs, training), shares)
                zeros = self.accelerator.gather((batch["advantages"] == 0).float().mean()).mean()
        finally:
            self._generation = None
        if self.shaping.token_rule is None:  # else the loss gets other advantages
            log["zero_advantages"].append(float(zeros))
        if training:
            call.count()
        else:
            moment = (*self._moment(self.model_wrapped), self._evaluations)
            names = ["reward", *(f"rewards/{name}/mean" for name in self.reward_func_names)]
            self._entries.put(log, moment, self._evaluated.means(call.scores, group, names))
        return batch

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """TRL's evaluation; what is logged of one has nothing of another in the same step."""
        self._evaluations += 1
        dataset = dataloader.dataset
        self._evaluated = tallies.Evaluated(len(dataset) if hasattr(dataset, "__len__") else None)
        self._set = metric_key_prefix.removeprefix("eval").removeprefix("_")
        return super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log; of one of several sets of evaluation each number has that set's key.

        TRL gives those of all sets the same keys, which stay beside for what is TRL's own.
        """
        log = self._metrics["eval"]
        if not self.model.training and self._set:
            for name in list(log):
                log[f"{self._set}_{name}"] = log[name]
                if name.startswith(_OWN):
                    del log[name]
        super().log(logs, start_time)

    def _planned(self, planner: Planner, call: GenerationCall, inputs: Examples) -> Rollouts:
        """The completions of all processes, drawn further as the planner says and chosen by it."""
        shares, step = self._shares, self.state.global_step

        def others(count: int, number: int) -> Examples:
            return drawing.other_prompts(self.train_dataset, count, self.args.seed, step, number)

        def draw(asked: Examples, wish: Draw) -> Rollouts:
            if wish.more is None:
                return shares.everyones(call.groups(shares.part(asked)))
            batch, own = call.further(asked, wish.guided)
            if wish.guided:
                batch = self._under_own_prompts(batch, [example["prompt"] for example in own])
            return drawing.take_rows(shares.everyones(batch), slice(len(asked)))

        examples = gather_object(inputs)[:: shares.group]
        rows = shares.everyones(call.groups(inputs))
        generation = planning.Generation(examples, rows, shares.group)
        chosen = planning.follow(planner, generation, self.accelerator.num_processes, others, draw)
        for name, value in generation.counts(self.shaping.filter is not None).items():
            call.log[name].append(value)
        scaled = self.args.scale_rewards != "none"
        return planning.chosen_rows(generation, chosen, self.shaping, scaled, shares)

    def _under_own_prompts(self, batch: Rollouts, prompts: list[Any]) -> Rollouts:
        """Guided completions with their prompts without guidance, and reference log-probs for it.

        The old log-probs stay those of the policy that drew them: under guidance.
        """
        if OLD not in batch:
            batch[OLD] = self._read(self.model, *drawing.texts_of(batch))
        ids, multiple = self._tokenize_prompts(prompts)[0], self.args.pad_to_multiple_of
        batch = planning.with_prompts(batch, ids, self._shares.padding, multiple)
        if REFERENCE in batch:
            with self._reference(self.model) as reference:
                batch[REFERENCE] = self._read(reference, *drawing.texts_of(batch))
        return batch

    def _generate(self, prompts: list[Any]) -> Any:
        """TRL's completions; every log that asks whether they ended follows one rule."""
        drawn = super()._generate(prompts)
        if self._generation is not None:
            self._generation.note_ends(drawn[1], drawn[2])
        return drawn

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Tokens and log-probs of a completion of each prompt."""
        if self._draws is None:
            drawn, *rest = super()._generate_single_turn(prompt_ids, *args, **kwargs)
            return self._ends.cut(drawn), *rest
        policy: Any = self.accelerator.unwrap_model(self.model)
        first = self._shares.first(len(prompt_ids))
        wanted = None if self._generation is None else self._generation.wanted
        tokens, log_probs = self._draws.draw(
            policy, prompt_ids, self._moment(self.model), first, wanted
        )
        # Behind a filter they are those of another distribution than the trainer's.
        return tokens, None if drawing.filters_of(self.args) else log_probs

    def _calculate_rewards(
        self, inputs: Examples, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """Rewards of all processes' completions, `[R, F]`; some read the answer's probability."""
        if any(getattr(reward, READS_ANSWER, False) for reward in self.reward_funcs):
            read, alone = partial(self._read, self.model), self.accelerator.num_processes == 1
            texts = (inputs, prompts, completion_ids_list)
            inputs = with_answer_probabilities(*texts, self._tokenizer, read, alone)
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        for name, infinite in zip(self.reward_func_names, rewards.isinf().any(dim=0), strict=True):
            if infinite:
                raise ValueError(f"reward {name} is infinite; a reward is a finite number or None")
        weights = self.reward_weights.to(rewards)
        weighted = rewards[:, weights != 0]
        if weighted.shape[1]:  # what has no reward that counts is not scored
            rewards = rewards.masked_fill(weighted.isnan().all(dim=1)[:, None], torch.nan)
        if (call := self._generation) is not None:
            if getattr(self.shaping.token_rule, "strategies", False):
                numbers = strategies_of(inputs, completions)
                call.strategies = torch.tensor(numbers, device=rewards.device)
            total = (rewards * weights).nansum(dim=1)
            total = total.masked_fill(rewards.isnan().all(dim=1), torch.nan)
            call.scores = torch.cat([total[:, None], rewards], dim=1)
            call.parts = (rewards * weights)[:, weights != 0]
        return rewards

    # 3. A micro-batch

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """A micro-batch; where tokens get credit, the rows that TRL shuffled are in order again."""
        inputs = super()._prepare_inputs(generation_batch)
        if self.shaping.token_rule is None or not self.model.training:
            return inputs
        self._buffered_inputs = credit.ordered(self._buffered_inputs)
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    # 4. Its loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss of what `shaping` makes of the inputs, without what the seam adds to it."""
        moment = (*self._moment(model), self._evaluations)
        self._loss = call = LossCall(dict(inputs), moment)
        try:
            loss: torch.Tensor = super()._compute_loss(model, call.inputs)
        finally:
            self._loss = None
        self._log(call, "", self._means.add(call, self._metrics[call.moment[0]]))
        parts = self.current_gradient_accumulation_steps if call.training else 1.0
        return anchoring.undo_offset(loss, call, self._shares, self.args, self.entropy_coef, parts)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **kwargs: Any
    ) -> Any:
        """Log-probs and entropies; in a loss they shape what TRL reads of its inputs after that."""
        call, shaping, rule = self._loss, self.shaping, self.shaping.token_rule
        plain, states = super()._get_per_token_logps_and_entropies, call.states if call else None
        texts = (input_ids, attention_mask, logits_to_keep)
        whole, read = bool(getattr(rule, "hidden_states", False)), plain
        if self._trims:
            read = one_pass(plain, self.accelerator, self.temperature, whole)
        if states is not None and whole:
            read = with_states(read, self.accelerator.unwrap_model(model), states)
        if self._trims and not self.aux_loss_enabled:  # that of a mixture of experts is one number
            read = trimmed(read, self.accelerator, states)
        output = read(model, *texts, **kwargs)
        if call is None:
            return output
        call.take(output[0], output[1])
        self._starts.compare(self, call)
        if getattr(shaping.guide, "entropy_of", "policy") == "reference":
            with torch.no_grad(), self._reference(model) as network:
                call.reference_entropies = plain(network, *texts, **kwargs)[1]
        if shaping.guide is not None:
            self._log(call, "sage/", self._guidance.shape(call, shaping, self.state.max_steps))
        if call.reference is not None and call.training:
            generation, part = divmod(self._step, self.args.steps_per_generation)
            last = part + 1 == self.args.steps_per_generation
            pushes = self._pushes(call)
            self._log(call, "sage/", self._doses.add(call, self.beta, generation, last, pushes))
        if shaping.replaces_k3 and shaping.estimator is not None:
            seen = call.seen(self._shares)
            if shaping.over_vocabulary:
                seen = self._with_logits(seen, model, *texts)
            call.replace_k3(shaping.estimator.values(seen))
        if rule is not None:
            credit.give_credit(rule, call, shaping, self.beta, self._shares)
        if credit.SAMPLED in call.inputs:
            log = credit.correct(call, self._correction, self._gaps, self.loss_type)
            self._log(call, "sampler/", log)
        return output

    def _pushes(self, call: anchoring.LossCall) -> torch.Tensor | None:
        """What the guide adds to the weights of tokens in the loss; None where it is not there."""
        if call.log_factors is None or self.shaping.kl_in_reward:
            return None
        own = K3Corrected() if self.args.use_bias_correction_kl else K3()
        of_state = getattr(self.shaping.guide, "of_state", False)
        seen, factors = call.seen(self._shares), call.log_factors
        return anchoring.guide_pushes(self.shaping.estimator or own, seen, factors, of_state)

    def _with_logits(
        self, seen: LogProbs, model: Any, ids: Any, mask: Any, length: int
    ) -> LogProbs:
        """`seen` with the logits of policy and reference at the states of the last tokens."""

        def logits(network: Any) -> torch.Tensor:
            with self.accelerator.autocast():
                output = network(ids, mask, logits_to_keep=length + 1)
            return output.logits[:, :-1].float() / self.temperature

        policy = logits(model)
        with torch.no_grad(), self._reference(model) as network:
            reference = logits(network)
        return replace(seen, policy=policy, anchor=reference, tokens=ids[:, -length:])

    # 5. What is learnt and remembered

    def end_step(self) -> None:
        """Let the choices learn that do, from all micro-batches of the step."""
        self.shaping.end_step(partial(self.accelerator.reduce, reduction="sum"))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        states = self.shaping.states()
        if states and self.args.should_save:
            torch.save(states, Path(output_dir) / STATE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.shaping.states():
            file = Path(checkpoint) / STATE
            self.shaping.load_states(torch.load(file, map_location="cpu", weights_only=True))

    # What several of them need

    @torch.no_grad()
    def _read(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        """Log-probs of the last `width` tokens under `model`, `[B, width]`."""
        device, rows = self.accelerator.device, self.args.per_device_train_batch_size
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            log_probs: torch.Tensor = self._get_per_token_logps_and_entropies(
                model, ids.to(device), mask.to(device), width, batch_size=rows
            )[0]
        return log_probs

    @contextmanager
    def _reference(self, model: Any) -> Iterator[Any]:
        """The model that the KL term refers to: its own, or the policy with its adapter off."""
        if self.ref_model is not None:
            yield self.ref_model
            return
        policy: Any = self.accelerator.unwrap_model(model)
        # Where the policy came with an adapter, TRL keeps a copy of it.
        with use_adapter(policy, adapter_name="ref" if "ref" in policy.peft_config else None):
            yield model

    def _moment(self, model: Any) -> tuple[str, int]:
        """The mode and the optimizer step."""
        return ("train" if model.training else "eval", self.state.global_step)

    def _log(self, call: LossCall, prefix: str, values: dict[str, float]) -> None:
        """Set what is logged of a moment; each call gives its numbers so far."""
        named = {prefix + name: value for name, value in values.items()}
        self._entries.put(self._metrics[call.moment[0]], call.moment, named)


class _Learning(TrainerCallback):
    """Ends the step of the choices once the gradients of an optimizer step are complete."""

    def __init__(self, trainer: SageTrainer) -> None:
        self._trainer = trainer

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self._trainer.end_step()
