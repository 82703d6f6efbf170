"""What the KL term refers to: for all weights one copy, in the run's precision; a given adapter."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from trainers import SMALL, SUMS, is_of_trl, odd_sum, write_parent
from transformers import Qwen2ForCausalLM

from sage.policies import load_model, load_tokenizer, save_checkpoint
from sage.study import RL, Algorithm
from sage.tasks import Grader
from sage.training import rl
from sage.training.trainer import SageTrainer

GRPO = Algorithm(title="x", loss="grpo", kl="reverse", estimator="k3")


def models() -> dict[int, Qwen2ForCausalLM]:
    """All models in memory."""
    gc.collect()
    return {id(one): one for one in gc.get_objects() if type(one) is Qwen2ForCausalLM}


@pytest.mark.parametrize("named", [False, True], ids=["parent", "another checkpoint"])
def test_the_reference_of_full_fine_tuning_is_held_once_and_short(
    tmp_path: Path, named: bool
) -> None:
    parent, other = write_parent(tmp_path / "base", SUMS), tmp_path / "other"
    model = load_model(parent)
    model.model.norm.weight.data *= 4.0
    save_checkpoint(model, load_tokenizer(parent), other)
    reference = other if named else None
    changes = {"lora": None, "precision": "bfloat16", "steps": 2}
    settings = RL.model_validate(SMALL.model_dump() | changes)
    config = rl.grpo_config(settings, GRPO, 1, "cpu", tmp_path / "scratch")
    config.save_strategy = "no"
    before = models()
    trainer = rl.build_trainer(
        SageTrainer, parent, SUMS, settings, GRPO, config, Grader(), reference
    )
    trainer.train()
    policy, held = trainer.model, trainer.ref_model
    assert (models().keys() - before.keys()) == {id(policy), id(held)}
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}
    assert {weight.dtype for weight in held.parameters()} == {torch.bfloat16}
    expected = load_model(other if named else parent, torch.bfloat16).state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in held.state_dict().items())
    first = next(row["kl"] for row in trainer.state.log_history if "kl" in row)
    # A policy that equals its reference but for bfloat16's rounding, or does not at all.
    assert first > 0.01 if named else 0.0 <= first < 1e-3
    assert trainer.beta == config.beta == settings.kl_coefficient


def test_the_exact_forward_kl_refers_to_the_adapter_that_the_policy_came_with(
    tmp_path: Path,
) -> None:
    parent = write_parent(tmp_path / "base", SUMS, spread=6.0)
    forward = Algorithm(title="x", loss="grpo", kl="forward", estimator="exact")
    settings = RL.model_validate(SMALL.model_dump() | {"lora": None, "steps": 2})
    config = rl.grpo_config(settings, forward, 1, "cpu", tmp_path / "scratch")
    config.save_strategy, config.reward_weights = "no", None
    trained = LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    trainer = SageTrainer(
        model=get_peft_model(load_model(parent), trained),
        reward_funcs=[odd_sum],
        args=config,
        train_dataset=rl.prompt_dataset(SUMS),
        processing_class=load_tokenizer(parent),
        shaping=rl.shaping_of(forward),
    )
    trainer.train()
    first, second = (row["kl"] for row in trainer.state.log_history if "kl" in row)
    assert first == pytest.approx(0.0, abs=1e-5)
    assert second > 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_reference_of_an_adapter_is_the_base_itself(
    tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are held once, and what is logged and learnt is that of the adapter switched off."""
    monkeypatch.setattr(rl, "reward_functions", lambda *_: [odd_sum])
    parent, made = write_parent(tmp_path / "base", SUMS, spread=4.0), []
    settings = RL.model_validate(SMALL.model_dump() | {"steps": 3, "precision": precision})
    for switched in (True, False):
        config = rl.grpo_config(settings, GRPO, 1, "cpu", tmp_path / "scratch")
        config.save_strategy = "no"
        trainer = rl.build_trainer(SageTrainer, parent, SUMS, settings, GRPO, config, Grader())
        base = {id(weight) for weight in trainer.ref_model.parameters()}
        adapted = dict(trainer.model.named_parameters())
        assert {id(one) for name, one in adapted.items() if "lora" not in name} == base
        if switched:
            trainer.ref_model = None
        trainer.train()
        logged = [
            {key: value for key, value in row.items() if is_of_trl(key)}
            for row in trainer.state.log_history[:-1]
        ]
        made.append((logged, {name: weight.detach() for name, weight in adapted.items()}))
    assert made[0][0] == made[1][0]
    assert made[0][0][-1]["kl"] > 1e-4
    assert all(torch.equal(weight, made[1][1][name]) for name, weight in made[0][1].items())
