"""bfloat16 products in float32: the same numbers, where the processor would be slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from trainers import SMALL, SUMS, write_parent

from sage.runtime.manifest import Manifest
from sage.study import RL, SFT, Algorithm, LoRA
from sage.training import bfloat16
from sage.training.bfloat16 import fast_bfloat16
from sage.training.examples import Solution
from sage.training.rl import train_rl
from sage.training.sft import fine_tune


@pytest.fixture(autouse=True)
def slow_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "lacks_bfloat16", lambda: True)


def layers(seed: int) -> nn.Sequential:
    """A frozen layer in bfloat16, as of a base, and two trained ones in float32."""
    torch.manual_seed(seed)
    base = nn.Linear(24, 32, bias=False).to(torch.bfloat16).requires_grad_(False)
    return nn.Sequential(base, nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 8, bias=False))


def outcome(fast: bool, whole: bool) -> list[torch.Tensor]:
    """The layers' output and all gradients; with `whole` every factor is a small whole number."""
    model = layers(0)
    inputs = torch.randn(3, 5, 24)
    if whole:
        model = nn.Sequential(model[0], model[1], model[3])
        with torch.no_grad():
            for weight in [*model.parameters(), inputs]:
                weight.copy_(torch.randint(-1, 2, weight.shape))
    inputs.requires_grad_(True)
    with fast_bfloat16(fast):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(inputs)
        output.backward(torch.ones_like(output))
    trained = [each.grad for each in model.parameters() if each.requires_grad]
    return [output.detach(), inputs.grad, *trained]  # type: ignore[list-item]


def test_where_sums_are_exact_every_number_is_the_same() -> None:
    fast, plain = outcome(True, whole=True), outcome(False, whole=True)
    assert len(fast) == 5
    for ours, theirs in zip(fast, plain, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
        assert ours.abs().sum() > 0


def test_else_they_differ_by_a_rounding_at_most() -> None:
    for ours, theirs in zip(outcome(True, whole=False), outcome(False, whole=False), strict=True):
        assert ours.dtype == theirs.dtype
        largest = float(theirs.abs().max())
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=largest * 2**-7)


def gradients(checkpointed: bool) -> list[torch.Tensor]:
    model, inputs = layers(2), torch.randn(3, 24)
    with fast_bfloat16(True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            computed = (
                checkpoint(model, inputs, use_reentrant=False) if checkpointed else model(inputs)
            )
        computed.sum().backward()
    return [each.grad for each in model.parameters() if each.requires_grad]  # type: ignore[misc]


def test_gradient_checkpointing_computes_the_same_anew() -> None:
    for ours, plain in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(ours, plain)


def test_doubles_and_single_rows_are_as_without_it() -> None:
    weight = torch.randn(4, 8, requires_grad=True)
    for inputs in (torch.randn(2, 8).double(), torch.randn(8)):
        found = []
        for fast in (True, False):
            with fast_bfloat16(fast), torch.autocast("cpu", dtype=torch.bfloat16):
                output = nn.functional.linear(inputs, weight.to(inputs.dtype))
            weight.grad = None
            output.sum().backward()
            found.append((output.detach(), weight.grad))
        for ours, plain in zip(*found, strict=True):
            assert ours.dtype == plain.dtype
            torch.testing.assert_close(ours, plain, rtol=2**-7, atol=2**-6)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The products that were taken in float32."""
    products: list[torch.Tensor] = []
    product = bfloat16._linear

    def counted(*factors: torch.Tensor) -> torch.Tensor:
        products.append(product(*factors))
        return products[-1]

    monkeypatch.setattr(bfloat16, "_linear", counted)
    return products


def test_products_are_taken_in_float32_within_it_alone(
    taken: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = layers(1), torch.randn(2, 24)
    with fast_bfloat16(True), torch.autocast("cpu", dtype=torch.bfloat16):
        model(inputs)
    assert len(taken) == 3
    with fast_bfloat16(True):
        model[1](torch.randn(2, 32))  # no autocast: float32 stays float32
    with fast_bfloat16(False), torch.autocast("cpu", dtype=torch.bfloat16):
        model(inputs)
    monkeypatch.setattr(bfloat16, "lacks_bfloat16", lambda: False)
    with fast_bfloat16(True), torch.autocast("cpu", dtype=torch.bfloat16):
        model(inputs)
    assert len(taken) == 3


@pytest.mark.parametrize(
    ("found", "lacks"),
    [
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False}, True),
        ({"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_what_the_processor_has(
    found: dict[str, object], lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert bfloat16.lacks_bfloat16() is lacks


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_runs_in_bfloat16_use_it(tmp_path: Path, taken: list[torch.Tensor], precision: str) -> None:
    parent, manifest = write_parent(tmp_path / "base", SUMS), Manifest({}, 1, time.time())
    settings = RL.model_validate(SMALL.model_dump() | {"steps": 1, "precision": precision})
    grpo = Algorithm(title="x", loss="grpo", kl="reverse", estimator="k3")
    folder, scratch = tmp_path / "policy", tmp_path / "scratch"
    train_rl(parent, SUMS, settings, grpo, 1, "cpu", scratch, folder, manifest)
    of_rl = len(taken)
    tuning = SFT(
        epochs=1,
        batch_size=2,
        max_tokens=500,
        learning_rate=1e-3,
        warmup_steps=0,
        weight_decay=0.0,
        lora=LoRA(rank=2, alpha=2),
        precision=precision,
        seed=1,
        examples=2,
    )
    solutions = [Solution(sum.problem, "so", sum.answer) for sum in SUMS[:2]]
    fine_tune(parent, solutions, tuning, "cpu", scratch, tmp_path / "tuned", manifest)
    of_sft = len(taken) - of_rl
    assert (of_rl > 0, of_sft > 0) == (precision == "bfloat16",) * 2
