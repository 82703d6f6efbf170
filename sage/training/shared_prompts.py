"""A prompt that several completions have is read once, and its keys and values serve them all.

All completions of a group stand behind the same prompt, and with causal attention nothing in it
depends on what follows. So its keys and values are computed once and repeated over the group; the
gradient flows back through them, and is that of the plain reading but for rounding. What is read is
then G * T + P tokens of a group in place of G * (T + P).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from transformers import DynamicCache

_EXACT = {
    *("gemma2", "gemma3_text", "granite", "llama", "mistral", "mixtral", "olmo2", "phi3"),
    *("qwen2", "qwen3", "qwen3_moe", "smollm3"),
}
"""Models whose attention is over keys and values alone, with positions that only turn them, or
with none. A recurrent model has states besides, an absolute position is not seen here."""


def is_exact(model: Any, columns: int) -> bool:
    """Whether what `model` computes behind a prompt is the same where that was read before.

    Not so with dropout, which would be one for the whole group, and in a window of attention or
    behind a change of the positions shorter than the `columns` of a text. Nor can it be where
    activations are recomputed, for which transformers keeps no keys.
    """
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = bare.config
    window = getattr(config, "sliding_window", None)
    turns = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if (
        config.model_type not in _EXACT
        or any(one.peft_type != "LORA" for one in getattr(model, "peft_config", {}).values())
        or config._attn_implementation not in ("sdpa", "eager")
        or (window is not None and window < columns)
        or turns in ("longrope", "dynamic")
    ):
        return False
    if not bare.training:
        return True
    drops = getattr(config, "attention_dropout", 0.0) or any(
        (isinstance(module, torch.nn.Dropout) and module.p)
        or module.__dict__.get("gradient_checkpointing")
        for module in model.modules()
    )
    return not drops


class SharedPrompts:
    """The prompts of a batch as `model` reads them, each once; `around` surrounds the pass.

    `input_ids` and `attention_mask` `[B, P + T]` have prompts padded on the left in the first
    `border` (P) columns. Of a prompt all but the last token are read here: what follows that is
    the first token with a score.
    """

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        border: int,
        around: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._model, self._read = model, border - 1
        ids, mask = input_ids[:, : self._read], attention_mask[:, : self._read]
        texts, self._prompts = ids.masked_fill(mask == 0, -1).unique(dim=0, return_inverse=True)
        self.saved = (len(ids) - len(texts)) * self._read
        self._texts, self._around = texts, around
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def read(self) -> None:
        """Compute the keys and values of the prompts."""
        bare = self._model
        bare = bare.get_base_model() if hasattr(bare, "get_base_model") else bare
        cache, mask = DynamicCache(), (self._texts >= 0).long()
        with self._around():
            bare.base_model(self._texts.clamp(min=0), mask, past_key_values=cache, use_cache=True)
        layers: list[Any] = cache.layers
        self._layers = [(layer.keys, layer.values) for layer in layers]

    def reader(self, rows: torch.Tensor) -> Any:
        """The model for these rows, in their order; it is called with whole texts, as without."""
        return _Reader(self._model, self._layers, self._prompts[rows], self._read)


class _Reader:
    """`model` as it is called, once or several times, for the rows behind their `prompts`."""

    def __init__(
        self,
        model: Any,
        layers: list[tuple[torch.Tensor, torch.Tensor]],
        prompts: torch.Tensor,
        read: int,
    ) -> None:
        self._model, self._layers, self._prompts, self._done = model, layers, prompts, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **inputs: Any) -> Any:
        rows, self._prompts = self._prompts.split(
            [len(input_ids), len(self._prompts) - len(input_ids)]
        )
        cache = DynamicCache()
        for number, (keys, values) in enumerate(self._layers):
            cache.update(keys[rows], values[rows], number)
        if (labels := inputs.pop("labels", None)) is not None:
            inputs["labels"] = labels[:, self._done :]
        texts = input_ids[:, self._done :], attention_mask
        return self._model(*texts, past_key_values=cache, **inputs)
