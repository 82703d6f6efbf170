"""The drawers of rollouts: transformers, in the training process, and vLLM beside it.

A drawer never writes into the policy. transformers draws from a copy of the weights with the
adapter merged in, or from the policy as it is; vLLM holds the base and is handed the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from sage.sampling.decoders import ModuleDecoder
from sage.sampling.fused import FusedDecoder, is_fusible
from sage.sampling.interface import Completion, Request
from sage.sampling.stops import end_ids
from sage.sampling.transformers_engine import TransformersSampler
from sage.study import RL, Sampling
from sage.training.drawing import Drawer, DrawnRollouts, MakeDrawer


def drawer_for(settings: RL, policy: Any, parent: Path, sharded: bool) -> MakeDrawer | None:
    """What makes the drawer of a run; None where TRL generates itself.

    That is vLLM under full fine-tuning, which needs the weights and not an adapter, and, where
    processes hold parts of the weights (`sharded`), an architecture that cannot be fused. Raises
    ValueError for `drawing_copy: false` where a copy is needed.
    """
    if settings.engine == "vllm":
        return None
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
