"""Rewards of a completion, and which groups are worth training on.

A reward is a class that holds its settings and scores one graded completion; an algorithm's rewards
are added up. A filter looks at the rewards of whole groups. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import Field

from sage.fields import about

if TYPE_CHECKING:
    import torch

__all__ = [
    "Completion",
    "Correct",
    "Mixed",
    "Overlong",
    "RewardFunction",
]


@dataclass(frozen=True)
class Completion:
    """A completion of a problem with the grader's verdict.

    `text` is without the prompt; `answer` is the gold answer; `correct` says whether the
    completion's answer equals it. `tokens` is its length, `longest` the longest allowed.
    """

    text: str
    answer: str
    correct: bool
    tokens: int
    longest: int


class RewardFunction(Protocol):
    """A reward: one number for a completion."""

    def score(self, completion: Completion) -> float:
        """The reward, finite."""
        ...


@dataclass(frozen=True)
class Correct:
    """1 for a completion whose answer is correct, else 0: the grader that also evaluates."""

    def score(self, completion: Completion) -> float:
        """See the class."""
        return float(completion.correct)


@dataclass(frozen=True)
class Overlong:
    """DAPO's length penalty: 0 at first, then linear down to -1 at the length limit."""

    margin_tokens: Annotated[
        int,
        Field(ge=1),
        about(
            "the penalty grows from 0 to −1 over this many tokens before the limit", unit="tokens"
        ),
    ]

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        """Why it does not go with a model's settings of RL."""
        longest = rl.sampling.max_tokens
        if self.margin_tokens >= longest:
            yield (
                f"has margin_tokens {self.margin_tokens}, which must be below the model's "
                f"rl.sampling.max_tokens {longest}"
            )

    def score(self, completion: Completion) -> float:
        """See the class."""
        free = completion.longest - self.margin_tokens
        return max(-1.0, min(0.0, (free - completion.tokens) / self.margin_tokens))


@dataclass(frozen=True)
class Mixed:
    """DAPO's dynamic sampling: groups with both correct and wrong completions are kept.

    It looks at correctness alone: a length penalty does not make a group of wrong completions
    worth training on (arXiv 2503.14476, Eq. 11).
    """

    def keep(self, correct: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
        """Which groups to keep, `[N, G]` to bool `[N]`; `rewards` are all rewards, added up."""
        return (correct.amax(dim=1) > 0) & (correct.amin(dim=1) < 1)
