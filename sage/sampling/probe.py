"""Whether an engine draws from the adapter that it is handed.

vLLM holds the base and the adapter apart. An adapter that it loses, as after a wake or because of
names that do not match, is no error there: the base draws instead. Early in training an adapter
changes too little for that to be seen. So the engine is handed a probe, the same adapter with large
random weights, and draws a token after each of a few fixed prompts. The log-probs of these tokens
must be those of the trainer's forward pass with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call

from sage.runtime.faults import Fault
from sage.sampling.interface import Request, Sampler
from sage.study import Sampling

TOLERANCE = 0.25
"""How far the engine's log-probs may be from the trainer's, as a share of what the probe changes.

Both are means over the drawn tokens. Without the adapter the share is 1; rounding to 16 bits moves
log-probs by some hundredths of a nat, and the probe by about `_CHANGE` or more.
"""

ROOM = 9
"""The positions that the probe takes: those of a prompt and of the drawn token."""

_CHANGE = 1.0  # nats: KL divergence of the base from the probe at which weights are large enough
_SIZES = (0.02, 0.1, 0.5)  # standard deviations of the weights, tried in this order
_PROMPTS = 16
_ONE_TOKEN = Sampling(temperature=1.0, max_tokens=1, stop=[])


class AdapterLost(Fault, RuntimeError):
    """The engine does not draw from the adapter that it was handed."""


@dataclass(frozen=True)
class Probe:
    """Log-probs of the token after each of `requests`, `[R, V]`: with large weights, and without.

    `expected` are those with the adapter in whose folder `probe` wrote the large weights, `plain`
    those of the base.
    """

    requests: tuple[Request, ...]
    expected: torch.Tensor
    plain: torch.Tensor

    def check(self, sampler: Sampler) -> None:
        """Raises AdapterLost unless `sampler`, which was handed the folder, draws from it."""
        drawn = sampler.sample(self.requests, _ONE_TOKEN, log_probs=True)
        tokens = torch.tensor([one.token_ids[:1] for one in drawn])
        given = torch.tensor([one.log_probs[:1] for one in drawn])
        expected, plain = (each.gather(1, tokens) for each in (self.expected, self.plain))
        gap = (given - expected).abs().mean().item()
        change = (plain - expected).abs().mean().item()
        if not gap <= TOLERANCE * change:  # so NaN is no pass
            raise AdapterLost(
                f"the engine does not draw from the adapter: large weights in it change the "
                f"log-probs of {len(drawn)} drawn tokens by {change:.3g} nats on average, but the "
                f"engine's are {gap:.3g} nats from those of the trainer's forward pass (at most "
                f"{TOLERANCE} of the change is allowed). What it draws would be of another policy; "
                "set `engine: transformers`, or install another version of vLLM"
            )


@torch.no_grad()
def probe(
    policy: Any, folder: Path, around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Probe:
    """Write the adapter of `policy`, a PEFT model, with large weights into `folder`.

    The policy is only read; `around` surrounds its forward passes, as when it is trained.
    """
    ups = {name: weight for name, weight in policy.named_parameters() if "lora_B" in name}
    device = next(iter(ups.values())).device
    draw = torch.Generator().manual_seed(0)
    size = (_PROMPTS, ROOM - 1)
    ids = torch.randint(policy.config.get_text_config().vocab_size, size, generator=draw)
    requests = tuple(Request(tuple(row), f"probe/{i}") for i, row in enumerate(ids.tolist()))

    def following(weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Log-probs of the next token under these weights, `[R, V]` in float32."""
        inputs = {"input_ids": ids.to(device), "attention_mask": torch.ones_like(ids).to(device)}
        with around():
            logits = functional_call(policy, dict(weights), (), inputs).logits[:, -1]
        return logits.float().log_softmax(dim=-1).cpu()

    noise = {name: torch.randn(weight.shape, generator=draw) for name, weight in ups.items()}
    expected = plain = following({name: torch.zeros_like(ups[name]) for name in ups})
    large: dict[str, torch.Tensor] = {}
    for spread in _SIZES:
        large = {name: (spread * noise[name]).to(weight) for name, weight in ups.items()}
        expected = following(large)
        if (plain.exp() * (plain - expected)).sum(dim=-1).mean() >= _CHANGE:
            break
    policy.save_pretrained(folder, state_dict=policy.state_dict() | large, safe_serialization=True)
    return Probe(requests, expected, plain)
