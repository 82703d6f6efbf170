"""DAPO (arXiv 2503.14476): dynamic sampling and a penalty for length.

    a group is trained on if 0 < right rollouts < G; other prompts take the place of the rest
    penalty = 0 up to `margin_tokens` before the length limit, then linear down to -1 at the limit

Whether a group is kept depends on correctness alone: a penalty does not make a group of wrong
completions worth training on, and what is neither kept nor replaced has no loss. The rest of DAPO
are settings of a method: `loss: dapo`, `clip_high: 0.28`, `mask_truncated`.

Its authors draw until a batch is full. Here `max_refills` bounds it
(`sage.method.planners.DynamicSampling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from sage.fields import Positive, about
from sage.method import Tensor
from sage.method.rewards import Completion


@dataclass(frozen=True)
class Mixed:
    """Groups with both correct and wrong completions are kept."""

    kind: ClassVar[str] = "mixed"
    drops: ClassVar[bool] = True

    def keep(self, correct: Tensor, rewards: Tensor) -> Tensor:
        """Which groups to keep, `[N, G]` to bool `[N]`; `rewards` are all rewards, added up."""
        return (correct > 0).any(dim=1) & (correct < 1).any(dim=1)


@dataclass(frozen=True)
class Overlong:
    """A penalty for length: 0 at first, then linear down to -1 at the length limit."""

    margin_tokens: Annotated[
        Positive,
        about(
            "the penalty grows from 0 to −1 over this many tokens before the limit", unit="tokens"
        ),
    ]

    kind: ClassVar[str] = "overlong"
    penalty: ClassVar[bool] = True

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        longest = rl.sampling.max_tokens
        if self.margin_tokens >= longest:
            yield (
                f"has margin_tokens {self.margin_tokens}, which must be below the model's "
                f"rl.sampling.max_tokens {longest}"
            )

    def score(self, completion: Completion) -> float:
        free = completion.longest - self.margin_tokens
        return max(-1.0, min(0.0, (free - completion.tokens) / self.margin_tokens))
