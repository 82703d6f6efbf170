"""The method in one file: its losses and gradients are SageTrainer's, its parts are right."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT
from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig

from examples import sage_minimal
from examples.sage_minimal import ALPHABET, MAX_TOKENS, Problem, Settings
from sage.evaluation.pass_at_k import pass_at_k
from sage.method.guides import BranchGuide
from sage.sampling.interface import Completion, Request
from sage.training.shaping import Shaping
from sage.training.trainer import SageTrainer

READ, EASY, HARD = sage_minimal.problem_sets(seed=0)
Draw = tuple[torch.Tensor, torch.Tensor]


def odd_length(problem: Problem, completion: str) -> float:
    """A reward that a base without schooling earns now and then."""
    return float(len(completion) % 2)


@contextmanager
def gradients() -> Iterator[list[dict[int, torch.Tensor]]]:
    """Those of each weight, by its `id`, before each step that an optimizer takes."""
    seen: list[dict[int, torch.Tensor]] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        seen.append({id(weight): weight.grad.clone() for weight in weights})

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


def noting(function: Callable[..., Any], kept: list[Any], pick: Callable[..., Any]) -> Any:
    """`function`, which also puts `pick(result, *arguments)` on the list `kept`."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        kept.append(pick(result, *args))
        return result

    return noted


class Replay:
    """Draws what was drawn before, and checks that it is asked for the same prompts."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        self.draws = iter(draws)

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        prompts, completions = next(self.draws)
        assert [list(request.prompt_ids) for request in requests] == prompts.tolist()
        with torch.no_grad():
            log_probs, _ = sage_minimal.log_probs_and_entropies(policy, prompts, completions)
        lengths = map(len, sage_minimal.decoded(completions))
        return [
            Completion("", tuple(row[:length]), "stop", tuple(values[:length]))
            for row, values, length in zip(
                completions.tolist(), log_probs.tolist(), lengths, strict=True
            )
        ]


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, as in the example."""
    vocabulary = {character: place for place, character in enumerate(ALPHABET)}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="."))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=characters, eos_token=".", pad_token=".")


def trainer_on(
    base: Any, draws: Sequence[Draw], settings: Settings, folder: Path, **changes: Any
) -> SageTrainer:
    """SageTrainer with the same settings, which is handed those completions."""
    batch = settings.prompts * settings.group
    config = {
        "loss_type": "grpo",
        "beta": settings.beta,
        "use_bias_correction_kl": False,
        "epsilon": settings.clip,
        "num_generations": settings.group,
        "per_device_train_batch_size": batch,
        "num_iterations": settings.updates,
        "max_steps": settings.updates * settings.generations,
        "max_completion_length": MAX_TOKENS,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "max_grad_norm": 0.0,
        "shuffle_dataset": False,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
    }

    def score(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [odd_length((0, 0, 0), "".join(ALPHABET[i] for i in ids)) for ids in completion_ids]

    asked = [text for prompts, _ in draws for text in sage_minimal.decoded(prompts)]
    return SageTrainer(
        model=copy.deepcopy(base),
        reference=copy.deepcopy(base),
        args=GRPOConfig(str(folder), **(config | changes)),
        processing_class=tokenizer(),
        train_dataset=Dataset.from_dict({"prompt": asked[:: settings.group]}),
        reward_funcs=score,
        shaping=Shaping(guide=BranchGuide(ratio=settings.ratio, threshold=settings.threshold)),
        make_drawer=lambda _: Replay(draws),
    )


@pytest.mark.parametrize("ratio", [0.3, 0.0], ids=["sage", "grpo"])
def test_losses_gradients_and_weights_are_those_of_the_trainer(
    ratio: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two generations with two updates each: the clip and the KL act from the second on."""
    settings = Settings(ratio, threshold=2.3, prompts=4, group=4, generations=2, learning_rate=3e-3)
    base = sage_minimal.pretrained(READ, steps=8, seed=1)
    losses, expected, draws = [], [], []
    monkeypatch.setattr(sage_minimal, "reward", odd_length)
    sampled = noting(sage_minimal.sample, draws, lambda drawn, _, prompts: (prompts, drawn))
    monkeypatch.setattr(sage_minimal, "sample", sampled)
    noted = noting(sage_minimal.sage_loss, losses, lambda loss, *_: loss.item())
    monkeypatch.setattr(sage_minimal, "sage_loss", noted)
    with gradients() as ours:
        policy = sage_minimal.train(base, EASY, settings, seed=0)

    trainer = trainer_on(base, draws, settings, tmp_path)
    trainer.compute_loss = noting(trainer.compute_loss, expected, lambda loss, *_: loss.item())
    with gradients() as theirs:
        trainer.train()

    assert len(losses) == len(ours) == len(theirs) == 4
    assert losses == pytest.approx(expected, abs=1e-6)
    steps = [row for row in trainer.state.log_history if "kl" in row]
    assert len(steps) == 4
    assert any(row["sage/q_min"] < row["sage/q_max"] for row in steps) == (ratio > 0)
    assert max(row["clip_ratio/region_mean"] for row in steps) > 0
    assert steps[-1]["kl"] > 1e-3
    trained = dict(trainer.accelerator.unwrap_model(trainer.model).named_parameters())
    for name, weight in policy.named_parameters():
        for left, right in zip(ours, theirs, strict=True):
            gradient = left[id(weight)]
            assert gradient.abs().max() > 1e-5
            torch.testing.assert_close(gradient, right[id(trained[name])], rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(weight, trained[name], rtol=0, atol=2e-4)


def test_rewards_tell_the_two_ways_apart() -> None:
    assert sage_minimal.prompt((5, 3, 9)) == "5-3+9:"
    for problem in [*READ, *HARD]:
        assert sage_minimal.reward(problem, sage_minimal.solution(problem, False)) == 1.0
        is_easy = problem in EASY
        assert sage_minimal.reward(problem, sage_minimal.solution(problem, True)) == is_easy
    assert sage_minimal.reward((5, 3, 9), "5-3=2,2+9=11") == 0.0
    assert not set(HARD) & set(READ)


def test_a_completion_ends_with_its_end_or_at_the_limit() -> None:
    base = sage_minimal.pretrained(READ, steps=8, seed=1)
    torch.manual_seed(0)
    texts = sage_minimal.decoded(sage_minimal.sample(base, sage_minimal.encoded(["5-3+9:"] * 64)))
    assert any(text.endswith(".") for text in texts)
    for text in texts:
        assert "." not in text[:-1]
        assert len(text) <= MAX_TOKENS


def test_pass_at_k_is_that_of_the_package() -> None:
    ks = np.array([1, 4, 16])
    for correct in (0, 1, 7, 32):
        ours = [sage_minimal.pass_at_k(32, correct, int(k)) for k in ks]
        assert ours == pytest.approx(pass_at_k(32, np.array([correct]), ks)[0].tolist())


def test_it_is_short_and_stands_alone() -> None:
    text = (ROOT / "examples/sage_minimal.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    outside = {name.split(".")[0] for name in imported} - sys.stdlib_module_names
    assert outside == {"torch", "transformers"}
