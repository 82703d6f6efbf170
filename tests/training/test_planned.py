"""Generations that follow a planner: what is drawn, the batch, the loss, resuming."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from method_entries import derived
from test_drawing import Noted, noting
from trainers import SMALL, logged, trainer_of

from sage.method.guides import BranchGuide
from sage.method.planners import Chosen, Draw, Drawn
from sage.problems.record import Problem
from sage.prompting import prompt_ids, with_hint
from sage.study import RL, Algorithm
from sage.training import rl
from sage.training.drawing import NamedDraws, rollout_stream, take_rows
from sage.training.planning import filled
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

PROBLEMS = [
    Problem(f"{a}+{b}", f"{a}+{b}", str(a + b), "math", "1", "test", "0", hint=f"{a}+{b}={a + b}")
    for a in range(4)
    for b in range(4)
]
SAMPLING = {"temperature": 1.0, "max_tokens": 8, "stop": list("aeiou13579")}
CHANGES = {"steps": 2, "prompts_per_step": 8, "sampling": SAMPLING}
SETTINGS = RL.model_validate(SMALL.model_dump() | CHANGES)

Reward = Callable[..., list[float]]


def asked(prompt: Any) -> str:
    """What a conversation asks."""
    return str(prompt[-1]["content"])


def every_other(prompts: list[Any], **_: Any) -> list[float]:
    """Half of each group is right."""
    return [float(row % 2) for row in range(len(prompts))]


def some(prompts: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A third of all completions is right, of a sum that begins with 0 none without the hint."""
    return [
        float(sum(ids) % 3 == 0 and (asked(p)[0] != "0" or "Hint" in asked(p)))
        for p, ids in zip(prompts, completion_ids, strict=True)
    ]


def with_the_hint(prompts: list[Any], **_: Any) -> list[float]:
    """Whatever is drawn under guidance is right, of the others half of those that begin with 1."""
    texts = [asked(prompt) for prompt in prompts]
    return [float("Hint" in text or (text[0] == "1" and i % 2)) for i, text in enumerate(texts)]


def build(parent: Path, name: str, reward: Reward = some, **changes: Any) -> SageTrainer:
    """A trainer of the row `name` as `train_rl` builds it, but for the reward; nothing is saved.

    Of `changes`, `settings` are those of RL, `row` those of the row, `trl` those of TRL.
    """
    settings = RL.model_validate(SETTINGS.model_dump() | changes.get("settings", {}))
    algorithm = Algorithm.model_validate(derived(name, **changes.get("row", {})))
    shaping = rl.shaping_of(algorithm)
    if isinstance(shaping.guide, BranchGuide):  # the entropies of this model are others
        shaping = replace(shaping, guide=BranchGuide(ratio=0.3, threshold=1.0))
    return trainer_of(
        parent,
        PROBLEMS,
        settings,
        algorithm,
        changes.get("scratch", parent.with_name("scratch")),
        reward=reward,
        trl=changes.get("trl"),
        stop_texts=settings.sampling.stop,
        make_drawer=noting(parent),
        shaping=changes.get("shaping", shaping),
        micro_batches=settings.micro_batches,
    )


def weights_of(trainer: SageTrainer) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def generation(trainer: SageTrainer) -> dict[str, Any]:
    """The first batch of rollouts."""
    trainer.model.train()
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))


def streams(trainer: SageTrainer) -> set[str]:
    assert trainer._draws is not None
    assert isinstance(trainer._draws.drawer, Noted)
    return set(trainer._draws.drawer.drawn)


def assert_reduces(planned: Callable[[], SageTrainer], plain: Callable[[], SageTrainer]) -> None:
    """Without a further draw the planner's trainer computes what the other does, bit for bit."""
    trainers, rows = [], []
    for make in (plain, planned):  # each built, and so seeded, right before it is trained
        trainers.append(make())
        rows.append(logged(trainers[-1]))
    for left, right in zip(*rows, strict=True):
        assert left["grad_norm"] > 1e-3
        assert right["extra_rollouts"] == 0
        same = {key for key in left if "time" not in key}
        assert {key: left[key] for key in same} == {key: right[key] for key in same}
    of_plain, of_planned = map(weights_of, trainers)
    assert all(torch.equal(of_plain[name], of_planned[name]) for name in of_plain)


