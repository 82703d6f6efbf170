"""What tests of sampling share: a random tiny model, prompts for it, and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from tiny_models import write_tiny

from sage.policies import load_model, load_tokenizer
from sage.prompting import prompt_ids
from sage.sampling.interface import Completion, Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Sampling


def sampling(**settings: object) -> Sampling:
    return Sampling(**{"temperature": 1.0, "max_tokens": 12, **settings})  # type: ignore[arg-type]


LETTERS = sampling(stop=["e", "lcu", "</SOLUTION>"], max_tokens=24)


@contextmanager
def in_one_thread() -> Iterator[None]:
    """One thread, so that two processes sum in one order, whatever else the machine does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def write_base(folder: Path) -> Path:
    """A checkpoint with random weights: any text, of any length."""
    texts = (f"Calculate {i}+{i % 7}. The sum." for i in range(200))
    return write_tiny(folder, texts, seed=1, vocab_size=320)


def requests_of(base: Path) -> list[Request]:
    """Prompts of several lengths, several samples each."""
    tokenizer = load_tokenizer(base)
    problems = ["Calculate 1+2.", "Calculate 1+2-3+4-5.", "Calculate 7-9+1."]
    prompts = [tuple(prompt_ids(tokenizer, problem)) for problem in problems]
    return [Request(prompt, f"{i}/{j}") for i, prompt in enumerate(prompts) for j in range(24)]


def sample(
    base: Path, requests: Sequence[Request], batch_size: int, settings: Sampling = LETTERS
) -> list[Completion]:
    sampler = TransformersSampler.from_model(load_model(base), load_tokenizer(base), batch_size)
    return sampler.sample(requests, settings)
