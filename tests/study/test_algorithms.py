"""Every algorithm row trains; TRL's loss with a shaped anchor, recomputed independently."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from accelerate import Accelerator
from method_entries import ROWS
from trainers import trainer_of
from transformers import TrainerState

from sage.method.anchors import forward_kl_sampled, k2, k3
from sage.method.rewards import Completion, Incorrect, Random, Tagged
from sage.problems.record import read_problems
from sage.prompting import WORK_CLOSE
from sage.prompting import completion as written
from sage.runtime.manifest import Manifest
from sage.study import Algorithm, ResolvedStudy
from sage.study.algorithms import needs_strategies
from sage.tasks import Grader
from sage.training import rl
from sage.training.anchoring import as_k3_input
from sage.training.drawing import ProcessSlices, take_rows
from sage.training.rewards import graded
from sage.training.shaping import Shaping

pytestmark = [pytest.mark.timeout(4000)]  # the first of these runs the smoke study


def smoke_trainer(
    smoke: Path, study: ResolvedStudy, algorithm: Algorithm, scratch: Path, **trl: Any
) -> Any:
    """A trainer on the smoke study's parent; `trl` changes TRL's configuration."""
    return trainer_of(
        smoke / "models/tiny/base",
        read_problems(smoke / "problems/arithmetic_train.jsonl"),
        study.model("tiny").rl,
        algorithm,
        scratch,
        trl=trl,
        shaping=rl.shaping_of(algorithm),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_row_trains(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path, name: str
) -> None:
    algorithm = Algorithm.model_validate(ROWS[name])
    if needs_strategies(algorithm):
        pytest.skip("compares strategies, which sums of the smoke study have not")
    rl.train_rl(
        smoke / "models/tiny/base",
        [
            replace(problem, hint=problem.answer)
            for problem in read_problems(smoke / "problems/arithmetic_train.jsonl")
        ],
        smoke_study.model("tiny").rl.model_copy(update={"steps": 2}),
        algorithm,
        seed=1,
        device="cpu",
        scratch=tmp_path / "scratch",
        output=tmp_path / "policy",
        manifest=Manifest({}, 1, time.time()),
    )
    history = (tmp_path / "policy/history.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in history]
    assert len(rows) == 2
    for row in rows:
        assert row["grad_norm"] >= 0.0
        assert ("kl" in row) == (algorithm.kl != "none")
        assert ("q_mean" in row) == (algorithm.guide is not None)
        assert ("refills" in row) == (algorithm.filter is not None)
        assert ("extra_rollouts" in row) == (algorithm.planner is not None)
        assert row.get("kl", 0.0) > -1e-4


def batch_for(vocabulary: int, padding: int) -> dict[str, torch.Tensor]:
    """Two prompts with two completions each, of unequal lengths.

    The reference is given relative to the policy: far from it, the terms of corrected k3 cancel
    to nothing that float32 could hold.
    """
    generator = torch.Generator().manual_seed(3)
    completion_ids = torch.randint(4, vocabulary, (4, 6), generator=generator)
    lengths = torch.tensor([6, 4, 5, 2])
    mask = (torch.arange(6) < lengths[:, None]).long()
    return {
        "prompt_ids": torch.randint(4, vocabulary, (4, 3), generator=generator),
        "prompt_mask": torch.ones(4, 3, dtype=torch.long),
        "completion_ids": completion_ids.masked_fill(mask == 0, padding),
        "completion_mask": mask,
        "advantages": torch.tensor([1.0, -1.0, 0.5, -0.5]),
        "ref_per_token_logps": 0.5 * torch.randn(4, 6, generator=generator),
        "num_items_in_batch": mask.sum(),
        "rollout": torch.arange(4),
        "group": torch.arange(4) // 2,
    }


def aggregate(per_token: torch.Tensor, mask: torch.Tensor, loss: str, longest: int) -> torch.Tensor:
    """The mean of METHOD's loss aggregations, written down here from their definitions."""
    if loss == "grpo":
        return ((per_token * mask).sum(1) / mask.sum(1)).mean()
    total = (per_token * mask).sum()
    return total / (len(mask) * longest) if loss == "dr_grpo" else total / mask.sum()


