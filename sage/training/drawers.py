"""The drawers of rollouts: transformers, in the training process, and vLLM beside it.

A drawer never writes into the policy. transformers draws from a copy of the weights with the
adapter merged in, or from the policy as it is; vLLM holds the base and is handed the adapter.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sage.sampling.decoders import ModuleDecoder, is_decodable
from sage.sampling.fused import FusedDecoder, is_fusible
from sage.sampling.interface import Completion, Request
from sage.sampling.memory import cache_bytes, vllm_share
from sage.sampling.probe import probe
from sage.sampling.stops import end_ids
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import RL, Sampling
from sage.training.adapters import DTYPES
from sage.training.drawing import Drawer, MakeDrawer

PROBED = 50
"""Draws from one probe of vLLM to the next."""

ROOM = 1.5
"""vLLM stays awake where the free memory is so many times what training has taken so far."""


def drawer_for(
    settings: RL, policy: Any, parent: Path, sharded: bool, longest_prompt: int | None = None
) -> MakeDrawer | None:
    """What makes the drawer of a run; None where TRL generates itself.

    That is vLLM under full fine-tuning, a recurrent model whose states only its own generation
    keeps, and, where processes hold parts of the weights (`sharded`), an architecture that cannot
    be fused. `longest_prompt` (tokens) bounds the memory of vLLM.
    """
    if settings.engine == "vllm":
        if settings.lora is None:
            return None
        length = longest_prompt and longest_prompt + settings.sampling.max_tokens
        return vllm_rollouts(parent, length, settings.vllm_memory, settings.vllm_sleep)
    fusible = is_fusible(policy)
    if not fusible and (sharded or not is_decodable(policy)):
        return None
    return transformers_rollouts(copy_dtype(settings, fusible, sharded))


def transformers_rollouts(copy: torch.dtype | None = None) -> MakeDrawer:
    """Rollouts drawn with transformers by this project's sampler, as `make_drawer` of SageTrainer.

    With a `copy` (its dtype, float32 for an adapter) from a copy of the weights with the adapter
    merged in, fastest, for the architectures of Llama and Qwen2; without, from the policy as it is.
    """
    return lambda trainer: PolicyDrawer(trainer, copy)


def rows_of(trainer: Any) -> int:
    """Completions that one process draws for a generation."""
    return int(trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation)


def sampling_of(trainer: Any) -> Sampling:
    """How the trainer's arguments and stop texts say that rollouts are sampled."""
    args: Any = trainer.args
    return Sampling(
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k or 0,
        min_p=args.min_p or 0.0,
        max_tokens=args.max_completion_length,
        stop=list(trainer.stop_texts),
    )


def copy_dtype(settings: RL, fusible: bool, sharded: bool) -> torch.dtype | None:
    """The dtype of the copy of the weights that draws, None for no copy.

    bfloat16 would round most of a young adapter away: there it stays beside each layer. Processes
    that hold parts of the weights (`sharded`) draw from a copy in the trainer's precision.
    """
    if not fusible or not (settings.precision == "float32" or sharded):
        return None
    return DTYPES[settings.precision]


