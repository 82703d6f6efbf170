"""The rows that a FusedDecoder continues, with their cache, and steps as CUDA graphs.

Starting the operations of a step one by one takes longer than a GPU takes to do them. So there a
step is recorded once rows stay the same, over the whole cache, and then started with one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from sage.sampling.fused import FusedDecoder

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Step = Callable[..., torch.Tensor]

_FIRST_ROOM = 128
"""Columns of the cache at first; it doubles when they are full."""

_STEADY = 3
"""A step is recorded once so many had the same rows."""


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
            try:
                return recorded(self.still, inputs)
            except torch.OutOfMemoryError:  # a recording cannot use what PyTorch keeps reserved
                torch.cuda.empty_cache()
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
