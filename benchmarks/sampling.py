"""The transformers engine compared with `model.generate`, one problem at a time with 64 samples.

The policy is a tiny model with random weights in which one token in twenty ends a completion, so
lengths vary like those of a trained one. The unit is tokens per second.

`python -m benchmarks.sampling CHECKPOINT PROBLEMS.jsonl` measures something else: how many samples
change with the batch size. Sometimes a few do, because of floating-point ties.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.paired import Comparison
from benchmarks.random_policy import random_policy
from sage.policies import load_model, load_tokenizer
from sage.problems.record import read_problems
from sage.prompting import prompt_ids
from sage.sampling.interface import Request
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import Sampling

PROBLEMS, SAMPLES, MAX_TOKENS, BATCH, ROUNDS = 40, 64, 64, 640, 5


def comparisons() -> Iterator[Comparison]:
    """Tokens per second for equal work: the same prompts, numbers of samples and settings."""
    with _one_thread():
        model, tokenizer = random_policy(hidden_size=96)
        problems = [f"Calculate {i % 9}+{i % 7}-{i % 5}." for i in range(PROBLEMS)]
        prompts = [tuple(prompt_ids(tokenizer, problem)) for problem in problems]

        def ours() -> int:
            requests = [Request(p, f"{i}/{j}") for i, p in enumerate(prompts) for j in _SAMPLES]
            drawn = TransformersSampler.from_model(model, tokenizer, BATCH).sample(
                requests, _SETTINGS
            )
            return sum(completion.n_tokens for completion in drawn)

        def generate() -> int:
            return sum(_generated(model, tokenizer, prompt) for prompt in prompts)

        pairs = []
        for turn in range(ROUNDS):
            if turn % 2:
                plain = _tokens_per_second(generate)
                pairs.append((_tokens_per_second(ours), plain))
            else:
                pairs.append((_tokens_per_second(ours), _tokens_per_second(generate)))
    own, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(own / other for own, other in pairs)
    name = "sampling 40 problems in common batches, against generate one at a time"
    yield Comparison(name, ratio, "at least 3", own, other, ROUNDS, "tokens/s")


_SAMPLES = range(SAMPLES)
_SETTINGS = Sampling(temperature=1.0, max_tokens=MAX_TOKENS, stop=[])


def _generated(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompt: tuple[int, ...]
) -> int:
    ids = torch.tensor([prompt])
    drawn = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        num_return_sequences=SAMPLES,
        max_new_tokens=MAX_TOKENS,
        top_k=0,
    )
    return int((drawn[:, len(prompt) :] != tokenizer.pad_token_id).sum())


def _tokens_per_second(call: Callable[[], int]) -> float:
    start = time.perf_counter()
    tokens = call()
    return tokens / (time.perf_counter() - start)


@contextmanager
def _one_thread() -> Iterator[None]:
    """On a busy machine threads wait for each other; one thread avoids measuring this."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def changed_samples(
    checkpoint: Path, problems: Path, samples: int = 100, sizes: tuple[int, ...] = (1, 7, 64, 640)
) -> dict[int, int]:
    """For each batch size, the number of completions that differ from those of the first size."""
    model, tokenizer = load_model(checkpoint), load_tokenizer(checkpoint)
    requests = [
        Request(tuple(prompt_ids(tokenizer, p.problem)), f"{p.problem_id}/{j}")
        for p in read_problems(problems)
        for j in range(samples)
    ]
    settings = Sampling(temperature=1.0, max_tokens=MAX_TOKENS)
    samplers = {n: TransformersSampler.from_model(model, tokenizer, n) for n in sizes}
    drawn = {n: sampler.sample(requests, settings) for n, sampler in samplers.items()}
    print(f"{len(requests)} completions, {sum(c.n_tokens for c in drawn[sizes[0]])} tokens")
    return {
        size: sum(a != b for a, b in zip(drawn[sizes[0]], completions, strict=True))
        for size, completions in drawn.items()
    }


if __name__ == "__main__":
    with _one_thread():
        print("changed, by batch size:", changed_samples(*map(Path, sys.argv[1:3])))
