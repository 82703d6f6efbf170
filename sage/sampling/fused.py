"""Llama's architecture, decoded with few large operations and a cache made beforehand.

A small model spends most of its time between operations. Here a layer takes some fifteen: query,
key and value come from one product, gate and up from another, and new keys are written into
their place instead of the cache being joined anew. The weights are a copy, in which a LoRA
adapter is merged; the model that they come from is only read. `refresh` brings the copy to where
training has brought the model. On a GPU, where starting these operations takes longer than they do,
a step is recorded once rows stay the same, and then replayed with one call.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from peft import PeftType
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from sage.sampling.decoders import Decoding, Prompts, padded

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

Step = Callable[..., torch.Tensor]

_FIRST_ROOM = 128
"""Columns of the cache at first; it doubles when they are full."""

_STEADY = 3
"""A step is recorded once so many had the same rows."""

_ARCHITECTURES = {"LlamaForCausalLM", "Qwen2ForCausalLM"}
_MODEL_TYPES = {"llama", "qwen2"}
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_STATIC_ROTATIONS = {"default", "linear", "llama3", "yarn"}


def is_fusible(model: Any) -> bool:
    """Whether `model`, with or without an adapter, is one that FusedDecoder computes exactly.

    Of adapters it knows two matrices beside a projection, and no more: not DoRA's magnitudes, not
    biases, embeddings or whole modules of the adapter's own, and no other kind than LoRA.
    """
    plain = _without_adapter(model)
    config, adapters = plain.config, getattr(model, "peft_config", {})
    return (
        all(one.peft_type == PeftType.LORA for one in adapters.values())
        and all(_is_plain(name, module) for name, module in plain.named_modules())
        and any(kind.__name__ in _ARCHITECTURES for kind in type(plain).__mro__)
        and config.model_type in _MODEL_TYPES
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and "sliding_attention" not in (getattr(config, "layer_types", None) or ())
        and config.rope_parameters["rope_type"] in _STATIC_ROTATIONS
    )


def _is_plain(name: str, module: Any) -> bool:
    """Whether an adapter changes nothing in the module that FusedDecoder does not read."""
    if hasattr(module, "original_module"):  # peft put another in its place
        return False
    if not hasattr(module, "lora_A"):
        return True
    biases = any(getattr(module, "lora_bias", {}).values())
    return name.endswith(_PROJECTIONS) and not module.lora_variant and not biases


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
                "is not plain LoRA"
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
            for adapter in getattr(module, "active_adapters", ()):
                if not module.disable_adapters and adapter in module.lora_A:
                    part += self._delta(module, adapter)
            if consume:
                base.weight = None
        return target

    def _delta(self, module: Any, adapter: str) -> torch.Tensor:
        """What the adapter adds to the weight of `module`, computed in float32."""
        down, up = (
            (w.full_tensor() if isinstance(w, DTensor) else w).float()
            for w in (module.lora_A[adapter].weight, module.lora_B[adapter].weight)
        )
        return (module.scaling[adapter] * (up @ down)).to(self.dtype)

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
            y = self._product(y, layer.qkv, layer.qkv_bias).unflatten(-1, (-1, self.size))
            turned = y[..., :both, :]
            turned = torch.addcmul(turned * cosines, turned.roll(self.size // 2, -1), sines)
            y = attend(number, turned[..., :heads, :], turned[..., heads:, :], y[..., both:, :])
            x = x + self._product(y, layer.out, layer.out_bias)
            y = self._product(F.rms_norm(x, width, layer.norms[1], self._eps), layer.gate_up)
            gate, up = y.split(self._inner, dim=-1)
            x = x + self._product(F.silu(gate) * up, layer.down)
        return F.linear(F.rms_norm(x[:, -1], width, self._norm, self._eps), self._head)

    def _product(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """A layer's weight applied to `x` `[B, T, in]`."""
        return F.linear(x, weight, bias)


