"""What a run needs to be right from its start: refusals before the first step, and the reference.

Each refusal is of something that would otherwise end normally with wrong numbers, or fail long
after the start. What a credit rule or a planner cannot work with is in `credit` and `planning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sized
from typing import Any

import torch
from datasets import IterableDataset

from sage.method.planners import DynamicSampling
from sage.training.anchoring import LossCall
from sage.training.drawing import filters_of
from sage.training.shaping import Shaping

_ROUNDING, _ROUNDING_OF_16_BITS = 1e-3, 0.05
"""Mean distances of log-probs (nats per token) that come from rounding alone."""


def check_reference(args: Any, reference: Any) -> None:
    """Raise ValueError for a `reference` of one's own that TRL's `args` would have follow."""
    if args is not None and args.sync_ref_model and reference is not None:
        raise ValueError(
            "sync_ref_model moves the reference that TRL loads, but `reference` is another model, "
            "which stays as it is; set sync_ref_model=False, or leave out `reference`"
        )


def check_policy(policy: torch.nn.Module) -> None:
    """Raise ValueError for a policy that cannot learn."""
    if not any(weights.requires_grad for weights in policy.parameters()):
        raise ValueError(
            "the policy has no trainable parameter, so nothing would be learnt; load its adapter "
            "with is_trainable=True, or give peft_config"
        )


def check_drawing(trainer: Any, correction: str) -> None:
    """Raise ValueError for what `trainer` cannot have beside a drawer, or not with `correction`."""
    args, of_args = trainer.args, "use_transformers_continuous_batching"
    names = ["rollout_func"] if getattr(trainer, "rollout_func", None) is not None else []
    if names := names + [of_args] * getattr(args, of_args, False):
        raise ValueError(
            f"{', '.join(names)} and make_drawer both draw the completions; leave out one"
        )
    if (filters := filters_of(args)) and correction != "none":
        raise ValueError(
            f"the correction {correction} compares the trainer's probabilities with the sampler's, "
            f"but those are behind {', '.join(filters)}, which the trainer's are not: a ratio "
            "would be far from 1 with equal policies; set the correction to none, or draw without "
            "these filters"
        )


def check_data(trainer: Any, shaping: Shaping) -> None:
    """Raise ValueError for data that `trainer` cannot learn from, or not with `shaping`."""
    data, args = trainer.train_dataset, trainer.args
    columns = getattr(data, "column_names", None) or ()
    if trainer._is_vlm or {"image", "images"} & set(columns):
        raise ValueError(
            "SageTrainer learns from text alone: images would be lost where rollouts are drawn and "
            "planned; give a tokenizer as processing_class and a data set without images, or use "
            "TRL's GRPOTrainer"
        )
    needed = args.generation_batch_size // trainer.num_generations
    if isinstance(data, Sized) and len(data) < needed:
        raise ValueError(
            f"{len(data)} problems, but a generation takes {needed} (generation_batch_size "
            f"{args.generation_batch_size} / num_generations {trainer.num_generations}): there "
            "would be no step; lower the batch, or give more problems"
        )
    if isinstance(shaping.planning, DynamicSampling) and isinstance(data, IterableDataset):
        raise ValueError(
            "a filter takes other prompts in the place of those it drops, but an iterable data set "
            "can only be read in its order; give a Dataset, or leave out the filter"
        )
    planner = shaping.planning
    redraws = isinstance(planner, DynamicSampling) or getattr(planner, "ragged", bool(planner))
    drops = shaping.advantage is not None or redraws
    if drops and args.multi_objective_aggregation == "normalize_then_sum":
        raise ValueError(
            "multi_objective_aggregation='normalize_then_sum' normalises each reward over the "
            "prompts as TRL drew them, which an advantage, a filter or a planner replaces; set "
            "'sum_then_normalize'"
        )


class StartsAtReference:
    """Says once if the policy is not the reference of its KL term before the first update.

    A `reference` of one's own (`chosen`) may be any model.
    """

    def __init__(self, chosen: bool) -> None:
        self._done = chosen

    def compare(self, trainer: Any, call: LossCall) -> None:
        """Compare the two on the first micro-batch that has both; `call` holds their log-probs."""
        if self._done or call.reference is None:
            return
        inside = call.mask.bool()
        self._done = bool(inside.any())
        if call.moment[1] > 0 or not self._done:  # a run that is resumed has moved
            return
        distance = (call.log_probs.detach().float() - call.reference.float())[inside].abs().mean()
        weights = next(trainer.model.parameters()).dtype
        short = trainer.accelerator.mixed_precision != "no" or weights != torch.float32
        if not distance > (_ROUNDING_OF_16_BITS if short else _ROUNDING):
            return
        if any(isinstance(m, torch.nn.Dropout) and m.p for m in trainer.model.modules()):
            why = "dropout is on in the policy; set disable_dropout=True"
        elif trainer.ref_model is None:
            why = (
                "the reference is the policy with its adapter off, and the adapter changes the "
                "policy or its base from the start (init_lora_weights 'pissa' or 'olora', prompt "
                "tuning, weights set in memory); take one that adds nothing, or give `reference`"
            )
        else:
            why = (
                "the reference was loaded from the policy's name, but the policy's weights are "
                "others, changed in memory; give `reference`"
            )
        warnings.warn(
            f"before the first update the policy's log-probs are {float(distance):.2g} nats per "
            f"token from those of the KL term's reference, which is not what training starts from: "
            f"{why}",
            stacklevel=2,
        )