def test_dars_without_further_rollouts_is_grpo_without_deviation(parent: Path) -> None:
    assert_reduces(
        lambda: build(parent, "dars", every_other),
        lambda: build(parent, "grpo_no_kl", every_other, row={"advantage": "centred"}),
    )


def test_dars_draws_more_of_hard_prompts_and_centres_over_all(parent: Path) -> None:
    trainer = build(parent, "dars", row={"planner": {"kind": "dars", "settings": {"cap": 8}}})
    before = trainer.state.num_input_tokens_seen
    batch = generation(trainer)
    extra = int(trainer._metrics["train"]["extra_rollouts"][0])
    assert extra > 4
    assert streams(trainer) == {
        rollout_stream(1, "train", 0, draw, place)
        for draw, places in ((0, 32), (1, extra))
        for place in range(places)
    }
    sizes = torch.bincount(batch["group"])
    assert len(set(sizes.tolist())) > 1
    for group, size in enumerate(sizes.tolist()):
        rows = batch["group"] == group
        rewards = batch["reward"][rows]
        assert (batch["group_size"][rows] == size).all()
        assert 0 < rewards.sum() < size
        assert len(batch["prompt_ids"][rows].unique(dim=0)) == 1
        torch.testing.assert_close(batch["advantages"][rows], rewards - rewards.mean())
    metrics = trainer._metrics["train"]
    assert metrics["rewards/some/mean"] == pytest.approx(metrics["reward"])
    assert len(metrics["reward"]) == 1
    drawn = trainer._draws.drawer.drawn  # type: ignore[union-attr]
    tokens = sum(map(len, drawn.values()))
    assert trainer._metrics["train"]["drawn_tokens"] == [tokens]
    seen = trainer.state.num_input_tokens_seen - before
    tokenizer = trainer.processing_class
    prompts = [len(prompt_ids(tokenizer, problem.problem)) for problem in PROBLEMS]
    assert len(set(prompts)) == 1
    assert seen == tokens + (32 + extra) * prompts[0]


def test_tokens_of_generations_that_are_not_logged_yet_are_added_up(parent: Path) -> None:
    trainer = build(parent, "dars")
    generation(trainer)
    generation(trainer)
    assert isinstance(trainer._draws.drawer, Noted)
    tokens = sum(map(len, trainer._draws.drawer.drawn.values()))
    assert trainer._metrics["train"]["drawn_tokens"] == [tokens]


STEP = ("step/kl", "step/entropy")
"""Means over the tokens of a step; TRL's `kl` and `entropy` are means over micro-batches."""


