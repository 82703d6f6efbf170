"""Settings that would train something else than they say: one table of what is refused.

Settings of TRL, or arguments of `SageTrainer`, can leave a guide, an estimator or a credit rule
without any effect, or with the opposite one, in a run that ends normally. Each such pair is a row
of TABLE, in words in `settings.yaml`, and its condition is here, in `HOLDS`. It is looked for once,
before the first step, and refused, or warned of where one may also want to study it.
docs/method.md shows the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sized
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import yaml
from datasets import IterableDataset

from sage.method.anchors import K2, K3Corrected
from sage.method.planners import DynamicSampling
from sage.training.drawing import GUIDED, filters_of
from sage.training.rewards import READS_ANSWER


class Run:
    """What conditions look at: a trainer that TRL has set up, its settings, parts of its method.

    `rule` sets the advantage of each token; a planner is `ragged` where groups may differ in size;
    a `state_guide` acts through the loss, and alike on all tokens of a state.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.args, self.shaping = trainer, trainer.args, trainer.shaping
        self.guide, self.estimator = self.shaping.guide, self.shaping.estimator
        self.advantage, self.rule = self.shaping.advantage, self.shaping.token_rule
        self.planner, self.data = self.shaping.planning, trainer.train_dataset
        self.ragged = bool(self.planner and getattr(self.planner, "ragged", True))
        self.filters = isinstance(self.planner, DynamicSampling)
        self.columns = set(getattr(self.data, "column_names", None) or ())
        of_state = getattr(self.guide, "of_state", False)
        self.state_guide = of_state and not self.shaping.kl_in_reward
        self.whole_groups = getattr(self.rule, "whole_groups", False)
        self.by_sequence = self.args.importance_sampling_level == "sequence"
        self.draws = trainer._draws is not None
        self.corrects = trainer._correction.kind != "none"
        self.adapters = getattr(trainer.model, "peft_config", {})
        self.virtual = any(one.is_prompt_learning for one in self.adapters.values())

    def partial_bonus(self) -> bool:
        """Whether an entropy bonus is of part of the tokens, or of a weight that changes."""
        args = self.args
        partial = args.entropy_coef and args.top_entropy_quantile < 1.0
        several = self.ragged or self.trainer._shares.sharing > 1
        return several and (args.use_adaptive_entropy or partial)

    def generation_of_trl(self) -> bool:
        """Whether something is set of TRL's generation, which a drawer takes the place of."""
        args = self.args
        set_there = (args.generation_kwargs, args.cache_implementation, args.use_vllm)
        return self.draws and (args.repetition_penalty not in (None, 1.0) or any(set_there))

    def moved_adapter(self) -> bool:
        """Whether an adapter that is switched off for the reference already adds something."""
        if self.trainer.beta == 0.0 or self.trainer._starts.chosen or "ref" in self.adapters:
            return False
        return self.virtual or any(
            all(
                any(part.weight.any() for part in getattr(module, half, {}).values())
                for half in ("lora_A", "lora_B")
            )
            for module in self.trainer.model.modules()
        )

    def problems_short(self) -> str:
        """How many problems there are, and are needed, where they are too few."""
        group, batch = self.trainer.num_generations, self.args.generation_batch_size
        if isinstance(self.data, Sized) and len(self.data) < batch // group:
            return f"{len(self.data)} of {batch // group}, generation_batch_size / num_generations"
        return ""

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
    """A `setting` that does not go with what is `beside` it: what happens, and what to set."""

    setting: str
    beside: str
    effect: str
    remedy: str
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
        if found := HOLDS[name](run):
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


TABLE = {
    name: Row(**row)
    for name, row in yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    ).items()
}
"""By name. Of each row the message is `setting` with `beside`: `effect`; `remedy`."""

