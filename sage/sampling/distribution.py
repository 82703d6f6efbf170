"""From logits to a token: pure functions, one meaning of each sampling setting.

The order is that of transformers: temperature, top-k, top-p, min-p. vLLM applies min-p
before the others, which gives another distribution only where top-p and min-p both cut.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from sage.study import Sampling


def next_token_probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The distribution a token is drawn from: `[B, V]` logits to `[B, V]` probabilities.

    It is computed in float64 whatever the logits are, so that no likelihood is lost in sums.
    """
    scaled = logits.double()
    if sampling.temperature != 1.0:
        scaled = scaled / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        smallest = scaled.topk(sampling.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < smallest, -torch.inf)
    probabilities = scaled.softmax(dim=-1)
    if sampling.top_p < 1.0:
        ordered, indices = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        ordered = ordered.masked_fill(before >= sampling.top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, indices, ordered)
    if sampling.min_p > 0.0:
        highest = probabilities.amax(dim=-1, keepdim=True)
        probabilities = probabilities.masked_fill(probabilities < sampling.min_p * highest, 0.0)
    if sampling.top_p < 1.0 or sampling.min_p > 0.0:
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return probabilities


def draw(
    probabilities: torch.Tensor, uniforms: torch.Tensor, rows: torch.Tensor | None = None
) -> torch.Tensor:
    """Tokens `[B]` by inverting the distribution function at `uniforms` `[B]` in [0, 1).

    `probabilities` are `[B, V]`, or `[N, V]` with the row of each draw in `rows` `[B]`. Of a row
    that is not a number the last token is drawn; it leaves other rows as they are.
    """
    count, vocabulary = probabilities.shape
    own = torch.arange(count, device=probabilities.device)
    rows = own if rows is None else rows
    cumulative = probabilities.cumsum(dim=-1).nan_to_num_()
    target = uniforms.to(cumulative) * cumulative[rows, -1]
    # One ascending sequence of all rows, which lie 2 apart, so that a draw copies no row.
    ascending = (cumulative + 2.0 * own[:, None]).flatten()
    tokens = torch.searchsorted(ascending, target + 2.0 * rows, right=True) - rows * vocabulary
    if (tokens == vocabulary).any():  # a product rounded up to the sum itself
        last = vocabulary - 1 - (probabilities.flip(-1) > 0).int().argmax(dim=-1)
        tokens = torch.minimum(tokens, last[rows])
    return tokens


def stream_uniforms(stream: str, count: int) -> np.ndarray:
    """The first `count` uniform numbers in [0, 1) of the stream of that name."""
    key = np.frombuffer(hashlib.sha256(stream.encode()).digest()[:16], dtype="<u8")
    return np.random.Generator(np.random.Philox(key=key)).random(count)
