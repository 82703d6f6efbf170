"""The vLLM engine compared with a direct call of `LLM.generate`, in tokens per second.

And an adapter that is merged into the weights compared with one that stays beside them.

The first two use one `LLM` and the same prompts, stops and seeds, so the comparison measures the
overhead of this project's code. The overhead of the seeds is printed too. The CPU build draws the
random numbers of each completion in a loop, which is visible with such a tiny model (random
weights, one token in twenty ends a completion). On GPUs the sampling kernel always takes a seed.

It runs in a separate process with one thread. Without a GPU, processor seconds of this process are
measured: on a busy machine wall-clock time mostly shows the load of other programs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.paired import Comparison

ROOT = Path(__file__).resolve().parents[1]
PROBLEMS, SAMPLES, BATCH, ROUNDS = 8, 64, 256, 15


def comparisons() -> Iterator[Comparison]:
    """Tokens per second for equal work; without vLLM a message and no comparison."""
    if find_spec("vllm") is None:
        print("vllm: left out, because vLLM is not installed here (make bench-vllm installs it)")
        return
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.vllm"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, list[tuple[float, float]]] = json.loads(done.stdout.splitlines()[-1])
    seeds = statistics.median(seeded / without for seeded, without in found["seeds"])
    print(f"vllm: with seeds per completion, direct calls reach {seeds:.2f} of their speed without")
    for name, key, limit in (
        ("the vLLM engine against a bare call of LLM.generate", "ours", "at least 0.95"),
        ("an adapter merged against one beside the weights in vLLM", "merged", "at least 1.0"),
    ):
        pairs = found[key]
        own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(one / two for one, two in pairs)
        yield Comparison(name, ratio, limit, own, other, len(pairs), "tokens/s")


def measure(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Tokens per second of (our engine, direct calls), of direct calls (with, without) seeds, and
    with an adapter (merged, beside); `folder` is for checkpoints.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from vllm import SamplingParams

    from benchmarks.random_policy import random_policy
    from sage.policies import load_policy, save_checkpoint
    from sage.prompting import prompt_ids
    from sage.sampling.interface import Request
    from sage.sampling.vllm_engine import VllmSampler, seed_of
    from sage.study import Sampling

    settings = Sampling(temperature=1.0, max_tokens=64)
    dtype = "float32" if _device() == "cpu" else "bfloat16"
    base, adapter, whole = (folder / part for part in ("base", "adapter", "merged"))
    model, tokenizer = random_policy(hidden_size=128)
    save_checkpoint(model, tokenizer, base)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=targets, init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(adapter)
    policy: Any = load_policy(base, adapter, torch.float32, "cpu")
    save_checkpoint(policy.to(getattr(torch, dtype)), tokenizer, whole)
    common = (tokenizer, base, _device(), dtype, BATCH)
    limits = {} if _device() == "cpu" else {"gpu_memory_utilization": 0.2}
    sampler = VllmSampler(base, *common, limits=limits)
    beside = VllmSampler(base, *common, adapter=adapter, limits=limits)
    merged = VllmSampler(whole, *common, limits=limits)
    llm: Any = sampler._llm
    prompts = [prompt_ids(tokenizer, f"Calculate {i}+{i * i}.") for i in range(PROBLEMS)]
    requests = [
        Request(tuple(prompt), f"{i}/{j}")
        for i, prompt in enumerate(prompts)
        for j in range(SAMPLES)
    ]
    direct = {
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "stop": settings.stop,
        "stop_token_ids": model.generation_config.eos_token_id,
    }

    def drawn(engine: VllmSampler) -> int:
        return sum(completion.n_tokens for completion in engine.sample(requests, settings))

    def bare(prompts: list[list[int]], parameters: Any) -> int:
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = llm.generate(asked, parameters, use_tqdm=False)
        return sum(len(one.token_ids) for output in outputs for one in output.outputs)

    def seeded() -> int:
        return bare(
            [list(request.prompt_ids) for request in requests],
            [SamplingParams(seed=seed_of(request.stream), **direct) for request in requests],
        )

    def unseeded() -> int:
        return bare(prompts, SamplingParams(n=SAMPLES, **direct))

    return {
        "ours": _in_turn(lambda: drawn(sampler), seeded),
        "seeds": _in_turn(seeded, unseeded),
        "merged": _in_turn(lambda: drawn(merged), lambda: drawn(beside)),
    }


def _device() -> str:
    """The kind of device of the installed build of vLLM."""
    from vllm.platforms import current_platform

    return str(current_platform.device_type)


def _in_turn(one: Callable[[], int], other: Callable[[], int]) -> list[tuple[float, float]]:
    """Time both in turn. The order alternates from round to round; the first round is a warm-up."""
    pairs = []
    for turn in range(ROUNDS + 1):
        if turn % 2:
            second = _tokens_per_second(other)
            pairs.append((_tokens_per_second(one), second))
        else:
            pairs.append((_tokens_per_second(one), _tokens_per_second(other)))
    return pairs[1:]


def _tokens_per_second(call: Callable[[], int]) -> float:
    clock = time.process_time if _device() == "cpu" else time.perf_counter
    start = clock()
    tokens = call()
    return tokens / (clock() - start)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measure(Path(name))))
