"""Rewards of a completion, and which groups are worth training on.

A reward is a class that holds its settings and scores one graded completion; a method's rewards
are added up. A filter looks at the rewards of whole groups. Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import Field

from sage.fields import Share, about
from sage.prompting import WORK_CLOSE, solution_text

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Completion:
    """A completion of a problem with the grader's verdict.

    `text` is without the prompt; `answer` is the gold answer; `correct` says whether the
    completion's answer equals it. `tokens` is its length, `longest` the longest allowed. `luck` is
    drawn uniformly from [0, 1) for this completion alone.

    For a reward that says `reads_answer = True`: `answer_probability` is the policy's mean
    probability of the gold answer's tokens where the completion's own answer stands, after its
    reasoning; 0 if it has no answer tag. `prior_probability` is the same without reasoning.
    """

    text: str
    answer: str
    correct: bool
    tokens: int
    longest: int
    answer_probability: float | None = None
    prior_probability: float | None = None
    luck: float = 0.0


class RewardFunction(Protocol):
    """A reward: one number for a completion."""

    def score(self, completion: Completion) -> float:
        """The reward, finite."""
        ...


@dataclass(frozen=True)
class Correct:
    """1 for a completion whose answer is correct, else 0: the grader that also evaluates."""

    def score(self, completion: Completion) -> float:
        return float(completion.correct)


@dataclass(frozen=True)
class Random:
    """A control (arXiv 2506.10947): 1 with probability `share`, whatever is written, else 0."""

    share: Annotated[Share, about("how often it is 1", unit="probability")] = 0.5

    def score(self, completion: Completion) -> float:
        return float(completion.luck < self.share)


@dataclass(frozen=True)
class Tagged:
    """A control (arXiv 2506.10947): 1 for working that is closed and an answer, right or wrong."""

    def score(self, completion: Completion) -> float:
        _, closed, rest = completion.text.partition(WORK_CLOSE)
        return float(bool(closed) and solution_text(rest) is not None)


@dataclass(frozen=True)
class Incorrect:
    """A control (arXiv 2506.10947): 1 for an answer that is not correct, else 0."""

    def score(self, completion: Completion) -> float:
        """See the class; without an answer 0."""
        return float(not completion.correct and solution_text(completion.text) is not None)


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
        longest = rl.sampling.max_tokens
        if self.margin_tokens >= longest:
            yield (
                f"has margin_tokens {self.margin_tokens}, which must be below the model's "
                f"rl.sampling.max_tokens {longest}"
            )

    def score(self, completion: Completion) -> float:
        free = completion.longest - self.margin_tokens
        return max(-1.0, min(0.0, (free - completion.tokens) / self.margin_tokens))


@dataclass(frozen=True)
class Rlpr:
    """RLPR (arXiv 2506.18254): what the reasoning adds to the gold answer's probability.

    max(0, p - p'), where p is the policy's mean probability of the gold answer's tokens after the
    completion's own reasoning, and p' that without reasoning. A completion without an answer tag
    gets 0. No grader decides.
    """

    reads_answer: ClassVar[bool] = True

    def score(self, completion: Completion) -> float:
        """See the class. Raises ValueError if the probabilities were not measured."""
        after, before = completion.answer_probability, completion.prior_probability
        if after is None or before is None:
            raise ValueError("RLPR needs the policy's probabilities of the gold answer")
        return max(0.0, after - before)


@dataclass(frozen=True)
class Mixed:
    """DAPO's dynamic sampling: groups with both correct and wrong completions are kept.

    It looks at correctness alone: a length penalty does not make a group of wrong completions
    worth training on (arXiv 2503.14476, Eq. 11).
    """

    def keep(self, correct: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
        """Which groups to keep, `[N, G]` to bool `[N]`; `rewards` are all rewards, added up."""
        return (correct.amax(dim=1) > 0) & (correct.amin(dim=1) < 1)


@dataclass
class Spread:
    """RLPR's filter (arXiv 2506.18254): groups whose rewards hardly differ are dropped.

    A group is kept if the standard deviation of its rewards (unbiased) is at least `share` of the
    running mean of that deviation over the steps before. In the first step all are kept. What is
    not kept and not replaced has no loss, but still counts in the mean over completions.
    """

    share: Annotated[
        float, Field(ge=0.0), about("smallest deviation kept, over the running mean", unit="factor")
    ] = 0.5
    decay: Annotated[
        Share, about("share of the running mean that a step keeps", unit="share, 0 to 1")
    ] = 0.99
    drops: ClassVar[bool] = True
    _mean: float = field(init=False, default=math.nan, repr=False, compare=False)
    _now: float = field(init=False, default=math.nan, repr=False, compare=False)

    def keep(self, correct: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
        """Which groups to keep, `[N, G]` to bool `[N]`; NaN stands for a rollout that is missing.

        Asked again in the same step it says the same. The groups of the last call count.
        """
        count = rewards.isfinite().sum(dim=1)
        squares = (rewards - rewards.nanmean(dim=1, keepdim=True)).square().nansum(dim=1)
        deviations = (squares / (count - 1).clamp(min=1)).sqrt()
        self._now = float(deviations.mean())
        return deviations >= (0.0 if math.isnan(self._mean) else self.share * self._mean)

    def end_step(self, total: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Move the running mean; `keep` has seen the groups of all processes."""
        now, self._now = self._now, math.nan
        if not math.isnan(now):
            first = math.isnan(self._mean)
            self._mean = now if first else self.decay * self._mean + (1 - self.decay) * now

    def state_dict(self) -> dict[str, Any]:
        """The running mean."""
        return {"mean": self._mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean = float(state["mean"])
