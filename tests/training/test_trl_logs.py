"""Whole logs beside those of TRL's GRPOTrainer, over windows, micro-batches, sets and masks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from trainers import SMALL, SUMS, odd_sum, small_trainer, trainer_of, write_parent
from trl import GRPOTrainer

from sage.sampling.interface import Completion, Request
from sage.study import Algorithm
from sage.training import rl
from sage.training.credit import Correction
from sage.training.drawers import transformers_rollouts
from sage.training.drawing import GenerationCall, MakeDrawer, ProcessSlices
from sage.training.trainer import SageTrainer

GRPO = Algorithm(title="x", loss="grpo", kl="reverse", estimator="k3")
OURS = ("zero_advantages", "drawn_tokens", "pass@", "sage/")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in which a tenth of all tokens end a completion."""
    folder = write_parent(tmp_path_factory.mktemp("parent") / "base", SUMS, spread=3.0)
    file = folder / "generation_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"eos_token_id": [*range(20, 260, 10)]}))
    return folder


def logs(trainer: Any, evaluates: int = 0) -> list[dict[str, Any]]:
    """All that is logged but times; after training each set is evaluated so often again."""
    trainer.train()
    for _ in range(evaluates):
        trainer.evaluate()
    times = ("time", "runtime", "per_second", "flos")
    return [
        {key: value for key, value in row.items() if not any(time in key for time in times)}
        for row in trainer.state.log_history
    ]


CELLS = [*product((1, 3), (1, 2), (1, 2), (False, True))]
FAST = [(3, 2, 2, True), (1, 1, 1, False)]


@pytest.mark.parametrize(
    ("window", "accumulated", "iterations", "masks"),
    [cell if cell in FAST else pytest.param(*cell, marks=pytest.mark.slow) for cell in CELLS],
)
def test_every_number_that_trl_logs_is_trls(
    parent: Path, tmp_path: Path, window: int, accumulated: int, iterations: int, masks: bool
) -> None:
    """Training, two evaluation sets that batches do not divide, and both evaluated once more."""
    trl = {
        "logging_steps": window,
        "max_steps": 6,
        "per_device_train_batch_size": 16 // accumulated,
        "gradient_accumulation_steps": accumulated,
        "steps_per_generation": accumulated,
        "generation_batch_size": 16,
        "num_iterations": iterations,
        "mask_truncated_completions": masks,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "per_device_eval_batch_size": 16,
        "num_generations_eval": 4,
        "learning_rate": 0.02,
        "epsilon": 0.01,
    }
    found = []
    for kind in (GRPOTrainer, SageTrainer):
        sets = {name: rl.prompt_dataset(rows) for name, rows in (("a", SUMS[:5]), ("b", SUMS[5:]))}
        trainer = trainer_of(
            parent, SUMS, SMALL, GRPO, tmp_path, odd_sum, kind=kind, trl=trl, eval_dataset=sets
        )
        found.append(logs(trainer, evaluates=2))
    trls, ours = found
    assert len(trls) == len(ours) == 6 // window + 4 + 1 + 4
    for left, right in zip(trls, ours, strict=True):
        own = {key for key in right if key.removeprefix("eval_").startswith(OURS)}
        assert right.keys() - own == left.keys()
        assert left == {key: right[key] for key in left}
        assert own or "train_loss" in right
    assert any(row.get("clip_ratio/region_mean", 0.0) > 0.0 for row in trls) is (iterations == 2)
    assert any(0.0 < row.get("completions/clipped_ratio", 0.0) < 1.0 for row in trls)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_our_own_numbers_are_the_means_of_a_window(
    parent: Path, tmp_path: Path, accumulated: int
) -> None:
    """Three steps in one line: the means of what each would log, and an evaluation its own."""
    row = {
        "title": "x",
        "loss": "grpo",
        "kl": "reverse",
        "estimator": "k2",
        "guide": {"kind": "branch", "settings": {"ratio": 0.3, "threshold": 1.0}},
    }
    found = []
    for window in (1, 3):
        trl = {
            "logging_steps": window,
            "max_steps": 3,
            "per_device_train_batch_size": 16 // accumulated,
            "gradient_accumulation_steps": accumulated,
            "steps_per_generation": accumulated,
        }
        trainer = small_trainer(parent, row, tmp_path, trl=trl)
        found.append([entry for entry in logs(trainer) if "loss" in entry])
    steps, (whole,) = found
    names = {name for name in whole if name.startswith(("sage/", "sampler/"))} | {"kl", "entropy"}
    assert len(names) >= 10
    moved = 0
    for name in names:
        values = [step[name] for step in steps if name in step]
        assert whole[name] == pytest.approx(math.fsum(values) / len(values), rel=1e-6, abs=1e-9)
        moved += len({*values}) > 1
    assert moved >= 6


