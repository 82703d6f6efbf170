"""APO's push and pull by hand, by autograd on random states, and where it is GRPO."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from method_entries import ROWS
from token_signals import signals
from trainers import logged, small_trainer

from sage.method.anchors import LogProbs
from sage.rivals.apo import Apo, ApoPush
from sage.study import Algorithm


def seen(policy: torch.Tensor, reference: torch.Tensor, tokens: Any, advantages: Any) -> LogProbs:
    """Logits `[B, T, V]`, the tokens drawn and the advantages of completions."""
    ids = torch.tensor(tokens)
    drawn = policy.detach().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return LogProbs(policy, reference, drawn, advantages=torch.tensor(advantages), tokens=ids)


def test_the_pull_by_hand() -> None:
    """K = 2 are tokens 0 and 1; the gradient by each chance is -|A| / Z on S alone."""
    reference = torch.tensor([0.5, 0.3, 0.2]).log().expand(3, 2, 3)
    policy = torch.tensor([0.8, 0.1, 0.1]).log().repeat(3, 2, 1).requires_grad_()
    of = seen(policy, reference, [[0, 2]] * 3, [-2.0, 0.5, 0.0])
    values = Apo(support=2).values(of)
    # Token 0 drawn: S = {1}, M / Z = .1 / .3. Token 2 drawn: S = {0, 1}, .9 / .8, nothing is lost.
    torch.testing.assert_close(values[0], torch.tensor([2.0 * 2 / 3, 0.0]))
    assert values[1:].count_nonzero() == 0  # right, or not scored
    (slope,) = torch.autograd.grad(values.sum(), policy)
    chance = torch.tensor([0.8, 0.1, 0.1])
    for t, (inside, held) in enumerate((((0.0, 1, 0), 0.3), ((1.0, 1, 0), 0.8))):
        of_set = torch.tensor(inside)
        by_hand = -2.0 / held * chance * (of_set - (chance * of_set).sum())
        torch.testing.assert_close(slope[0, t], by_hand)
    assert slope[1:].count_nonzero() == 0
    # Where the only safe token was drawn nothing is pulled; if all are safe, the drawn one sinks.
    none = Apo(support=1).values(seen(policy, reference, [[0, 0]] * 3, [-2.0] * 3))
    assert none.count_nonzero() == 0
    assert torch.autograd.grad(none.sum(), policy)[0].count_nonzero() == 0
    # Nor where the reference leaves the others no chance that is a number above 0.
    sure = torch.tensor([200.0, 0.0, 0.0]).expand(3, 2, 3)
    nothing = Apo(support=2).values(seen(policy, sure, [[0, 0]] * 3, [-2.0] * 3))
    assert torch.autograd.grad(nothing.sum(), policy)[0].count_nonzero() == 0
    every = Apo(support=9).values(of)
    (slope,) = torch.autograd.grad(every[0, 1], policy)
    assert (slope[0, 1] > 0).tolist() == [False, False, True]


def test_random_states_one_by_one_have_the_gradient_of_the_rectified_ratio() -> None:
    torch.manual_seed(3)
    policy, reference = torch.randn(4, 3, 7).double(), torch.randn(4, 3, 7).double()
    tokens, advantages = torch.randint(7, (4, 3)), torch.tensor([-1.5, 0.5, -0.2, -1.0]).double()
    logits = policy.requires_grad_()
    of = seen(logits, reference, tokens.tolist(), advantages.tolist())
    (got,) = torch.autograd.grad(Apo(support=3).values(of).sum(), logits)
    total = torch.zeros(()).double()
    for i, t in ((i, t) for i in range(4) if advantages[i] < 0 for t in range(3)):
        ranked = reference[i, t].argsort(descending=True)[:3].tolist()
        safe = [each for each in ranked if each != tokens[i, t]]
        anchor = reference[i, t].softmax(0)
        weights = anchor[safe] / anchor[safe].sum()
        total = (
            total + advantages[i] * (weights * logits[i, t].softmax(0)[safe] / anchor[safe]).sum()
        )
    torch.testing.assert_close(got, torch.autograd.grad(total, logits)[0])


def test_the_push_is_on_wrong_completions_alone() -> None:
    of = signals(-torch.rand(3, 2), [0] * 3, [1.0, 0.0, 0.0], advantages=torch.tensor([1.0, -1, 0]))
    assert ApoPush(push=1.5).token_advantages(of).tolist() == [[1.0] * 2, [-1.5] * 2, [0.0] * 2]
    assert torch.equal(ApoPush(push=1.0).token_advantages(of)[:, 0], of.advantages)


def test_a_guide_beside_it_is_refused_and_so_is_an_estimator_without_tokens() -> None:
    with pytest.raises(ValueError, match="a guide is known for the drawn token only"):
        Algorithm.model_validate(ROWS["apo"] | {"guide": "branch"})
    with pytest.raises(ValueError, match="needs the drawn tokens"):
        Apo().values(LogProbs(*[torch.zeros(1, 1)] * 3))


def test_training_hands_it_logits_with_the_tokens_that_were_drawn(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without push and pull it trains as GRPO does."""
    given: list[LogProbs] = []
    values = Apo.values
    monkeypatch.setattr(Apo, "values", lambda self, of: given.append(of) or values(self, of))
    weak = {"credit": None, "kl_coefficient": 1e-9}
    rows = (ROWS["grpo_no_kl"], ROWS["apo"] | weak, ROWS["apo"] | {"kl_coefficient": 1.0})
    plain, without, pulled = (
        [entry["grad_norm"] for entry in logged(small_trainer(parent, row, tmp_path / str(i)))]
        for i, row in enumerate(rows)
    )
    assert without == pytest.approx(plain, rel=1e-3)
    assert pulled[0] != pytest.approx(plain[0], rel=0.02)
    assert given
    for of in given:
        drawn = of.policy.log_softmax(-1).gather(-1, of.tokens[..., None])[..., 0]
        torch.testing.assert_close(
            drawn[of.mask.bool()], of.old[of.mask.bool()], rtol=1e-3, atol=1e-4
        )
        assert not of.anchor.requires_grad
        assert of.anchor.shape == of.policy.shape
