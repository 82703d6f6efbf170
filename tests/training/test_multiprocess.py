"""Training in two processes: the numbers of one, one writer, and a clean end when one dies.

The processes are real, with gloo between them. Where numbers of training are compared,
completions are a function of the prompt and of their place in the group, of lengths that a random
model would not draw; what is drawn is compared by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
import torch
from conftest import ROOT
from method_entries import ROWS, derived
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from trainers import SMALL, SUMS, trainer_of, write_parent

from sage.method.guides import BranchGuide
from sage.policies import load_model
from sage.runtime.files import atomic_directory
from sage.runtime.manifest import Manifest
from sage.study import RL, SFT, Algorithm
from sage.training import rl, sft
from sage.training.examples import Solution
from sage.training.processes import rank, run, world_size
from sage.training.rewards import READS_ANSWER
from sage.training.trainer import SageTrainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DRAW = SageTrainer._generate_single_turn
PROBLEMS = [replace(problem, hint=problem.answer) for problem in SUMS]
SETTINGS = RL.model_validate(
    SMALL.model_dump() | {"sampling": {"temperature": 1.0, "max_tokens": 12}, "checkpoint_every": 2}
)
# What is compared: each row has something of its own that a split could change.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo_random": (ROWS["grpo_random"], {}),
    "grpo_branch": (ROWS["grpo_branch"], {"micro_batches": 2}),
    "grpo_token": (ROWS["grpo_token"], {"micro_batches": 4}),
    "dapo_full": (ROWS["dapo_full"] | {"rewards": ["correct"]}, {"prompts_per_step": 3}),
    "bnpo_beta": (ROWS["bnpo_beta"], {}),
    "grpo_entropy": (ROWS["grpo_entropy"] | {"entropy_bonus": 0.5}, {}),
    "full": (ROWS["grpo_branch"], {"lora": None}),
    "grpo_token_k1_reward": (derived("grpo_k1_reward", guide="token"), {"prompts_per_step": 3}),
    "grpo_branch_k1_reward": (ROWS["grpo_branch_k1_reward"], {"micro_batches": 2}),
    "steer": (ROWS["steer"], {"iterations": 2}),
    "pacs": (ROWS["pacs"], {"prompts_per_step": 3, "iterations": 2}),
    "grpo_learned": (
        ROWS["grpo_learned"] | {"guide": {"kind": "learned", "settings": {"learning_rate": 0.1}}},
        {"micro_batches": 2},
    ),
    "verl_rank": (
        ROWS["verl_rank"] | {"credit": {"kind": "verl_rank", "settings": {"every": 3}}},
        {"micro_batches": 4},
    ),
    "rlpr": (ROWS["rlpr"], {}),
    "dars_branch": (derived("dars", guide="branch"), {"prompts_per_step": 3}),
    "guided_retry_branch": (derived("guided_retry", guide="branch"), {"micro_batches": 2}),
}


ACCUMULATED = [
    (f"{loss}_{parts}", parts, {**ROWS["grpo_branch"], "loss": loss})
    for loss in ("grpo", "dapo", "dr_grpo")
    for parts in (1, 2)
]
"""Runs in which each process accumulates so many parts, as a script of one's own has it."""


def rollouts(prompts: list[Any], trainer: SageTrainer) -> dict[str, Any]:
    """Completions of 3 to 12 tokens that follow from the prompt and the place in the group."""
    ends = trainer.eos_token_ids
    completions = []
    for row, prompt in enumerate(prompts):
        place = (trainer.accelerator.process_index * len(prompts) + row) % trainer.num_generations
        name = f"{prompt}|{place}".encode()
        rng = random.Random(hashlib.sha256(name).digest())
        length = rng.randint(3, 12)
        ids = [rng.randrange(20, 200) for _ in range(length)]
        completions.append(ids if length == 12 else [*ids[:-1], ends[0]])
    ids = trainer._tokenize_prompts(prompts)[0]
    return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}


