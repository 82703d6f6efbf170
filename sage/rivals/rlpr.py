"""RLPR (arXiv 2506.18254): what the reasoning adds to the gold answer's probability; no verifier.

    r = max(0, p - p')

p is the policy's mean probability of the gold answer's tokens after the completion's own reasoning,
p' that without reasoning (`sage.training.rewards` reads both). No grader decides. Its filter keeps
a group where

    std(r) >= `share` of the running mean of std(r) over the steps before

Its authors filter from step 11 on, with clip 0.2 / 0.27. Here it is from step 2 on, with clip 0.2,
for runs are of 100 steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from sage.fields import NonNegativeFloat, Share, about
from sage.method import Tensor
from sage.method.rewards import Completion


@dataclass(frozen=True)
class Rlpr:
    """What the reasoning adds to the gold answer's probability, at least 0.

    A completion without an answer tag gets 0.
    """

    reads_answer: ClassVar[bool] = True

    def score(self, completion: Completion) -> float:
        """See above. Raises ValueError if the probabilities were not measured."""
        after, before = completion.answer_probability, completion.prior_probability
        if after is None or before is None:
            raise ValueError("RLPR needs the policy's probabilities of the gold answer")
        return max(0.0, after - before)


@dataclass
class Spread:
    """Groups whose rewards hardly differ are dropped.

    A group is kept if the standard deviation of its rewards (unbiased) is at least `share` of the
    running mean of that deviation over the steps before. In the first step all are kept. What is
    not kept and not replaced has no loss, but still counts in the mean over completions.
    """

    share: Annotated[
        NonNegativeFloat, about("smallest deviation kept, over the running mean", unit="factor")
    ] = 0.5
    decay: Annotated[
        Share, about("share of the running mean that a step keeps", unit="share, 0 to 1")
    ] = 0.99
    kind: ClassVar[str] = "spread"
    drops: ClassVar[bool] = True
    _mean: float = field(init=False, default=math.nan, repr=False, compare=False)
    _now: float = field(init=False, default=math.nan, repr=False, compare=False)

    def keep(self, correct: Tensor, rewards: Tensor) -> Tensor:
        """Which groups to keep, `[N, G]` to bool `[N]`; NaN stands for a rollout that is missing
        or not scored.

        Asked again in the same step it says the same. The groups of the last call count.
        """
        count = rewards.isfinite().sum(dim=1)
        squares = (rewards - rewards.nanmean(dim=1, keepdim=True)).square().nansum(dim=1)
        deviations = (squares / (count - 1).clamp(min=1)).sqrt()
        self._now = float(deviations[count > 1].mean())  # one rollout alone does not differ
        return deviations >= (0.0 if math.isnan(self._mean) else self.share * self._mean)

    def end_step(self, total: Callable[[Tensor], Tensor]) -> None:
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
