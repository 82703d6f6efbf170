"""Llama's architecture, decoded with few large operations and a cache made beforehand.

A small model spends most of its time between operations. Here a layer takes some fifteen: query,
key and value come from one product, gate and up from another, and new keys are written into
their place instead of the cache being joined anew. The weights are a copy, in which a LoRA
adapter is merged; the model that they come from is only read. `refresh` brings the copy to where
training has brought the model. Rows and their cache are in `sage.sampling.fused_rows`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from peft import PeftType
from torch.distributed.tensor import DTensor
from torch.nn import Embedding
from torch.nn import functional as F

from sage.sampling.decoders import Decoding, Prompts, padded
from sage.sampling.folding import products
from sage.sampling.fused_rows import Attend, FusedRows

_ARCHITECTURES = {"LlamaForCausalLM", "Qwen2ForCausalLM"}
_MODEL_TYPES = {"llama", "qwen2"}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_STATIC_ROTATIONS = {"default", "linear", "llama3", "yarn"}


def is_fusible(model: Any) -> bool:
    """Whether `model`, with or without an adapter, is one that FusedDecoder computes exactly.

    Of adapters it knows two matrices beside a projection (`sage.sampling.folding`), and no more: no
    embeddings or whole modules of the adapter's own, and no other kind than LoRA. Weights are as
    they are loaded, not quantised.
    """
    plain = _without_adapter(model)
    config, adapters = plain.config, getattr(model, "peft_config", {})
    return (
        all(one.peft_type == PeftType.LORA for one in adapters.values())
        and all(_is_read(name, module) for name, module in plain.named_modules())
        and any(kind.__name__ in _ARCHITECTURES for kind in type(plain).__mro__)
        and config.model_type in _MODEL_TYPES
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and "sliding_attention" not in (getattr(config, "layer_types", None) or ())
        and config.rope_parameters["rope_type"] in _STATIC_ROTATIONS
    )


def _is_read(name: str, module: Any) -> bool:
    """Whether FusedDecoder reads all that the module computes."""
    if name.endswith((*_PROJECTIONS, "lm_head")):
        return products(module) is not None and not (name == "lm_head" and products(module))
    adapted = hasattr(module, "lora_A") or hasattr(module, "original_module")
    return not adapted and not (name.endswith("embed_tokens") and type(module) is not Embedding)


def _without_adapter(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


class FusedDecoder:
    """A copy of `model`'s weights in `dtype` that draws; raises ValueError if it is not fusible.

    With `consume` the model's own weights are let go one by one, and it can no longer be used.
    Where processes hold parts of the weights, all must call this and `refresh`.
    """

    def __init__(self, model: Any, dtype: torch.dtype | None = None, consume: bool = False) -> None:
        if not is_fusible(model):
            raise ValueError(
                f"{type(model).__name__}: not an architecture that is known here, or its adapter "
                "is not plain LoRA, or weights are quantised"
            )
        self._model = _without_adapter(model)
        config = self._model.config
        self.config, self.device = config, torch.device(self._model.device)
        self.dtype: torch.dtype = dtype or self._model.dtype
        self.heads: int = config.num_attention_heads
        self.groups: int = config.num_key_value_heads
        self.size: int = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self._inner: int = config.intermediate_size
        self._eps: float = config.rms_norm_eps
        self.records = self.device.type == "cuda"
        # A layer's weights: [out, in] products, biases or None, and norms.
        self._layers: list[Any] = [SimpleNamespace() for _ in self._model.model.layers]
        self.refresh(consume)

    @torch.no_grad()
    def refresh(self, consume: bool = False) -> None:
        """Take the model's weights as they are now, with its adapter."""
        inner = self._model.model
        for ours, theirs in zip(self._layers, inner.layers, strict=True):
            attention, mlp = theirs.self_attn, theirs.mlp
            inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
            for name, modules in (
                ("qkv", inputs),
                ("out", (attention.o_proj,)),
                ("gate_up", (mlp.gate_proj, mlp.up_proj)),
                ("down", (mlp.down_proj,)),
            ):
                setattr(ours, name, self._joined(getattr(ours, name, None), modules, consume))
            ours.qkv_bias, ours.out_bias = self._biases(inputs), self._biases((attention.o_proj,))
            norms = theirs.input_layernorm, theirs.post_attention_layernorm
            ours.norms = self._taken(norms[0].weight), self._taken(norms[1].weight)
        self._embedding = self._taken(inner.embed_tokens.weight)
        self._norm = self._taken(inner.norm.weight)
        head = self._model.lm_head.weight
        tied = head is inner.embed_tokens.weight
        self._head = self._embedding if tied else self._taken(head)

    def _taken(self, weight: torch.Tensor) -> torch.Tensor:
        """All of a weight in our dtype; the model's own tensor where that is the same."""
        whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
        return whole.detach().to(self.dtype)

    def _joined(
        self, target: torch.Tensor | None, modules: tuple[Any, ...], consume: bool
    ) -> torch.Tensor:
        """The weights of `modules`, one below the other, written into `target` if there is one."""
        bases = [getattr(module, "base_layer", module) for module in modules]
        widths = [base.out_features for base in bases]
        if target is None:
            shape = sum(widths), bases[0].in_features
            target = torch.empty(shape, dtype=self.dtype, device=self.device)
        for part, module, base in zip(target.split(widths), modules, bases, strict=True):
            part.copy_(self._taken(base.weight))
            added = products(module)
            if added is None:
                raise ValueError(
                    f"{type(module).__name__}: since the decoder was made, its adapter has become "
                    "more than plain LoRA"
                )
            for up, down, scale in added:
                part += self._delta(up, down, scale)
            if consume:
                base.weight = None
        return target

    def _delta(self, up: torch.Tensor, down: torch.Tensor, scale: float) -> torch.Tensor:
        """What an adapter adds to a weight, computed in float32."""
        wide = ((w.full_tensor() if isinstance(w, DTensor) else w).float() for w in (up, down))
        return (scale * torch.matmul(*wide)).to(self.dtype)

    def _biases(self, modules: tuple[Any, ...]) -> torch.Tensor | None:
        biases = [getattr(module, "base_layer", module).bias for module in modules]
        if biases[0] is None:
            return None
        return torch.cat([self._taken(bias) for bias in biases])

    def start(self, prompts: Prompts, room: int, rows: int) -> tuple[Decoding, torch.Tensor]:
        """Rows of the prompts; see `Decoder`."""
        decoding = FusedRows(self, room, rows)
        return decoding, decoding.read(*padded(prompts, self.device))

    def rotations(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines `[positions, D]` of the rotary embedding."""
        places = torch.arange(positions, device=self.device)[None]
        cosines, sines = self._model.model.rotary_emb(self._embedding[:1, None], places)
        sines = sines[0].clone()
        sines[:, : self.size // 2] *= -1.0  # halves are swapped below, and the first one negated
        return cosines[0], sines

    def logits(
        self, ids: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """Next-token logits `[B, V]` behind `ids` `[B, T]`.

        The rotations are `[B, T, 1, D]`. `attend` takes the number of a layer and its queries,
        keys and values, `[B, T, heads, D]` each, and gives the heads' outputs `[B, T, H * D]`.
        """
        heads, both = self.heads, self.heads + self.groups
        width = (self.config.hidden_size,)
        x = F.embedding(ids, self._embedding)
        for number, layer in enumerate(self._layers):
            y = F.rms_norm(x, width, layer.norms[0], self._eps)
            y = F.linear(y, layer.qkv, layer.qkv_bias).unflatten(-1, (-1, self.size))
            turned = y[..., :both, :]
            turned = torch.addcmul(turned * cosines, turned.roll(self.size // 2, -1), sines)
            y = attend(number, turned[..., :heads, :], turned[..., heads:, :], y[..., both:, :])
            x = x + F.linear(y, layer.out, layer.out_bias)
            y = F.linear(F.rms_norm(x, width, layer.norms[1], self._eps), layer.gate_up)
            gate, up = y.split(self._inner, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(F.rms_norm(x[:, -1], width, self._norm, self._eps), self._head)