@pytest.mark.parametrize("loss", ["grpo", "bnpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize("estimator", ["k3", "k3_corrected", "k2", "sampled"])
def test_the_loss_and_its_gradient_are_those_of_the_formula(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path, loss: str, estimator: str
) -> None:
    algorithm = Algorithm.model_validate(
        {
            "title": "x",
            "loss": loss,
            "kl": "forward" if estimator == "sampled" else "reverse",
            "estimator": estimator,
            "kl_coefficient": 0.3,
            "guide": {"kind": "branch", "settings": {"ratio": 0.1, "threshold": 2.0}},
        }
    )
    trainer = smoke_trainer(smoke, smoke_study, algorithm, tmp_path)
    model: Any = trainer.model
    model.train()
    model.set_adapter("default")
    # A batch is trained on in one accumulation step here.
    trainer.current_gradient_accumulation_steps = 1
    batch = batch_for(len(trainer.processing_class), trainer.processing_class.pad_token_id)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)

    def token_log_probs() -> tuple[torch.Tensor, torch.Tensor]:
        log_p = model(input_ids=ids, attention_mask=attention).logits[:, 2:-1].log_softmax(-1)
        return log_p, log_p.gather(-1, batch["completion_ids"][..., None])[..., 0]

    batch["ref_per_token_logps"] += token_log_probs()[1].detach()
    kept = {key: value.clone() for key, value in batch.items()}
    value = trainer.compute_loss(model, batch)
    value.backward()
    got = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()

    log_p, log_probs = token_log_probs()
    entropies = -(log_p.exp() * log_p).sum(-1).detach()
    q = (1 + 0.1 * (entropies - 2.0).clamp(min=0)).clamp(0.6, 1.4)
    assert (q > 1.01).any()
    anchor = batch["ref_per_token_logps"] + q.log()
    ratio = torch.exp(log_probs - log_probs.detach())
    divergence = {
        "k2": k2,
        "k3": k3,
        "k3_corrected": lambda p, a: ratio * k3(p, a),
        "sampled": forward_kl_sampled,
    }[estimator](log_probs, anchor)
    per_token = -ratio * batch["advantages"][:, None] + 0.3 * divergence
    mask = batch["completion_mask"]
    longest = smoke_study.model("tiny").rl.sampling.max_tokens
    expected = aggregate(per_token, mask, loss, longest)
    expected.backward()
    wanted = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    for left, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=5e-4 * right.abs().max().item())
    if estimator in ("k3", "k3_corrected"):
        torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-5, atol=1e-6)
    logged = trainer._metrics["train"]["kl"][-1]
    mean = (divergence * mask).sum() / mask.sum()
    assert logged == pytest.approx(mean.item(), rel=1e-4, abs=1e-4)
    for key in kept:
        assert torch.equal(batch[key], kept[key]), f"{key} was changed"


@pytest.mark.parametrize("estimator", [k2, forward_kl_sampled])
def test_k3_of_the_stand_in_is_the_divergence_plus_a_constant(estimator: Any) -> None:
    log_probs = torch.linspace(-6.0, -0.01, 40).requires_grad_()
    anchor = torch.linspace(-0.5, -5.0, 40)
    values = estimator(log_probs, anchor)
    stand_in = k3(log_probs, as_k3_input(log_probs, values))
    torch.testing.assert_close(stand_in, values + 19.0, rtol=1e-6, atol=1e-5)
    (got,) = torch.autograd.grad(stand_in.sum(), log_probs, retain_graph=True)
    (wanted,) = torch.autograd.grad(values.sum(), log_probs)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_a_completion_is_graded_once_for_all_rewards() -> None:
    asked: list[int] = []

    class Counting(Grader):
        def grade_many(self, samples: Any) -> Any:
            asked.append(len(samples))
            return super().grade_many(samples)

    class Surprising:
        def score(self, completion: Completion) -> float:
            return 10.0 * completion.correct + completion.tokens

    texts = ["<SOLUTION>4</SOLUTION>", "<SOLUTION>5</SOLUTION>"]
    columns: dict[str, Any] = {
        "completions": [[{"content": text}] for text in texts],
        "completion_ids": [[1, 2], [3]],
        "answer": ["4", "4"],
        "kind": ["math", "math"],
    }
    correct, mine = graded(Counting(), [("mine", Surprising())], longest=8)
    assert correct(**columns) == [1.0, 0.0]
    assert mine(**columns) == [12.0, 1.0]
    assert asked == [2]
    assert (correct.__name__, mine.__name__) == ("correct", "mine")


