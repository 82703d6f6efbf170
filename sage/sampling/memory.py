"""How many rows a batch may have: an estimate beforehand, and what running out looks like.

The estimate counts the key-value cache and the float64 work on the logits, which are what
grows with a batch. It is deliberately rough: the engine halves its batches if it was wrong.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch

from sage.runtime.devices import OF_TRAINER, OF_VLLM
from sage.sampling.decoders import Decoder

_CPU_SHARE = 0.5  # of the free memory: other jobs run on the same machine
_GPU_SHARE = 0.8
_LOGIT_COPIES = 6  # of float64: scaled, sorted, indices, summed, filtered, normalised
_CACHE_COPIES = 1.5  # growing or thinning a cache copies it layer by layer
_MESSAGES = ("out of memory", "not enough memory", "can't allocate memory", "alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that a GPU or this machine has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(message in text for message in _MESSAGES)


def cache_bytes(config: Any, tokens: int, itemsize: int) -> int:
    """Memory of the keys and values of `tokens` tokens; 0 of a model without attention."""
    config = config.get_text_config()
    if not hasattr(config, "num_attention_heads"):
        return 0
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * tokens * itemsize)


def vllm_share(total: int, weights: int, cache: int) -> float:
    """The share of a GPU of `total` bytes that vLLM takes beside a policy that is trained there.

    It holds `weights` and `cache` bytes and `OF_VLLM` of its own. The trainer keeps its own copy
    of the weights on the GPU meanwhile, and at least `OF_TRAINER` more.
    """
    wanted = (weights + cache + OF_VLLM) / total
    return round(max(0.1, min(wanted, 1.0 - (weights + OF_TRAINER) / total)), 3)


def bytes_per_row(model: Decoder, tokens: int) -> int:
    """Memory that one row of `tokens` tokens, prompt included, takes while it is decoded."""
    config: Any = model.config.get_text_config()
    cache = cache_bytes(config, tokens, model.dtype.itemsize)
    return int(_CACHE_COPIES * cache) + _LOGIT_COPIES * 8 * config.vocab_size


def rows_that_fit(model: Decoder, tokens: int) -> int:
    """How many rows of `tokens` tokens the free memory of the model's device holds; at least 1."""
    if model.device.type == "cuda":
        idle = torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
        free = _GPU_SHARE * (torch.cuda.mem_get_info(model.device)[0] + idle)
    else:
        free = _CPU_SHARE * psutil.virtual_memory().available
    return max(1, int(free / bytes_per_row(model, tokens)))
