"""The transformers engine compared with `model.generate`, one problem at a time with 64 samples.

The policy is a tiny model with random weights in which one token in twenty ends a completion, so
lengths vary like those of a trained one. The unit is tokens per second.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.paired import Comparison, compared, in_turn
from benchmarks.random_policy import random_policy
from sage.prompting import prompt_ids
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Sampling

PROBLEMS, SAMPLES, MAX_TOKENS, BATCH, ROUNDS = 40, 64, 64, 640, 5


def comparisons() -> Iterator[Comparison]:
    """Tokens per second for equal work: the same prompts, numbers of samples and settings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine threads wait for each other
    model, tokenizer = random_policy(hidden_size=96)
    problems = [f"Calculate {i % 9}+{i % 7}-{i % 5}." for i in range(PROBLEMS)]
    prompts = [tuple(prompt_ids(tokenizer, problem)) for problem in problems]
    settings = Sampling(temperature=1.0, max_tokens=MAX_TOKENS, stop=[])
    drawn: tuple[list[int], list[int]] = ([], [])

    def ours() -> None:
        asked = [Request(p, f"{i}/{j}") for i, p in enumerate(prompts) for j in range(SAMPLES)]
        completions = TransformersSampler.from_model(model, tokenizer, BATCH).sample(
            asked, settings
        )
        drawn[0].append(sum(completion.n_tokens for completion in completions))

    def generate() -> None:
        drawn[1].append(0)
        for prompt in prompts:
            ids = torch.tensor([prompt])
            mask, limit = torch.ones_like(ids), {"max_new_tokens": MAX_TOKENS, "top_k": 0}
            chosen = {"do_sample": True, "num_return_sequences": SAMPLES, **limit}
            out = model.generate(input_ids=ids, attention_mask=mask, **chosen)[:, len(prompt) :]
            drawn[1][-1] += int((out != tokenizer.pad_token_id).sum())

    try:
        times = in_turn(ours, generate, ROUNDS)
    finally:
        torch.set_num_threads(threads)
    pairs = [(a / own, b / other) for a, b, (own, other) in zip(*drawn, times, strict=True)]
    name = "sampling 40 problems in common batches, against generate one at a time"
    ratios = [own / other for own, other in pairs]
    yield compared(name, ratios, "at least 3", pairs, "tokens/s")