def test_a_micro_batch_without_a_token_changes_no_mean_over_tokens(parent: Path) -> None:
    trainer = build(parent, "grpo_k2")
    batch = generation(trainer)
    trainer.current_gradient_accumulation_steps = 1
    trainer.compute_loss(trainer.model, batch)
    once = {name: [*trainer._metrics["train"][name]] for name in STEP}
    assert once["step/kl"] == [pytest.approx(0.0, abs=1e-5)]
    assert once["step/entropy"][0] > 0.5
    batch["completion_mask"] = batch["completion_mask"] * 0
    trainer.compute_loss(trainer.model, batch)
    assert {name: trainer._metrics["train"][name] for name in once} == once


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "bnpo", "dapo"])
def test_rows_that_fill_up_leave_the_loss_as_it_is(parent: Path, loss: str) -> None:
    trainer = build(parent, "grpo_branch", row={"loss": loss, "entropy_bonus": 0.5})
    batch = generation(trainer)
    rows = len(batch["advantages"])
    more = filled(take_rows(batch, slice(None)), 2 * rows)
    more["num_items_in_batch"] = batch["num_items_in_batch"]
    more |= {"real_share": torch.tensor(0.5), "rollout": torch.arange(2 * rows)}
    trainer.current_gradient_accumulation_steps = 1
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    values = [trainer.compute_loss(trainer.model, part) for part in (batch, more)]
    of_batch, of_more = (torch.autograd.grad(value, parameters) for value in values)
    torch.testing.assert_close(values[1], values[0], rtol=1e-5, atol=1e-6)
    assert max(gradient.abs().max() for gradient in of_batch) > 1e-3
    for left, right in zip(of_more, of_batch, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("loss", ["grpo", "dapo"])
def test_the_loss_does_not_depend_on_the_parts_of_a_step(parent: Path, loss: str) -> None:
    """Filled up to a multiple of 8 micro-batches, or not at all."""
    norms, losses = [], []
    for parts in (1, 8):
        settings = {"steps": 1, "prompts_per_step": 4, "micro_batches": parts}
        trainer = build(parent, "dars", row={"guide": "branch", "loss": loss}, settings=settings)
        batches: list[Any] = []
        compute = trainer._compute_loss

        def noted(
            model: Any, inputs: Any, batches: list[Any] = batches, compute: Any = compute
        ) -> Any:
            batches.append(inputs)
            return compute(model, inputs)

        with patch.object(trainer, "_compute_loss", noted):
            (entry,) = logged(trainer)
        norms.append(entry["grad_norm"])
        losses.append(entry["loss"])
        rows = torch.cat([batch["completion_mask"].sum(dim=1) for batch in batches])
        real = int((rows > 0).sum())
        assert len(rows) == -(-real // parts) * parts
        assert ("real_share" in batches[0]) == (len(rows) > real)
    assert len(rows) > real
    assert norms[0] > 1e-3
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)
    assert losses[1] == pytest.approx(losses[0], rel=1e-3, abs=1e-6)


def test_a_guided_retry_is_drawn_with_the_hint_and_trained_without(parent: Path) -> None:
    trainer = build(parent, "guided_retry", row={"guide": "branch"})
    batch = generation(trainer)
    tokenizer, metrics = trainer.processing_class, trainer._metrics["train"]
    texts = [tokenizer.decode(ids) for ids in batch["prompt_ids"]]
    assert not any("Hint" in text for text in texts)
    old = batch["old_per_token_logps"]
    mask = batch["completion_mask"].bool()
    guided = ~old[:, 0].isnan()
    extra = metrics["extra_rollouts"][0]
    assert 0 < guided.sum() < extra
    assert guided.sum() / extra == pytest.approx(metrics["guided_correct"][0])
    assert old[~guided].isnan()[mask[~guided]].all()
    assert (batch["correct"][guided] == 1).all()
    policy: Any = trainer.model.eval()

    @torch.no_grad()
    def log_probs(prompt: list[int], completion: torch.Tensor) -> torch.Tensor:
        ids = torch.tensor([[*prompt, *completion.tolist()]])
        log_p = policy(input_ids=ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return log_p.gather(-1, completion[:, None])[:, 0]

    for row in guided.nonzero()[:, 0].tolist():
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        (problem,) = [p for p in PROBLEMS if prompt_ids(tokenizer, p.problem) == prompt]
        completion = batch["completion_ids"][row][mask[row]]
        under_hint = prompt_ids(tokenizer, with_hint(problem.problem, problem.hint))
        ours, theirs = log_probs(under_hint, completion), log_probs(prompt, completion)
        assert (ours - theirs).abs().max() > 1e-3
        torch.testing.assert_close(old[row][mask[row]], ours, rtol=0, atol=1e-4)
        with policy.disable_adapter():
            anchor = log_probs(prompt, completion)
        held = batch["ref_per_token_logps"][row][mask[row]]
        torch.testing.assert_close(held, anchor, rtol=0, atol=1e-4)
        group = batch["group"] == batch["group"][row]
        rewards = batch["reward"][group]
        assert rewards.sum() == (guided & group).sum()
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        torch.testing.assert_close(batch["advantages"][group], expected)


def test_a_guided_completion_is_weighted_by_its_ratio_up_to_the_clip(parent: Path) -> None:
    """The gradient of a loss over guided completions alone, against the formula."""
    trainer = build(parent, "guided_retry", with_the_hint, row={"loss": "dr_grpo"})
    batch = generation(trainer)
    guided = ~batch["old_per_token_logps"][:, 0].isnan()
    rows = {k: v[guided] if v.ndim else v for k, v in batch.items() if k != "real_share"}
    trainer.current_gradient_accumulation_steps = 1
    model: Any = trainer.model
    parameters = [p for p in model.parameters() if p.requires_grad]
    got = torch.autograd.grad(trainer.compute_loss(model, rows), parameters, allow_unused=True)
    ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
    attention = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
    length = rows["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=attention).logits[:, -length - 1 : -1]
    log_p = logits.log_softmax(-1).gather(-1, rows["completion_ids"][..., None])[..., 0]
    ratio = (log_p - rows["old_per_token_logps"]).exp()
    inside = (ratio < 1.2) & rows["completion_mask"].bool()
    assert 0 < inside.sum() < rows["completion_mask"].sum()
    weighted = ratio.clamp(max=1.2) * rows["advantages"][:, None] * rows["completion_mask"]
    wanted = torch.autograd.grad(-weighted.sum() / (len(ratio) * 8), parameters, allow_unused=True)
    for left, right in zip(got, wanted, strict=True):
        assert (left is None) == (right is None)
        if right is not None:
            torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-6)


def test_without_a_failed_prompt_a_guided_retry_is_grpo(parent: Path) -> None:
    assert_reduces(
        lambda: build(parent, "guided_retry", every_other),
        lambda: build(parent, "grpo_no_kl", every_other),
    )


PLANNERS = {
    "dynamic": ("dapo_full", {"rewards": ["correct"]}),
    "dars": ("dars", {"guide": "branch"}),
    "guided": ("guided_retry", {"guide": "branch"}),
}


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_resumed_run_is_the_unbroken_one(parent: Path, tmp_path: Path, planner: str) -> None:
    name, row = PLANNERS[planner]

    def run(**trl: Any) -> SageTrainer:
        return build(parent, name, row=row, scratch=tmp_path, trl=trl)

    whole = run(save_strategy="steps", save_steps=1)
    rows = logged(whole)
    shutil.rmtree(tmp_path / "checkpoint-2")
    resumed = run()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    again = [entry for entry in resumed.state.log_history if "loss" in entry]
    asked_for = [entry.get("refills", 0) + entry.get("extra_rollouts", 0) for entry in rows]
    assert asked_for[1] > 0
    assert len(again) == 2
    same = {key for key in rows[1] if "time" not in key}
    assert {key: again[1][key] for key in same} == {key: rows[1][key] for key in same}
    left, right = weights_of(whole), weights_of(resumed)
    assert all(torch.equal(left[key], right[key]) for key in left)


def test_processes_draw_their_part_of_what_is_wanted(parent: Path) -> None:
    """Of 5 wanted completions, in 8 rows of two processes, each is drawn once under its name."""
    trainer = build(parent, "dars")
    prompts = [prompt_ids(trainer.processing_class, problem.problem) for problem in PROBLEMS[:8]]
    moment = ("train", 0)
    parts, names = [], set()
    for first in (0, 4):
        draws: Any = NamedDraws(partial(noting(parent), trainer), 1, padding=0)
        own = prompts[first : first + 4]
        parts.append(draws.draw(trainer.model, own, moment, first, wanted=5))
        names |= set(draws.drawer.drawn)
    alone = build(parent, "dars")
    assert alone._draws is not None
    whole = alone._draws.draw(alone.model, prompts[:5], moment, first=0, wanted=None)
    drawn = [ids for part in parts for ids in part[0]]
    assert drawn[:5] == whole[0]
    assert names == streams(alone)
    assert [len(ids) for ids in drawn[5:]] == [1, 1, 1]
    assert [len(part[1]) for part in parts] == [4, 4]


class Twice:
    """Asks once for one further completion of each prompt; of two only the last has a loss."""

    def further(self, drawn: Drawn) -> Draw | None:
        return Draw(more=torch.ones(drawn.prompts).long()) if drawn.draws == 1 else None

    def chosen(self, drawn: Drawn) -> Chosen:
        last = len(drawn.present) - 1
        return Chosen(torch.tensor([last, 0]), drawn.present, torch.arange(last + 1) == last)


def test_a_planner_of_ones_own(parent: Path) -> None:
    trainer = build(parent, "grpo", shaping=Shaping(planner=Twice()))
    batch = generation(trainer)
    assert batch["group"].tolist() == [0] * 5 + [1] * 5
    assert batch["rollout"].tolist() == list(range(10))
    assert batch["group_size"].tolist() == [5] * 10
    lengths = batch["completion_mask"].sum(dim=1)
    assert (lengths[:5] > 0).all()
    assert (lengths[5:] == 0).all()
    assert batch["num_items_in_batch"] == lengths.sum()
    assert math.isclose(batch["advantages"][:5].sum().item(), 0.0, abs_tol=1e-5)


def test_a_problem_without_a_hint_is_refused() -> None:
    with pytest.raises(ValueError, match="problem '0' carries no hint"):
        rl.prompt_dataset([replace(PROBLEMS[0], problem_id="0", hint="")], guided=True)
