"""Models of real size with random weights, trained and drawn from through vLLM on a GPU.

Without a GPU the same is done with a tiny model, which checks the tests. `make test-gpu` keeps what
is measured; `make test-vllm` runs them with the tiny model.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from trainers import odd_sum
from transformers import Qwen2Config, Qwen2ForCausalLM
from with_vllm import DEVICE, KEPT, PRECISION, PROBLEMS, both_engines, needs_vllm

from sage.policies import load_model, load_tokenizer, save_checkpoint, train_tokenizer
from sage.problems.record import Problem
from sage.sampling.interface import Completion, Request
from sage.sampling.vllm_engine import VllmSampler
from sage.study import RL, Algorithm, LoRA, Sampling
from sage.training import rl
from sage.training.adapters import lora_config
from sage.training.drawers import drawer_for
from sage.training.trainer import SageTrainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Hidden size, intermediate size, layers, heads, key-value heads, vocabulary: as Qwen2.5 has them.
TINY = (64, 128, 2, 2, 1, 500)
SHAPES = {
    "1.5B": (1536, 8960, 28, 12, 2, 151_936),
    "7B": (3584, 18_944, 28, 28, 4, 152_064),
}
LORA = LoRA(rank=8, alpha=16)
PROMPT = 40
"""More tokens than any prompt of these tests has."""

Record = Callable[[str, object], None]


def write_random(folder: Path, shape: str, seed: int = 0) -> Path:
    """A checkpoint with random weights; without a GPU it is tiny, whatever its shape is called."""
    hidden, intermediate, layers, heads, groups, vocabulary = (
        SHAPES[shape] if DEVICE == "cuda" else TINY
    )
    tokenizer = train_tokenizer(PROBLEMS, 300)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=4096,
        tie_word_embeddings=shape == "1.5B",
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=PRECISION,
    )
    torch.manual_seed(seed)
    with torch.device(DEVICE):
        model = Qwen2ForCausalLM._from_config(config, dtype=getattr(torch, PRECISION))
    save_checkpoint(model, tokenizer, folder)
    del model
    torch.cuda.empty_cache()
    return folder


def trained(
    base: Path, steps: int, prompts: int, tokens: int, engine: str = "vllm"
) -> list[dict[str, Any]]:
    """What is logged of steps of `prompts` times 8 completions drawn with `engine`."""
    settings = RL.model_validate(
        {
            "problems": "sums",
            "steps": steps,
            "prompts_per_step": prompts,
            "rollouts": 8,
            "micro_batches": prompts,
            "sampling": {"temperature": 1.0, "max_tokens": tokens},
            "engine": engine,
            "learning_rate": 1e-4,
            "schedule": "constant",
            "warmup_ratio": 0.0,
            "weight_decay": 0.0,
            "kl_coefficient": 0.05,
            "lora": LORA,
            "precision": PRECISION,
            "gradient_checkpointing": True,
        }
    )
    row = Algorithm(title="x", loss="grpo", kl="reverse", estimator="k3")
    config = rl.grpo_config(settings, row, 1, DEVICE, base.with_name("scratch"))
    config.save_strategy, config.reward_weights = "no", None
    model = load_model(base, rl.weights_dtype(settings))
    trainer = SageTrainer(
        model=model,
        reward_funcs=[odd_sum],
        args=config,
        train_dataset=rl.prompt_dataset(
            [Problem(p, p, "0", "math", "1", "test", "0") for p in PROBLEMS]
        ),
        processing_class=load_tokenizer(base),
        peft_config=lora_config(LORA),
        make_drawer=drawer_for(settings, model, base, sharded=False, longest_prompt=PROMPT),
        correction=rl.correction_of(settings),
        trims=True,
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def matmul_rate() -> float:
    """Operations a second that a large product in this precision reaches on this GPU."""
    left = torch.randn(8192, 8192, device=DEVICE, dtype=getattr(torch, PRECISION))
    for turn in range(12):
        if turn == 2:
            torch.cuda.synchronize()
            start = time.perf_counter()
        left @ left
    torch.cuda.synchronize()
    return 10 * 2 * 8192**3 / (time.perf_counter() - start)


def record_step(record: Record, base: Path, rows: list[dict[str, Any]], completions: int) -> None:
    """Keep time, speed and memory of the steps after the first, which compiles and opens vLLM."""
    seconds = [row["step_time"] for row in rows][len(rows) > 1 :]
    step = sum(seconds) / len(seconds)
    tokens = completions * rows[-1]["completions/mean_length"]
    record("seconds a step", f"{step:.2f}")
    record("tokens a second, drawn and learnt from", f"{tokens / step:.0f}")
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    record("peak memory of the process", f"{host / 1e9:.1f} GB")
    if DEVICE == "cuda":
        record("peak memory that torch held", f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB")
        count = sum(path.stat().st_size for path in base.glob("*.safetensors")) / 2
        # 2 operations a weight and token to draw, 2 for the reference, and 2 + 2 + 2 for the loss,
        # its layers computed anew, and the gradient of activations.
        share = 10 * count * tokens / step / matmul_rate()
        record("share of the rate of a large product", f"{share:.1%}")


@needs_vllm
def test_six_steps_of_1_5b_draw_from_the_policy_that_is_trained(
    tmp_path: Path, record_property: Record
) -> None:
    base = write_random(tmp_path / "base", "1.5B")
    rows = trained(base, steps=6, prompts=2, tokens=512 if DEVICE == "cuda" else 16)
    gaps = [row["sampler/gap_mean"] for row in rows]
    record_property("mean gap of sampler and trainer in nats", [f"{gap:.2g}" for gap in gaps])
    record_step(record_property, base, rows, completions=16)
    assert len(gaps) == 6
    assert max(gaps) < (0.05 if DEVICE == "cuda" else 1e-4)
    assert rows[-1]["kl"] > 0.0  # the adapter acts


def sleeping_engine(base: Path, adapter: Path | None = None) -> VllmSampler:
    """vLLM with two fifths of a GPU, which it can give back; it is kept, as `with_vllm` says."""
    sleeps = {"enable_sleep_mode": True, "gpu_memory_utilization": 0.4}
    engine = VllmSampler(
        checkpoint=base,
        tokenizer=load_tokenizer(base),
        tokenizer_folder=base,
        device=DEVICE,
        dtype=PRECISION,
        batch_size=16,
        adapter=adapter,
        progress=False,
        longest=PROMPT + 64,
        limits=sleeps if DEVICE == "cuda" else {},
    )
    KEPT.append(engine)
    return engine


def rest(engine: VllmSampler) -> None:
    if DEVICE == "cuda":
        engine.sleep()


@needs_vllm
def test_greedy_draws_are_the_same_after_three_sleeps(
    tmp_path: Path, record_property: Record
) -> None:
    base, adapter = write_random(tmp_path / "base", "1.5B"), tmp_path / "adapter"
    torch.manual_seed(1)
    policy: Any = get_peft_model(load_model(base), lora_config(LORA))
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0.0, 0.1)
    policy.save_pretrained(adapter)
    del policy
    sampler = sleeping_engine(base, adapter)
    greedy = Sampling(temperature=1.0, top_k=1, max_tokens=64, stop=[])
    requests = [Request((1 + i, 2, 3), str(i)) for i in range(16)]
    first, free = sampler.sample(requests, greedy), []
    for _ in range(3):
        if DEVICE == "cuda":
            rest(sampler)
            free.append(torch.cuda.mem_get_info()[0] / 1e9)
            sampler.wake()
        sampler.adopt(adapter)
        assert sampler.sample(requests, greedy) == first
    record_property("free memory after each sleep, GB", [f"{each:.1f}" for each in free])
    assert not free or max(free) - min(free) < 0.5


@needs_vllm
def test_two_engines_draw_in_turn(tmp_path: Path, record_property: Record) -> None:
    """One sleeps while the other draws; neither changes what the other draws."""
    greedy = Sampling(temperature=1.0, top_k=1, max_tokens=64, stop=[])
    requests = [Request((1 + i, 2, 3), str(i)) for i in range(16)]
    engines: list[VllmSampler] = []
    drawn: list[list[Completion]] = []
    for seed in (0, 1):
        base = write_random(tmp_path / f"base{seed}", "1.5B", seed)
        engines.append(sleeping_engine(base))
        drawn.append(engines[-1].sample(requests, greedy))
        rest(engines[-1])
    assert drawn[0] != drawn[1]
    for turn in range(4):
        engine = engines[turn % 2]
        if DEVICE == "cuda":
            engine.wake()
        assert engine.sample(requests, greedy) == drawn[turn % 2]
        rest(engine)
    if DEVICE == "cuda":
        free = torch.cuda.mem_get_info()[0]
        record_property("free memory while both sleep, GB", f"{free / 1e9:.1f}")


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="torch sees no GPU here")
@both_engines
def test_a_step_of_7b_fits(tmp_path: Path, engine: str, record_property: Record) -> None:
    base = write_random(tmp_path / "base", "7B")
    rows = trained(base, steps=2, prompts=1, tokens=512, engine=engine)
    record_step(record_property, base, rows, completions=8)
    assert max(row["sampler/gap_mean"] for row in rows) < 0.05
