"""Where the weights of a model come from: made here, from a hub or a package, or shared."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import (
    REPOSITORY,
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


class Architecture(Strict):
    """A small Qwen2 model with tied embeddings.

    `hidden_size` must be a multiple of `heads`, and `heads` a multiple of `key_value_heads`.
    """

    hidden_size: Annotated[Positive, about("width of the residual stream", unit="dimensions")]
    intermediate_size: Annotated[Positive, about("width of the MLP", unit="dimensions")]
    layers: Annotated[Positive, about("number of layers", unit="layers")]
    heads: Annotated[Positive, about("attention heads", unit="heads")]
    key_value_heads: Annotated[
        Positive, about("heads of keys and values; `heads` share them in groups", unit="heads")
    ]
    max_positions: Annotated[
        Positive, about("longest sequence: prompt and completion together", unit="tokens")
    ]
    vocab_size: Annotated[
        int,
        Field(ge=300),
        about("size of the byte-level BPE vocabulary, tags included", unit="tokens"),
    ]

    @model_validator(mode="after")
    def _divisible(self) -> Architecture:
        if self.hidden_size % self.heads or self.heads % self.key_value_heads:
            raise ValueError("hidden_size must be a multiple of heads, heads of key_value_heads")
        return self


class Pretraining(Strict):
    """Language modelling on the corpus."""

    documents: Annotated[Positive, about("size of the corpus", unit="documents")]
    tagged_share: Annotated[
        Share, about("share of documents in the answer format", unit="share, 0 to 1")
    ]
    steps: Annotated[Positive, about("length of training", unit="optimizer steps")]
    batch_size: Annotated[Positive, about("documents in an optimizer step", unit="documents")]
    learning_rate: Annotated[
        PositiveFloat,
        about("peak of AdamW's learning rate, which then falls linearly to 0", unit="rate"),
    ]
    warmup_steps: Annotated[
        int, Field(ge=0), about("linear rise to the peak", unit="optimizer steps")
    ]
    weight_decay: Annotated[NonNegativeFloat, about("AdamW's weight decay", unit="rate")]
    seed: Annotated[Seed, about("seed of corpus, initial weights and order", unit="integer")]


class ScratchBase(Strict):
    """A base model made by this workflow."""

    source: Annotated[Literal["scratch"], about("the model is made by this workflow")]
    architecture: Annotated[Architecture, about("its size")]
    corpus: Annotated[AnyCorpus, about("the text it is trained on; SFT draws from it too")]
    pretraining: Annotated[Pretraining, about("how it is trained")]


class HubBase(Strict):
    """A pretrained checkpoint of the Hugging Face hub.

    A folder `OWNER/NAME` in the mirror is used in place of the hub. Only safetensors are
    loaded; code of the repository is never run.
    """

    source: Annotated[Literal["hub"], about("a checkpoint of the Hugging Face hub")]
    repository: Annotated[
        str, Field(pattern=REPOSITORY), about("the repository on the hub", unit="owner/name")
    ]
    revision: Annotated[
        str, about("which version; name a commit to pin it", unit="commit or branch")
    ] = "main"


class PackageBase(Strict):
    """A pretrained checkpoint as a GGUF file inside an installed Python package."""

    source: Annotated[Literal["package"], about("a GGUF file of an installed Python package")]
    package: Annotated[
        str,
        Field(pattern=r"^[A-Za-z_]\w*$"),
        about("the package; the package `gguf` is needed too", unit="module name"),
    ]
    file: Annotated[
        str,
        Field(pattern=r"^\w[\w.-]*$"),
        about("the file, in any folder of the package", unit="file name"),
    ]


class SharedBase(Strict):
    """The base of another model of the study: its checkpoint before RL.

    A model with such a base has no `sft` of its own.
    """

    source: Annotated[
        Literal["model"], about("the checkpoint from which another model's RL starts")
    ]
    model: Annotated[
        Name, known("donor"), about("that other model; it must have a base of its own")
    ]


Base = Annotated[ScratchBase | HubBase | PackageBase | SharedBase, Field(discriminator="source")]
