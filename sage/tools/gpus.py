"""What is known of GPUs before a job runs there: measured speeds, and memory.

`speeds.json` beside this file has what was measured, an entry for each GPU, stage, engine and size.
Memory is estimated from the shape of a model. `plan` and `check` show both, and say which number is
an estimate.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.results import Results
from sage.runtime.devices import OF_TRAINER, OF_VLLM
from sage.study import RL, Model
from sage.study.bases import HubBase, PackageBase, ScratchBase

SPEEDS = Path(__file__).with_name("speeds.json")

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

TRAINED = {"adamw": 16, "adamw_8bit": 10}
"""Bytes of a weight that is trained: itself and its gradient in float32, and what AdamW keeps."""

EXACT = 1.1
"""Within this factor of a measured model's weights a speed counts as measured."""

PROMPT = 256
"""Tokens of a prompt that estimates of memory count."""

CHANGE = 0.05
"""A setting that changes memory by a smaller share is not named."""

KEPT_HIDDEN, KEPT_MLP = 20, 8
"""Numbers that a layer keeps of a token for the backward pass, as multiples of its width and of its
MLP's: twice those of Qwen2's operations. The factor of two was fitted to twelve runs of SmolLM2 in
float32 on an H100, and not tried on others."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder of Qwen2's or Llama's kind."""

    hidden: int
    mlp: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    tied: bool = True

    @property
    def parameters(self) -> int:
        """Weights, without norms and biases."""
        keys = self.hidden // self.heads * self.key_value_heads
        layer = 2 * self.hidden * (self.hidden + keys) + 3 * self.hidden * self.mlp
        return self.layers * layer + (2 - self.tied) * self.vocabulary * self.hidden

    @property
    def cached(self) -> int:
        """Numbers in the cache of keys and values for a token."""
        return 2 * self.layers * self.hidden // self.heads * self.key_value_heads


SHAPES = {
    "SmolLM2-135M": Shape(576, 1536, 30, 9, 3, 49_152),
    "Qwen2.5-0.5B": Shape(896, 4864, 24, 14, 2, 151_936),
    "Qwen2.5-1.5B": Shape(1536, 8960, 28, 12, 2, 151_936),
    "Qwen2.5-3B": Shape(2048, 11_008, 36, 16, 2, 151_936),
    "Qwen2.5-7B": Shape(3584, 18_944, 28, 28, 4, 152_064, tied=False),
}
"""By the models' published `config.json`."""


KEYS = {
    "hidden": "hidden_size",
    "mlp": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "vocabulary": "vocab_size",
}
"""What `config.json` calls a size of Shape."""


def shape_of(results: Results, name: str, model: Model) -> tuple[Shape, str] | None:
    """The shape of a model, and which published one stands for it ("" for its own).

    Read from its checkpoint or its study, else the published one next to the size in its name; None
    where nothing says it.
    """
    for folder in (results.rl_start(name), results.pretrained(name)):
        if (file := folder / "config.json").is_file():
            content = json.loads(file.read_text(encoding="utf-8"))
            if {*KEYS.values()} <= content.keys():
                tied = bool(content.get("tie_word_embeddings"))
                return Shape(**{own: content[key] for own, key in KEYS.items()}, tied=tied), ""
    base = model.base
    if isinstance(base, ScratchBase):
        a = base.architecture
        sizes = (a.hidden_size, a.intermediate_size, a.layers, a.heads, a.key_value_heads)
        return Shape(*sizes, a.vocab_size), ""
    said = base.repository if isinstance(base, HubBase) else ""
    said = base.file if isinstance(base, PackageBase) else said
    if not (size := re.search(r"(\d+(?:\.\d+)?)([BM])(?![a-z])", said)):
        return None
    weights = float(size[1]) * {"B": 1e9, "M": 1e6}[size[2]]
    near = min(SHAPES, key=lambda one: abs(math.log(SHAPES[one].parameters / weights)))
    return SHAPES[near], near


# Speed


@dataclass(frozen=True)
class Work:
    """What a job computes: its stage, engine, number format and weights."""

    stage: str
    engine: str
    precision: str
    parameters: int


