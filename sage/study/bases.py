"""Where a model's weights come from: made here, a hub, a package, a folder, or another model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.faults import as_written
from sage.fields import (
    REPOSITORY,
    Name,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Seed,
    Share,
    Strict,
    known,
)
from sage.problems.corpora import AnyCorpus
from sage.runtime.files import file_sum


class Architecture(Strict):
    """A small Qwen2 model with tied embeddings.

    `hidden_size` must be a multiple of `heads`, and `heads` a multiple of `key_value_heads`.
    """

    hidden_size: Positive
    """width of the residual stream [dimensions]"""
    intermediate_size: Positive
    """width of the MLP [dimensions]"""
    layers: Positive
    """number of layers [layers]"""
    heads: Positive
    """attention heads [heads]"""
    key_value_heads: Positive
    """heads of keys and values; `heads` share them in groups [heads]"""
    max_positions: Positive
    """longest sequence: prompt and completion together [tokens]"""
    vocab_size: Annotated[int, Field(ge=300, le=1_000_000)]
    """size of the byte-level BPE vocabulary, tags included [tokens]"""

    @model_validator(mode="after")
    def _divisible(self) -> Architecture:
        if self.hidden_size % self.heads or self.heads % self.key_value_heads:
            raise ValueError("hidden_size must be a multiple of heads, heads of key_value_heads")
        return self


class Pretraining(Strict):
    """Language modelling on the corpus."""

    documents: Positive
    """size of the corpus [documents]"""
    tagged_share: Share
    """share of documents in the answer format [share, 0 to 1]"""
    steps: Positive
    """length of training [optimizer steps]"""
    batch_size: Positive
    """documents in an optimizer step [documents]"""
    learning_rate: PositiveFloat
    """peak of AdamW's learning rate, which then falls linearly to 0 [rate]"""
    warmup_steps: Annotated[int, Field(ge=0)]
    """linear rise to the peak [optimizer steps]"""
    weight_decay: NonNegativeFloat
    """AdamW's weight decay [rate]"""
    seed: Seed
    """seed of corpus, initial weights and order [integer]"""


class ScratchBase(Strict):
    """A base model made by this workflow."""

    source: Literal["scratch"]
    """the model is made by this workflow"""
    architecture: Architecture
    """its size"""
    corpus: AnyCorpus
    """the text it is trained on; SFT draws from it too"""
    pretraining: Pretraining
    """how it is trained"""


class HubBase(Strict):
    """A pretrained checkpoint of the Hugging Face hub.

    A folder `OWNER/NAME` in the mirror is used in place of the hub. Only safetensors are
    loaded; code of the repository is never run.
    """

    source: Literal["hub"]
    """a checkpoint of the Hugging Face hub"""
    repository: Annotated[str, Field(pattern=REPOSITORY)]
    """the repository on the hub [owner/name]"""
    revision: str = "main"
    """which version; name a commit to pin it [commit or branch]"""


class PackageBase(Strict):
    """A pretrained checkpoint as a GGUF file inside an installed Python package."""

    source: Literal["package"]
    """a GGUF file of an installed Python package"""
    package: Annotated[str, Field(pattern="^[A-Za-z_]\\w*$")]
    """the package; the package `gguf` is needed too [module name]"""
    file: Annotated[str, Field(pattern="^\\w[\\w.-]*$")]
    """the file, in any folder of the package [file name]"""


SUMMED = 64 * 2**20
"""Bytes up to which a file of a model counts by its SHA-256, a larger one by size and date."""


class FolderBase(Strict):
    """A checkpoint in a folder of your own, such as `save_pretrained` writes.

    Only safetensors are loaded; code in the folder is never run. The files are copied. After an
    edit of one, what depends on the model is made again.
    """

    source: Literal["folder"]
    """a checkpoint in a folder on this machine"""
    folder: str
    """where it is, from the folder of the study's file on [path]"""
    adapter: str | None = None
    """a folder with a LoRA adapter of it, which is merged into its weights [path]"""

    def sums(self) -> list[str]:
        """What each of its files is known by, sorted; see SUMMED."""
        folders = [Path(place) for place in (self.folder, self.adapter) if place]
        files = [file for folder in folders for file in sorted(folder.glob("[!.]*"))]
        return sorted(_known_by(file) for file in files if file.is_file())

    def room(self) -> int | None:
        """The longest text that it has positions for, in tokens; None where it does not say."""
        config = json.loads((Path(self.folder) / "config.json").read_text(encoding="utf-8"))
        positions = config.get("max_position_embeddings")
        return positions if isinstance(positions, int) else None

    def faults(self) -> Iterator[tuple[str, str]]:
        """(key, message) of what keeps it from being loaded, as far as files and names tell."""
        if message := _unusable(Path(self.folder)):
            yield "folder", message
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            if self.adapter and not os.path.isfile(Path(self.adapter) / name):
                why = "so it is not an adapter that is loaded: other formats can hold code"
                yield "adapter", f"{self.adapter} has no {name}, {why}"
                return


def _unusable(folder: Path) -> str:
    """Why `folder` is not a checkpoint that can be loaded, with the way out; empty if it is."""
    if not os.path.isdir(folder):  # no error for a long name
        return (
            f"{folder} {'is a file' if os.path.isfile(folder) else 'does not exist'}; give the "
            "path of the model's folder, from the folder of the study's file or from /; a model of "
            "the hub is `source: hub`"
        )
    names, config = {file.name for file in folder.iterdir()}, folder / "config.json"
    if "config.json" not in names:
        of_adapter = "; it is an adapter: name it under `adapter`, and its base under `folder`"
        return f"{folder} has no config.json, so it is not a checkpoint" + (
            of_adapter if "adapter_config.json" in names else ""
        )
    if not any(name.endswith(".safetensors") for name in names):
        others = sorted(name for name in names if name.endswith((".bin", ".pt", ".gguf")))
        return (
            f"{folder} has no *.safetensors{', only ' + ', '.join(others) if others else ''}; "
            "other formats can hold code and are not loaded. Load it where you trust it, and write "
            "it again with model.save_pretrained(folder)"
        )
    if not names & {"tokenizer.json", "tokenizer.model", "vocab.json"}:
        return f"{folder} has no tokenizer; write it there with tokenizer.save_pretrained(folder)"
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds {as_written(content)}, not settings by name")
    except ValueError as error:
        return f"{config} is not JSON ({error}); copy the model again"
    return ("auto_map" in content) * (
        f"{config} names code of its own (auto_map), which is never run; use a model whose "
        "architecture transformers has"
    )


def _known_by(file: Path) -> str:
    facts = file.stat()
    known = file_sum(file) if facts.st_size <= SUMMED else f"{facts.st_size} {facts.st_mtime_ns}"
    return f"{file.name} {known}"


class SharedBase(Strict):
    """The base of another model of the study: its checkpoint before RL.

    A model with such a base has no `sft` of its own.
    """

    source: Literal["model"]
    """the checkpoint from which another model's RL starts"""
    model: Annotated[Name, known("donor")]
    """that other model; it must have a base of its own"""


Base = Annotated[
    ScratchBase | HubBase | PackageBase | FolderBase | SharedBase, Field(discriminator="source")
]
