"""Settings that would train something else than they say: one table of what is refused.

Settings of TRL, or arguments of `SageTrainer`, can leave a guide, an estimator or a credit rule
without any effect, or with the opposite one, in a run that ends normally. Each such pair is a row
of TABLE and is looked for once, before the first step. It is refused, or warned of where it is
also what one may want to study. docs/method.md shows the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sized
from dataclasses import dataclass
from math import gcd
from typing import Any

from datasets import IterableDataset

from sage.method.anchors import K2, K3Corrected
from sage.method.planners import DynamicSampling
from sage.training.drawing import GUIDED, filters_of
from sage.training.rewards import READS_ANSWER


class Run:
    """What rows look at: a trainer that TRL has set up, its settings and the parts of its method.

    `rule` sets the advantage of each token; a planner is `ragged` where groups may differ in size.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.args, self.shaping = trainer, trainer.args, trainer.shaping
        self.rule, self.planner = self.shaping.token_rule, self.shaping.planning
        self.ragged = bool(self.planner and getattr(self.planner, "ragged", True))
        self.data = trainer.train_dataset
        self.columns = set(getattr(self.data, "column_names", None) or ())
        self.state_guide = (
            getattr(self.shaping.guide, "of_state", False) and not self.shaping.kl_in_reward
        )
        self.whole_groups = getattr(self.rule, "whole_groups", False)
        self.draws = trainer._draws is not None
        self.corrects = trainer._correction.kind != "none"
        adaptive, bonus = self.args.use_adaptive_entropy, self.args.entropy_coef
        self.partial_bonus = adaptive or (bonus and self.args.top_entropy_quantile < 1.0)

    def problems_short(self) -> str:
        """How many problems there are, and are needed, where they are too few."""
        group, batch = self.trainer.num_generations, self.args.generation_batch_size
        if isinstance(self.data, Sized) and len(self.data) < batch // group:
            return f"{len(self.data)} of {batch // group}, generation_batch_size / num_generations"
        return ""

    def moved_adapter(self) -> bool:
        """Whether an adapter that is switched off for the reference already adds something."""
        model = self.trainer.model
        adapters = getattr(model, "peft_config", {})
        if self.trainer.beta == 0.0 or self.trainer._starts.chosen or "ref" in adapters:
            return False
        return any(one.is_prompt_learning for one in adapters.values()) or any(
            any(part.weight.any() for part in getattr(module, "lora_A", {}).values())
            and any(part.weight.any() for part in getattr(module, "lora_B", {}).values())
            for module in model.modules()
        )

    def groups_cut(self) -> str:
        """The rows of a micro-batch where they are not whole groups of a rule that needs them."""
        shares, rows = self.trainer._shares, self.args.per_device_train_batch_size
        # A process that shares a micro-batch has only part of its completions in a row.
        together = rows if self.args.steps_per_generation > 1 else rows * shares.sharing
        cut = self.whole_groups and together % shares.group
        return f"{rows} rows in each process, groups of {shares.group}" if cut else ""

    def unaligned_saves(self) -> str:
        """The steps of a generation where checkpoints are written between them."""
        steps, each = self.args.save_steps, steps_of_a_generation(self.args)
        between = self.args.save_strategy == "steps" and steps >= 1 and steps % each
        return f"{steps:g} and {each}" if between else ""


@dataclass(frozen=True)
class Row:
    """A `setting` that does not go with what is `beside` it: what happens, and what to set.

    `holds` says whether a run has both; a text is the values, for the message.
    """

    setting: str
    beside: str
    effect: str
    remedy: str
    holds: Callable[[Run], Any]
    refused: bool = True


class Refused(ValueError):
    """A run has a row of TABLE that is refused; `row` is its name."""

    def __init__(self, message: str, row: str) -> None:
        super().__init__(message)
        self.row = row


class WithoutEffect(UserWarning):
    """A run has a row of TABLE that is warned of; `row` is its name."""

    def __init__(self, message: str, row: str) -> None:
        super().__init__(message)
        self.row = row


def check(trainer: Any) -> None:
    """Raise Refused for the first row of TABLE that `trainer` has, or warn of it."""
    run = Run(trainer)
    for name, row in TABLE.items():
        if found := row.holds(run):
            values = f" ({found})" if isinstance(found, str) else ""
            said = f"{row.setting} with {row.beside}{values}: {row.effect}; {row.remedy}"
            if row.refused:
                raise Refused(said, name)
            warnings.warn(WithoutEffect(said, name), stacklevel=4)


