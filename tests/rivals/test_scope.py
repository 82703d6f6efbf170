"""SCOPE's choice of tokens by hand, and a KL term without gradient elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from method_entries import ROWS
from trainers import logged, small_trainer

from sage.method.anchors import K2, K3, LogProbs
from sage.rivals.scope import Scope


def seen(**changes: Any) -> LogProbs:
    """Two completions of two and three tokens; the first is right."""
    given = {
        "policy": torch.tensor([[0.5, 0.9, 0.2], [0.5, 0.5, 0.5]]).log(),
        "anchor": torch.full((2, 3), 0.25).log(),
        "old": torch.tensor([[0.5, 0.9, 0.2], [0.5, 0.5, 0.5]]).log(),
        "entropies": torch.tensor([[0.1, 0.3, 9.0], [0.7, 0.2, 0.5]]),
        "mask": torch.tensor([[1, 1, 0], [1, 1, 1]]),
        "advantages": torch.tensor([1.0, -1.0]),
    }
    return LogProbs(**(given | changes))


def test_scope_keeps_the_tokens_of_the_highest_score_by_hand() -> None:
    """p (1 - p) max(A, 0) is .25 and .09 in the right completion, 0 in the wrong one."""
    for share, chosen in ((0.2, [1.0, 0.0]), (0.4, [1.0, 1.0]), (1.0, [1.0, 1.0])):
        kept = Scope(share=share).chosen(seen())
        assert kept.tolist() == [[*chosen, 0.0], [0.0] * 3]
    # ceil(.3 x 5) = 2 tokens by entropy: .7 and .5; the 9 stands on padding.
    by_entropy = Scope(share=0.3, score="entropy").chosen(seen())
    assert by_entropy.tolist() == [[0.0] * 3, [1.0, 0.0, 1.0]]
    # Of 100 tokens with a score .07 are 7, though the product is a little more.
    many = LogProbs(*3 * [torch.linspace(0.1, 0.4, 100)[None].log()], mask=torch.ones(1, 100),
                    entropies=torch.rand(1, 100), advantages=torch.ones(1))  # fmt: skip
    assert Scope(share=0.07).chosen(many).sum() == 7
    # k3 at the one token kept: rho = .25 / .5.
    values = Scope(share=0.2).values(seen())
    assert values[0, 0] == pytest.approx(0.5 + math.log(2) - 1)
    assert values.count_nonzero() == 1


def test_scope_of_all_tokens_is_the_estimator_itself() -> None:
    given = seen(mask=torch.ones(2, 3, dtype=torch.long))
    for name, plain in (("k3", K3()), ("k2", K2())):
        whole = Scope(share=1.0, score="entropy", of=name)
        assert torch.equal(whole.values(given), plain.values(given))


def test_scope_ranks_the_tokens_of_all_processes_that_share_a_micro_batch() -> None:
    """The other process has five tokens of a higher entropy: of ten the best five are its own."""
    other = torch.tensor([[8.0, 8.0, 0.0], [8.0, 8.0, 8.0]])

    def everyone(own: torch.Tensor) -> torch.Tensor:
        return torch.cat([own, other if own.is_floating_point() else own])

    kept = Scope(share=0.5, score="entropy").chosen(seen(everyone=everyone))
    assert kept.sum() == 0
    kept = Scope(share=0.6, score="entropy").chosen(seen(everyone=everyone))
    assert kept.nonzero().tolist() == [[1, 0]]


def test_a_token_out_of_scope_has_no_gradient_from_the_kl_term(
    parent: Path, tmp_path: Path
) -> None:
    """In training with every advantage 0 no token is in scope, so nothing is learnt."""
    row = ROWS["scope"] | {"title": "x"}
    alike = small_trainer(parent, row, tmp_path, reward=lambda prompts, **_: [1.0] * len(prompts))
    assert all(entry["grad_norm"] == 0.0 for entry in logged(alike))
