"""BBG (arXiv 2606.15455), Bayesian boundary gating: problems weigh by what they add to pass@k.

Of the n rollouts of a prompt m are right, so with a flat prior its success rate p is distributed as
Beta(m + 1, n - m + 1). One more success rate would add k (1 - p)^(k-1) to pass@k; expected, that is

    u(m) = k (n + 1) / (n + k) C(n, m) / C(n + k - 1, m)
    A    = u(m) / u(0) A of GRPO, and 0 where u(m) < tau (n + 1)

With k = 1 it is GRPO. For 8 rollouts and k = 16 prompts with 1, 2 and 3 right ones weigh 0.35, 0.11
and 0.03, those with more nothing. So the step is smaller as well: compare at rates tuned for each.

Its authors give prompts without a right rollout signed advantages, 1 and -1; `signed` gives them to
all prompts, GRPO's are 0 there. u and the place of tau (Eq. 8 and 9), and the values of k and tau,
are from an implementation of others; the paper itself was not read. The weight relative to u(0) is
this project's choice. The posterior is that of the step's rollouts: nothing is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sage.fields import Positive, about
from sage.method import Tensor
from sage.method.advantages import GroupNormalised, check_rewards


@dataclass(frozen=True)
class BoundaryGated:
    """Advantages of a prompt, less the less its next success adds to pass@k."""

    k: Annotated[Positive, about("samples of the pass@k to add to", unit="samples")] = 16
    tau: Annotated[
        float,
        Field(ge=0.0, lt=1.0),
        about("prompts that add less than this times n + 1 weigh nothing", unit="share, 0 to 1"),
    ] = 0.01
    signed: Annotated[bool, about("advantages 1 and -1 before the weight, not GRPO's")] = False

    binary: ClassVar[str] = "weighs prompts by their right rollouts"

    def advantages(self, rewards: Tensor) -> Tensor:
        """See above; `[N, G]`. Raises ValueError on rewards not 0 or 1."""
        check_rewards(rewards, binary=True)
        plain = 2.0 * rewards - 1.0 if self.signed else GroupNormalised().advantages(rewards)
        return (self.weights(rewards).to(rewards.dtype) * plain).nan_to_num(nan=0.0)

    def weights(self, rewards: Tensor) -> Tensor:
        """What each prompt weighs, `[N, 1]`, float64, from 0 to 1; n counts scored rollouts."""
        n = rewards.isfinite().sum(dim=1, keepdim=True).double()
        wrong, k = n - rewards.double().nansum(dim=1, keepdim=True), self.k
        logs = (n + 1).lgamma() - (wrong + 1).lgamma() + (wrong + k).lgamma() - (n + k).lgamma()
        relative = logs.exp()
        return relative * (relative * k / (n + k) >= self.tau)