def test_each_evaluation_has_its_own_numbers(parent: Path, tmp_path: Path) -> None:
    """Two of the same completions in one step: the second is not the mean of both."""
    row = {"title": "x", "loss": "grpo", "kl": "reverse", "estimator": "k3"}
    row |= {"guide": {"kind": "branch", "settings": {"ratio": 0.3, "threshold": 1.0}}}
    trainer = small_trainer(parent, row, tmp_path, trl={"per_device_eval_batch_size": 16})
    few, more = rl.prompt_dataset(SUMS[:4]), rl.prompt_dataset(SUMS[4:16])
    trainer.evaluate(more)
    trainer._draws._last = (("", 0), 0)  # the streams of a first evaluation
    trainer.evaluate(few)
    last = trainer.state.log_history[-1]
    fresh = small_trainer(parent, row, tmp_path, trl={"per_device_eval_batch_size": 16})
    fresh.evaluate(few)
    first = fresh.state.log_history[-1]
    names = [name for name in first if "sage/" in name or "sampler/" in name or "pass@" in name]
    assert len(names) >= 8
    assert {name: last[name] for name in names} == {name: first[name] for name in names}


def test_pass_at_k_is_the_mean_over_problems_without_those_that_fill_up(tmp_path: Path) -> None:
    """Five problems in batches of four, the second filled up with three of the first."""
    log: dict[str, list[float]] = {}
    shares, seen = ProcessSlices(Accelerator(cpu=True), 4, 0), list[torch.Tensor]()
    rows = torch.zeros(8, 4)
    rows[0, 0], rows[4, :], rows[5:, 0] = 1.0, 1.0, 1.0
    for part in rows.split(4):
        call = GenerationCall(None, None, shares, None, None, log, correct=part.flatten())  # type: ignore[arg-type]
        call.log_pass_at_k(seen, 5)
    assert log["pass@1"] == pytest.approx([(0.25 + 1.0) / 5])
    assert log["pass@4"] == pytest.approx([2 / 5])


@pytest.mark.parametrize("sets", [{"top_k": 2}, {"top_p": 0.3}, {"min_p": 0.5}])
def test_filters_of_the_sampler_count_neither_in_weights_nor_as_off_policy(
    parent: Path, tmp_path: Path, sets: dict[str, float]
) -> None:
    """The gradient is that without a correction; with the mask of TRL the loss is TRL's too."""
    found = []
    for kind, more, trl in (
        (SageTrainer, {}, {}),
        (SageTrainer, {"correction": Correction("token")}, {}),
        (SageTrainer, {}, {"off_policy_mask_threshold": 0.01}),
        (SageTrainer, {"correction": Correction("token")}, {"off_policy_mask_threshold": 0.01}),
    ):
        trainer = trainer_of(
            parent, SUMS, SMALL, Algorithm(title="x", loss="grpo", kl="none"), tmp_path, half,
            kind=kind, trl={**sets, **trl, "max_steps": 1, "logging_steps": 1},
            make_drawer=transformers_rollouts(torch.float32), **more,
        )  # fmt: skip
        (entry, _) = logs(trainer)
        assert entry["sampler/gap_max"] < 1e-3
        assert "kl" not in entry
        found.append((entry["grad_norm"], entry["loss"]))
    assert found[0][0] > 1e-3
    assert found == [pytest.approx(found[0], rel=1e-3, abs=1e-6)] * 4


