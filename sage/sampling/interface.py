"""What a sampling engine takes and gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol

from sage.study import Sampling


@dataclass(frozen=True)
class Request:
    """One completion to draw: the prompt's token ids and the name of its random stream."""

    prompt_ids: tuple[int, ...]
    stream: str


@dataclass(frozen=True)
class Completion:
    """A drawn completion.

    `text` ends with the stop text, if that ended it, and holds no special tokens. `token_ids`
    are the tokens as they were drawn, the one that ended it included; `length` means it was cut
    off at `max_tokens`. `log_probs`, where they were asked for, are those of the tokens in the
    distribution that they were drawn from: behind temperature and filters.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: Literal["stop", "length"]
    log_probs: tuple[float, ...] = ()

    @property
    def n_tokens(self) -> int:
        """How many tokens were drawn."""
        return len(self.token_ids)


class Sampler(Protocol):
    """Draws completions of a policy, such as `TransformersSampler` and `VllmSampler` do."""

    def sample(
        self, requests: Sequence[Request], sampling: Sampling, log_probs: bool = False
    ) -> list[Completion]:
        """One completion per request, in the order of the requests."""
        ...


def engine(name: str) -> Any:
    """The engine that studies call `name`: the module `sage.sampling.{name}_engine`, imported only
    when it is chosen.

    `open_sampler(base, policy, tokenizer, settings, device, longest_prompt=None)` gives a `Sampler`
    of the policy trained from the checkpoint `base` (None: `base` itself) on `device`; `settings`
    are `Draws`, and `longest_prompt` (tokens) bounds the memory of vLLM. `versions()` are those of
    the packages that decide, beside our own code, what is drawn; it raises ModuleNotFoundError,
    with what to do, where the engine's package is not installed.
    """
    return import_module(f"sage.sampling.{name}_engine")


def complete(
    sampler: Sampler,
    tokenizer: Any,
    prompts: Sequence[str | Sequence[Mapping[str, Any]]],
    sampling: Sampling,
    samples: int = 1,
    seed: int = 0,
) -> list[list[Completion]]:
    """`samples` completions of each prompt: a list per prompt, in the order of the prompts.

    A prompt is a text, or a conversation that the chat template of `tokenizer` renders. What is
    drawn for a prompt depends on its text and `seed`, not on the other prompts; of a prompt that
    occurs twice the same completions are drawn. Raises ValueError without samples.
    """
    if samples < 1:
        raise ValueError(f"samples {samples} must be at least 1")
    requests = []
    for prompt in prompts:
        if isinstance(prompt, str):
            ids = tokenizer(prompt)["input_ids"]
        else:
            ids = tokenizer.apply_chat_template(
                prompt, add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
        requests += [
            Request(tuple(ids), json.dumps(["prompt", seed, ids, index]))
            for index in range(samples)
        ]
    drawn = sampler.sample(requests, sampling)
    return [drawn[i : i + samples] for i in range(0, len(drawn), samples)]


def stream_key(
    model: str, train_seed: int, benchmark: str, problem_id: str, eval_seed: int, index: int
) -> str:
    """The name of a sample's random stream; different samples have different names.

    The method is no part of it: all methods of a model draw with the same numbers, which
    makes their comparison sharper.
    """
    return json.dumps([model, train_seed, benchmark, problem_id, eval_seed, index])
