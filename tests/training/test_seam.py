"""The seam on TRL: against plain GRPOTrainer, over accumulation, iterations, checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch
from method_entries import ROWS
from trainers import is_of_trl, odd_length, trainer_of
from trl import GRPOTrainer

from sage.method.advantages import Centred, GroupNormalised
from sage.method.anchors import K3, LogProbs
from sage.method.guides import BranchGuide, Moment, Signals
from sage.policies import load_model
from sage.problems.record import read_problems
from sage.rivals.bnpo import BetaNormalised
from sage.rivals.pass_at_k import PassAtK
from sage.study import RL, Algorithm, ResolvedStudy
from sage.training import rl
from sage.training.anchoring import NegativeTerm
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

pytestmark = [pytest.mark.timeout(4000)]

QUICK = ["grpo", "dr_grpo", "luspo"]  # a mean by completion, a constant, ratios of sequences
LOSSES = [
    *QUICK,
    *(
        pytest.param(loss, marks=pytest.mark.slow)
        for loss in ("bnpo", "dapo", "cispo", "sapo", "vespo")
    ),
]
BRANCH = Shaping(guide=BranchGuide(ratio=0.3, threshold=0.3))
ONE_EVERYWHERE = Shaping(guide=BranchGuide(ratio=0.0))

Build = Callable[..., Any]


@pytest.fixture
def build(smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path) -> Build:
    """Trainers on the smoke study's parent: `build(class, shaping, row, **RL settings)`."""

    def trainer(
        kind: type[GRPOTrainer],
        shaping: Shaping | None = None,
        row: dict[str, Any] | None = None,
        reference: Path | None = None,
        trl: dict[str, Any] | None = None,
        stop_texts: tuple[str, ...] = (),
        **changes: Any,
    ) -> Any:
        settings = RL.model_validate(
            smoke_study.model("tiny").rl.model_dump()
            | {"prompts_per_step": 4, "rollouts": 4, "kl_coefficient": 0.2, "steps": 3}
            | changes
        )
        algorithm = Algorithm.model_validate(row or ROWS["grpo"])
        problems = read_problems(smoke / "problems/arithmetic_train.jsonl")
        extra: dict[str, Any] = {}
        if kind is SageTrainer:
            extra = {
                "shaping": rl.shaping_of(algorithm) if shaping is None else shaping,
                "reference": load_model(reference) if reference else None,
                "stop_texts": stop_texts,
            }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trainer_of(
                smoke / "models/tiny/base",
                problems,
                settings,
                algorithm,
                tmp_path / "scratch",
                reward=odd_length,
                trl=trl,
                kind=kind,
                eval_dataset=rl.prompt_dataset(problems[:4]),
                **extra,
            )

    return trainer


