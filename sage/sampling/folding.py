"""Which linear layers are one product with their adapters: the one list of the fast paths.

Rollouts are drawn from weights in which adapters are merged (`sage.sampling.fused`), and small
layers are trained with both added up (`sage.training.adapters`). Both take what is found here and
leave all else to the plain path: quantised weights, DoRA and other variants of LoRA, biases of an
adapter's own, dropout while it is trained, other kinds of adapters.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch.distributed.tensor import DTensor

_WEIGHTS = (torch.nn.Parameter, torch.Tensor, DTensor)


def products(layer: Any) -> list[tuple[Any, Any, float]] | None:
    """What adapters add to the weight of `layer`: up `[out, r]`, down `[r, in]` and scale of each.

    The layer computes the weight plus the scaled products; None where that is not all. Merged
    adapters are in the weight already.
    """
    if not isinstance(layer, Linear):
        return [] if _is_plain(layer) else None
    if not _is_plain(layer.base_layer) or (layer.merged and layer.disable_adapters):
        return None
    if layer.merged or layer.disable_adapters:
        return []
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if not all(_is_product(layer, name) for name in names):
        return None
    ups, downs = layer.lora_B, layer.lora_A
    return [(ups[n].weight, downs[n].weight, layer.scaling[n]) for n in names]


def _is_plain(layer: Any) -> bool:
    return type(layer) is torch.nn.Linear and type(layer.weight) in _WEIGHTS


def _is_product(layer: Any, name: str) -> bool:
    drops = layer.training and not isinstance(layer.lora_dropout[name], torch.nn.Identity)
    return not (drops or layer.lora_bias.get(name) or name in layer.lora_variant)
