"""The transformers engine compared with `model.generate`, one problem at a time with 64 samples.

The policy is a tiny model with random weights. The unit is tokens per second.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.paired import Comparison, compared, in_turn
from sage.policies import build_tiny, train_tokenizer
from sage.prompting import prompt_ids
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Architecture, Sampling

PROBLEMS, SAMPLES, MAX_TOKENS, BATCH, ROUNDS = 40, 64, 64, 640, 5


def random_policy(hidden_size: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A tiny policy with random weights and its tokenizer; one token in twenty ends a completion,
    so that lengths vary like those of a trained one."""
    sizes = {"intermediate_size": 256, "layers": 3, "heads": 4, "key_value_heads": 2}
    architecture = Architecture(hidden_size=hidden_size, max_positions=256, vocab_size=384, **sizes)
    texts = [f"Calculate {a}+{b}-{a * b}. The sum is {a + b}." for a in range(30) for b in range(9)]
    tokenizer = train_tokenizer(texts, architecture.vocab_size)
    model = build_tiny(architecture, tokenizer, seed=0)
    ends = [tokenizer.eos_token_id, *range(100, 100 + len(tokenizer) // 20)]
    model.generation_config.eos_token_id = ends
    return model, tokenizer


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
