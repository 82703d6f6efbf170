"""Token-level credit in the trainer: its gradient, iterations, accumulation, dynamic sampling."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
import yaml
from conftest import ROOT
from method_entries import ROWS, derived
from trainers import logged, odd_length, trainer_of

from sage.method.credit import TokenSignals
from sage.problems.record import read_problems
from sage.runtime.manifest import Manifest
from sage.study import RL, Algorithm, ResolvedStudy, choice_files
from sage.training import rl
from sage.training.credit import ordered
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

pytestmark = [pytest.mark.timeout(4000)]

BRANCH = {"kind": "branch", "settings": {"ratio": 0.3, "threshold": 0.3}}

Build = Callable[..., SageTrainer]


@pytest.fixture
def build(smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path) -> Build:
    """Trainers on the smoke study's parent: `build(row, trl settings, **RL settings)`."""

    def trainer(
        row: dict[str, Any], trl: dict[str, Any] | None = None, credit: Any = None, **changes: Any
    ) -> SageTrainer:
        settings = RL.model_validate(
            smoke_study.model("tiny").rl.model_dump()
            | {"prompts_per_step": 4, "rollouts": 4, "kl_coefficient": 0.2, "steps": 2}
            | changes
        )
        algorithm = Algorithm.model_validate(row)
        return trainer_of(
            smoke / "models/tiny/base",
            read_problems(smoke / "problems/arithmetic_train.jsonl"),
            settings,
            algorithm,
            tmp_path / "scratch",
            reward=odd_length,
            trl=trl,
            shaping=rl.shaping_of(algorithm) if credit is None else Shaping(credit=credit),
            micro_batches=settings.micro_batches,
        )

    return trainer


class Watched:
    """A rule that remembers what it was shown and gives every token its completion's advantage."""

    def __init__(self) -> None:
        self.shown: list[TokenSignals] = []

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        self.shown.append(signals)
        return signals.advantages[:, None].expand_as(signals.log_probs)


def test_a_rule_sees_whole_groups_in_every_micro_batch_and_iteration(build: Build) -> None:
    rule = Watched()
    trainer = build(
        ROWS["grpo_no_kl"], credit=rule, micro_batches=2, iterations=2, steps_per_generation=2,
        steps=4, checkpoint_every=4,
    )  # fmt: skip
    trainer.train()
    assert len(rule.shown) == 4 * 2
    for signals in rule.shown:
        sizes = (signals.groups[:, None] == signals.groups[None, :]).sum(1)
        assert torch.equal(sizes, signals.group_sizes)
        assert not signals.log_probs.requires_grad
        rewards = signals.rewards.view(-1, 4)
        deviation = rewards.std(dim=1, keepdim=True)
        expected = (rewards - rewards.mean(dim=1, keepdim=True)) / (deviation + 1e-4)
        torch.testing.assert_close(signals.advantages.view(-1, 4), expected)
    first, again = rule.shown[0], rule.shown[4]  # two parts of two steps are one iteration
    assert torch.equal(first.rows, again.rows)
    assert torch.equal(first.old_log_probs, again.old_log_probs)
    assert torch.equal(first.advantages, again.advantages)
    assert not torch.equal(first.log_probs, again.log_probs)