HOLDS: dict[str, Callable[[Run], Any]] = {
    # The KL term, and what acts through it.
    "no_kl": lambda run: run.trainer.beta <= 0.0 and (run.guide or run.estimator),
    "corrected_estimator": lambda run: run.estimator and run.args.use_bias_correction_kl,
    "ratios_of_sequences_and_guide": lambda run: (
        run.guide and run.by_sequence and run.args.use_bias_correction_kl
    ),
    "cancelled_guide": lambda run: (
        run.state_guide
        and (run.args.use_bias_correction_kl or isinstance(run.estimator, K2 | K3Corrected))
    ),
    "guide_over_vocabulary": lambda run: run.shaping.over_vocabulary and run.guide,
    "equal_clamp": lambda run: run.guide and run.shaping.clamp[0] >= run.shaping.clamp[1],
    "moving_reference": lambda run: run.args.sync_ref_model and run.state_guide,
    "moved_adapter": Run.moved_adapter,
    "fixed_reference": lambda run: run.args.sync_ref_model and run.trainer._starts.chosen,
    # Advantages, and credit of single tokens.
    "ratios_of_sequences": lambda run: run.rule and run.by_sequence,
    "off_policy_mask": lambda run: run.rule and run.args.off_policy_mask_threshold is not None,
    "tokens_without_credit": lambda run: run.rule and run.args.top_entropy_quantile < 1.0,
    "cispo_bound": lambda run: (
        run.args.loss_type == "cispo"
        and run.trainer.epsilon_high < 1.0
        and (run.rule or run.guide or run.estimator or run.advantage)
    ),
    "scale_of_batch": lambda run: (
        run.args.scale_rewards == "batch" and (run.advantage or run.ragged)
    ),
    "normalised_first": lambda run: (
        run.args.multi_objective_aggregation == "normalize_then_sum"
        and (run.advantage or run.ragged or run.filters)
    ),
    "tools": lambda run: run.trainer.tools and getattr(run.rule, "single_turn", ""),
    "ragged_groups": lambda run: run.ragged and run.whole_groups,
    "cut_groups": Run.groups_cut,
    # Entropy, and rows that only fill up.
    "partial_bonus": Run.partial_bonus,
    "empty_micro_batches": lambda run: (
        run.ragged
        and run.args.gradient_accumulation_steps > 1
        and (run.args.loss_type == "bnpo" or run.args.entropy_coef)
    ),
    # How rollouts are drawn.
    "unequal_draws_of_a_server": lambda run: (
        run.ragged and run.args.use_vllm and run.args.vllm_mode == "server"
    ),
    "no_guidance": lambda run: (
        getattr(run.planner, "needs_guidance", False)
        and GUIDED not in run.columns
        and f"its columns: {', '.join(sorted(run.columns))}"
    ),
    "two_drawers": lambda run: (
        run.draws and (run.trainer.rollout_func or run.args.use_transformers_continuous_batching)
    ),
    "generation_of_trl": Run.generation_of_trl,
    "virtual_tokens": lambda run: run.draws and run.virtual,
    "filtered_correction": lambda run: (
        run.draws and run.corrects and ", ".join(filters_of(run.args))
    ),
    "two_corrections": lambda run: (
        run.corrects and run.args.use_vllm and run.args.vllm_importance_sampling_correction
    ),
    "no_sampler": lambda run: (
        run.corrects and not (run.draws or run.args.use_vllm or run.trainer.rollout_func)
    ),
    "other_template": lambda run: (
        run.args.chat_template_kwargs
        and any(getattr(one, READS_ANSWER, False) for one in run.trainer.reward_funcs)
    ),
    # Policy, data and checkpoints.
    "nothing_to_learn": lambda run: (
        not any(weights.requires_grad for weights in run.trainer.model.parameters())
    ),
    "images": lambda run: run.trainer._is_vlm or run.columns & {"image", "images"},
    "few_problems": Run.problems_short,
    "filtered_stream": lambda run: run.filters and isinstance(run.data, IterableDataset),
    "unaligned_saves": Run.unaligned_saves,
}
"""By row: whether a run has it; a text is the values, for the message."""