def whole(weight: torch.Tensor) -> torch.Tensor:
    """All of a weight that processes may hold parts of."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight


def third(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """1 for a third of the lengths, so that some groups have no gradient."""
    return [float(len(ids) % 3 == 0) for ids in completion_ids]


def third_and_prior(
    completion_ids: list[list[int]], prior_probability: list[float], **_: Any
) -> list[float]:
    """As `third`, with what the policy thinks of the gold answer added."""
    graded = third(completion_ids)
    return [one + prior for one, prior in zip(graded, prior_probability, strict=True)]


vars(third_and_prior)[READS_ANSWER] = True


def train_cases(parent: Path, output: Path) -> None:
    """Train every case; the first process writes what was logged and the weights."""
    torch.set_num_threads(1)
    cases = [(name, row, changes, 0) for name, (row, changes) in CASES.items()]
    for name, row, changes, parts in [*cases, *((n, row, {}, p) for n, p, row in ACCUMULATED)]:
        settings = RL.model_validate(SETTINGS.model_dump() | changes)
        algorithm = Algorithm.model_validate(row)
        shaping = rl.shaping_of(algorithm)
        if isinstance(shaping.guide, BranchGuide):  # the entropies of this model are high
            shaping = replace(shaping, guide=BranchGuide(ratio=0.3, threshold=5.0))
        trainer = trainer_of(
            parent,
            PROBLEMS,
            settings,
            algorithm,
            output / "x",
            reward=third_and_prior if name == "rlpr" else third,
            rollout_func=rollouts,
            shaping=shaping,
            micro_batches=None if parts else settings.micro_batches,
            trl=parts
            and {
                "gradient_accumulation_steps": parts,
                "steps_per_generation": parts,
                "per_device_train_batch_size": 16 // parts // world_size(),
            },
        )
        trainer.train()
        weights = {n: whole(p.detach()).clone() for n, p in trainer.model.named_parameters()}
        if rank() == 0:
            log = [entry for entry in trainer.state.log_history if "loss" in entry]
            output.mkdir(parents=True, exist_ok=True)
            torch.save((log, weights), output / f"{name}.pt")


EXAMPLES = (24, 23, 22, 21)
"""Of SFT in batches of 4: with no smaller last batch, and with each."""


def fine_tune(parent: Path, output: Path, examples: int) -> None:
    settings = SFT.model_validate(
        {"epochs": 2, "batch_size": 4, "max_tokens": 96, "learning_rate": 1e-2, "warmup_steps": 0}
        | {"weight_decay": 0.0, "lora": {"rank": 4, "alpha": 8}, "seed": 1}
    )
    solutions = [Solution(p.problem, "so " * len(p.answer), p.answer) for p in PROBLEMS[:examples]]
    scratch = output.with_name(output.name + "_scratch")
    sft.fine_tune(parent, solutions, settings, "cpu", scratch, output, Manifest({}, 1, time.time()))


def train(parent: Path, output: Path, **changes: Any) -> None:
    """`train_rl` with its own sampling; notes which process writes results, and what is drawn."""
    torch.set_num_threads(1)

    def drawing(self: SageTrainer, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        drawn = DRAW(self, prompts, *args, **kwargs)
        first = self._shares.first(len(prompts))
        with open(output.with_name(f"{output.name}_drawn{rank()}"), "a") as file:
            for row, ids in enumerate(drawn[0]):
                file.write(json.dumps([self.state.global_step, first + row, ids]) + "\n")
        return drawn

    SageTrainer._generate_single_turn = drawing

    def noted(path: Path) -> Any:
        with open(output.with_name(output.name + "_writers"), "a") as file:
            file.write(f"{rank()} {path.name}\n")
        return atomic_directory(path)

    rl.atomic_directory = noted
    rl.train_rl(
        parent,
        PROBLEMS,
        SETTINGS.model_copy(update=changes),
        Algorithm.model_validate(ROWS["grpo_random"]),
        seed=1,
        device="cpu",
        scratch=output.with_name(output.name + "_scratch"),
        output=output,
        manifest=Manifest({}, 1, time.time()),
        snapshots=2,
    )


def everything(parent: Path, output: Path) -> None:
    train_cases(parent, output / "cases")
    for examples in EXAMPLES:
        fine_tune(parent, output / f"sft{examples}", examples)
    train(parent, output / "whole")
    train(parent, output / "full", lora=None)


def drawn(output: Path, name: str) -> list[Any]:
    """What all processes drew in a run: step, place and tokens, in this order."""
    files = output.glob(f"{name}_drawn*")
    return sorted(json.loads(line) for file in files for line in file.open())


def die_at_the_fourth_step(parent: Path, output: Path, **changes: Any) -> None:
    step = SageTrainer.training_step

    def dying(self: SageTrainer, *arguments: Any) -> torch.Tensor:
        if self.state.global_step == 3 and rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments)

    SageTrainer.training_step = dying
    train(parent, output, **changes)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_parent(tmp_path_factory.mktemp("parent") / "base", PROBLEMS)


@pytest.fixture(scope="module")
def two(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes make of everything, in one launch."""
    output = tmp_path_factory.mktemp("two")
    run(2, everything, parent, output)
    return output