class FusedRows:
    """Rows of a FusedDecoder, left-padded: all write the same column of the cache next.

    Keys are kept as `[R, G, D, C]` and values as `[R, G, C, D]`, G key-value heads, C columns and
    room for R rows, of which the first are in use, so that both products of the attention are
    batched products of whole matrices. `room` is the most tokens a row will take, `most` the most
    rows there will be.
    """

    def __init__(self, decoder: FusedDecoder, room: int, most: int) -> None:
        self._decoder, self._room, self._most = decoder, room, most
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._rows = self._steady = 0
        self._recorded: Step | None = None

    def read(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Fill the cache with padded prompts `[B, P]` of these lengths `[B]`; logits `[B, V]`."""
        decoder, (count, width) = self._decoder, ids.shape
        self._cosines, self._sines = decoder.rotations(width + self._room)
        self._limit, self._column = width + self._room, width
        capacity = min(self._limit, width + _FIRST_ROOM)
        places = torch.arange(width, device=ids.device)
        real = places >= width - lengths[:, None]  # [B, P]
        seen = (real[:, None] & (places <= places[:, None])) | torch.eye(
            width, dtype=torch.bool, device=ids.device
        )  # a padded query sees itself, for the softmax of nothing is no number

        def attend(_: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            keys = self._room_for(k, count, decoder.groups, decoder.size, capacity)
            values = self._room_for(v, count, decoder.groups, capacity, decoder.size)
            keys[..., :width], values[:, :, :width] = k.transpose(2, 3), v
            self._keys.append(keys)
            self._values.append(values)
            grouped = decoder.heads != decoder.groups
            y = F.scaled_dot_product_attention(q, k, v, seen[:, None], enable_gqa=grouped)
            return y.transpose(1, 2).flatten(2)

        positions = (places - (width - lengths[:, None])).clamp(min=0)
        logits = decoder.logits(
            ids, self._cosines[positions][:, :, None], self._sines[positions][:, :, None], attend
        )
        self._positions = lengths
        self._hidden = torch.zeros(count, self._limit, dtype=decoder.dtype, device=ids.device)
        self._hidden[:, :width].masked_fill_(~real, -torch.inf)
        self._padded = bool((lengths < width).any())
        return logits

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Append `tokens` `[B]`; the next tokens' logits `[B, V]`, good until the next step."""
        decoder, column = self._decoder, self._column
        if column == self._keys[0].shape[-1]:
            self._widen()
            self._recorded = None
        if len(tokens) != self._rows:
            self._rows, self._steady, self._recorded = len(tokens), 0, None
        self._steady += 1
        if not decoder.records or self._steady < _STEADY:
            logits = self._grow(tokens)
        else:
            inputs = tokens, self._positions, torch.full((1,), column, device=tokens.device)
            self._recorded = self._recorded or self._record(inputs)
            logits = self._recorded(*inputs)
        self._column += 1
        self._positions = self._positions + 1
        return logits

    def _grow(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits behind `tokens`, which attend to the columns that are filled and their own."""
        decoder, column = self._decoder, self._column
        rows = len(tokens)
        hidden = None  # without padding nothing is added to the scores
        if self._padded:
            hidden = _for_groups(self._hidden[:, : column + 1], decoder.groups)

        def attend(n: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self._keys[n][:rows], self._values[n][:rows]
            keys[..., column] = k[:, 0]
            values[:, :, column] = v[:, 0]
            return self._attended(q, keys[..., : column + 1], values[:, :, : column + 1], hidden)

        return self._logits(tokens, self._positions, attend)

    def still(
        self, tokens: torch.Tensor, positions: torch.Tensor, column: torch.Tensor
    ) -> torch.Tensor:
        """The same, over all columns of the cache, so that no shape changes between steps.

        `positions` `[B]` are those of the tokens, `column` `[1]` is where they are written.
        """
        rows, places = len(tokens), torch.arange(self._keys[0].shape[-1], device=tokens.device)
        outside = (places < column - positions[:, None]) | (places > column)  # [B, C]
        hidden = torch.zeros_like(outside, dtype=self._decoder.dtype)
        hidden.masked_fill_(outside, -torch.inf)
        hidden = _for_groups(hidden, self._decoder.groups)

        def attend(n: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self._keys[n][:rows], self._values[n][:rows]
            keys.index_copy_(3, column, k.squeeze(1)[..., None])
            values.index_copy_(2, column, v.squeeze(1)[:, :, None])
            return self._attended(q, keys, values, hidden)

        return self._logits(tokens, positions, attend)

    def _logits(
        self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        cosines, sines = (table[positions][:, None, None] for table in (self._cosines, self._sines))
        return self._decoder.logits(tokens[:, None], cosines, sines, attend)

    def _attended(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor | None
    ) -> torch.Tensor:
        """What queries `[B, 1, H, D]` read from `keys` `[B, G, D, C]` and `values` `[B, G, C, D]`.

        `hidden` `[B * G, 1, C]` is added to the scores. Returns `[B, 1, H * D]`.
        """
        size = self._decoder.size
        q = q.reshape(len(keys) * self._decoder.groups, -1, size)
        seen = keys.flatten(0, 1)
        if hidden is None:
            scores = torch.baddbmm(q[:1, :1, :1], q, seen, alpha=size**-0.5, beta=0.0)
        else:
            scores = torch.baddbmm(hidden, q, seen, alpha=size**-0.5)
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)
        return torch.bmm(weights, values.flatten(0, 1)).view(len(keys), 1, -1)

    def _record(self, inputs: tuple[torch.Tensor, ...]) -> Step:
        """`still` for inputs of these shapes, as it is replayed; without a GPU, as it is."""
        if self._decoder.device.type != "cuda":
            return self.still
        try:
            return recorded(self.still, inputs)
        except RuntimeError as error:
            print(f"steps are not recorded, which makes sampling slower: {error}")
            self._decoder.records = False
            return self.still

    def _room_for(self, like: torch.Tensor, *shape: int) -> torch.Tensor:
        """A cache; where all of its columns are read, those that are hidden must be numbers."""
        return like.new_zeros(shape) if self._decoder.records else like.new_empty(shape)

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with K rows, each a copy of the one that `rows` `[K]` names; see `Decoding`."""
        targets = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        self._positions = self._positions[rows]
        if self._padded:
            self._hidden = self._hidden[rows]
        if len(rows) > len(self._keys[0]):
            self._lengthen(min(self._most, 2 * len(rows)))
        if len(targets):
            sources, column = rows[targets], self._column
            for keys, values in zip(self._keys, self._values, strict=True):
                keys[targets, ..., :column] = keys[sources, ..., :column]
                values[targets, :, :column] = values[sources, :, :column]

    def _lengthen(self, rows: int) -> None:
        """Room for so many rows."""
        for cache in (self._keys, self._values):
            for number, old in enumerate(cache):
                cache[number] = self._room_for(old, rows, *old.shape[1:])
                cache[number][: len(old)] = old

    def _widen(self) -> None:
        """Twice as many columns, or as many as there is room for."""
        more = min(self._limit - self._column, self._column)
        self._keys = [F.pad(keys, (0, more)) for keys in self._keys]
        self._values = [F.pad(values, (0, 0, 0, more)) for values in self._values]


def _for_groups(hidden: torch.Tensor, groups: int) -> torch.Tensor:
    """`[B, C]` for each of `groups` heads: `[B * G, 1, C]`."""
    return hidden[:, None].expand(-1, groups, -1).reshape(-1, 1, hidden.shape[-1])


def recorded(step: Step, inputs: tuple[torch.Tensor, ...]) -> Step:
    """`step` as a CUDA graph: a function of inputs of the same shapes that starts it with one call.

    What it returns is overwritten by the next call. Raises RuntimeError if it cannot be recorded.
    """
    own = [each.clone() for each in inputs]
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(*own)  # libraries are loaded and their workspaces made outside of the record
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            output = step(*own)
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)

    def replay(*given: torch.Tensor) -> torch.Tensor:
        for ours, theirs in zip(own, given, strict=True):
            ours.copy_(theirs)
        graph.replay()
        return output

    return replay
