"""Whole logs of SageTrainer beside those of TRL's own trainer, over a grid of settings; and what it
logs besides, over the same windows and evaluations."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from method_entries import ROWS
from trainers import SMALL, SUMS, logged, odd_sum, small_trainer, trainer_of
from transformers import AutoModelForCausalLM, Qwen2Config
from trl import GRPOConfig, GRPOTrainer

from sage.policies import load_model, load_tokenizer, save_checkpoint, train_tokenizer
from sage.study import Algorithm
from sage.training import rl
from sage.training.drawers import transformers_rollouts
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
        **{"max_completion_length": 24, **settings},
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


def test_own_numbers_are_means_over_the_steps_of_a_window(parent: Path, tmp_path: Path) -> None:
    """With a line of log for two steps: the mean of the two lines that single steps have."""
    row = ROWS["grpo_branch"]
    single, double = (
        logged(small_trainer(parent, row, tmp_path, trl={"logging_steps": each}, micro_batches=2))
        for each in (1, 2)
    )
    assert (len(single), len(double)) == (4, 2)
    for place, line in enumerate(double):
        steps = single[2 * place : 2 * place + 2]
        names = {name for one in steps for name in one if name.startswith(OWN)}
        assert names == {name for name in line if name.startswith(OWN)}
        assert {"sage/log_q", "sage/guide_dose", "sampler/gap_mean", "step/kl"} <= names
        for name in names:
            values = [one[name] for one in steps if name in one]
            assert line[name] == pytest.approx(sum(values) / len(values)), name
    assert single[2]["step/kl"] != pytest.approx(single[3]["step/kl"], rel=1e-3)


OWN = ("sage/", "sampler/", "step/")


def test_a_second_evaluation_in_a_step_has_nothing_of_the_first(
    parent: Path, tmp_path: Path
) -> None:
    """Each is one batch, so that its mean over tokens is TRL's mean over batches."""
    algorithm = Algorithm.model_validate(ROWS["grpo"])
    settings = SMALL.model_copy(update={"learning_rate": 3e-2})
    trainer = trainer_of(
        parent, SUMS, settings, algorithm, tmp_path, odd_sum,
        trl={"per_device_eval_batch_size": 16}, shaping=rl.shaping_of(algorithm),
        eval_dataset={"one": prompt_dataset(SUMS[:4]), "other": prompt_dataset(SUMS[8:12])},
    )  # fmt: skip
    trainer.train()
    for _ in range(2):
        trainer.evaluate()
    lines = [line for line in trainer.state.log_history if "eval_kl" in line]
    assert len(lines) == 4
    found = []
    for name, line in zip(["one", "other"] * 2, lines, strict=True):
        assert line[f"eval_{name}_kl"] == line["eval_kl"]
        assert line[f"eval_{name}_step/kl"] == pytest.approx(line["eval_kl"], rel=1e-4)
        assert line[f"eval_{name}_step/reward"] == pytest.approx(line["eval_reward"])
        own = {key for key in line if re.search("pass@|step/|sage/", key)}
        assert own
        assert all(key.startswith(f"eval_{name}_") for key in own)
        found.append(line["eval_kl"])
    assert max(found) > 1.01 * min(found) > 0.0


def test_a_smaller_last_batch_counts_as_many_problems_as_it_has(
    parent: Path, tmp_path: Path
) -> None:
    """Of 3 problems in batches of 2; TRL's mean over batches stays beside."""
    algorithm = Algorithm.model_validate(ROWS["grpo"])
    drawn: list[float] = []

    def noted(**given: Any) -> list[float]:
        rewards = odd_sum(**given)
        drawn.extend(rewards)
        return rewards

    trainer = trainer_of(
        parent, SUMS, SMALL, algorithm, tmp_path, noted,
        trl={"per_device_eval_batch_size": 8}, eval_dataset=prompt_dataset(SUMS[:3]),
    )  # fmt: skip
    log = trainer.evaluate()
    assert len(drawn) == 12
    assert log["eval_reward"] == pytest.approx((sum(drawn[:8]) / 8 + sum(drawn[8:]) / 4) / 2)
    assert log["eval_step/reward"] == pytest.approx(sum(drawn) / 12)
    assert log["eval_step/rewards/noted/mean"] == log["eval_step/reward"]
    assert log["eval_step/reward"] != pytest.approx(log["eval_reward"])


