"""MaxRL (arXiv 2602.02710): the gradient of log p, cut off after some of its terms.

p is the chance of a right rollout, and c of G rollouts are right:

    log p = -sum over k of (1 - p)^k / k
    A     = (r - c/G) / (c/G), and 0 for all where c is 0    without `order`
    A     = r * sum over j < T of C(G - c, j) / C(G - 1, j)   with `order` T

The first is the gradient of the first G - 1 terms, the second that of the first T; both are
unbiased for G independent rollouts. The first term alone is REINFORCE.

Its authors take all terms but the last (`order: null`), as here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from sage.fields import Positive, about
from sage.method import Tensor
from sage.method.advantages import chance_of_none, check_rewards, right_counts, too_few


@dataclass(frozen=True)
class MaxRl:
    """A prompt weighs more the more rarely it is solved, as in the gradient of log p."""

    order: Annotated[
        Positive | None,
        about("terms of log p, at most the rollouts; `null` all but one, centred", unit="terms"),
    ] = None

    binary: ClassVar[str] = "counts right rollouts"

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        yield from too_few(self.order or 1, rl)

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1, or G below order."""
        check_rewards(rewards, binary=True)
        count, right = right_counts(rewards, self.order or 1)
        if self.order is None:
            advantages = (rewards.double() * count / right.clamp(min=1.0) - 1.0) * (right > 0)
        else:
            weights = [chance_of_none(count - 1, right - 1, j) for j in range(self.order)]
            advantages = rewards.double() * sum(weights)
        return advantages.nan_to_num(nan=0.0).to(rewards.dtype)