def measured_speeds() -> list[dict[str, Any]]:
    """The entries of `speeds.json`."""
    kept: list[dict[str, Any]] = json.loads(SPEEDS.read_text(encoding="utf-8"))
    return kept


def with_parts(kept: Sequence[Mapping[str, Any]], table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of `kept` with what a GPU has measured in `table`, the content of parts.json
    (`benchmarks.gpu`); a new entry replaces one of the same GPU, stage, engine and weights.

    Raises ValueError for a table without a GPU.
    """
    if not (gpu := table["hardware"]["gpu"]):
        raise ValueError("the table names no GPU: it was not measured on one")
    by_key = {_key(entry): dict(entry) for entry in kept}
    for name, part in table["parts"].items():
        if "work" in part and "tokens_per_second" in part and part["ok"] is not False:
            entry = {"gpu": gpu, **part["work"], "tokens_per_second": part["tokens_per_second"]}
            entry |= {"gib": part["memory"]["gpu"], "of": f"{name}, commit {table['commit'][:7]}"}
            by_key[_key(entry)] = entry
    return list(by_key.values())


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[key] for key in ("gpu", "stage", "engine", "parameters"))


def speed_of(work: Work, entries: Sequence[Mapping[str, Any]]) -> tuple[float, str] | None:
    """Tokens per second that were measured of the like, and on what; None where nothing was.

    The nearest number of weights counts, within a factor of EXACT.
    """

    def ratio(entry: Mapping[str, Any]) -> float:
        return float(max(p := entry["parameters"] / work.parameters, 1 / p))

    kind = (work.stage, work.engine, work.precision)
    same = [e for e in entries if (e["stage"], e["engine"], e["precision"]) == kind]
    near = min(same, key=ratio, default=None)
    if near is None or ratio(near) > EXACT:
        return None
    return near["tokens_per_second"], f"measured on an {near['gpu']}: {near['of']}"


# Memory


def lighter(shape: Shape, rl: RL, gpus: int) -> list[tuple[str, float]]:
    """Bytes of each GPU that RL takes at its peak, as set (""), then with each other setting that
    changes them: an estimate."""
    other: dict[str, Any] = {
        "micro_batches": rl.prompts_per_step * rl.rollouts,
        "gradient_checkpointing": not rl.gradient_checkpointing,
        "vllm_sleep": rl.vllm_sleep is False,
    }
    own, sizes = peak(shape, rl, gpus), list[tuple[str, float]]()
    for key, value in other.items():
        size = peak(shape, rl.model_copy(update={key: value}), gpus)
        if abs(size - own) > CHANGE * own:
            sizes.append((f"{key}: {str(value).lower()}", size))
    return [("", own), *sizes]


def peak(shape: Shape, rl: RL, gpus: int, prompt: int = PROMPT) -> float:
    """Bytes of each of `gpus` that RL takes at its peak, with completions of the greatest length
    and prompts of `prompt` tokens.

    Counted are weights, what the optimizer keeps, activations of a micro-batch, and vLLM with its
    cache: while the policy is trained only where it does not sleep. What it draws with is not
    counted where transformers does, which takes what is free.
    """
    size, each = BYTES[rl.precision], max(1, gpus)
    weights = shape.parameters * size
    held = weights if rl.lora else shape.parameters * (TRAINED[rl.optimizer] + size) / each
    longest, completions = rl.sampling.max_tokens + prompt, rl.prompts_per_step * rl.rollouts
    tokens = longest * max(1, completions // max(rl.micro_batches, each))
    layer = tokens * size * (KEPT_HIDDEN * shape.hidden + KEPT_MLP * shape.mlp)
    kept = layer + shape.layers * tokens * size * shape.hidden
    training = max(OF_TRAINER, kept if rl.gradient_checkpointing else shape.layers * layer)
    if rl.engine != "vllm":
        return held + training
    cache = shape.cached * size * longest * completions * rl.steps_per_generation / each
    drawing = weights + cache + OF_VLLM
    return held + (training + drawing if rl.vllm_sleep is False else max(training, drawing))
