"""What a method adds to TRL's GRPO, and what of it learns and is remembered.

A choice may have `end_step(total)`, called when the gradients of an optimizer step are complete;
`total` adds a tensor up over all processes. It may have `state_dict()` and `load_state_dict(state)`
of tensors and plain values for every checkpoint, so that a resumed run equals an unbroken one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import getattr_static
from typing import Any, Protocol

import torch

from sage.method.advantages import Groups
from sage.method.anchors import LogProbs
from sage.method.credit import CreditRule
from sage.method.guides import GuideFunction
from sage.method.planners import DynamicSampling, Filter, Planner
from sage.named import takes


class Estimator(Protocol):
    """An estimator of the KL term, such as `sage.method.anchors.K2`."""

    def values(self, log_probs: LogProbs) -> torch.Tensor:
        """The term per token, not negative, `[B, T]`."""
        ...


class Advantage(Protocol):
    """An advantage, such as `sage.method.advantages.Centred`; `groups` may be left out."""

    def advantages(self, rewards: torch.Tensor, groups: Groups) -> torch.Tensor:
        """Rewards `[N, G]` of N prompts with G rollouts each to advantages `[N, G]`."""
        ...


@dataclass(frozen=True)
class Shaping:
    """What a method adds to TRL's GRPO; the defaults add nothing.

    Each has its home in `sage.method` or `sage.rivals`. `guide` shapes the anchor of the KL term,
    each factor kept within `clamp`. `estimator` (of `anchors`, or `credit.K1InReward`) takes the
    place of TRL's k3, `advantage` that of its advantages, and `credit` shares these out over
    tokens. `planner` draws further rollouts and chooses what is trained on; that of dynamic
    sampling is made of a `filter` and of `max_refills`, how often groups are drawn again at most.
    `mask_truncated` takes the loss from completions that were cut off. With `schedule_per_call`
    schedules advance with every loss call, as in the official release.

    Raises ValueError for an estimator and a credit rule that both set advantages of tokens, and for
    a filter beside a planner.
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
        leash = self.estimator if self.kl_in_reward else None
        for name, one, other_name, other, deed in (
            ("estimator", leash, "credit rule", self.credit, "set the advantage of each token"),
            ("filter", self.filter, "planner", self.planner, "choose what is trained on"),
        ):
            if one is not None and other is not None:
                raise ValueError(
                    f"{name} {type(one).__name__} and {other_name} {type(other).__name__} both "
                    f"{deed}; choose one"
                )

    def __str__(self) -> str:
        """The parts, as a model card names them; empty without any."""
        return ", ".join(
            f"{name} {part if is_dataclass(part) else type(part).__name__}"
            for name, part in self._parts().items()
            if part is not None
        )

    @property
    def planning(self) -> Planner | None:
        """The planner, or that of dynamic sampling if there is a filter."""
        return DynamicSampling(self.filter, self.max_refills) if self.filter else self.planner

    @property
    def asks_for_groups(self) -> bool:
        """Whether the advantage looks at single rewards and at names of problems."""
        made = self.advantage
        return made is not None and takes(getattr_static(type(made), "advantages"), 2)

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL term is part of the advantages of tokens, and TRL's own switched off."""
        return hasattr(self.estimator, "token_advantages")

    @property
    def token_rule(self) -> CreditRule | None:
        """What sets the advantage of each token."""
        rule: Any = self.estimator if self.kl_in_reward else self.credit
        return rule

    @property
    def replaces_k3(self) -> bool:
        """Whether TRL's KL term is made to carry another divergence."""
        return self.estimator is not None and not self.kl_in_reward

    @property
    def over_vocabulary(self) -> bool:
        """Whether that looks at the whole vocabulary."""
        return bool(getattr(self.estimator, "over_vocabulary", False))

    def end_step(self, total: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Let the choices learn that do."""
        for part in self._with("end_step").values():
            part.end_step(total)

    def states(self) -> dict[str, Any]:
        """What the choices remember, by name; of those without a memory, nothing."""
        return {name: part.state_dict() for name, part in self._with("state_dict").items()}

    def load_states(self, states: Mapping[str, Any]) -> None:
        """Have the choices remember `states`, which hold those of all that do."""
        for name, part in self._with("state_dict").items():
            part.load_state_dict(states[name])

    def _with(self, method: str) -> dict[str, Any]:
        """The choices that have a method of that name."""
        return {name: part for name, part in self._parts().items() if hasattr(part, method)}

    def _parts(self) -> dict[str, Any]:
        names = ("guide", "estimator", "advantage", "credit", "filter", "planner")
        return {name: getattr(self, name) for name in names}


def loss_mask(inputs: Mapping[str, Any]) -> torch.Tensor:
    """1 on completion tokens with loss, `[B, T]`."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask
