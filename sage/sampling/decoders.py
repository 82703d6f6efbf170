"""How a policy reads prompts and continues them, one token a row at a time.

A `Decoder` opens a `Decoding` of a batch: the rows with their key-value cache. There are two.
`FusedDecoder` (`sage.sampling.fused`) computes Llama's architecture with few large operations.
`ModuleDecoder`, here, calls any causal language model of transformers as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import DynamicCache

Prompts = Sequence[tuple[int, ...]]


class Decoding(Protocol):
    """Rows that are being continued."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append `tokens` `[B]`; the next tokens' logits `[B, V]`."""
        ...

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with K rows, each a copy of the one that `rows` `[K]` names.

        Cheapest where most stay in their place: `rows[i]` is i.
        """
        ...


class Decoder(Protocol):
    """A policy that continues prompts; `config` is that of its model.

    `records` says whether steps of the same number of rows are recorded and replayed.
    """

    config: Any
    device: torch.device
    dtype: torch.dtype
    records: bool

    def start(self, prompts: Prompts, room: int, rows: int) -> tuple[Decoding, torch.Tensor]:
        """Read the prompts, a row each, and give the first tokens' logits `[B, V]`.

        `room` is the most tokens that a row will take, `rows` the most rows there will be.
        """
        ...


def padded(prompts: Prompts, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The prompts, padded with 0 on the left, `[B, P]`, and their lengths `[B]`.

    Raises ValueError for a prompt without tokens, behind which a model says nothing.
    """
    lengths = [len(prompt) for prompt in prompts]
    if not all(lengths):
        raise ValueError("a prompt has no tokens; begin it with a text, or with a start token")
    rows = [[0] * (max(lengths) - len(prompt)) + list(prompt) for prompt in prompts]
    return torch.tensor(rows, device=device), torch.tensor(lengths, device=device)


# Recurrent models whose states pass over padding and follow the cache that is handed in.
_RECURRENT = {
    *("bamba", "falcon_h1", "granitemoehybrid", "jamba", "olmo_hybrid", "qwen3_5_text"),
    "qwen3_next",
}


def is_decodable(model: Any) -> bool:
    """Whether ModuleDecoder computes what `model` does: of recurrent models those known here.

    Others keep states in a cache of their own, which does not follow rows that branch or move.
    """
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not getattr(plain, "_supports_default_dynamic_cache", lambda: True)():
        return False
    return not getattr(plain, "_is_stateful", False) or plain.config.model_type in _RECURRENT


def _rope_changes_behind(config: Any) -> tuple[int, str] | None:
    """The length behind which all positions turn otherwise, and the kind of RoPE; None without."""
    ropes = getattr(config.get_text_config(), "rope_parameters", None) or {}
    for rope in (ropes, *(each for each in ropes.values() if isinstance(each, dict))):
        if (kind := rope.get("rope_type")) in ("longrope", "dynamic"):
            limit = rope.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", config.max_position_embeddings
            )
            return int(limit), kind
    return None


class ModuleDecoder:
    """A model of transformers, run as it is; `around` surrounds every forward pass.

    Raises ValueError for a recurrent model that is not `is_decodable`.
    """

    records = False

    def __init__(
        self, model: Any, around: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> None:
        if not is_decodable(model):
            raise ValueError(
                f"{type(model).__name__} keeps states of its own between tokens, which these rows "
                "do not follow; have TRL draw its rollouts (without make_drawer), or choose a "
                "model with attention alone"
            )
        self._model, self._around = model, around
        self.config = model.config
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype

    def start(self, prompts: Prompts, room: int, rows: int) -> tuple[Decoding, torch.Tensor]:
        """Rows of the prompts; see `Decoder`."""
        ids, lengths = padded(prompts, self.device)
        width = ids.shape[1]
        change = _rope_changes_behind(self.config)
        if change is not None and width + room > change[0]:
            raise ValueError(
                "this model turns positions in another way in texts of more than "
                f"{change[0]} tokens ({change[1]} RoPE), which a cache of keys cannot follow; "
                f"prompts of up to {width} tokens "
                f"and {room} of a completion are more: lower sampling.max_tokens"
            )
        mask = (torch.arange(width, device=self.device) >= width - lengths[:, None]).long()
        cache = DynamicCache(config=self.config)
        logits = self.logits(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=cache,
            logits_to_keep=1,
        )
        return _ModuleRows(self, cache, mask, lengths), logits

    def logits(self, **inputs: Any) -> torch.Tensor:
        """Logits of the last position, `[B, V]`."""
        with self._around():
            output: torch.Tensor = self._model(use_cache=True, **inputs).logits
        return output[:, -1]


@dataclass
class _ModuleRows:
    """Rows of a ModuleDecoder: `mask` `[B, P]`, next `positions` `[B]`."""

    decoder: ModuleDecoder
    cache: DynamicCache
    mask: torch.Tensor
    positions: torch.Tensor

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)
        logits = self.decoder.logits(
            input_ids=tokens[:, None],
            attention_mask=self.mask,
            position_ids=self.positions[:, None],
            past_key_values=self.cache,
        )
        self.positions = self.positions + 1
        return logits

    def keep(self, rows: torch.Tensor) -> None:
        if torch.equal(rows, torch.arange(len(self.mask), device=rows.device)):
            return
        # Of recurrent layers too, unlike batch_select_indices.
        self.cache.reorder_cache(rows)  # type: ignore[arg-type]
        self.mask, self.positions = self.mask[rows], self.positions[rows]
