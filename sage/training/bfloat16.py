"""bfloat16 on a processor that has no arithmetic for it.

There oneDNN takes four times as long for a product of bfloat16 matrices as for one of float32. Such
a product is by definition summed in float32 and rounded at its end, so it may as well be computed
in float32 from the same rounded factors: that differs in the order of the sums alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ARITHMETIC = ("avx512_bf16", "amx_bf16")


def lacks_bfloat16() -> bool:
    """Whether this processor is one of x86 without instructions for bfloat16 products."""
    capabilities = torch.cpu.get_capabilities()
    return capabilities.get("architecture") == "x86_64" and not any(
        capabilities.get(n) for n in _ARITHMETIC
    )


@contextmanager
def fast_bfloat16(wanted: bool) -> Iterator[None]:
    """Within it, linear layers under a processor's bfloat16 autocast are computed in float32.

    Their factors and results, forwards and backwards, are rounded to bfloat16 as before. Nothing is
    changed where the processor has the arithmetic or it is not `wanted`, and never for layers
    outside of autocast or on a GPU.
    """
    if not (wanted and lacks_bfloat16()):
        yield
        return
    plain = F.linear

    def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product = _linear if _is_autocast(input) else plain
        return product(input, weight, bias)

    # Not a TorchFunctionMode: those are off in `backward`, where checkpoints compute layers anew.
    F.linear = linear
    try:
        yield
    finally:
        F.linear = plain


def _is_autocast(inputs: Tensor) -> bool:
    return (
        inputs.device.type == "cpu"
        and inputs.dtype != torch.float64  # which autocast leaves as it is
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    factors = (each.to(torch.bfloat16) for each in (inputs, weight))
    added = None if bias is None else bias.to(torch.bfloat16)
    product: Tensor = _Linear.apply(*factors, added)
    return product


class _Linear(torch.autograd.Function):
    """`F.linear` of bfloat16 tensors, each product taken in float32 and rounded once."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        with torch.autocast("cpu", enabled=False):
            added = None if bias is None else bias.float()
            return F.linear(inputs.float(), weight.float(), added).to(torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        slope = slopes[0].float()
        of_inputs = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_inputs = (slope @ weight.float()).to(torch.bfloat16)
        rows = slope.reshape(-1, slope.shape[-1])
        if ctx.needs_input_grad[1]:
            read = inputs.float().reshape(-1, inputs.shape[-1])
            of_weight = (rows.T @ read).to(torch.bfloat16)
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0).to(torch.bfloat16)
        return of_inputs, of_weight, of_bias