def check_resumed(trainer: Any) -> None:
    """Raise Refused for a run that goes on between the steps of a generation, which is lost."""
    steps, done = steps_of_a_generation(trainer.args), trainer.state.global_step
    if trainer._step == 0 and done % steps:
        raise Refused(
            f"the checkpoint is of step {done}, but {steps} steps learn from one generation, whose "
            f"rest it does not hold; resume from a step that is a multiple of {steps}, and set "
            f"save_steps to one",
            "unaligned_saves",
        )


def steps_of_a_generation(args: Any) -> int:
    """Optimizer steps from one that begins with a generation to the next that does."""
    every = int(args.steps_per_generation * args.num_iterations)
    return every // gcd(every, args.gradient_accumulation_steps)


_CREDIT = "a credit rule or `K1InReward`"
_RAGGED = "a planner of unequal groups"

TABLE = {
    # The KL term, and what acts through it.
    "no_kl": Row(
        "`beta` 0 or less",
        "a guide or an estimator",
        "there is no KL term that they could act through, or it pushes the other way",
        "set `beta` above 0",
        lambda run: run.trainer.beta <= 0.0 and (run.shaping.guide or run.shaping.estimator),
    ),
    "corrected_estimator": Row(
        "`use_bias_correction_kl=True` (TRL's default)",
        "an estimator",
        "TRL corrects its own k3 only, and would weight another term by the ratio",
        "set `use_bias_correction_kl=False`",
        lambda run: run.shaping.estimator and run.args.use_bias_correction_kl,
    ),
    "ratios_of_sequences_and_guide": Row(
        "`importance_sampling_level='sequence'` and `use_bias_correction_kl=True`",
        "a guide",
        "the KL term becomes one penalty of a completion, and the more the guide raises or lowers "
        "its tokens, the less likely it gets",
        "set `use_bias_correction_kl=False`, or 'token'",
        lambda run: (
            run.shaping.guide
            and run.args.use_bias_correction_kl
            and run.args.importance_sampling_level == "sequence"
        ),
    ),
    "cancelled_guide": Row(
        "`use_bias_correction_kl=True` (TRL's default), `K2` or `K3Corrected`",
        "a guide of the state alone (branch, random)",
        "all tokens of a state get the same, which cancels in a sum over tokens and points away "
        "from the guide in a mean of each completion; `sage/q_max` does not show it, "
        "`sage/loss_dose` does",
        "set `use_bias_correction_kl=False` for the paper's k3, or `estimator=K1InReward()`",
        lambda run: (
            run.state_guide
            and (
                run.args.use_bias_correction_kl
                or isinstance(run.shaping.estimator, K2 | K3Corrected)
            )
        ),
        refused=False,
    ),
    "guide_over_vocabulary": Row(
        "`ExactForwardKL`, or another estimator over the vocabulary",
        "a guide",
        "it reads the reference's logits, in which the guide is not",
        "set `estimator=SampledForwardKL()`, or leave out the guide",
        lambda run: run.shaping.over_vocabulary and run.shaping.guide,
    ),
    "equal_clamp": Row(
        "a clamp of two equal factors",
        "a guide",
        "every token gets the same factor",
        "give a lower and a higher one",
        lambda run: run.shaping.guide and run.shaping.clamp[0] >= run.shaping.clamp[1],
    ),
    "moving_reference": Row(
        "`sync_ref_model=True`",
        "a guide of the state alone and k3",
        "with each move the reference comes nearer to the policy, where such a guide has no effect",
        "set `sync_ref_model=False`, or `estimator=K1InReward()`",
        lambda run: run.args.sync_ref_model and run.state_guide,
        refused=False,
    ),
    "moved_adapter": Row(
        "an adapter that adds something from the start (`init_lora_weights` 'pissa', 'olora' or "
        "False, prompt tuning)",
        "a KL term without `reference`",
        "it refers to the model with the adapter off, which is not what training starts from",
        "take an adapter that adds nothing, or give `reference`, the model before the adapter",
        lambda run: run.moved_adapter(),
    ),
    "fixed_reference": Row(
        "`sync_ref_model=True`",
        "`reference`",
        "it moves the reference that TRL loads, but `reference` is another model, which stays",
        "set `sync_ref_model=False`, or leave out `reference`",
        lambda run: run.args.sync_ref_model and run.trainer._starts.chosen,
    ),
    # Advantages, and credit of single tokens.
    "ratios_of_sequences": Row(
        "`importance_sampling_level='sequence'`",
        _CREDIT,
        "all tokens of a completion share one gradient, so where the credit is does not matter",
        "set 'token'",
        lambda run: run.rule and run.args.importance_sampling_level == "sequence",
    ),
    "off_policy_mask": Row(
        "`off_policy_mask_threshold`",
        _CREDIT,
        "TRL drops completions of negative advantage, but would drop single tokens",
        "leave it out",
        lambda run: run.rule and run.args.off_policy_mask_threshold is not None,
    ),
    "tokens_without_credit": Row(
        "`top_entropy_quantile` below 1",
        _CREDIT,
        "tokens of low entropy get no credit, nor a KL that is in the reward",
        "set 1.0 for credit at all tokens",
        lambda run: run.rule and run.args.top_entropy_quantile < 1.0,
        refused=False,
    ),
    "cispo_bound": Row(
        "`loss_type='cispo'` and `epsilon_high` below 1",
        "anything in `shaping`",
        "epsilon_high is the bound of the ratio itself, so rewards and credit count that much less "
        "beside the KL term",
        "set `epsilon_high` above 1",
        lambda run: (
            run.args.loss_type == "cispo"
            and run.trainer.epsilon_high < 1.0
            and (run.rule or run.shaping.guide or run.shaping.estimator or run.shaping.advantage)
        ),
        refused=False,
    ),
    "scale_of_batch": Row(
        "`scale_rewards='batch'`",
        f"an advantage or {_RAGGED}",
        "advantages are those of single groups",
        "set 'group' or 'none'",
        lambda run: run.args.scale_rewards == "batch" and (run.shaping.advantage or run.ragged),
    ),
    "normalised_first": Row(
        "`multi_objective_aggregation='normalize_then_sum'`",
        f"an advantage, a filter or {_RAGGED}",
        "each reward is normalised over the prompts as TRL drew them, which these replace",
        "set 'sum_then_normalize'",
        lambda run: (
            run.args.multi_objective_aggregation == "normalize_then_sum"
            and (run.shaping.advantage or run.ragged or isinstance(run.planner, DynamicSampling))
        ),
    ),
    "tools": Row(
        "tools",
        "a credit rule of one turn",
        "what it compares is not what the policy wrote alone",
        "leave out the tools, or choose another rule",
        lambda run: run.trainer.tools and getattr(run.rule, "single_turn", ""),
    ),
    "ragged_groups": Row(
        _RAGGED,
        "a credit rule of whole groups",
        "the rule needs the whole group of a prompt in a micro-batch",
        "choose another planner or rule",
        lambda run: run.ragged and run.whole_groups,
    ),
    "cut_groups": Row(
        "micro-batches that cut groups",
        "a credit rule of whole groups",
        "the rule needs the whole group of a prompt in a micro-batch",
        "lower `micro_batches`",
        lambda run: run.groups_cut(),
    ),
    # Entropy, and rows that only fill up.
    "partial_bonus": Row(
        "`use_adaptive_entropy`, or `entropy_coef` and `top_entropy_quantile` below 1",
        f"{_RAGGED}, or processes that share a micro-batch",
        "the bonus is put right as that of all tokens at a fixed weight",
        "set `use_adaptive_entropy=False`, and `top_entropy_quantile=1.0` or `entropy_coef=0.0`; "
        "or raise `micro_batches`",
        lambda run: run.partial_bonus and (run.ragged or run.trainer._shares.sharing > 1),
    ),
    "empty_micro_batches": Row(
        "`gradient_accumulation_steps` above 1 and loss bnpo or `entropy_coef`",
        _RAGGED,
        "a micro-batch can be without a completion, and these are means over micro-batches",
        "set `gradient_accumulation_steps=1`, or another `loss_type` and `entropy_coef=0.0`",
        lambda run: (
            run.ragged
            and run.args.gradient_accumulation_steps > 1
            and (run.args.loss_type == "bnpo" or run.args.entropy_coef)
        ),
    ),
    # How rollouts are drawn.
    "unequal_draws_of_a_server": Row(
        "`vllm_mode='server'`",
        _RAGGED,
        "a server is asked for G completions of each prompt",
        "set 'colocate'",
        lambda run: run.ragged and run.args.use_vllm and run.args.vllm_mode == "server",
    ),
    "no_guidance": Row(
        f"a data set without the column {GUIDED!r}",
        "a planner that draws under guidance",
        "there is nothing to draw under",
        "add the column, or choose another planner",
        lambda run: (
            getattr(run.planner, "needs_guidance", False)
            and GUIDED not in run.columns
            and f"its columns: {', '.join(sorted(run.columns))}"
        ),
    ),
    "two_drawers": Row(
        "`rollout_func` or `use_transformers_continuous_batching`",
        "`make_drawer`",
        "both draw the completions",
        "leave out one",
        lambda run: (
            run.draws
            and (run.trainer.rollout_func or run.args.use_transformers_continuous_batching)
        ),
    ),
    "generation_of_trl": Row(
        "`repetition_penalty`, `generation_kwargs`, `cache_implementation` or `use_vllm`",
        "`make_drawer`",
        "these are settings of TRL's generation, which it takes the place of",
        "unset them, or leave out `make_drawer`",
        lambda run: (
            run.draws
            and (
                run.args.repetition_penalty not in (None, 1.0)
                or run.args.generation_kwargs
                or run.args.cache_implementation
                or run.args.use_vllm
            )
        ),
    ),
    "virtual_tokens": Row(
        "prompt or prefix tuning",
        "`make_drawer`",
        "it draws without the virtual tokens that the policy is trained with",
        "leave out `make_drawer`",
        lambda run: (
            run.draws
            and any(
                one.is_prompt_learning
                for one in getattr(run.trainer.model, "peft_config", {}).values()
            )
        ),
    ),
    "filtered_correction": Row(
        "`top_k`, `top_p` or `min_p`",
        "a correction and `make_drawer`",
        "the sampler's probabilities are behind these filters, which the trainer's are not",
        "give no correction, or draw without filters",
        lambda run: run.draws and run.corrects and ", ".join(filters_of(run.args)),
    ),
    "two_corrections": Row(
        "`vllm_importance_sampling_correction=True` (TRL's default)",
        "`correction`",
        "tokens are weighted by the same ratio twice",
        "set one of them to False or none",
        lambda run: (
            run.corrects and run.args.use_vllm and run.args.vllm_importance_sampling_correction
        ),
    ),
    "no_sampler": Row(
        "generation by TRL with transformers",
        "`correction`",
        "there are no probabilities of a sampler to compare with",
        "give `make_drawer`, or no correction",
        lambda run: (
            run.corrects and not (run.draws or run.args.use_vllm or run.trainer.rollout_func)
        ),
    ),
    "other_template": Row(
        "`chat_template_kwargs`",
        "a reward that reads the answer's probability",
        "it reads the prompt without them",
        "leave them out, or choose another reward",
        lambda run: (
            run.args.chat_template_kwargs
            and any(getattr(one, READS_ANSWER, False) for one in run.trainer.reward_funcs)
        ),
    ),
    # Policy, data and checkpoints.
    "nothing_to_learn": Row(
        "a policy",
        "no trainable parameter",
        "nothing would be learnt",
        "load its adapter with is_trainable=True, or give `peft_config`",
        lambda run: not any(each.requires_grad for each in run.trainer.model.parameters()),
    ),
    "images": Row(
        "images",
        "SageTrainer",
        "it learns from text alone: they would be lost where rollouts are drawn and planned",
        "give a tokenizer as processing_class and a data set without images, or use GRPOTrainer",
        lambda run: run.trainer._is_vlm or run.columns & {"image", "images"},
    ),
    "few_problems": Row(
        "a data set",
        "fewer problems than a generation takes",
        "there would be no step",
        "lower the batch, or give more problems",
        lambda run: run.problems_short(),
    ),
    "filtered_stream": Row(
        "an iterable data set",
        "a filter",
        "other prompts take the place of those it drops, but a stream is read in its order",
        "give a Dataset, or leave out the filter",
        lambda run: (
            isinstance(run.planner, DynamicSampling) and isinstance(run.data, IterableDataset)
        ),
    ),
    "unaligned_saves": Row(
        "`save_steps`",
        "steps that learn from one generation (`steps_per_generation`, `num_iterations`)",
        "a run cannot be resumed from a checkpoint between them",
        "set a multiple of those steps",
        lambda run: run.unaligned_saves(),
        refused=False,
    ),
}
"""By name. Of each pair the message is `setting` with `beside`: `effect`; `remedy`."""
