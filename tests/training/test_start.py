"""What a run says or refuses before its first step, where it would end with wrong numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import IterableDataset
from peft import LoraConfig
from trainers import SUMS, odd_sum
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
    XGLMConfig,
)
from trl import GRPOConfig, GRPOTrainer

from sage.policies import load_model, load_tokenizer, save_checkpoint
from sage.training import rl
from sage.training.drawers import transformers_rollouts
from sage.training.shaping import Shaping
from sage.training.start import NotTheReference, PaddingIsRead
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


NORMALISED = {"multi_objective_aggregation": "normalize_then_sum"}


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


@pytest.mark.parametrize(
    ("change", "adapter", "starts"),
    [
        (None, None, True),
        (None, LoraConfig(r=4, target_modules=["q_proj"]), True),
        (None, LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]), True),
        (None, LoraConfig(r=4, target_modules=["q_proj"], use_dora=True), True),
        (moved, None, False),
        (moved, LoraConfig(r=4, target_modules=["q_proj"]), True),
    ],
)
def test_a_policy_starts_at_its_reference_or_is_refused(
    build: Build, parent: Path, change: Any, adapter: Any, starts: bool
) -> None:
    """Then the policy's KL before the first update is 0."""
    model = load_model(parent)
    trainer = build(model=change(model) if change else model, peft_config=adapter)
    if starts:
        trainer.train()
        first = next(row["kl"] for row in trainer.state.log_history if "kl" in row)
        assert first == pytest.approx(0.0, abs=1e-5)
    else:
        with pytest.raises(NotTheReference, match="give `reference`"):
            trainer.train()


PISSA = LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights="pissa")


def test_an_adapter_that_changes_its_base_has_the_model_before_it_as_reference(
    build: Build, parent: Path
) -> None:
    trainer = build(peft_config=PISSA, reference=load_model(parent))
    trainer.train()
    first, second = (row["kl"] for row in trainer.state.log_history if "kl" in row)
    assert first == pytest.approx(0.0, abs=1e-5)
    assert second > 1e-7


ABSOLUTE = {
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=128),
    "gpt_neo": GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global"], 2]]
    ),
    "gpt_bigcode": GPTBigCodeConfig(n_embd=32, n_layer=2, n_head=2, attn_pdrop=0.0),
    "xglm": XGLMConfig(
        d_model=32, ffn_dim=64, num_layers=2, attention_heads=2, dropout=0.0, attention_dropout=0.0
    ),
}
STATES = {
    "recurrent_gemma": RecurrentGemmaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2,
        lru_width=32, attention_window_size=64,
    ),
    "rwkv": RwkvConfig(hidden_size=32, num_hidden_layers=2, attention_hidden_size=32),
}  # fmt: skip


def checkpoint_of(config: Any, parent: Path, folder: Path) -> Path:
    """A random model of `config` with the tokenizer of `parent`."""
    tokenizer = load_tokenizer(parent)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    for name, value in {"vocab_size": len(tokenizer), "bos_token_id": None, **ids}.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.get_output_embeddings().weight.data *= 5.0
    save_checkpoint(model, tokenizer, folder)
    return folder


UNEVEN = [replace(SUMS[i], problem="+".join("1" * n)) for i, n in enumerate((1, 7, 1, 12))]


@pytest.mark.parametrize("make_drawer", [transformers_rollouts(), None], ids=["sage", "trl"])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_padded_prompts_are_read_as_they_are_alone(
    build: Build, parent: Path, tmp_path: Path, name: str, make_drawer: Any
) -> None:
    """Models with absolute positions: policy, reference and sampler on prompts of many lengths."""
    folder = checkpoint_of(ABSOLUTE[name], parent, tmp_path / name)
    trainer = build(
        model=load_model(folder), train_dataset=rl.prompt_dataset(UNEVEN),
        make_drawer=make_drawer, trl={"disable_dropout": True},
    )  # fmt: skip
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    assert batch["prompt_mask"].sum(dim=1).unique().numel() > 1
    plain = load_model(folder).eval()
    for row in range(0, 16, 4):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        written = batch["completion_ids"][row][batch["completion_mask"][row].bool()]
        with torch.no_grad():
            logits = plain(torch.cat([prompt, written])[None]).logits[0, len(prompt) - 1 : -1]
        alone = logits.log_softmax(-1).gather(-1, written[:, None])[:, 0]
        for key in ("ref_per_token_logps", "sampling_per_token_logps"):
            if key in batch:
                read = batch[key][row, : len(written)]
                torch.testing.assert_close(read, alone, rtol=0, atol=5e-3)
    trainer.train()
    first = next(row["kl"] for row in trainer.state.log_history if "kl" in row)
    assert first == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("name", STATES)
def test_a_model_that_reads_padding_is_refused(
    build: Build, parent: Path, tmp_path: Path, name: str
) -> None:
    folder = checkpoint_of(STATES[name], parent, tmp_path / name)
    with pytest.raises(PaddingIsRead):
        build(model=load_model(folder))


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
