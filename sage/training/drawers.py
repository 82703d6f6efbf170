"""The drawers of rollouts: transformers, in the training process, and vLLM beside it.

A drawer never writes into the policy. transformers draws from a copy of the weights with the
adapter merged in, or from the policy as it is; vLLM holds the base and is handed the adapter.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from sage.sampling.decoders import ModuleDecoder
from sage.sampling.fused import FusedDecoder, is_fusible
from sage.sampling.interface import Completion, Request
from sage.sampling.memory import cache_bytes, vllm_share
from sage.sampling.stops import end_ids
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import RL, Sampling
from sage.training.drawing import Drawer, DrawnRollouts, MakeDrawer


def drawer_for(
    settings: RL, policy: Any, parent: Path, sharded: bool, longest_prompt: int | None = None
) -> MakeDrawer | None:
    """What makes the drawer of a run; None where TRL generates itself.

    That is vLLM under full fine-tuning, which needs the weights and not an adapter, and, where
    processes hold parts of the weights (`sharded`), an architecture that cannot be fused.
    `longest_prompt` (tokens) bounds the memory of vLLM. Raises ValueError for
    `drawing_copy: false` where a copy is needed.
    """
    if settings.engine == "vllm":
        return vllm_drawer_for(settings, parent, longest_prompt) if settings.lora else None
    fusible = is_fusible(policy)
    if sharded and not fusible:
        return None
    copy = copy_dtype(settings, fusible, sharded)

    def make(trainer: DrawnRollouts) -> Drawer:
        model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer._tokenizer
        ends = end_ids(model.generation_config, tokenizer)
        arguments: Any = trainer.args
        rows = arguments.per_device_train_batch_size * arguments.steps_per_generation
        around = trainer.accelerator.autocast
        return PolicyDrawer(model, tokenizer, ends, settings.sampling, rows, copy, around)

    return make


def copy_dtype(settings: RL, fusible: bool, sharded: bool) -> torch.dtype | None:
    """The dtype of the copy of the weights that draws, None for no copy.

    An adapter is merged in float32 alone: bfloat16 would round most of a young one away. Where
    all weights are trained, the copy has the precision in which the trainer computes.
    """
    if sharded and settings.drawing_copy is False:
        raise ValueError(
            "drawing_copy: false, but processes that train all weights hold parts of them only, "
            "and draw from a copy; leave it out"
        )
    by_default = settings.precision == "float32" or sharded
    wanted = by_default if settings.drawing_copy is None else settings.drawing_copy
    if not wanted or not fusible:
        return None
    short = settings.lora is None and settings.precision == "bfloat16"
    return torch.bfloat16 if short else torch.float32


class PolicyDrawer:
    """Draws with transformers, at most `rows` completions at a time.

    With a `copy` (its dtype) from a copy of the weights with the adapter merged in, brought up
    to date before each draw; the policy's own weights are only read. Without, from the policy as
    it is, with its adapter beside each layer: slower, and without further memory. `around`
    surrounds the policy's forward passes, as when it is trained.
    """

    def __init__(
        self,
        policy: Any,
        tokenizer: PreTrainedTokenizerBase,
        ends: Sequence[int],
        sampling: Sampling,
        rows: int,
        copy: torch.dtype | None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._sampling = sampling
        self._fused = FusedDecoder(policy, copy) if copy else None
        decoder = self._fused or ModuleDecoder(policy, around)
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
    """Draws with a vLLM that holds the checkpoint `base` and is handed the adapter as a file.

    The adapter stays beside the weights, unmerged, so neither vLLM's weights nor the policy's
    change. `open_vllm` opens vLLM for the first adapter. On a GPU (`sleeps`) it gives its memory
    back between draws.
    """

    def __init__(self, open_vllm: Callable[[Path], Any], sampling: Sampling, sleeps: bool) -> None:
        self._open, self._sampling, self._sleeps = open_vllm, sampling, sleeps
        self._sampler: Any = None
        # Where there is one, a folder in memory.
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(
            prefix="sage-adapter-", dir=memory if os.access(memory, os.W_OK) else None
        )

    def draw(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        """A completion per request, in their order, with log-probs."""
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        policy.save_pretrained(folder, safe_serialization=True)
        if self._sampler is None:
            with _own_random_numbers():
                self._sampler = self._open(folder)
        else:
            if self._sleeps:
                self._sampler.wake()
            self._sampler.adopt(folder)
        drawn: list[Completion] = self._sampler.sample(requests, self._sampling, log_probs=True)
        if self._sleeps:
            self._sampler.sleep()
        shutil.rmtree(folder)
        return drawn


def vllm_drawer_for(settings: RL, base: Path, longest_prompt: int | None) -> MakeDrawer:
    """What makes a VllmDrawer for adapters to `base`, one in each training process."""

    def make(trainer: DrawnRollouts) -> Drawer:
        from sage.sampling.vllm_engine import VllmSampler

        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        device = trainer.accelerator.device
        arguments: Any = trainer.args
        rows = arguments.per_device_train_batch_size * arguments.steps_per_generation
        most = settings.sampling.max_tokens
        length = None if longest_prompt is None else longest_prompt + most
        limits: dict[str, Any] = {"max_model_len": length}
        if device.type == "cuda":
            dtype = getattr(torch, settings.precision)
            weights = model.num_parameters() * dtype.itemsize
            cache = cache_bytes(model.config, rows * (length or most), dtype.itemsize)
            total = torch.cuda.get_device_properties(device).total_memory
            limits["gpu_memory_utilization"] = settings.vllm_memory or vllm_share(
                total, weights, cache
            )
            limits["enable_sleep_mode"] = True
        if trainer.accelerator.num_processes > 1:  # vLLM shares torch's processes
            limits["distributed_executor_backend"] = "external_launcher"

        def open_vllm(adapter: Path) -> VllmSampler:
            return VllmSampler(
                checkpoint=base,
                tokenizer=trainer._tokenizer,
                tokenizer_folder=base,
                device=device.type,
                dtype=settings.precision,
                batch_size=rows,
                adapter=adapter,
                tensor_parallel=1,
                progress=False,
                limits=limits,
            )

        return VllmDrawer(open_vllm, settings.sampling, sleeps=device.type == "cuda")

    return make


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Keep the generators of this process as they are: vLLM seeds them with its own seed."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])
