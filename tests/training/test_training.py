"""Training: the anchor's seam on TRL, reproducibility, and going on after a kill."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from trainers import SMALL, SUMS
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTTrainer

from sage.problems.record import Problem, read_problems
from sage.runtime.manifest import Manifest
from sage.study import RL, Algorithm, ResolvedStudy
from sage.training import rl, sft
from sage.training.checkpoints import claim
from sage.training.examples import Solution
from sage.training.pretrain import _collate
from sage.training.trainer import SageTrainer
from sage.training.watching import TrainingStopped

pytestmark = [pytest.mark.timeout(4000)]


GRPO = {"title": "x", "loss": "grpo", "kl": "reverse", "estimator": "k3"}


def trained(
    parent: Path,
    problems: Sequence[Problem],
    settings: RL,
    algorithm: Algorithm,
    output: Path,
    reference: Path | None = None,
) -> dict[str, torch.Tensor]:
    """Train on the checkpoint `parent` and return the adapter's weights."""
    rl.train_rl(
        parent,
        problems,
        settings,
        algorithm,
        seed=1,
        device="cpu",
        scratch=output.with_name(output.name + "_scratch"),
        output=output,
        manifest=Manifest({"algorithm": algorithm.model_dump()}, 1, time.time()),
        reference=reference,
    )
    return load_file(output / "adapter_model.safetensors")


