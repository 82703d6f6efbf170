"""What SFT and RL have in common: the adapter, and names of dtypes and optimizers."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig
from peft.tuners.lora import Linear

from sage.sampling.folding import products
from sage.study import LoRA

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OPTIMIZERS = {"adamw": "adamw_torch", "adamw_8bit": "adamw_8bit"}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

SMALL = 2**16
"""The most weights of a layer that are added up with their adapter in each pass."""


class FoldedLinear(Linear):
    """PEFT's adapted layer, which where it is small adds up the weights instead of the outputs.

    x (W + s B A)^T equals x W^T + s (x A^T) B^T but for rounding. With many more tokens than
    features it saves a quarter of forward and backward in a model of 64 features.
    """

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight = None if args or kwargs else self._folded()
        if weight is None:
            return Linear.forward(self, x, *args, **kwargs)
        layer: Any = self.base_layer
        return torch.nn.functional.linear(x, weight, layer.bias)

    def _folded(self) -> torch.Tensor | None:
        """The weights with those of the one adapter; None if not small, or if that is not all."""
        weight: Any = self.base_layer.weight
        added = products(self) if weight.numel() <= SMALL else None
        if added is None or len(added) != 1 or weight.dtype != added[0][0].dtype:
            return None
        up, down, scale = added[0]
        return torch.addmm(weight, up, down, alpha=scale)


def lora_config(lora: LoRA) -> LoraConfig:
    """Adapters on the attention and MLP projections."""
    config = LoraConfig(task_type="CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha)
    # Given to LoraConfig they become a set, which every process writes in another order.
    config.target_modules = list(PROJECTIONS)
    config._register_custom_module({torch.nn.Linear: FoldedLinear})
    return config
