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

    rank: Annotated[Positive, about("rank of the update", unit="dimensions", trl="lora_r")]
    alpha: Annotated[
        Positive,
        about("the update is scaled by alpha / rank", unit="integer", trl="lora_alpha"),
    ]
    dropout: Annotated[
        Share, about("dropout on the adapter's input", unit="probability", trl="lora_dropout")
    ] = 0.0


class SFT(Strict):
    """Supervised fine-tuning to the answer format.

    An adapter is trained on conversations in the answer format and then merged. How many were
    kept, left out for their length and cut stands in the checkpoint's manifest. Where the paper
    and its release differ, see the readings.
    """

    data: Annotated[
        Annotated[Name, known("data")] | None,
        about(
            "a data set of `benchmarks.yaml` with worked solutions; without one they are drawn "
            "from a corpus"
        ),
    ] = None
    corpus: Annotated[
        AnyCorpus | None, about("the corpus to draw from; `null` takes that of the base")
    ] = None
    examples: Annotated[
        Positive | None,
        about("how many; `null` takes the whole data set", unit="conversations"),
    ] = None
    epochs: Annotated[
        Positive, about("passes over the examples", unit="epochs", trl="num_train_epochs")
    ]
    batch_size: Annotated[
        Positive,
        about(
            "conversations in an optimizer step, on all GPUs together",
            unit="conversations",
            trl="per_device_train_batch_size",
        ),
    ]
    max_tokens: Annotated[Positive, about("longest conversation", unit="tokens", trl="max_length")]
    length: Annotated[
        Literal["conversation", "prompt"],
        about("what may take at most half of `max_tokens`; longer examples are left out"),
    ] = "conversation"
    too_long: Annotated[
        Literal["leave_out", "cut"],
        about("what becomes of a conversation of more than `max_tokens`"),
    ] = "leave_out"
    loss: Annotated[
        Literal["text", "completion"],
        about(
            "what is learnt: the whole text, problem included, or the completion alone",
            trl="completion_only_loss",
        ),
    ] = "text"
    template: Annotated[
        Literal["own", "unsloth"],
        about(
            "how a conversation is written, here and wherever the checkpoint is used: as the "
            "model's own chat template says, or as Unsloth's: the system prompt and an end of "
            "text, then the problem"
        ),
    ] = "own"
    learning_rate: Annotated[
        PositiveFloat,
        about(
            "peak of AdamW's learning rate, which then falls linearly to 0",
            unit="rate",
            trl="learning_rate",
        ),
    ]
    warmup_steps: Annotated[
        int,
        Field(ge=0),
        about("linear rise to the peak", unit="optimizer steps", trl="warmup_steps"),
    ]
    weight_decay: Annotated[
        NonNegativeFloat, about("AdamW's weight decay", unit="rate", trl="weight_decay")
    ]
    lora: Annotated[LoRA, about("the adapter")]
    precision: Precision = "float32"
    optimizer: Optimizer = "adamw"
    seed: Annotated[Seed, about("seed of examples, adapter and order", unit="integer", trl="seed")]
    checkpoint_every: Annotated[
        Positive,
        about(
            "how often a checkpoint is kept, from which an interrupted run continues",
            unit="optimizer steps",
            trl="save_steps",
        ),
    ] = 200
