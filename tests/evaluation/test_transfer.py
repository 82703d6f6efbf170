"""The transfer of a guide, against finite differences on a small model and by its two ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from builders.tiny_models import write_tiny

from sage.evaluation.transfer import Completions, Direction, derivatives, gradient, transfer
from sage.method.alignment import alignment, coverage_weights
from sage.policies import load_policy

K = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_tiny(tmp_path_factory.mktemp("model") / "tiny", ["1 + 2 = 3"] * 50, spread=6.0)
    return load_policy(folder, None, torch.float32, "cpu")


def first_token(model: Any, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([model(torch.tensor([p])).logits[0, -1].softmax(-1) for p in prompts])


def drawn(model: Any, seed: int, groups: int, tokens: int, strata: Sequence[str]) -> Completions:
    """`groups` completions of each of some prompts, right where their first token is even."""
    generator = torch.Generator().manual_seed(seed)
    prompts = [[seed + 5 + place, seed + 6][: 1 + place % 2] for place in range(len(strata))]
    with torch.no_grad():
        written = [
            model.generate(
                torch.tensor([prompt] * groups), max_new_tokens=tokens, do_sample=True, top_k=0,
                top_p=1.0, temperature=1.0, eos_token_id=-1, pad_token_id=0,
            )[:, len(prompt) :]
            for prompt in prompts
        ]  # fmt: skip
    pairs = [(p, row.tolist()) for p, rows in zip(prompts, written, strict=True) for row in rows]
    right = torch.stack([(rows[:, 0] % 2 == 0).double() for rows in written])
    mask = torch.ones(len(pairs), tokens)
    factors = torch.randn(len(pairs), tokens, generator=generator).double()
    return Completions(pairs, right, strata, factors, mask, causal=True)


@pytest.mark.parametrize("scaled", [False, True])
def test_both_ways_give_the_same_transfer(model: Any, scaled: bool) -> None:
    """Along g_guide on evaluation completions, and along g_eval on those of training."""
    torch.manual_seed(0)
    train, test = drawn(model, 10, 6, 3, ["a", "a"]), drawn(model, 20, 8, 3, ["a", "b", "a", "b"])
    scale = {n: torch.rand_like(p) + 0.1 for n, p in model.named_parameters()} if scaled else None
    rows = {row["part"]: row for row in transfer(model, train, test, K, scale=scale, placebos=20)}
    assert list(rows) == ["all", "trained", "others"]
    for name, which in (("all", [1, 1, 1, 1]), ("trained", [2, 0, 2, 0]), ("others", [0, 2, 0, 2])):
        weights = coverage_weights(test.right, K) * torch.tensor(which)[:, None] / 4
        wanted = gradient(model, test.pairs, weights.flatten()[:, None] * test.mask)
        credit = train.credit(train.log_factors).flatten(0, 1) / train.right.numel()
        guided = gradient(model, train.pairs, credit)
        product = sum(
            float((wanted[n].double() * guided[n] * (scale[n] if scale else 1)).sum())
            for n in guided
        )
        assert rows[name]["transfer"] == pytest.approx(product, rel=2e-3)
        assert rows[name]["transfer_low"] < product < rows[name]["transfer_high"]
    assert rows["all"]["placebo_sd"] > 0


def test_a_step_along_the_gradient_moves_pass_at_k_as_foretold(model: Any) -> None:
    """One token: pass@k is exact from the model's distribution, and its estimate has a known SE."""
    torch.manual_seed(1)
    test = drawn(model, 20, 3000, 1, ["", ""])
    direction = gradient(model, *_reward_of(model, drawn(model, 10, 50, 1, ["", ""])))
    prompts = [test.pairs[0][0], test.pairs[3000][0]]

    def coverage(step: float) -> torch.Tensor:
        moved = {n: p.detach() + step * direction[n] for n, p in model.named_parameters()}
        with torch.no_grad():
            before = {n: p.detach().clone() for n, p in model.named_parameters()}
            model.load_state_dict(moved, strict=False)
            right = first_token(model, prompts)[:, ::2].double().sum(1)
            model.load_state_dict(before, strict=False)
        return 1 - (1 - right) ** K

    expected = (coverage(1e-2) - coverage(-1e-2)) / 2e-2
    moves = derivatives(model, direction, test.pairs).sum(1).view(2, -1)
    found = alignment(test.right, moves, K)
    # The SE of the estimate over 30 disjoint groups of 100 completions.
    parts = torch.stack([
        alignment(r, m, K)
        for r, m in zip(test.right.split(100, dim=1), moves.split(100, dim=1), strict=True)
    ])  # fmt: skip
    error = parts.std(0) / 30**0.5
    assert ((found - expected).abs() < 4 * error).all(), (found, expected, error)
    assert (expected.abs() > 8 * error).any()  # else the test could not fail


def _reward_of(model: Any, train: Completions) -> tuple[Any, torch.Tensor]:
    centred = train.right - train.right.mean(1, keepdim=True)
    return train.pairs, centred.flatten()[:, None] * train.mask / train.right.numel()


def test_a_derivative_is_that_of_autograd_and_the_model_is_as_before(model: Any) -> None:
    torch.manual_seed(2)
    pairs = [([3, 4], [5, 6, 7]), ([8, 9, 10], [11])]
    direction: Direction = {n: torch.randn_like(p) for n, p in model.named_parameters()}
    before = {name: part.clone() for name, part in model.state_dict().items()}
    found = derivatives(model, direction, pairs, temperature=0.7)
    for row, width in ((0, 3), (1, 1)):
        for place in range(width):
            weights = torch.zeros(2, 3)
            weights[row, place] = 1.0
            own = gradient(model, pairs, weights, temperature=0.7)
            product = sum(float((own[name] * direction[name]).sum()) for name in direction)
            assert float(found[row, place]) == pytest.approx(product, rel=5e-3, abs=2e-2)
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert float(found[1, 1:].abs().max()) == 0.0  # behind the end


def test_a_guide_that_says_nothing_transfers_nothing(model: Any) -> None:
    torch.manual_seed(3)
    train, test = drawn(model, 10, 6, 3, ["", ""]), drawn(model, 20, 8, 3, ["", ""])
    flat = replace(train, log_factors=torch.zeros_like(train.log_factors))
    (row,) = transfer(model, flat, test, K, placebos=5)
    assert row["transfer"] == 0.0
    assert row["placebo_sd"] == 0.0
