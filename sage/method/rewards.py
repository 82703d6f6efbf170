"""Rewards of a completion: correctness, and controls that reward something else.

A reward is a class that holds its settings and scores one graded completion; a method's rewards
are added up. Nothing here imports torch. Rewards of other papers are in `sage.rivals`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from sage.fields import Share, about
from sage.prompting import WORK_CLOSE, solution_text


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
    control: ClassVar[bool] = True

    def score(self, completion: Completion) -> float:
        return float(completion.luck < self.share)


@dataclass(frozen=True)
class Tagged:
    """A control (arXiv 2506.10947): 1 for working that is closed and an answer, right or wrong."""

    control: ClassVar[bool] = True

    def score(self, completion: Completion) -> float:
        _, closed, rest = completion.text.partition(WORK_CLOSE)
        return float(bool(closed) and solution_text(rest) is not None)


@dataclass(frozen=True)
class Incorrect:
    """A control (arXiv 2506.10947): 1 for an answer that is not correct, else 0."""

    control: ClassVar[bool] = True

    def score(self, completion: Completion) -> float:
        """See the class; without an answer 0."""
        return float(not completion.correct and solution_text(completion.text) is not None)
