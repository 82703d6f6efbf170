"""Drawing completions: the `Sampler` interface, its engines and the shards they are kept in.

Every sample has a random stream of its own, derived by hashing its name, so adding
problems, samples or seeds, or changing the batch size, leaves every other sample as it was
but for floating-point ties (see `sage.sampling.transformers_engine`). `complete` draws
completions of prompts with any sampler. The engines are imported when they are used.
"""

from typing import TYPE_CHECKING

from sage.exports import lazily
from sage.sampling.interface import Completion, Request, Sampler, complete, stream_key
from sage.study import Sampling

if TYPE_CHECKING:
    from sage.sampling.transformers_engine import TransformersSampler
    from sage.sampling.vllm_engine import VllmSampler

__all__ = [
    "Completion",
    "Request",
    "Sampler",
    "Sampling",
    "TransformersSampler",
    "VllmSampler",
    "complete",
    "stream_key",
]

__getattr__ = lazily(
    __name__,
    {
        "TransformersSampler": "sage.sampling.transformers_engine",
        "VllmSampler": "sage.sampling.vllm_engine",
    },
)
