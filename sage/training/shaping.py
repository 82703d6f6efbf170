"""What an algorithm adds to TRL's GRPO, and which completion tokens its loss counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sage.method.advantages import BetaNormalised
from sage.method.anchors import LogProbs
from sage.method.credit import CreditRule
from sage.method.guides import GuideFunction
from sage.method.planners import Dars, DynamicSampling, Filter, Planner

Divergence = Callable[[LogProbs], torch.Tensor]


class Estimator(Protocol):
    """An estimator of the KL term, such as `sage.method.anchors.K2`."""

    def values(self, log_probs: LogProbs) -> torch.Tensor:
        """The term per token, not negative, `[B, T]`."""
        ...


class Advantage(Protocol):
    """An advantage, such as `sage.method.advantages.PassAtK`."""

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """Rewards `[N, G]` of N prompts with G rollouts each to advantages `[N, G]`."""
        ...


@dataclass(frozen=True)
class Shaping:
    """What an algorithm adds to TRL's GRPO; the defaults add nothing.

    Each has its home in `sage.method`. `guide` shapes the anchor of the KL term, each factor kept
    within `clamp`. `estimator` (of `anchors`, or `credit.K1InReward`) takes the place of TRL's k3,
    `advantage` that of its advantages, and `credit` shares these out over tokens. `planner` draws
    further rollouts and chooses what is trained on; the planner of dynamic sampling is made of a
    `filter` (`rewards`) and of
    `max_refills`, how often at most groups are drawn that take the place of those it does not
    keep. `mask_truncated` takes the loss from completions that were cut off. With
    `schedule_per_call` schedules advance with every loss call, as in the official release, and
    not once per optimizer step.

    Raises ValueError for an estimator and a credit rule that both set advantages of tokens, for a
    filter beside a planner, and for `Dars` with `BetaNormalised`.
    """

    guide: GuideFunction | None = None
    clamp: tuple[float, float] = (0.6, 1.4)
    estimator: Estimator | None = None
    advantage: Advantage | None = None
    credit: CreditRule | None = None
    filter: Filter | None = None
    max_refills: int = 0
    planner: Planner | None = None
    mask_truncated: bool = False
    schedule_per_call: bool = False

    def __post_init__(self) -> None:
        if self.kl_in_reward and self.credit is not None:
            raise ValueError(
                f"estimator {type(self.estimator).__name__} and credit rule "
                f"{type(self.credit).__name__} both set the advantage of each token; choose one"
            )
        if self.filter is not None and self.planner is not None:
            raise ValueError(
                f"filter {type(self.filter).__name__} and planner {type(self.planner).__name__} "
                "both choose what is trained on; choose one"
            )
        if isinstance(self.planner, Dars) and isinstance(self.advantage, BetaNormalised):
            raise ValueError(
                "the planner Dars may keep a single prompt, but the advantage BetaNormalised needs "
                "at least two in each step; choose another of the two"
            )

    @property
    def planning(self) -> Planner | None:
        """The planner, or that of dynamic sampling if there is a filter."""
        if self.filter is not None:
            return DynamicSampling(self.filter, self.max_refills)
        return self.planner

    def parts(self) -> dict[str, Any]:
        """The choices that are set, by name."""
        names = ("guide", "estimator", "advantage", "credit", "filter", "planner")
        return {name: part for name in names if (part := getattr(self, name)) is not None}

    @property
    def exact_forward_kl(self) -> bool:
        """Whether the KL term is a sum over the vocabulary."""
        return bool(getattr(self.estimator, "over_vocabulary", False))

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL term is part of the advantages of tokens, and TRL's own switched off."""
        return hasattr(self.estimator, "token_advantages")

    @property
    def divergence(self) -> Divergence | None:
        """What replaces TRL's k3 at the drawn tokens."""
        if self.estimator is None or self.exact_forward_kl or self.kl_in_reward:
            return None
        return self.estimator.values

    @property
    def token_rule(self) -> CreditRule | None:
        """What sets the advantage of each token."""
        rule: Any = self.estimator if self.kl_in_reward else self.credit
        return rule

    @property
    def replaces_k3(self) -> bool:
        """Whether TRL's KL term is made to carry another divergence."""
        return self.divergence is not None or self.exact_forward_kl

    @property
    def shapes_kl(self) -> bool:
        """Whether anything is done to the KL term at all."""
        return self.guide is not None or self.estimator is not None


def loss_mask(inputs: dict[str, Any]) -> torch.Tensor:
    """1 on completion tokens with loss, `[B, T]`."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask
