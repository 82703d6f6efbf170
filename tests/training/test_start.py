"""What a run says or refuses before its first step, where it would end with wrong numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PromptTuningConfig
from trainers import SUMS, odd_sum
from trl import GRPOConfig, GRPOTrainer

from sage.method.advantages import Centred
from sage.policies import load_model, load_tokenizer
from sage.rivals.dapo import Mixed
from sage.rivals.dars import Dars
from sage.training import rl
from sage.training.drawers import transformers_rollouts
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

Build = Callable[..., Any]


@pytest.fixture
def build(parent: Path, tmp_path: Path) -> Build:
    """A trainer of 4 prompts a step; `trl` changes TRL's arguments."""

    def trainer(kind: Any = SageTrainer, trl: Any = None, **more: Any) -> Any:
        args = {
            "beta": 0.04, "use_bias_correction_kl": False, "max_steps": 2, "seed": 3,
            "per_device_train_batch_size": 16, "num_generations": 4, "max_completion_length": 12,
            "logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True,
            "bf16": False, "learning_rate": 1e-3,
        }  # fmt: skip
        given = {
            "model": load_model(parent),
            "reward_funcs": [odd_sum],
            "train_dataset": rl.prompt_dataset(SUMS),
            "processing_class": load_tokenizer(parent),
        }
        return kind(args=GRPOConfig(str(tmp_path), **(args | (trl or {}))), **(given | more))

    return trainer


def with_images(dataset: Dataset) -> Dataset:
    return dataset.add_column("image", [None] * len(dataset))


NORMALISED = {"multi_objective_aggregation": "normalize_then_sum"}
FILTER = Shaping(filter=Mixed(), max_refills=1)
BNPO = {"loss_type": "bnpo", "gradient_accumulation_steps": 2}
BONUS = {"entropy_coef": 0.1, "gradient_accumulation_steps": 2}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"data": lambda data: data.select(range(3))}, "3 problems, but a generation takes 4 "),
        ({"data": with_images}, "learns from text alone"),
        ({"trl": NORMALISED, "shaping": Shaping(planner=Dars())}, "normalises each reward"),
        ({"trl": NORMALISED, "shaping": Shaping(advantage=Centred())}, "normalises each reward"),
        ({"trl": NORMALISED, "shaping": FILTER}, "normalises each reward"),
        ({"trl": BNPO, "shaping": Shaping(planner=Dars())}, "means over micro-batches"),
        ({"trl": BONUS, "shaping": Shaping(planner=Dars())}, "means over micro-batches"),
        (
            {"data": lambda data: data.to_iterable_dataset(), "shaping": FILTER},
            "an iterable data set can only be read in its order",
        ),
        (
            {"trl": {"sync_ref_model": True}, "reference": True},
            "moves the reference that TRL loads, but `reference` is another model",
        ),
    ],
)
def test_what_would_train_otherwise_than_asked_is_refused(
    build: Build, parent: Path, more: dict[str, Any], said: str
) -> None:
    data = more.get("data", lambda data: data)(rl.prompt_dataset(SUMS))
    given = {key: value for key, value in more.items() if key in ("trl", "shaping")}
    if "reference" in more:
        given["reference"] = load_model(parent)
    with pytest.raises(ValueError, match=said):
        build(train_dataset=data, **given)


def test_a_stream_of_problems_and_normalised_rewards_train_as_with_trl(build: Build) -> None:
    logs = []
    for kind in (GRPOTrainer, SageTrainer):
        stream: IterableDataset = rl.prompt_dataset(SUMS).to_iterable_dataset()
        trainer = build(kind, trl=NORMALISED | {"beta": 0.0}, train_dataset=stream)
        trainer.train()
        logs.append([row["loss"] for row in trainer.state.log_history if "loss" in row])
    assert logs[0] == logs[1]


def moved(model: Any) -> Any:
    torch.manual_seed(0)
    for weight in model.parameters():
        weight.data += 0.05 * weight.data.std() * torch.randn_like(weight)
    return model


PISSA = LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights="pissa")
PROMPT = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)


