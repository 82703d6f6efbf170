"""VERL: effective ranks by hand and by SVD, running means, and the states of the loss's pass."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainers import SMALL, assert_same_run, logged, small_trainer, unbroken_and_resumed

from sage.method.credit import TokenSignals
from sage.rivals.verl_rank import VerlRank, effective_rank, rank_measures
from sage.study import Algorithm
from sage.study.algorithms import run_conflicts

pytestmark = [pytest.mark.timeout(4000)]

PLAIN: dict[str, Any] = {"title": "x", "loss": "grpo", "kl": "none"}


def ranked(every: int = 3, **settings: Any) -> dict[str, Any]:
    return PLAIN | {"credit": {"kind": "verl_rank", "settings": {"every": every, **settings}}}


RANKED = ranked()


def ones(states: torch.Tensor) -> torch.Tensor:
    return torch.ones(states.shape[:2])


def by_svd(states: torch.Tensor) -> float:
    """The formula, from singular values, `[T, D]`."""
    values = torch.linalg.svdvals(states.double() - states.double().mean(dim=0))
    share = values[values > 1e-9] / values.sum()
    return math.exp(-float((share * share.log()).sum()))


def test_effective_rank_by_hand() -> None:
    """Two directions of equal size have rank 2; with sizes 3 and 1 the shares are 3/4 and 1/4."""
    equal = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    uneven = equal * torch.tensor([3.0, 1.0])
    line = torch.tensor([[1.0, 2], [2, 4], [3, 6], [4, 8]])
    states = torch.stack([equal, uneven, line, torch.ones(4, 2)])
    mixed = math.exp(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    expected = torch.tensor([2.0, mixed, 1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(effective_rank(states, ones(states)), expected)


@pytest.mark.parametrize("size", [(5, 12), (12, 5), (7, 7)])
def test_effective_rank_is_that_of_the_singular_values(size: tuple[int, int]) -> None:
    numbers = torch.Generator().manual_seed(1)
    states = torch.randn(6, *size, generator=numbers)
    lengths = torch.tensor([1, 2, 3, 4, 5, 5])
    mask = (torch.arange(size[0]) < lengths[:, None]).float()
    wanted = [
        by_svd(row[:length]) if length > 1 else 0.0
        for row, length in zip(states, lengths, strict=True)
    ]
    torch.testing.assert_close(effective_rank(states, mask).tolist(), wanted, rtol=1e-6, atol=1e-6)


def test_measures_of_ragged_completions() -> None:
    """Every 3 tokens, and at the end: of 8 tokens after 3, 6 and 8; of 5 after 3 and 5.

    Of 4 tokens only after 3, for there is a single one behind; the rank is still that of all four.
    """
    numbers = torch.Generator().manual_seed(2)
    states = torch.randn(5, 8, 5, generator=numbers)
    mask = (torch.arange(8) < torch.tensor([8, 5, 3, 0, 4])[:, None]).long()
    got = rank_measures(states, mask, 3)
    a, b, c = (by_svd(states[0, :end]) for end in (3, 6, 8))
    first, second = b - a, c - (a + b) / 2
    assert got[0].tolist() == pytest.approx([c, (first + second) / 2, second - first])
    a, b = (by_svd(states[1, :end]) for end in (3, 5))
    assert got[1].tolist() == pytest.approx([b, b - a, math.nan], nan_ok=True)
    assert got[2].tolist() == pytest.approx([by_svd(states[2, :3])] + [math.nan] * 2, nan_ok=True)
    assert got[3].isnan().all()
    assert got[4].tolist() == pytest.approx([by_svd(states[4, :4])] + [math.nan] * 2, nan_ok=True)


def shown(states: torch.Tensor, advantages: list[float], **more: Any) -> TokenSignals:
    rows, length = states.shape[:2]
    blank = torch.zeros(rows, length)
    of_rows = torch.arange(rows)
    return TokenSignals(
        log_probs=blank,
        old_log_probs=blank,
        entropies=blank,
        mask=ones(states),
        advantages=torch.tensor(advantages),
        rewards=torch.zeros(rows),
        groups=of_rows,
        group_sizes=torch.ones(rows),
        rows=of_rows,
        hidden_states=states,
        **more,
    )


def test_the_bonus_by_hand() -> None:
    """Running means 1, 0.5 and 0.25. The line has rank 1 throughout: dev ER = 0, dev ERV = -1,
    dev ERA = -1, so Φ < 0. The square's rank goes 1, 1, 2 after 2, 4 and 6 tokens.
    """
    rule = VerlRank(every=2)
    rule.load_state_dict({"means": [1.0, 0.5, 0.25]})
    line = torch.arange(6.0)[:, None] * torch.tensor([1.0, 1.0])
    states = torch.stack([line, line, line])
    corner = torch.tensor([[0.0, 0], [1, 0], [2, 0], [3, 0], [0, 5], [1, 5]])
    states = torch.cat([states, corner[None].expand(3, 6, 2)])
    got = rule.token_advantages(shown(states, [1.0, -1.0, 0.0, 1.0, -1.0, 0.0]))
    last = by_svd(corner)
    speeds = 0.0, last - 1.0
    deviations = last - 1.0, (sum(speeds) / 2 - 0.5) / 0.5, (speeds[1] - speeds[0] - 0.25) / 0.25
    share = 1 / (1 + math.exp(-2 * deviations[2]))
    bonus = share * math.tanh(deviations[0]) + (1 - share) * math.tanh(deviations[1])
    assert bonus > 0.1
    more = min(bonus, 0.5)
    expected = torch.tensor([1.0, -1.0, 0.0, 1.0 + more, -1.0 + more, 0.0])
    torch.testing.assert_close(got, expected[:, None].expand(6, 6))


def test_a_bonus_is_at_most_half_the_advantage_and_has_a_weight() -> None:
    states = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(4))
    for weight in (0.0, 1.0, 2.0):
        rule = VerlRank(every=2, weight=weight)
        rule.load_state_dict({"means": [0.1, 0.01, 0.01]})  # far below: Φ is near 1
        got = rule.token_advantages(shown(states, [0.4]))
        torch.testing.assert_close(got, torch.full((1, 6), 0.4 + 0.2 * weight))


def test_running_means_move_once_a_step_over_all_processes() -> None:
    """Two micro-batches and, as another process, the same again; then a step with decay 0.7."""
    numbers = torch.Generator().manual_seed(5)
    states = torch.randn(4, 7, 5, generator=numbers)
    rule = VerlRank(every=2, decay=0.7)
    for part in (states[:2], states[2:]):
        got = rule.token_advantages(shown(part, [1.0, -1.0]))
        assert got[:, 0].tolist() == [1.0, -1.0]  # nothing is known yet
    rule.end_step(lambda values: 2 * values)
    means = rank_measures(states, ones(states), 2).mean(dim=0)
    assert rule.state_dict()["means"] == pytest.approx(means.tolist())
    other = torch.randn(4, 7, 5, generator=numbers)
    rule.token_advantages(shown(other, [1.0] * 4))
    rule.token_advantages(shown(states, [1.0] * 4, training=False))  # teaches nothing
    rule.end_step(lambda values: values)
    moved = 0.7 * means + 0.3 * rank_measures(other, ones(other), 2).mean(dim=0)
    assert rule.state_dict()["means"] == pytest.approx(moved.tolist())


def test_what_is_not_measured_keeps_its_mean_and_adds_nothing() -> None:
    """One token every 40: there is a rank, but no growth. Φ = tanh(dev ER) / 2."""
    states = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(6))
    rule = VerlRank()
    rule.token_advantages(shown(states, [1.0]))
    rule.end_step(lambda values: values)
    means = rule.state_dict()["means"]
    assert means == pytest.approx([by_svd(states[0]), math.nan, math.nan], nan_ok=True)
    rule.load_state_dict({"means": [0.8 * means[0], math.nan, math.nan]})
    got = rule.token_advantages(shown(states, [1.0]))
    assert got[0, 0].item() == pytest.approx(1 + math.tanh(0.25) / 2)


def test_a_rule_without_hidden_states_says_so() -> None:
    signals = replace(shown(torch.zeros(1, 2, 2), [1.0]), hidden_states=None)
    with pytest.raises(ValueError, match="VERL needs the hidden states"):
        VerlRank().token_advantages(signals)


def test_completions_too_short_for_the_measurements_are_refused() -> None:
    """Of at most 24 tokens, every 12 gives two measurements, and every 11 three."""
    conflicts = {
        every: list(run_conflicts(Algorithm.model_validate(ranked(every)), SMALL))
        for every in (11, 12)
    }
    assert conflicts[11] == []
    (message,) = conflicts[12]
    assert "needs three measurements" in message
    assert "rl.sampling.max_tokens is 24; set every below 12" in message


def test_states_are_those_of_the_policy_in_one_pass(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read in parts without padding and put back; the decoder runs as often as without."""
    trainer = small_trainer(parent, RANKED, tmp_path)
    model: Any = trainer.model
    model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    lengths = batch["completion_mask"].sum(1)
    assert lengths.min() < lengths.max()
    seen: list[TokenSignals] = []
    monkeypatch.setattr(
        VerlRank,
        "token_advantages",
        lambda self, signals: seen.append(signals) or signals.advantages[:, None],
    )
    passes: list[int] = []
    count = model.get_base_model().base_model.register_forward_hook(lambda *_: passes.append(1))
    monkeypatch.setattr("sage.training.trimming._WORTH", 1)
    trainer.current_gradient_accumulation_steps = 1
    trainer.compute_loss(model, batch)
    with_states = len(passes)
    passes.clear()
    trainer.shaping = small_trainer(parent, PLAIN, tmp_path).shaping
    trainer.compute_loss(model, batch)
    count.remove()
    assert with_states == len(passes) > 1
    (signals,) = seen
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    width = batch["completion_ids"].shape[1]
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=attention, output_hidden_states=True)
    wanted = output.hidden_states[-1][:, -width:]
    inside = batch["completion_mask"].bool()
    assert signals.hidden_states is not None
    assert signals.hidden_states.shape == wanted.shape
    assert not signals.hidden_states.requires_grad
    torch.testing.assert_close(signals.hidden_states[inside], wanted[inside], rtol=1e-3, atol=1e-4)


def test_a_weight_of_zero_trains_as_grpo(parent: Path, tmp_path: Path) -> None:
    plain = logged(small_trainer(parent, PLAIN, tmp_path))
    unweighted = logged(small_trainer(parent, ranked(weight=0.0), tmp_path))
    weighted = logged(small_trainer(parent, RANKED, tmp_path))
    for left, right in zip(plain, unweighted, strict=True):
        assert right["grad_norm"] == pytest.approx(left["grad_norm"], rel=1e-4)
    norms = [[row["grad_norm"] for row in log] for log in (plain, weighted)]
    assert norms[1][0] == pytest.approx(norms[0][0], rel=1e-4)  # the first step has no means yet
    assert norms[1][1] != pytest.approx(norms[0][1], rel=1e-3)


def test_a_resumed_run_equals_an_unbroken_one(parent: Path, tmp_path: Path) -> None:
    whole, resumed = unbroken_and_resumed(parent, RANKED, tmp_path, micro_batches=2)
    assert_same_run(whole, resumed)
    assert all(math.isfinite(mean) for mean in whole.shaping.credit.state_dict()["means"])