def train(
    smoke: Path, study: ResolvedStudy, algorithm: Algorithm, output: Path
) -> dict[str, torch.Tensor]:
    """Train on the smoke study's parent and return the adapter's weights."""
    problems = read_problems(smoke / "problems/arithmetic_train.jsonl")
    return trained(smoke / "models/tiny/base", problems, study.model("tiny").rl, algorithm, output)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left | right)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = smoke_study.algorithms["grpo_branch"]
    whole = train(smoke, smoke_study, branch, tmp_path / "whole")

    class Killed(Exception):
        pass

    step = SageTrainer.training_step

    def die_at_fourth(self: SageTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.state.global_step == 3:
            raise Killed
        return step(self, *args, **kwargs)

    monkeypatch.setattr(SageTrainer, "training_step", die_at_fourth)
    with pytest.raises(Killed):
        train(smoke, smoke_study, branch, tmp_path / "killed")
    monkeypatch.undo()
    assert not (tmp_path / "killed").exists()
    kept = tmp_path / "killed_scratch" / "checkpoint-2"
    half = kept.with_name("checkpoint-3")  # as a kill in the middle of writing leaves it
    half.mkdir()
    shutil.copy(kept / "adapter_model.safetensors", half)
    assert same(whole, train(smoke, smoke_study, branch, tmp_path / "killed"))
    histories = [
        [json.loads(line) for line in (tmp_path / run / "history.jsonl").open()]
        for run in ("whole", "killed")
    ]
    for left, right in zip(*histories, strict=True):
        assert {**left, "seconds": 0} == {**right, "seconds": 0}


def test_a_loss_that_is_no_number_ends_the_run_before_a_checkpoint_has_it(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SageTrainer.training_step

    def broken_at_fourth(self: SageTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = step(self, *args, **kwargs)
        return loss * float("nan") if self.state.global_step == 3 else loss

    monkeypatch.setattr(SageTrainer, "training_step", broken_at_fourth)
    with pytest.raises(TrainingStopped, match=r"in step 4 .* before it is .*/checkpoint-2\."):
        train(smoke, smoke_study, smoke_study.algorithms["grpo"], tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
    assert not (tmp_path / "policy_scratch/checkpoint-4").exists()


@pytest.mark.slow
def test_killed_fine_tuning_goes_on_to_the_same_weights(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = read_problems(smoke / "problems/arithmetic_train.jsonl")[:16]
    solutions = [Solution(p.problem, "so " * len(p.answer), p.answer) for p in problems]
    settings = smoke_study.model("tiny").sft
    assert settings
    changes = {"epochs": 2, "batch_size": 4, "max_tokens": 128, "checkpoint_every": 2}
    settings = settings.model_copy(update=changes)

    def tuned(output: Path) -> tuple[dict[str, torch.Tensor], int]:
        scratch, manifest = output.with_name(output.name + "_scratch"), Manifest({}, 1, time.time())
        pretrained = smoke / "models/tiny/pretrained"
        sft.fine_tune(pretrained, solutions, settings, "cpu", scratch, output, manifest)
        assert not scratch.exists()
        tokens = json.loads((output / "manifest.json").read_text())["tokens"]
        return load_file(output / "model.safetensors"), tokens

    whole, tokens = tuned(tmp_path / "whole")
    assert tokens > 2 * 16 * 10
    steps: list[int] = []
    step = SFTTrainer.training_step

    def die_at_sixth(self: SFTTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(steps) == 5:
            raise KeyboardInterrupt
        steps.append(self.state.global_step)
        return step(self, *args, **kwargs)

    monkeypatch.setattr(SFTTrainer, "training_step", die_at_sixth)
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "killed")
    assert not (tmp_path / "killed").exists()
    steps.clear()
    again, tokens_again = tuned(tmp_path / "killed")
    assert steps == [4, 5, 6, 7]
    assert same(whole, again)
    assert tokens_again == tokens


def test_checkpoints_of_other_settings_are_not_resumed(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    claim(scratch, {"steps": 1})
    (scratch / "checkpoint-1").mkdir()
    (scratch / "checkpoint-1/sums.json").write_text("{}")
    claim(scratch, {"steps": 1})
    assert (scratch / "checkpoint-1").is_dir()
    claim(scratch, {"steps": 2})
    assert not (scratch / "checkpoint-1").exists()


def train_on_sums(
    parent: Path,
    output: Path,
    problems: Sequence[Problem] = SUMS,
    reference: Path | None = None,
    **row: Any,
) -> dict[str, torch.Tensor]:
    """Train three steps, fewer than a pass, and return the adapter's weights."""
    settings = SMALL.model_copy(update={"steps": 3, "checkpoint_every": 2})
    algorithm = Algorithm.model_validate(GRPO | row)
    return trained(parent, problems, settings, algorithm, output, reference)


def full_disk(*_: Any) -> None:
    raise OSError("No space left on device")


def test_a_run_that_failed_after_its_last_step_takes_no_further_one(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_on_sums(parent, tmp_path / "whole")

    monkeypatch.setattr(rl, "write_history", full_disk)
    with pytest.raises(OSError, match="No space"):
        train_on_sums(parent, tmp_path / "failed")
    monkeypatch.undo()
    assert (tmp_path / "failed_scratch/checkpoint-3").is_dir()
    assert same(whole, train_on_sums(parent, tmp_path / "failed"))
    rows = [(tmp_path / run / "history.jsonl").open().readlines() for run in ("whole", "failed")]
    assert len(rows[0]) == len(rows[1]) == 3


GUIDE = """
class Flat:
    def factors(self, signals, moment):
        return signals.entropies * 0.0 + {factor}
"""


def test_a_run_of_other_sources_starts_anew(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Begun(Exception):
        pass

    def begin(*_: Any) -> None:
        raise Begun

    def goes_on(problems: Sequence[Problem] = SUMS) -> bool:
        """Whether a run keeps the checkpoint; it leaves one of its own."""
        guide = {"kind": "flat_guides:Flat"}
        with pytest.raises(Begun):
            train_on_sums(parent, tmp_path / "run", problems, reference=reference, guide=guide)
        kept = get_last_checkpoint(str(checkpoint.parent)) is not None
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "sums.json").write_text("{}")
        return kept

    code, reference = tmp_path / "flat_guides.py", tmp_path / "reference"
    checkpoint = tmp_path / "run_scratch/checkpoint-2"
    shutil.copytree(parent, reference)
    code.write_text(GUIDE.format(factor=1.0))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flat_guides", raising=False)
    monkeypatch.setattr(rl, "build_trainer", begin)
    assert not goes_on()
    assert goes_on()
    other = [replace(SUMS[0], answer="7"), *SUMS[1:]]
    assert not goes_on(other)
    assert goes_on(other)
    (reference / "manifest.json").write_text('{"ended": "later"}')
    assert not goes_on(other)
    assert goes_on(other)
    code.write_text(GUIDE.format(factor=1.1))
    assert not goes_on(other)
    assert goes_on(other)
    later = tmp_path / "later.py"
    later.write_text("# a later commit")
    monkeypatch.setattr("sage.training.checkpoints.module_files", lambda *_: [str(later)])
    assert not goes_on(other)


def test_every_row_translates_into_trl_settings(smoke_study: ResolvedStudy, tmp_path: Path) -> None:
    settings = smoke_study.model("tiny").rl
    configs = {
        name: rl.grpo_config(settings, algorithm, 7, "cpu", tmp_path)
        for name, algorithm in smoke_study.algorithms.items()
    }
    assert configs["grpo"].beta == settings.kl_coefficient
    assert configs["grpo_no_kl"].beta == 0.0
    assert not configs["grpo"].use_bias_correction_kl  # k3 as released; TRL's default corrects it
    assert configs["grpo"].loss_type == "grpo"
    assert configs["grpo"].epsilon == configs["grpo"].epsilon_high == 0.2
    assert configs["grpo"].seed == 7
    assert configs["grpo"].warmup_steps == round(settings.warmup_ratio * settings.steps)


def test_a_checkpoint_within_a_generation_is_refused() -> None:
    def settings(**changes: int) -> RL:
        return RL.model_validate(SMALL.model_dump() | {"steps": 12} | changes)

    several = {"steps_per_generation": 2, "iterations": 3}
    assert settings(checkpoint_every=6, **several).checkpoint_every == 6
    assert settings(checkpoint_every=100, **several).steps == 12  # there is none but the last
    with pytest.raises(ValidationError, match=r"every 4 must be a multiple .* = 6:"):
        settings(checkpoint_every=4, **several)


def test_trls_vllm_draws_rollouts_with_the_same_meaning(
    smoke_study: ResolvedStudy, tmp_path: Path
) -> None:
    settings = smoke_study.model("tiny").rl.model_copy(update={"engine": "vllm", "lora": None})
    row = smoke_study.algorithms["grpo"]
    config = rl.grpo_config(settings, row, 7, "cpu", tmp_path, longest_prompt=40)
    assert config.use_vllm
    assert config.vllm_mode == "colocate"
    assert config.vllm_max_model_length == 40 + settings.sampling.max_tokens
    # One ratio for a whole completion, TRL's default, goes to nothing where min-p cuts.
    assert config.vllm_importance_sampling_mode == "token_truncate"
    # vLLM leaves out the stop text unless told otherwise; the grader needs it.
    assert config.generation_kwargs == {"stop": ["</SOLUTION>"], "include_stop_str_in_output": True}


def test_pretraining_scores_the_solution_alone() -> None:
    batch = _collate([([5, 6, 7, 8], 2), ([5, 6, 7], 1)], padding=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [5, 6, 7, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 8], [-100, 6, 7, -100]]