@pytest.mark.parametrize(
    ("change", "adapter", "why"),
    [
        (None, None, None),
        (None, LoraConfig(r=4, target_modules=["q_proj"]), None),
        (None, PISSA, "the adapter changes"),
        (None, PROMPT, "the adapter changes"),
        (moved, None, "changed in memory; give `reference`"),
        (moved, LoraConfig(r=4, target_modules=["q_proj"]), None),
    ],
)
def test_a_policy_that_does_not_start_at_its_reference_says_why(
    build: Build, parent: Path, change: Any, adapter: Any, why: str | None
) -> None:
    """Else the policy's KL before the first update is 0."""
    model = load_model(parent)
    trainer = build(model=change(model) if change else model, peft_config=adapter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    said = [str(one.message) for one in caught if "before the first update" in str(one.message)]
    first = next(row["kl"] for row in trainer.state.log_history if "kl" in row)
    if why is None:
        assert not said
        assert first == pytest.approx(0.0, abs=1e-5)
    else:
        assert len(said) == 1
        assert why in said[0]
        assert first > 1e-4


def test_a_reference_of_ones_own_has_a_head_in_float32_as_trls(build: Build, parent: Path) -> None:
    """With `cast_lm_head_to_fp32` both compute log-probs in float32 from 16-bit weights."""
    seen = []
    for more in ({}, {"reference": load_model(parent, torch.bfloat16)}):
        trainer = build(
            model=load_model(parent, torch.bfloat16), trl={"cast_lm_head_to_fp32": True}, **more
        )
        batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
        seen.append(batch["ref_per_token_logps"])
    assert seen[0].dtype == seen[1].dtype == torch.float32
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=0)


@pytest.mark.parametrize("make_drawer", [transformers_rollouts(), None], ids=["sage", "trl"])
@pytest.mark.parametrize("by_trl", [True, False])
def test_a_completion_that_a_stop_text_ended_is_not_masked_as_truncated(
    build: Build, by_trl: bool, make_drawer: Any
) -> None:
    """TRL's `mask_truncated_completions` knows no end but the end-of-text token."""
    trainer = build(
        trl={"mask_truncated_completions": by_trl, "max_completion_length": 24},
        shaping=Shaping(mask_truncated=not by_trl), stop_texts=("e",), make_drawer=make_drawer,
    )  # fmt: skip
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    kept = batch["completion_mask"].any(dim=1)
    texts = [trainer.processing_class.decode(ids) for ids in batch["completion_ids"]]
    ended = torch.isin(batch["completion_ids"], torch.tensor(trainer.eos_token_ids)).any(dim=1)
    held = torch.tensor(["e" in text for text in texts])
    assert torch.equal(kept, ended | held)
    assert 0 < held.sum() < len(held)
    assert 0 < kept.sum() < len(kept)
    assert batch["num_items_in_batch"] == batch["completion_mask"].sum()
    share = trainer._metrics["train"]["completions/clipped_ratio"][-1]
    assert share == pytest.approx(1 - kept.float().mean().item())


def test_tokens_that_were_drawn_count_though_they_are_masked(build: Build) -> None:
    """TRL empties the masks of completions without an end before anything is counted."""
    trainer = build(trl={"mask_truncated_completions": True, "max_steps": 1})
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    kept = batch["completion_mask"].any(dim=1)
    assert (~kept).sum() > 0  # 12 tokens each
    drawn = trainer._metrics["train"]["drawn_tokens"][-1]
    assert drawn == batch["completion_mask"].sum() + 12 * (~kept).sum()


def test_prompts_longer_than_the_models_positions_are_counted_once(
    build: Build, parent: Path
) -> None:
    long = [replace(problem, problem="+".join("1" * 128)) for problem in SUMS[:2]]
    trainer = build(
        trl={"shuffle_dataset": False}, make_drawer=transformers_rollouts(),
        train_dataset=rl.prompt_dataset([*long, *SUMS[2:]]),
    )  # fmt: skip
    with pytest.warns(UserWarning, match="positions") as caught:
        trainer.train()
    said = [str(one.message) for one in caught if "max_position_embeddings" in str(one.message)]
    assert len(said) == 1
    assert said[0].startswith("8 of 16 prompts with their completions have more tokens than the")
