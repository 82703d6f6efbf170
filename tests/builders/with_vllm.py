"""What tests of vLLM share: where they are skipped, a policy that adds, engines that are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny

from sage.policies import build_tiny, save_checkpoint, train_tokenizer
from sage.prompting import prompt_ids
from sage.sampling import vllm_engine
from sage.sampling.interface import Sampler, engine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PRECISION = "bfloat16" if DEVICE == "cuda" else "float32"
"""Of an adapter in vLLM: its kernels for GPUs take 16 bits alone."""

_MARKS = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make test-vllm"),
]
both_engines = pytest.mark.parametrize(
    "engine", ["transformers", pytest.param("vllm", marks=_MARKS)]
)


def needs_vllm(test: Callable[..., None]) -> Callable[..., None]:
    """Skip a test, with the reason, where vLLM is not installed."""
    for mark in _MARKS:
        test = mark(test)
    return test


ARCHITECTURE = tiny(hidden_size=64, intermediate_size=128)
SUMS = {f"{a}+{b}": str(a + b) for a in range(10) for b in range(10)}
PROBLEMS = list(SUMS)


def write_base(folder: Path) -> Path:
    """Make a checkpoint whose completions end with the closing tag and the end of text, mostly."""
    texts = [f"{p[0]}{p[2]}: {total}. </SOLUTION><|endoftext|>" for p, total in SUMS.items()]
    tokenizer = train_tokenizer(texts, ARCHITECTURE.vocab_size)
    model = build_tiny(ARCHITECTURE, tokenizer, seed=0)
    rows = [
        [*prompt_ids(tokenizer, problem), *tokenizer.encode(text, add_special_tokens=False)]
        for problem, text in zip(PROBLEMS, texts, strict=True)
    ]
    batch = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    save_checkpoint(model, tokenizer, folder)
    return folder


# Several engines in one process are a thing of tests: vLLM takes down what they share when one of
# them is collected, so all are kept.
KEPT: list[Sampler] = []


def open_and_keep(*arguments: Any) -> Sampler:
    """A sampler of an engine; on a GPU, which several engines share, each takes a little of it."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cuda":
            limits = {"gpu_memory_utilization": 0.08, "enforce_eager": True}
            small = partial(vllm_engine.VllmSampler, limits=limits)
            patch.setattr(vllm_engine, "VllmSampler", small)
        KEPT.append(engine(arguments[3].engine).open_sampler(*arguments))
    return KEPT[-1]