def unended(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """Rollouts of one's own, of which every third ends with an end-of-text token."""
    written = []
    for row in range(len(prompts)):
        rng = random.Random(row)
        ids = [rng.randrange(20, 200) for _ in range(rng.randint(3, 11))]
        written.append([*ids, trainer.eos_token_ids[0]] if row % 3 == 0 else ids)
    ids = trainer._tokenize_prompts(prompts)[0]
    return {"prompt_ids": ids, "completion_ids": written, "logprobs": None}


@pytest.mark.parametrize("masks", [False, True])
def test_rollouts_of_ones_own_end_as_with_trl(parent: Path, tmp_path: Path, masks: bool) -> None:
    """Below the limit too: 10 of 16 have no end, whatever their length."""
    algorithm = Algorithm.model_validate(ROWS["grpo"])
    logs = []
    for each in (GRPOTrainer, SageTrainer):
        trainer = trainer_of(
            parent, SUMS, SMALL, algorithm, tmp_path, odd_sum, kind=each,
            trl={"mask_truncated_completions": masks, "max_steps": 2}, rollout_func=unended,
        )  # fmt: skip
        logs.append(logged(trainer))
    for theirs, ours in zip(*logs, strict=True):
        names = [key for key in theirs if key.startswith("completions/")]
        assert len(names) == 7
        for name in (*names, "loss", "grad_norm", "kl"):
            assert ours[name] == theirs[name], name
    assert logs[0][0]["completions/clipped_ratio"] == 10 / 16


@pytest.mark.parametrize("make_drawer", [transformers_rollouts(), None], ids=["sage", "trl"])
def test_lengths_of_what_ended_at_a_stop_text_are_logged(
    parent: Path, tmp_path: Path, make_drawer: Any
) -> None:
    algorithm = Algorithm.model_validate(ROWS["grpo"])
    trainer = trainer_of(
        parent, SUMS, SMALL, algorithm, tmp_path, odd_sum,
        stop_texts=list("aeiou13579"), make_drawer=make_drawer,
    )  # fmt: skip
    trainer.model.train()
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    log = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    lengths = batch["completion_mask"].sum(dim=1)
    ends = {trainer.eos_token_ids[0], trainer.processing_class.pad_token_id}
    written = [ids[:n].tolist() for ids, n in zip(batch["completion_ids"], lengths, strict=True)]
    texts = [trainer.processing_class.decode(ids) for ids in written]
    ended = torch.tensor(
        [
            ids[-1] in ends or any(stop in text for stop in "aeiou13579")
            for ids, text in zip(written, texts, strict=True)
        ]
    )
    assert ended.any()
    assert log["completions/clipped_ratio"] == pytest.approx(1 - ended.float().mean().item())
    for name, value in (("min", lengths[ended].min()), ("max", lengths[ended].max())):
        assert log[f"completions/{name}_terminated_length"] == value.item()


@pytest.mark.parametrize("masks", [False, True])
def test_completions_of_one_token_have_the_kl_of_their_tokens(
    qwen: Path, tmp_path: Path, masks: bool
) -> None:
    """TRL's means are then over rows, those that are masked among them."""
    settings = {"max_completion_length": 1, "mask_truncated_completions": masks, "logging_steps": 1}
    theirs, ours = (
        log_of(kind, qwen, tmp_path, False, **settings) for kind in (GRPOTrainer, SageTrainer)
    )
    pairs = [(a, b) for a, b in zip(theirs, ours, strict=True) if "kl" in a]
    assert len(pairs) == 6
    for plain, own in pairs:
        assert own["kl"] == pytest.approx(plain["kl"])
        kept = 1 - own["completions/clipped_ratio"] if masks else 1.0
        if kept:
            assert own["step/kl"] == pytest.approx(own["kl"] / kept)
    assert masks or pairs[-1][1]["kl"] > 1e-3