def test_controls_reward_what_is_not_correctness() -> None:
    right = Completion(written("1", "4"), "4", True, 5, 8, luck=0.3)
    wrong = replace(right, correct=False)
    bare, empty = replace(wrong, text="4"), replace(wrong, text=written("1", " "))
    unclosed = replace(wrong, text=wrong.text.removeprefix(f"1{WORK_CLOSE}"))
    cases = [right, wrong, bare, unclosed, empty]
    assert [Tagged().score(one) for one in cases] == [1, 1, 0, 0, 0]
    assert [Incorrect().score(one) for one in cases] == [0, 1, 0, 1, 0]
    assert [Random(share).score(right) for share in (0.0, 0.3, 0.31, 1.0)] == [0, 0, 1, 1]


def test_coins_follow_from_seed_step_and_place() -> None:
    """Of 4,000 coins of one half the share of heads is off by 0.04 in 5 standard errors."""
    columns: dict[str, Any] = {
        "completions": [[{"content": ""}]] * 4000,
        "completion_ids": [[1]] * 4000,
        "answer": ["4"] * 4000,
        "kind": ["math"] * 4000,
    }

    def coins(seed: int, *steps: int) -> list[list[float]]:
        correct, coin = graded(Grader(), [("random", Random())], longest=8, seed=seed)
        thrown = []
        for step in steps:
            correct(**columns, trainer_state=TrainerState(global_step=step))
            thrown.append(coin(**columns))
        return thrown

    first, again, next_step = coins(1, 5, 5, 6)
    assert abs(sum(first) / 4000 - 0.5) < 0.04
    assert first != again  # drawn again in the same step, as for refills
    assert coins(1, 5) == [first]
    assert coins(1, 6) == [next_step]
    assert coins(2, 5) != [first]
    of_all = columns
    columns = {name: values[:2000] for name, values in of_all.items()}
    with patch("sage.training.rewards.PartialState", return_value=Mock(process_index=1)):
        assert coins(1, 5, 5) == [first[2000:], again[2000:]]  # of two processes the second


def test_correctness_counts_for_nothing_where_a_row_does_not_reward_it() -> None:
    row = {
        **ROWS["grpo_no_kl"],
        "rewards": [{"kind": "overlong", "settings": {"margin_tokens": 4}}],
    }
    assert rl.reward_weights(Algorithm.model_validate(row)) == [0.0, 1.0]
    assert rl.reward_weights(Algorithm.model_validate(ROWS["dapo_full"])) == [1.0, 1.0]


def test_rows_are_taken_and_joined() -> None:
    advantages = torch.tensor([0.0, 0.0, 1.0, -1.0, 0.0, 0.0])
    batch = {
        "advantages": advantages,
        "prompt_ids": torch.arange(6)[:, None] + 1,
        "completion_ids": torch.arange(12).view(6, 2) + 1,
        "num_items_in_batch": torch.tensor(12),
    }
    part = take_rows(batch, torch.tensor([2, 3]))
    assert part["advantages"].tolist() == [1.0, -1.0]
    assert "num_items_in_batch" not in part
    longer = {
        "advantages": torch.tensor([0.5, -0.5]),
        "prompt_ids": torch.tensor([[7, 8], [7, 8]]),
        "completion_ids": torch.tensor([[1], [2]]),
    }
    shares = ProcessSlices(Accelerator(cpu=True), group=2, padding=99)
    joined = shares.join([part, longer])
    assert joined["prompt_ids"].tolist() == [[99, 3], [99, 4], [7, 8], [7, 8]]
    assert joined["completion_ids"].tolist() == [[5, 6], [7, 8], [1, 99], [2, 99]]
    with pytest.raises(ValueError, match="batches with different keys"):
        shares.join([part, {**longer, "old_per_token_logps": torch.zeros(2, 1)}])


def test_shaping_adds_nothing_by_default() -> None:
    assert rl.shaping_of(Algorithm.model_validate(ROWS["grpo"])) == Shaping(clamp=(1.0, 1.0))
    assert rl.shaping_of(Algorithm.model_validate(ROWS["dapo_full"])).mask_truncated
