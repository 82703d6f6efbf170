"""bfloat16 layers of a model's size on a processor without arithmetic for it; elsewhere nothing."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.paired import Comparison, speedup
from sage.training.bfloat16 import fast_bfloat16, lacks_bfloat16

TOKENS, WIDTH, INNER = 2_048, 576, 1_536
"""Tokens of a micro-batch, and the sizes of SmolLM2-135M."""


def comparisons() -> Iterator[Comparison]:
    """Forwards and backwards through frozen layers, against torch's own products."""
    if not lacks_bfloat16():
        return
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH))
    layers.to(torch.bfloat16).requires_grad_(False)
    inputs = torch.randn(TOKENS, WIDTH, requires_grad=True)

    def step(fast: bool) -> None:
        with fast_bfloat16(fast):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = layers(inputs)
            output.backward(torch.ones_like(output))

    for fast in (True, False):
        step(fast)
    name = "bfloat16 layers in float32, against oneDNN's without the instructions"
    yield speedup(name, lambda: step(True), lambda: step(False), limit=2.0, rounds=11)
