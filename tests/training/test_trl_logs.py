"""Whole logs of SageTrainer beside those of TRL's own trainer, over a grid of settings."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trainers import SUMS, odd_sum
from transformers import AutoModelForCausalLM, Qwen2Config
from trl import GRPOConfig, GRPOTrainer

from sage.policies import load_model, load_tokenizer, save_checkpoint, train_tokenizer
from sage.training.rl import prompt_dataset
from sage.training.trainer import SageTrainer

NAMES = "logging_steps", "gradient_accumulation_steps", "num_iterations", "evaluates", "masks"
GRID = [*itertools.product((1, 3), (1, 2), (1, 2), (False, True), (False, True))]
QUICK = {(1, 1, 1, False, True), (3, 2, 2, True, False), (3, 2, 1, True, True)}
SLOW = [cell for cell in GRID if cell not in QUICK]
CELLS = [*sorted(QUICK), *(pytest.param(*cell, marks=pytest.mark.slow) for cell in SLOW)]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2, some of whose completions end before the limit."""
    folder = tmp_path_factory.mktemp("qwen")
    tokenizer = train_tokenizer([problem.problem for problem in SUMS], 300)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128}
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        Qwen2Config(vocab_size=len(tokenizer), **shape, **heads, **ids)
    )
    model.lm_head.weight.data *= 5.0
    model.lm_head.weight.data[tokenizer.eos_token_id] = 0.0
    save_checkpoint(model, tokenizer, folder)
    return folder


def log_of(
    kind: type[Any], qwen: Path, folder: Path, evaluates: bool, **settings: Any
) -> list[dict[str, Any]]:
    """What a trainer of `kind` logs, with two evaluations of two sets at the end.

    A high rate makes the KL term and the clipped shares differ from step to step.
    """
    model, tokenizer = load_model(qwen, torch.float32), load_tokenizer(qwen)
    sets: dict[str, Dataset] = {"few": prompt_dataset(SUMS[:3]), "more": prompt_dataset(SUMS[3:8])}
    args = GRPOConfig(
        output_dir=str(folder),
        max_steps=6,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        num_generations=4,
        max_completion_length=24,
        learning_rate=1e-2,
        beta=0.1,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        eval_strategy="steps" if evaluates else "no",
        eval_steps=3,
        disable_tqdm=True,
        seed=3,
        **settings,
    )
    evaluated = {"eval_dataset": sets} if evaluates else {}
    data = {"train_dataset": prompt_dataset(SUMS), "processing_class": tokenizer}
    trainer = kind(model=model, reward_funcs=odd_sum, args=args, **data, **evaluated)
    trainer.train()
    if evaluates:
        trainer.evaluate()
    log: list[dict[str, Any]] = trainer.state.log_history
    return log


@pytest.mark.parametrize(NAMES, CELLS)
def test_what_trl_logs_is_logged_as_trl_does(
    qwen: Path,
    tmp_path: Path,
    logging_steps: int,
    gradient_accumulation_steps: int,
    num_iterations: int,
    evaluates: bool,
    masks: bool,
) -> None:
    settings = {
        "logging_steps": logging_steps,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "num_iterations": num_iterations,
        "mask_truncated_completions": masks,
    }
    logs = [
        log_of(kind, qwen, tmp_path, evaluates, **settings) for kind in (GRPOTrainer, SageTrainer)
    ]
    assert len(logs[0]) == len(logs[1])
    for theirs, ours in zip(*logs, strict=True):
        timed = [key for key in theirs if "time" in key or "per_second" in key]
        expected = {key: theirs[key] for key in theirs if key not in timed}
        assert {key: ours.get(key) for key in expected} == pytest.approx(expected, nan_ok=True)
    steps = [entry for entry in logs[0] if "kl" in entry]
    assert len(steps) == 6 // logging_steps
    assert masks or any(entry["kl"] > 1e-3 for entry in steps)  # masked, few teach anything
    assert any(entry["completions/clipped_ratio"] > 0 for entry in steps)
