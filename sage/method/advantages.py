"""Advantages of the rollouts of a group, from their rewards.

Each is a class that holds its settings and maps rewards `[N, G]` of N prompts to advantages
`[N, G]`. One that takes a second argument gets `Groups`: single rewards and names of the problems.
NaN stands for rollouts that are missing, where prompts have unequal numbers of them, and for those
that no reward function scored: they are out of the group, and their advantage is 0. The first two
are what TRL computes in training, which the tests hold against them; the rest is what advantages of
other papers (`sage.rivals`) are made of. One with `binary` takes rewards of 0 or 1 alone, for the
reason it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sage.fields import about
from sage.method import Tensor

EPSILON = 1e-4


@dataclass(frozen=True)
class Groups:
    """What is known of N groups besides the sums of their rewards.

    `parts` `[N, G, F]` are the F rewards that count, NaN where a rollout is missing or not scored;
    their sum over F is the reward. `problems` names the problem of each group, the same whenever
    it is drawn.
    """

    parts: Tensor
    problems: tuple[str, ...]


@dataclass(frozen=True)
class GroupNormalised:
    """GRPO (arXiv 2402.03300): (reward - group's mean) / (its unbiased deviation + 1e-4)."""

    def advantages(self, rewards: Tensor) -> Tensor:
        """See the class; `[N, G]`."""
        check_rewards(rewards)
        deviation = rewards - rewards.nanmean(dim=1, keepdim=True)
        count = rewards.isfinite().sum(dim=1, keepdim=True)
        variance = deviation.square().nansum(dim=1, keepdim=True) / (count - 1)
        return (deviation / (variance.sqrt() + EPSILON)).nan_to_num(nan=0.0)


@dataclass(frozen=True)
class Centred:
    """Dr. GRPO (arXiv 2503.20783): the reward less the group's mean."""

    def advantages(self, rewards: Tensor) -> Tensor:
        """See the class; `[N, G]`."""
        check_rewards(rewards)
        return (rewards - rewards.nanmean(dim=1, keepdim=True)).nan_to_num(nan=0.0)


@dataclass(frozen=True)
class OfSets:
    """What advantages of sets of k rollouts of a group have in common; they count right ones."""

    k: Annotated[int, Field(ge=1), about("rollouts of a set", unit="rollouts")] = 4

    binary: ClassVar[str] = "counts right rollouts"

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        yield from too_few(self.k, rl)


def pass_at_k(rewards: Tensor, k: int) -> Tensor:
    """Unbiased pass@k of each prompt from rewards of 0 or 1, `[N, G]` to `[N]` (arXiv 2107.03374).

    NaN for a prompt with fewer than k rollouts that are scored; ValueError if none can have so
    many.
    """
    count, right = right_counts(rewards, k)
    return 1.0 - chance_of_none(count, right, k)[:, 0]


def too_few(k: int, rl: Any) -> Iterator[str]:
    """Why sets of k rollouts do not go with a model's settings of RL."""
    if rl.rollouts < k:
        yield f"takes sets of k = {k} rollouts, but a prompt has {rl.rollouts}"


def right_counts(rewards: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Scored and right rollouts of each prompt, `[N, 1]`; ValueError for groups of fewer than k."""
    if rewards.shape[1] < k:
        raise ValueError(f"a prompt has {rewards.shape[1]} rollouts, fewer than k = {k}")
    count = rewards.isfinite().sum(dim=1, keepdim=True).double()
    return count, rewards.double().nansum(dim=1, keepdim=True)


def chance_of_none(count: Tensor, right: Tensor, k: int) -> Tensor:
    """C(count - right, k) / C(count, k): k of `count` drawn without replacement, none right.

    NaN where `count` is below k.
    """
    chance = count.new_ones(count.shape)
    for drawn in range(k):
        chance = chance * (count - right - drawn).clamp(min=0.0) / (count - drawn)
    return chance.masked_fill(count < k, float("nan"))


def check_rewards(rewards: Tensor, binary: bool = False) -> None:
    """Raise ValueError unless rewards are `[N, G]` of groups, and with `binary` 0, 1 or NaN."""
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [prompts, rollouts >= 2], not {tuple(rewards.shape)}")
    if binary and not bool(((rewards == 0) | (rewards == 1) | rewards.isnan()).all()):
        raise ValueError(f"rewards must be 0 or 1, but there are {rewards.unique().tolist()[:4]}")