@pytest.fixture(scope="module")
def one(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("one")
    threads = torch.get_num_threads()
    run(1, train_cases, parent, output / "cases")
    for examples in EXAMPLES:
        run(1, fine_tune, parent, output / f"sft{examples}", examples)
    with (
        patch.object(SageTrainer, "_generate_single_turn", DRAW),
        patch.object(rl, "atomic_directory", atomic_directory),
    ):
        run(1, train, parent, output / "whole")
        run(1, train, parent, output / "full", lora=None)
    torch.set_num_threads(threads)
    return output


@pytest.mark.parametrize("case", CASES)
def test_two_processes_compute_what_one_computes(one: Path, two: Path, case: str) -> None:
    (log, weights), (log_of_two, weights_of_two) = (
        torch.load(run / f"cases/{case}.pt") for run in (one, two)
    )
    assert len(log) == SETTINGS.steps
    for left, right in zip(log, log_of_two, strict=True):
        compared = {"loss", "grad_norm", "reward", "learning_rate", "num_tokens", "refills"}
        compared |= {"drawn_tokens", "extra_rollouts", "zero_advantages", "guided_correct"}
        compared |= {name for name in left if name.startswith("sage/")} | {
            "step/kl",
            "step/entropy",
        }
        if CASES[case][1].get("micro_batches", 1) == 1:  # else TRL averages it over other parts
            compared |= {"reward_std", "completions/clipped_ratio"}
        assert left.keys() == right.keys()
        for name in compared & left.keys():
            assert right[name] == pytest.approx(left[name], rel=2e-4, abs=2e-6), name
    assert sum(entry["grad_norm"] > 1e-3 for entry in log) >= 3
    assert any(entry.get("sage/q_max", 2.0) > 1.0 for entry in log)
    if case == "dapo_full":
        assert any(entry["refills"] > 0 for entry in log)
    if case in ("dars_branch", "guided_retry_branch"):
        assert any(entry["extra_rollouts"] > 0 for entry in log)
    for name, weight in weights.items():
        torch.testing.assert_close(weights_of_two[name], weight, rtol=1e-3, atol=2e-5)


def of_parts(name: str) -> bool:
    """Whether TRL logs a mean over micro-batches, which depends on how a step is cut."""
    return name in ("kl", "entropy") or name.startswith("clip_ratio/")


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo"])
def test_processes_and_accumulated_parts_change_no_number_of_a_log(
    one: Path, two: Path, loss: str
) -> None:
    """All that is logged, and the weights: data order, statistics of groups and means agree."""
    log, weights = torch.load(one / f"cases/{loss}_1.pt")
    assert sum(entry["grad_norm"] > 1e-3 for entry in log) >= 3
    for run_, parts in ((one, 2), (two, 1), (two, 2)):
        other_log, other_weights = torch.load(run_ / f"cases/{loss}_{parts}.pt")
        for left, right in zip(log, other_log, strict=True):
            assert left.keys() == right.keys()
            for name in (name for name in left if "time" not in name and not of_parts(name)):
                assert right[name] == pytest.approx(left[name], rel=2e-4, abs=2e-6), name
        for name, weight in weights.items():
            torch.testing.assert_close(other_weights[name], weight, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_fine_tuning_in_two_processes_gives_the_weights_of_one(
    one: Path, two: Path, examples: int
) -> None:
    weights, weights_of_two = (
        load_file(run / f"sft{examples}/model.safetensors") for run in (one, two)
    )
    for name, weight in weights.items():
        torch.testing.assert_close(weights_of_two[name], weight, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", ["whole", "full"])
def test_two_processes_draw_what_one_draws(one: Path, two: Path, name: str) -> None:
    alone, together = drawn(one, name), drawn(two, name)
    assert [(step, place) for step, place, _ in alone] == list(product(range(4), range(16)))
    assert len({tuple(ids) for _, _, ids in alone}) > 60
    assert together == alone


def test_only_the_first_process_writes(two: Path) -> None:
    assert (two / "whole_writers").read_text() == "0 step2\n0 step4\n0 whole\n"
    manifest = json.loads((two / "whole/manifest.json").read_text())
    assert manifest["settings"]["processes"] == 2
    history = [json.loads(line) for line in (two / "whole/history.jsonl").open()]
    # Tokens of both: 64 completions of up to 12 tokens, and their prompts of some 20.
    lengths = sum(16 * row["mean_length"] for row in history)
    assert lengths < history[-1]["tokens"] == manifest["tokens"]
    assert not (two / "whole_scratch").exists()


def test_a_policy_in_parts_is_written_whole(parent: Path, two: Path) -> None:
    before, trained, last = (
        load_model(folder).state_dict()
        for folder in (parent, two / "full", two / "full/snapshots/step4")
    )
    assert before.keys() == trained.keys()
    assert all(before[name].shape == trained[name].shape for name in before)
    assert any(not torch.equal(before[name], trained[name]) for name in before)
    assert all(torch.equal(last[name], trained[name]) for name in before)
    assert (two / "full_writers").read_text() == "0 step2\n0 step4\n0 full\n"


def test_a_killed_process_ends_the_job_and_a_new_one_goes_on(
    parent: Path, two: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    others = set(psutil.Process().children())
    with pytest.raises(RuntimeError, match="process 1 was ended by SIGKILL"):
        run(2, die_at_the_fourth_step, parent, output, lora=None)
    assert set(psutil.Process().children()) <= others
    assert not output.exists()
    assert (tmp_path / "run_scratch/checkpoint-2").is_dir()
    run(2, train, parent, output, lora=None)
    resumed, whole = (load_file(run / "model.safetensors") for run in (output, two / "full"))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_an_error_in_a_process_is_the_error_of_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"of 2 processes .* failed with exit status 1"):
        run(2, os.listdir, "/no such folder")
    assert "FileNotFoundError" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")
def test_no_process_outlives_a_killed_job() -> None:
    code = "import time; from sage.training.processes import run; run(2, time.sleep, 1000)"
    job = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    limit = time.monotonic() + 120
    while len(workers := psutil.Process(job.pid).children()) < 2 and time.monotonic() < limit:
        time.sleep(0.1)
    assert len(workers) == 2
    job.kill()
    job.wait()
    assert not psutil.wait_procs(workers, timeout=60)[1]


def test_a_step_that_cannot_be_shared_is_refused() -> None:
    def parts(processes: int, **changes: int) -> int:
        return SETTINGS.model_copy(update=changes).micro_batches_each(processes)

    assert [parts(n, micro_batches=4) for n in (1, 2, 4, 8)] == [4, 2, 1, 1]
    with pytest.raises(ValueError, match=r"3 GPUs .* prompts_per_step x rollouts = 16"):
        parts(3)
    with pytest.raises(ValueError, match="one must be a multiple of the other"):
        parts(2, micro_batches=3, prompts_per_step=3)
    few = SFT.model_construct(batch_size=6)
    assert [sft.processes_for(few, n) for n in (1, 2, 4, 8)] == [1, 2, 3, 6]