@pytest.mark.parametrize("name", ["grpo", "grpo_branch", "grpo_k2", "grpo_forward_kl", "scope"])
def test_a_rule_of_ones_own_sees_the_reference_whatever_the_estimator(
    build: Build, name: str
) -> None:
    rule, row = Watched(), {**ROWS[name]}
    trainer = build(row, credit=rule)
    trainer.shaping = replace(rl.shaping_of(Algorithm.model_validate(row)), credit=rule)
    read: list[torch.Tensor] = []
    plain = trainer._compute_loss

    def loss_of(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        read.append(inputs["ref_per_token_logps"])
        return plain(model, inputs)

    trainer._compute_loss = loss_of  # type: ignore[method-assign]
    trainer.train()
    for shown, reference in zip(rule.shown, read, strict=True):
        assert shown.reference_log_probs is not None
        assert not shown.reference_log_probs.requires_grad
        assert torch.equal(shown.reference_log_probs, reference)


def test_advantages_of_completions_spread_over_tokens_are_plain_grpo(build: Build) -> None:
    """But for the order of the completions within a step, which the loss does not see."""
    plain = logged(build(ROWS["grpo_no_kl"]))
    spread = logged(build(ROWS["grpo_no_kl"], credit=Watched()))
    for left, right in zip(plain, spread, strict=True):
        assert right["grad_norm"] == pytest.approx(left["grad_norm"], rel=1e-4)
        assert right["reward"] == left["reward"]


@pytest.mark.parametrize(
    "row",
    [
        {**ROWS["grpo_branch"], "guide": BRANCH},
        derived("grpo_k1_reward", guide=BRANCH),
        derived("grpo_k1_reward", guide="token"),
        ROWS["pacs"],
    ],
    ids=["in the loss", "branch", "token", "pacs"],
)
def test_accumulated_parts_give_the_gradient_of_the_whole(
    build: Build, row: dict[str, Any]
) -> None:
    whole, parts = (logged(build(row, steps=1, micro_batches=n))[0] for n in (1, 4))
    assert whole["grad_norm"] > 0
    assert parts["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-4)


def test_the_kl_in_the_reward_is_logged_and_has_no_loss_of_its_own(build: Build) -> None:
    """From another reference the leash is not 0, and with no learning rate it stays."""
    row = {**ROWS["grpo_k1_reward"], "guide": BRANCH}
    trainer = build(row, trl={"learning_rate": 0.0}, iterations=2, micro_batches=2)
    log = logged(trainer)
    assert log[0]["kl"] > 1e-4
    assert log[1]["kl"] == pytest.approx(log[0]["kl"], rel=1e-4)


def gradient_of(trainer: SageTrainer, batch: dict[str, Any]) -> list[torch.Tensor]:
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, batch).backward()
    return [p.grad.clone() for p in trainer.model.parameters() if p.grad is not None]


def test_the_gradient_is_that_of_the_formula_off_policy(build: Build) -> None:
    """The branch guide with the KL in the reward, recomputed from the logits."""
    trainer = build({**ROWS["grpo_branch_k1_reward"], "guide": BRANCH})
    model: Any = trainer.model
    model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    length = batch["completion_ids"].shape[1]

    def token_log_probs() -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(input_ids=ids, attention_mask=attention).logits
        log_p = logits[:, -length - 1 : -1].log_softmax(-1)
        return log_p, log_p.gather(-1, batch["completion_ids"][..., None])[..., 0]

    torch.manual_seed(0)
    start = token_log_probs()[1].detach()
    batch["old_per_token_logps"] = start + 0.05 * torch.randn_like(start)
    batch["ref_per_token_logps"] = start + 0.5 * torch.randn_like(start)
    got = gradient_of(trainer, batch)

    model.zero_grad()
    log_p, log_probs = token_log_probs()
    entropies = -(log_p.exp() * log_p).sum(-1).detach()
    q = (1 + 0.3 * (entropies - 0.3).clamp(min=0)).clamp(0.6, 1.4)
    assert (q > 1.01).any()
    mask = batch["completion_mask"]
    leash = (log_probs.detach() - batch["ref_per_token_logps"] - q.log()) * mask
    to_come = torch.stack([leash[:, t:].sum(1) for t in range(length)], dim=1)
    groups = to_come.view(-1, 4, length)
    centred = (groups - groups.mean(dim=1, keepdim=True)).view(-1, length)
    advantages = batch["advantages"][:, None] - 0.2 * centred
    ratio = (log_probs - batch["old_per_token_logps"]).exp()
    clipped = ratio.clamp(0.8, 1.2)
    loss = -torch.min(ratio * advantages, clipped * advantages) * mask
    (loss.sum() / (len(mask) * trainer.max_completion_length)).backward()
    wanted = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert max(each.abs().max() for each in wanted) > 0
    for left, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=5e-4 * right.abs().max().item())


def test_dynamic_sampling_and_credit_go_together(build: Build) -> None:
    """Groups drawn in the place of others are whole, and have their own rewards."""
    row = {**ROWS["pacs"], "filter": {"kind": "mixed", "max_refills": 2}}
    trainer = build(row, rollouts=2, prompts_per_step=8)
    log = logged(trainer)
    assert sum(entry["refills"] for entry in log) > 0
    assert all(entry["grad_norm"] > 0 for entry in log)
    for part in trainer._buffered_inputs:
        groups = part["reward"].view(-1, 2)
        assert torch.equal(part["group"].view(-1, 2)[:, 0], part["group"].view(-1, 2)[:, 1])
        assert torch.equal(part["reward"], part["correct"])
        mixed = groups.amax(1) > groups.amin(1)
        assert torch.equal(part["advantages"].view(-1, 2).abs().sum(1) > 0, mixed)


def test_parts_of_a_generation_are_put_in_order() -> None:
    parts = [
        {"rollout": torch.tensor([3, 0]), "x": torch.tensor([[3], [0]]), "n": torch.tensor(7)},
        {"rollout": torch.tensor([1, 2]), "x": torch.tensor([[1], [2]]), "n": torch.tensor(7)},
    ]
    first, second = ordered(parts)
    assert first["x"].flatten().tolist() == [0, 1]
    assert second["rollout"].tolist() == [2, 3]
    assert second["n"] == 7


def test_an_advantage_and_a_credit_rule_of_ones_own(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of config/README.md, in a file of one's own: it trains, by its own numbers."""
    page = (ROOT / "config/README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\w+\n(.+?)```", page, re.S)
    (code,) = (dedent(text) for text in blocks if "class HardFirst" in text)
    (row,) = (yaml.safe_load(text)["grpo_mine"] for text in blocks if "grpo_mine:" in text)
    file = tmp_path / "my_methods.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    algorithm = Algorithm.model_validate(row)
    assert file in choice_files(algorithm)

    shaping = rl.shaping_of(algorithm)
    assert shaping.advantage is not None
    assert shaping.token_rule is not None
    # One right of four: (1 - 1/4)^2 times 3/4 and -1/4.
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(
        shaping.advantage.advantages(rewards), torch.tensor([[27.0, -9.0, -9.0, -9.0]]) / 64
    )
    rl.train_rl(
        smoke / "models/tiny/base",
        read_problems(smoke / "problems/arithmetic_train.jsonl"),
        smoke_study.model("tiny").rl.model_copy(update={"steps": 2}),
        algorithm,
        seed=1,
        device="cpu",
        scratch=tmp_path / "scratch",
        output=tmp_path / "policy",
        manifest=Manifest({}, 1, time.time()),
    )
    history = (tmp_path / "policy/history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in history] == [1, 2]


def test_a_credit_rule_of_ones_own_decides_which_tokens_learn(build: Build) -> None:
    class Nothing:
        def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
            return torch.zeros_like(signals.log_probs)

    assert all(
        row["grad_norm"] == 0.0 for row in logged(build(ROWS["grpo_no_kl"], credit=Nothing()))
    )