class PolicyDrawer:
    """Draws a generation's completions with transformers, all at a time if memory holds them.

    A `copy` (its dtype) of the weights is brought up to date before each draw; drawing from the
    policy as it is, with its adapter beside each layer, is slower and needs no further memory.
    """

    def __init__(self, trainer: Any, copy: torch.dtype | None) -> None:
        policy, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer._tokenizer
        ends = end_ids(policy.generation_config, tokenizer)
        self._sampling = sampling_of(trainer)
        self._fused = FusedDecoder(policy, copy) if copy else None
        decoder = self._fused or ModuleDecoder(policy, trainer.accelerator.autocast)
        rows = rows_of(trainer)
        self._sampler = TransformersSampler(decoder, tokenizer, ends, rows, progress=False)

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        """A completion per request, in their order, with log-probs."""
        if self._fused is not None:
            self._fused.refresh()
        with _evaluating(policy):
            return self._sampler.sample(requests, self._sampling, log_probs=True)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Without dropout, and with the cache that gradient checkpointing switches off."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class VllmDrawer:
    """Draws with a vLLM that holds the base and is handed the adapter as a file, unmerged.

    `open_vllm` opens vLLM for the first adapter. With `sleeps` vLLM gives a GPU's memory back
    between draws; with None it does so until the memory is known to hold it beside training. At the
    first draw, at the second, before which vLLM has woken for the first time, and every `PROBED`
    draws it is probed whether it draws from the adapter that it is handed; `around` surrounds the
    policy's forward passes for that.
    """

    def __init__(
        self,
        open_vllm: Callable[[Path], Any],
        sampling: Sampling,
        sleeps: bool | None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._open, self._sampling, self._sleeps, self._around = open_vllm, sampling, sleeps, around
        self._sampler: Any = None
        self._draws, self._is_asleep, self._taken = 0, False, math.inf

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        """A completion per request, in their order, with log-probs; may raise AdapterLost."""
        with tempfile.TemporaryDirectory(prefix="sage-adapter-") as name:
            folder = Path(name)
            policy.save_pretrained(folder, safe_serialization=True)
            if self._sampler is None:
                with _own_random_numbers():
                    self._sampler = self._open(folder)
            elif self._sleeps is None:
                self._taken = training_memory()
            if self._is_asleep:
                self._sampler.wake()
            if self._draws == 1 or self._draws % PROBED == 0:
                self._probe(policy, folder / "probe")
            self._sampler.adopt(folder)
            drawn: list[Completion] = self._sampler.sample(requests, self._sampling, log_probs=True)
        self._draws += 1
        sleeps = self._sleeps
        self._is_asleep = free_memory() < ROOM * self._taken if sleeps is None else sleeps
        if self._is_asleep:
            self._sampler.sleep()
        return drawn

    def _probe(self, policy: Any, folder: Path) -> None:
        with _evaluating(policy), _own_random_numbers():
            expected = probe(policy, folder, self._around)
            self._sampler.adopt(folder)
            expected.check(self._sampler)


def training_memory() -> int:
    """Bytes of the GPU that training has taken at most so far, beyond what is held between steps.

    It is asked between steps. Torch's peak counts vLLM's memory as well, asleep or awake.
    """
    return torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()


def free_memory() -> int:
    """Bytes of the GPU that nobody holds, once torch has given back what it keeps for itself."""
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def vllm_rollouts(
    base: Path | str,
    max_length: int | None = None,
    memory: float | None = None,
    sleeps: bool | None = None,
) -> MakeDrawer:
    """Rollouts drawn with vLLM, one in each training process, as `make_drawer` of SageTrainer.

    `base` is the checkpoint that the policy is an adapter to. `max_length` bounds the tokens of a
    prompt with its completion, `memory` is vLLM's share of a GPU, by default computed from sizes,
    which it gives back between draws if it `sleeps` (None: where both do not fit).
    Raises ValueError for a policy without an adapter.
    """

    def make(trainer: Any) -> Drawer:
        from sage.sampling.vllm_engine import VllmSampler

        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        if not hasattr(model, "peft_config"):
            raise ValueError(
                "vllm_rollouts hands an adapter to vLLM, but the policy has none; give peft_config "
                "to the trainer, or set use_vllm in GRPOConfig instead"
            )
        device, sampling, rows = trainer.accelerator.device, sampling_of(trainer), rows_of(trainer)
        precision = "bfloat16" if trainer.args.bf16 else "float32"
        limits: dict[str, Any] = {}
        if device.type == "cuda":
            size = getattr(torch, precision).itemsize
            cache = cache_bytes(model.config, rows * (max_length or sampling.max_tokens), size)
            total = torch.cuda.get_device_properties(device).total_memory
            share = memory or vllm_share(total, model.num_parameters() * size, cache)
            limits = {"gpu_memory_utilization": share, "enable_sleep_mode": sleeps is not False}
        if trainer.accelerator.num_processes > 1:  # vLLM shares torch's processes
            limits["distributed_executor_backend"] = "external_launcher"
        open_vllm = partial(
            VllmSampler,
            Path(base),
            trainer._tokenizer,
            Path(base),
            device.type,
            precision,
            rows,
            tensor_parallel=1,
            progress=False,
            longest=max_length,
            limits=limits,
        )
        may_sleep = sleeps if device.type == "cuda" else False
        return VllmDrawer(open_vllm, sampling, may_sleep, trainer.accelerator.autocast)

    return make


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Keep the generators of this process as they are: vLLM seeds them, and draws from them."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])