def half(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """1 for the first half of each group, whatever is drawn."""
    return [float(i % 4 < 2) for i in range(len(completion_ids))]


def forgetful(value: float | None, every: int) -> MakeDrawer:
    """A drawer that has lost the log-prob of each so manieth token."""
    make = transformers_rollouts(torch.float32)

    def made(trainer: Any) -> Any:
        drawer = make(trainer)
        draw = drawer.draw

        def lossy(policy: Any, requests: Sequence[Request]) -> list[Completion]:
            return [
                replace(
                    one,
                    log_probs=tuple(
                        value if i % every == 0 else p  # type: ignore[misc]
                        for i, p in enumerate(one.log_probs)
                    ),
                )
                for one in draw(policy, requests)
            ]

        drawer.draw = lossy
        return drawer

    return made


@pytest.mark.parametrize("value", [None, math.nan])
def test_a_token_without_a_log_prob_of_the_sampler_has_the_weight_one(
    parent: Path, tmp_path: Path, value: float | None
) -> None:
    found = []
    for make in (transformers_rollouts(torch.float32), forgetful(value, 3)):
        trainer = trainer_of(
            parent, SUMS, SMALL, GRPO, tmp_path, odd_sum, trl={"max_steps": 2, "logging_steps": 1},
            make_drawer=make, correction=Correction("token"),
        )  # fmt: skip
        found.append([entry for entry in logs(trainer) if "loss" in entry])
    for left, right in zip(*found, strict=True):
        assert right["sampler/gap_mean"] < 1e-5
        for name in ("loss", "grad_norm", "kl", "reward"):
            assert right[name] == pytest.approx(left[name], rel=1e-3, abs=1e-6)


def test_two_things_that_draw_are_refused(parent: Path, tmp_path: Path) -> None:
    ours = {"make_drawer": transformers_rollouts()}

    def rollouts(prompts: Any, trainer: Any) -> Any:
        raise AssertionError

    for more, said in (
        ({**ours, "rollout_func": rollouts}, "rollout_func draws rollouts without make_drawer"),
        ({"stop_texts": ["1"], "rollout_func": rollouts}, "without stop_texts"),
    ):
        with pytest.raises(ValueError, match=said):
            trainer_of(parent, SUMS, SMALL, GRPO, tmp_path, odd_sum, **more)
    trainer = trainer_of(parent, SUMS, SMALL, GRPO, tmp_path, odd_sum, **ours)
    trainer.use_transformers_continuous_batching = True
    with pytest.raises(ValueError, match="continuous_batching draws rollouts without make_drawer"):
        trainer._check()


def test_a_stop_text_ends_completions_as_a_token_does(parent: Path, tmp_path: Path) -> None:
    """What TRL logs of completions that came to an end."""
    trl = {"max_steps": 1, "logging_steps": 1, "max_completion_length": 5}
    trainer = trainer_of(
        parent, SUMS, SMALL, GRPO, tmp_path, odd_sum, stop_texts=["4"], trl=trl,
        make_drawer=transformers_rollouts(torch.float32),
    )  # fmt: skip
    written: list[list[int]] = []
    draw = trainer._draws.draw

    def noted(*args: Any) -> Any:
        drawn = draw(*args)
        written.extend(drawn[0])
        return drawn

    trainer._draws.draw = noted
    (entry, _) = logs(trainer)
    texts = [trainer._tokenizer.decode(ids) for ids in written]
    ended = [
        "4" in t or ids[-1] in trainer.eos_token_ids for t, ids in zip(texts, written, strict=True)
    ]
    lengths = [len(ids) for ids, end in zip(written, ended, strict=True) if end]
    assert any("4" in text for text in texts)
    assert 0 < len(lengths) < 16
    assert all(len(ids) == 5 for ids, end in zip(written, ended, strict=True) if not end)
    assert entry["completions/clipped_ratio"] == pytest.approx(1 - len(lengths) / 16)
    assert entry["completions/mean_terminated_length"] == pytest.approx(sum(lengths) / len(lengths))
    assert entry["completions/min_terminated_length"] == min(lengths)
