"""Training that draws with vLLM, from each step's own adapter; and jobs that are killed and go on.

`make test-vllm` runs these tests; without vLLM they are skipped.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from scipy.stats import ks_2samp
from transformers import TrainerCallback
from with_vllm import DEVICE, KEPT, PRECISION, PROBLEMS, SUMS, needs_vllm, write_base

from sage.policies import load_model, load_tokenizer
from sage.problems.record import Problem
from sage.prompting import SOLUTION_CLOSE, prompt_ids
from sage.sampling.interface import Completion, Request
from sage.sampling.probe import AdapterLost
from sage.sampling.vllm_engine import VllmSampler
from sage.study import RL, Algorithm, LoRA, Sampling
from sage.training import rl
from sage.training.adapters import lora_config
from sage.training.credit import SamplerFault
from sage.training.drawers import drawer_for
from sage.training.trainer import SageTrainer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("vllm") / "base")


TRAINING = {"problems": "sums", "steps": 4, "prompts_per_step": 16, "rollouts": 8} | {
    "sampling": {"temperature": 1.0, "max_tokens": 16},
    "learning_rate": 1e-3,
    "schedule": "linear",
    "warmup_ratio": 0.0,
    "weight_decay": 0.0,
    "kl_coefficient": 0.05,
    "lora": {"rank": 4, "alpha": 8},
    "checkpoint_every": 100,
    "precision": PRECISION,
}
GAP_MEAN, GAP_MAX = (1e-5, 1e-3) if DEVICE == "cpu" else (0.05, 2.0)
"""Largest gaps of sampler and trainer in nats, in float32 or 16 bits."""


class Preferring(TrainerCallback):
    """Before each step makes an adapter under which completions begin with that step's letter."""

    def __init__(self, base: Path) -> None:
        tokenizer = load_tokenizer(base)
        self.letters = tokenizer.convert_tokens_to_ids(list("robl"))
        rows = [prompt_ids(tokenizer, problem) for problem in PROBLEMS]
        self._prompts = torch.tensor(rows, device=DEVICE)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, letter = kwargs["model"], self.letters[state.global_step]
        ups = [weight for name, weight in model.named_parameters() if "lora_B" in name]
        for weight in ups:
            weight.data.zero_()
        optimizer, loss = torch.optim.Adam(ups, lr=0.05), torch.tensor(1.0)
        for _ in range(200):
            if loss < 0.05:
                break
            logits = model(self._prompts).logits[:, -1]
            loss = -logits.log_softmax(dim=-1)[:, letter].mean()
            model.zero_grad()
            loss.backward()
            optimizer.step()
        model.zero_grad()


