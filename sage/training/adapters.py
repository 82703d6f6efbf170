"""What SFT and RL have in common: the adapter, and names of dtypes and optimizers."""

from __future__ import annotations

import torch
from peft import LoraConfig

from sage.study import LoRA

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OPTIMIZERS = {"adamw": "adamw_torch", "adamw_8bit": "adamw_8bit"}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def lora_config(lora: LoRA) -> LoraConfig:
    """Adapters on the attention and MLP projections."""
    config = LoraConfig(
        task_type="CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout
    )
    # Given to LoraConfig they become a set, which every process writes in another order.
    config.target_modules = list(PROJECTIONS)
    return config
