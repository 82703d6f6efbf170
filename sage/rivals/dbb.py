"""DBB (arXiv 2603.18444): a problem's success rate is estimated over the steps.

Of s right and f wrong rollouts of a problem, each time it is drawn:

    a <- discount a + s,   b <- discount b + f,   from a = b = prior
    p = a / (a + b),       A = (r - p) / (sqrt(p (1 - p)) + 1e-4)

So a group of equal rewards still teaches: p is neither 0 nor 1. With discount and prior 0 it is the
group's own rate and deviation, as in GRPO but for the deviation's n - 1.

Its authors call a and b a discounted Beta posterior of a Bernoulli reward. Their values of discount
and prior were not at hand: 0.75 and 1 are this project's, as is that the prior fades like the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from sage.fields import NonNegativeFloat, Share, about
from sage.method import Tensor
from sage.method.advantages import EPSILON, Groups, check_rewards


@dataclass
class Dbb:
    """Rewards against a discounted estimate of their problem's success rate."""

    discount: Annotated[
        Share, about("share of the counts that is kept when a problem is drawn again", unit="share")
    ] = 0.75
    prior: Annotated[
        NonNegativeFloat, about("right and wrong rollouts of a new problem", unit="rollouts")
    ] = 1.0

    binary: ClassVar[str] = "counts right and wrong rollouts"

    _known: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)
    _now: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)

    def advantages(self, rewards: Tensor, groups: Groups) -> Tensor:
        """See above; `[N, G]`. Asked again before the step ends it says the same; the groups of the
        last call count. Raises ValueError on rewards not 0 or 1."""
        check_rewards(rewards, binary=True)
        self._now = {}
        counts = rewards.double().nansum(dim=1), (1.0 - rewards.double()).nansum(dim=1)
        for name, *more in zip(groups.problems, *(each.tolist() for each in counts), strict=True):
            before = [self.discount * each for each in self._known.get(name, [self.prior] * 2)]
            # A problem that is drawn twice in a generation is one with more rollouts.
            now = self._now.get(name, before)
            self._now[name] = [each + count for each, count in zip(now, more, strict=True)]
        both = rewards.new_tensor([self._now[name] for name in groups.problems])
        rate = (both[:, :1] / both.sum(dim=1, keepdim=True)).nan_to_num()
        spread = (rate * (1.0 - rate)).sqrt()
        return ((rewards - rate) / (spread + EPSILON)).nan_to_num(nan=0.0)

    def end_step(self, total: Callable[[Tensor], Tensor]) -> None:
        """Keep the counts; `advantages` has seen the groups of all processes."""
        self._known |= self._now
        self._now = {}

    def state_dict(self) -> dict[str, Any]:
        """The counts of each problem."""
        return {"counts": {name: [*each] for name, each in self._known.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._known = {name: [*each] for name, each in state["counts"].items()}