def trained(
    base: Path, engine: str, callbacks: Sequence[TrainerCallback] | None = None
) -> tuple[list[dict[str, Any]], list[list[list[int]]], SageTrainer]:
    """Steps of training with the engine: what was logged, and each step's rollouts.

    By default each step's adapter prefers another letter (`Preferring`).
    """
    settings = RL.model_validate(TRAINING | {"engine": engine})
    row = Algorithm(title="x", loss="grpo", kl="reverse", estimator="k3")
    config = rl.grpo_config(settings, row, 1, DEVICE, base.with_name("scratch"), longest_prompt=40)
    config.save_strategy = "no"
    problems = [Problem(p, p, SUMS[p], "math", "1", "test", "0") for p in PROBLEMS]
    rollouts: list[list[list[int]]] = []

    def closed(completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        rollouts.append(completion_ids)
        return [float(c[0]["content"].endswith(SOLUTION_CLOSE)) for c in completions]

    model = load_model(base, rl.weights_dtype(settings))
    trainer = SageTrainer(
        model=model,
        reward_funcs=[closed],
        args=config,
        train_dataset=rl.prompt_dataset(problems),
        processing_class=load_tokenizer(base),
        peft_config=lora_config(LoRA(rank=4, alpha=8)),
        stop_texts=settings.sampling.stop,
        make_drawer=drawer_for(settings, model, base, sharded=False, longest_prompt=40),
        correction=rl.correction_of(settings),
        callbacks=[Preferring(base)] if callbacks is None else list(callbacks),
    )
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    trainer.train()
    KEPT.append(trainer._draws.drawer._sampler)  # type: ignore[union-attr]
    return [row for row in trainer.state.log_history if "loss" in row], rollouts, trainer


@needs_vllm
def test_vllm_draws_each_step_from_the_adapter_of_that_step(base: Path) -> None:
    """Completions begin as that step's adapter prefers; their log-probs are the policy's then."""
    rows, rollouts, trainer = trained(base, "vllm")
    assert len(rows) == 4
    for row, drawn, letter in zip(rows, rollouts, Preferring(base).letters, strict=True):
        assert len(drawn) == 128
        assert sum(ids[0] == letter for ids in drawn) > 110  # of 122 expected
        assert row["kl"] > 0.01  # nats: what the adapter does is much larger than the gap
        assert row["sampler/gap_mean"] < GAP_MEAN
        assert row["sampler/gap_max"] < GAP_MAX
    kept = load_model(base, getattr(torch, PRECISION)).state_dict()
    policy = trainer.model.get_base_model().state_dict()
    weights = {name.replace("base_layer.", ""): weight.cpu() for name, weight in policy.items()}
    assert all(torch.equal(weights[name], weight) for name, weight in kept.items())
    # The same policies, drawn by transformers: the same lengths and rewards but for chance.
    others, other_rollouts, _ = trained(base, "transformers")
    for step in range(4):
        lengths = [[*map(len, drawn[step])] for drawn in (rollouts, other_rollouts)]
        assert ks_2samp(*lengths).pvalue > 1e-3
        shares = rows[step]["reward"], others[step]["reward"]
        assert abs(shares[0] - shares[1]) < 4 * math.sqrt(2 * 0.25 / 128)


@needs_vllm
@pytest.mark.parametrize(
    ("first", "fault", "error"),
    [
        (0, "drops the adapter", AdapterLost),
        (1, "drops the adapter", AdapterLost),  # as with the first wake
        (0, "probes right, then gives no numbers", SamplerFault),
        (0, "gives no numbers", AdapterLost),
    ],
)
def test_an_engine_with_a_fault_ends_the_run_within_a_step(
    base: Path, first: int, fault: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM itself, from draw `first` on; a fresh adapter changes nothing, so only a probe tells."""
    sample, adopt, draws = VllmSampler.sample, VllmSampler.adopt, []

    def faulty(
        self: VllmSampler, requests: Sequence[Request], sampling: Sampling, log_probs: bool = False
    ) -> list[Completion]:
        KEPT.append(self)
        drawn = sample(self, requests, sampling, log_probs)
        is_probe = requests[0].stream.startswith("probe/")
        draws.extend([] if is_probe else [len(requests)])
        if "no numbers" not in fault or (is_probe and "probes right" in fault):
            return drawn
        return [replace(one, log_probs=(math.nan,) * one.n_tokens) for one in drawn]

    def lossy(self: VllmSampler, adapter: Path) -> None:
        if "drops" not in fault or len(draws) < first:
            adopt(self, adapter)
        else:
            self._adapter = None

    monkeypatch.setattr(VllmSampler, "sample", faulty)
    monkeypatch.setattr(VllmSampler, "adopt", lossy)
    with pytest.raises(error):
        trained(base, "vllm", callbacks=[])
    assert len(draws) == first + (error is SamplerFault)


JOB = """
import json, sys, time
from pathlib import Path
from sage.evaluation.samples import evaluate
from sage.problems.record import Problem
from sage.runtime.manifest import Manifest
from sage.study import RL, Algorithm, Draws
from sage.training.rl import train_rl

kind, device = sys.argv[1:3]
settings, base, folder = json.loads(sys.argv[3]), *map(Path, sys.argv[4:])
sums = [(f"{a}+{b}", str(a + b)) for a in range(8) for b in range(8)]
problems = [Problem(text, text, answer, "math", "1", "test", "0") for text, answer in sums]
manifest = Manifest({}, 1, time.time())
if kind == "rl":
    row = Algorithm(title="x", loss="grpo", kl="reverse", estimator="k3")
    settings, scratch = RL.model_validate(settings), folder / "scratch"
    train_rl(base, problems, settings, row, 1, device, scratch, folder / "policy", manifest)
else:
    settings, parts = Draws.model_validate(settings), ("tiny", "sums", 0)
    shards, output = folder / "shards", folder / "samples.parquet"
    evaluate(base, None, problems[:32], settings, device, *parts, shards, output, manifest)
"""
KILLED = {
    "rl": TRAINING | {"engine": "vllm", "steps": 8, "checkpoint_every": 1},
    "sample": {
        "samples": 16,
        "seeds": [0],
        "sampling": {"temperature": 1.0, "max_tokens": 24, "stop": []},
        "engine": "vllm",
        "batch_size": 64,
        "shard_size": 64,
    },
}
"""Settings of two jobs of 8 parts each: steps with a checkpoint, or shards of 32 x 2 samples."""


def started_job(kind: str, base: Path, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", JOB, kind, DEVICE, json.dumps(KILLED[kind]), base, folder],
            env={"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )


def parts_done(folder: Path) -> int:
    """The step of the newest whole checkpoint, or how many shards are there."""
    steps = [int(path.parent.name[11:]) for path in folder.glob("scratch/checkpoint-*/sums.json")]
    return max([*steps, len([*folder.glob("shards/*/[!.]*.parquet")])])


def results_of(folder: Path) -> list[Any]:
    """The weights and history of a training job, or the samples of the other."""
    if (samples := folder / "samples.parquet").exists():
        return [samples.read_bytes()]
    policy = folder / "policy"
    history = [json.loads(line) for line in (policy / "history.jsonl").open()]
    weights = (policy / "adapter_model.safetensors").read_bytes()
    return [weights, [{**row, "seconds": 0} for row in history]]


@needs_vllm
@pytest.mark.parametrize("kind", KILLED)
def test_a_job_killed_anywhere_ends_with_the_same_bytes(
    base: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "manifest.json").write_text("{}")
    calm, chaos = tmp_path / "calm", tmp_path / "chaos"
    assert started_job(kind, base, calm).wait() == 0, (calm / "log").read_text()
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    part, delay = rng.randint(1, 4), rng.uniform(0.0, 0.5)
    process = started_job(kind, base, chaos)
    while parts_done(chaos) < part:
        assert process.poll() is None, (chaos / "log").read_text()
        time.sleep(0.02)
    time.sleep(delay)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done = parts_done(chaos)
    with capsys.disabled():
        print(f"\n{kind}: seed {seed}, SIGKILL {delay:.2f} s after part {part}; {done} of 8 done")
    assert started_job(kind, base, chaos).wait() == 0, (chaos / "log").read_text()
    whole, resumed = results_of(calm), results_of(chaos)
    if DEVICE == "cpu":  # kernels of a GPU may add in another order, and so draw another token
        assert resumed == whole
    assert len(resumed[-1]) == len(whole[-1])