def trained(trainer: Any) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Train; the logged numbers but for times, and the weights."""
    trainer.train()
    log = [
        {key: value for key, value in row.items() if is_of_trl(key)}
        for row in trainer.state.log_history
        if "loss" in row
    ]
    return log, {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def assert_same(left: Any, right: Any) -> None:
    """Equal to the last bit, numbers and weights."""
    assert left[0] == right[0]
    assert left[1].keys() == right[1].keys()
    assert all(torch.equal(left[1][name], right[1][name]) for name in left[1])


def with_loss(loss: str) -> dict[str, Any]:
    """Settings of TRL, for it has losses that no method of a study can name."""
    level = "sequence" if loss == "luspo" else "token"
    clip = {"epsilon_high": 1.2} if loss == "cispo" else {}  # which is the bound itself
    return {"loss_type": loss, "importance_sampling_level": level, **clip}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("loss", LOSSES)
def test_what_the_seam_adds_to_an_estimator_is_not_logged(
    build: Build, loss: str, parts: int
) -> None:
    """k3 handed in as any other estimator is logged with the loss and the KL of TRL's own k3.

    Of several micro-batches TRL logs the mean of their means, and this project that over tokens.
    """
    settings = {"trl": with_loss(loss), "micro_batches": parts, "learning_rate": 1e-2}
    plain, _ = trained(build(GRPOTrainer, **settings))
    ours, _ = trained(build(SageTrainer, Shaping(estimator=K3()), **settings))
    of_tokens = plain if parts == 1 else trained(build(SageTrainer, **settings))[0]
    assert plain[-1]["kl"] > 1e-3
    for expected, kl, logged in zip(plain, of_tokens, ours, strict=True):
        assert logged["loss"] == pytest.approx(expected["loss"], abs=3e-4)
        assert logged["kl"] == pytest.approx(kl["kl"], abs=1e-4)


class LogRatio:
    """A term that is below 0 where the anchor likes a token better than the policy does."""

    def values(self, log_probs: LogProbs) -> torch.Tensor:
        return log_probs.policy - log_probs.anchor - 30.0


def test_a_term_below_0_is_refused(build: Build) -> None:
    """TRL's k3 of it is e to the power of what it is below -20, whatever the estimator meant."""
    with pytest.raises(NegativeTerm, match="gave a KL term of -30 at a token, but a term must"):
        build(SageTrainer, Shaping(estimator=LogRatio())).train()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_guide_of_one_is_plain_grpo_to_the_last_bit(build: Build, loss: str) -> None:
    trl = with_loss(loss)
    plain = trained(build(GRPOTrainer, trl=trl))
    assert any(row["kl"] > 0 for row in plain[0])
    assert_same(plain, trained(build(SageTrainer, ONE_EVERYWHERE, trl=trl)))
    guided = trained(build(SageTrainer, BRANCH, trl=trl))
    assert any(not torch.equal(plain[1][name], guided[1][name]) for name in plain[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batches": 2},
        {"iterations": 2},
        pytest.param({"steps_per_generation": 2}, marks=pytest.mark.slow),
        pytest.param({"lora": None, "learning_rate": 1e-4}, marks=pytest.mark.slow),
        pytest.param({"precision": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param({"gradient_checkpointing": True}, marks=pytest.mark.slow),
    ],
    ids=lambda changes: ",".join(changes),
)
def test_a_guide_of_one_is_plain_grpo_in_every_mode(build: Build, changes: dict[str, Any]) -> None:
    plain, ours = (
        trained(build(GRPOTrainer, **changes)),
        trained(build(SageTrainer, ONE_EVERYWHERE, **changes)),
    )
    assert_same(plain, ours)
    guided = trained(build(SageTrainer, BRANCH, **changes))
    assert any(not torch.equal(plain[1][name], guided[1][name]) for name in plain[1])


def test_the_anchor_does_not_compound_over_iterations(build: Build) -> None:
    # With no learning rate the policy stays, so each pass over the rollouts must log the same.
    trainer = build(
        SageTrainer, BRANCH, iterations=3, checkpoint_every=3, trl={"learning_rate": 0.0}
    )
    trainer.train()
    passes = [row for row in trainer.state.log_history if "kl" in row]
    assert len(passes) == 3
    assert passes[0]["kl"] > 1e-3
    assert passes[0]["sage/q_max"] > 1.05
    for key in ("kl", "sage/q_mean", "sage/q_max"):
        assert [row[key] for row in passes] == pytest.approx([passes[0][key]] * 3, rel=1e-5)


def reference_log_probs(trainer: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """What the trainer holds the policy to on a batch of rollouts, and the batch."""
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    return batch["ref_per_token_logps"], batch


@pytest.mark.parametrize(
    ("advantage", "formula"),
    [("group", GroupNormalised()), ("centred", Centred()), ("beta", BetaNormalised())],
)
def test_advantages_are_those_of_their_formulas(build: Build, advantage: str, formula: Any) -> None:
    trainer = build(SageTrainer, row={**ROWS["grpo"], "advantage": advantage})
    _, batch = reference_log_probs(trainer)
    rewards = batch["reward"].view(-1, 4)
    assert rewards.std(dim=1).max() > 0
    torch.testing.assert_close(batch["advantages"].view(-1, 4), formula.advantages(rewards))


@torch.no_grad()
def log_probs_under(checkpoint: Path, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logits = load_model(checkpoint)(input_ids=ids, attention_mask=attention).logits
    length = batch["completion_ids"].shape[1]
    log_p = logits[:, -length - 1 : -1].log_softmax(-1)
    return log_p.gather(-1, batch["completion_ids"][..., None])[..., 0]


@pytest.mark.parametrize("lora", [{"rank": 8, "alpha": 16}, None], ids=["lora", "full"])
@pytest.mark.parametrize("released", [False, True], ids=["paper", "released"])
def test_the_reference_is_the_sft_checkpoint_and_only_as_released_the_raw_base(
    build: Build, smoke: Path, lora: Any, released: bool
) -> None:
    raw, tuned = smoke / "models/tiny/pretrained", smoke / "models/tiny/base"
    trainer = build(
        SageTrainer, row=ROWS["grpo_branch"], lora=lora, reference=raw if released else None
    )
    held, batch = reference_log_probs(trainer)
    mask = batch["completion_mask"].bool()
    is_it, is_not = (raw, tuned) if released else (tuned, raw)
    torch.testing.assert_close(held[mask], log_probs_under(is_it, batch)[mask], rtol=0, atol=1e-4)
    assert (held - log_probs_under(is_not, batch))[mask].abs().mean() > 2e-3


def test_a_completion_ends_behind_a_stop_text_of_any_tokens(build: Build) -> None:
    trainer = build(SageTrainer, stop_texts=("e", "</SOLUTION>"), rollouts=8)
    _, batch = reference_log_probs(trainer)
    tokenizer = trainer.processing_class
    rows = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    ]
    texts = [tokenizer.decode(row) for row in rows]
    held = [row for row, text in zip(rows, texts, strict=True) if "e" in text]
    assert len(held) > 4
    assert all("e" in tokenizer.decode(row[-1:]) for row in held)
    assert not any("e" in tokenizer.decode(row[:-1]) for row in held)
    assert not any(tokenizer.pad_token in text for text in texts)
    lengths = batch["completion_mask"].sum(1)
    assert (lengths < lengths.max()).any()


class Watched(BranchGuide):
    """A guide that remembers when it was asked."""

    def __init__(self) -> None:
        super().__init__(ratio=0.3, threshold=0.3)
        object.__setattr__(self, "moments", [])

    def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
        self.moments.append((moment.step, moment.noise.uniform("x", signals.mask)[0, 0].item()))
        return super().factors(signals, moment)


@pytest.mark.parametrize("per_call", [False, True], ids=["paper", "released"])
def test_schedules_advance_once_per_optimizer_step(build: Build, per_call: bool) -> None:
    guide = Watched()
    trainer = build(
        SageTrainer,
        Shaping(guide=guide, schedule_per_call=per_call),
        micro_batches=2,
        trl={"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 16},
    )
    calls: list[str] = []
    loss = trainer._compute_loss

    def noted(model: Any, inputs: Any) -> Any:
        calls.append("train" if model.training else "eval")
        return loss(model, inputs)

    trainer._compute_loss = noted
    trainer.train()
    assert calls == ["train", "train", "eval"] * 3
    steps = [step for (step, _), mode in zip(guide.moments, calls, strict=True) if mode == "train"]
    assert steps == ([0, 1, 2, 3, 4, 5] if per_call else [0, 0, 1, 1, 2, 2])
    assert len({noise for _, noise in guide.moments}) == len(calls)  # each call its own noise


def test_evaluation_does_not_disturb_training(build: Build) -> None:
    row = ROWS["grpo_random"]
    batch = reference_log_probs(build(SageTrainer, row=row))[1]
    without = trained(build(SageTrainer, row=row))
    trainer = build(SageTrainer, row=row)
    step = trainer.training_step

    def evaluate_first(model: Any, inputs: Any, items: Any) -> Any:
        model.eval()
        with torch.no_grad():
            trainer.compute_loss(model, batch)
        model.train()
        return step(model, inputs, items)

    trainer.training_step = evaluate_first
    assert_same(without, trained(trainer))


def test_held_out_problems_get_pass_at_k_while_training(build: Build) -> None:
    when = {"eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 8}
    trainer = build(SageTrainer, trl={**when, "per_device_eval_batch_size": 8})
    drawn: list[torch.Tensor] = []
    calculate = trainer._calculate_rewards

    def noted(*args: Any) -> torch.Tensor:
        rewards: torch.Tensor = calculate(*args)
        if not trainer.model.training:
            drawn.append(rewards[:, 0])
        return rewards

    trainer._calculate_rewards = noted
    trainer.train()
    logged = [row for row in trainer.state.log_history if "eval_pass@1" in row]
    assert len(logged) == 3
    assert not any(key.startswith("pass@") for row in trainer.state.log_history for key in row)
    rewards = torch.cat(drawn).view(3, -1, 8)  # evaluations, problems, completions
    counts = rewards.sum(dim=2).int().tolist()
    assert len(counts[0]) == 4
    for row, right in zip(logged, counts, strict=True):
        for k in (1, 2, 4, 8):
            expected = sum(1 - comb(8 - c, k) / comb(8, k) for c in right) / 4
            assert row[f"eval_pass@{k}"] == pytest.approx(expected)


def test_methods_are_evaluated_with_fewer_completions_than_they_train_with(build: Build) -> None:
    when = {"eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 2}
    shaping = Shaping(advantage=PassAtK(k=4))
    trainer = build(SageTrainer, shaping, trl={**when, "per_device_eval_batch_size": 2})
    trainer.train()
    logged = [row for row in trainer.state.log_history if "eval_pass@2" in row]
    assert len(logged) == 3


def test_the_exact_forward_kl_is_the_sum_over_the_vocabulary(build: Build, smoke: Path) -> None:
    row = ROWS["grpo_forward_kl_exact"]
    for lora in ({"rank": 8, "alpha": 16}, None):
        trainer = build(SageTrainer, row=row, lora=lora, learning_rate=1e-3)
        trainer.train()
        kl = [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]
        assert kl[0] == pytest.approx(0.0, abs=1e-5)  # the policy starts at the reference
        assert kl[-1] > 1e-6
