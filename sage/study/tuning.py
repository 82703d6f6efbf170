"""Supervised fine-tuning of a model, and the adapters that it and RL train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sage.fields import (
    Name,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Seed,
    Share,
    Strict,
    about,
    known,
)
from sage.problems.corpora import AnyCorpus

Precision = Annotated[
    Literal["float32", "bfloat16"],
    about("number format of the computation and of weights that are not trained", trl="bf16"),
]
Optimizer = Annotated[
    Literal["adamw", "adamw_8bit"],
    about("`adamw_8bit` needs bitsandbytes (the extra `gpu`)", trl="optim"),
]


class LoRA(Strict):
    """Low-rank adapters on the attention and MLP projections, in `sft` and in `rl`."""

    rank: Positive
    """rank of the update [dimensions; TRL: lora_r]"""
    alpha: Positive
    """the update is scaled by alpha / rank [integer; TRL: lora_alpha]"""
    dropout: Share = 0.0
    """dropout on the adapter's input [probability; TRL: lora_dropout]"""


class SFT(Strict):
    """Supervised fine-tuning to the answer format.

    An adapter is trained on conversations in the answer format and then merged. How many were
    kept, left out for their length and cut stands in the checkpoint's manifest. Where the paper
    and its release differ, see the readings.
    """

    data: Annotated[Name, known("data")] | None = None
    """a data set of `benchmarks.yaml` with worked solutions; without one they are drawn from a
    corpus"""
    corpus: AnyCorpus | None = None
    """the corpus to draw from; `null` takes that of the base"""
    examples: Positive | None = None
    """how many; `null` takes the whole data set [conversations]"""
    epochs: Positive
    """passes over the examples [epochs; TRL: num_train_epochs]"""
    batch_size: Positive
    """conversations in an optimizer step, on all GPUs together [conversations; TRL:
    per_device_train_batch_size]"""
    max_tokens: Positive
    """longest conversation [tokens; TRL: max_length]"""
    length: Literal["conversation", "prompt"] = "conversation"
    """what may take at most half of `max_tokens`; longer examples are left out"""
    too_long: Literal["leave_out", "cut"] = "leave_out"
    """what becomes of a conversation of more than `max_tokens`"""
    loss: Literal["text", "completion"] = "text"
    """what is learnt: the whole text, problem included, or the completion alone [TRL:
    completion_only_loss]"""
    template: Literal["own", "unsloth"] = "own"
    """how a conversation is written, here and wherever the checkpoint is used: as the model's own
    chat template says, or as Unsloth's: the system prompt and an end of text, then the problem"""
    learning_rate: PositiveFloat
    """peak of AdamW's learning rate, which then falls linearly to 0 [rate; TRL: learning_rate]"""
    warmup_steps: Annotated[int, Field(ge=0)]
    """linear rise to the peak [optimizer steps; TRL: warmup_steps]"""
    weight_decay: NonNegativeFloat
    """AdamW's weight decay [rate; TRL: weight_decay]"""
    lora: LoRA
    """the adapter"""
    precision: Precision = "float32"
    optimizer: Optimizer = "adamw"
    seed: Seed
    """seed of examples, adapter and order [integer; TRL: seed]"""
    checkpoint_every: Positive = 200
    """how often a checkpoint is kept, from which an interrupted run continues [optimizer steps;
    TRL: save_steps]"""
