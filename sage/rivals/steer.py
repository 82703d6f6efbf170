"""STEER (arXiv 2510.10150): tokens whose update would change the entropy most weigh least.

    change_t = |A / pi_old * pi (1 - pi) (log pi + H)|   at the drawn token
    weight_t = from `highest` at the least change down to `lowest` at the most, linear, or
               exp(ln(lowest) change_t / max(most, 0.02)), exponential
    A_t      = A weight_t

The range of the changes is that of the tokens of a micro-batch whose completions are scored.

Its authors take 16 steps a generation, clip 0.2 / 0.28 and exponential weights from 1 to 0.8
(`form: exponential`). Here it is 1 step, clip 0.2 and linear weights from 1.2 to 0.8, which their
paper has as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sage.fields import about
from sage.method import Tensor
from sage.method.credit import TokenSignals


@dataclass(frozen=True)
class Steer:
    """Tokens weigh less the more their update would change the entropy."""

    form: Annotated[
        Literal["linear", "exponential"],
        about("linear from `highest` to `lowest`, or exponential from 1 to `lowest`"),
    ] = "linear"
    lowest: Annotated[
        float, Field(gt=0.0, le=1.0), about("weight of the largest change", unit="factor")
    ] = 0.8
    highest: Annotated[
        float, Field(ge=1.0), about("weight of the smallest change, with `linear`", unit="factor")
    ] = 1.2
    single_turn: ClassVar[str] = (
        "compares the tokens of whole completions, but tools write tokens between turns that the "
        "policy does not draw"
    )

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`."""
        policy = signals.log_probs.exp()
        change = (
            signals.advantages[:, None]
            * (-signals.old_log_probs).exp()
            * policy
            * (1.0 - policy)
            * (signals.log_probs + signals.entropies)
        ).abs()
        inside = signals.mask.bool() & ~signals.rewards.isnan()[:, None]
        most = signals.everyone(change.masked_fill(~inside, 0.0).amax().view(1)).amax()
        least = signals.everyone(change.masked_fill(~inside, float("inf")).amin().view(1)).amin()
        if self.form == "linear":
            place = ((change - least) / (most - least)).nan_to_num(nan=0.5).clamp(0.0, 1.0)
            weight = self.highest - (self.highest - self.lowest) * place
        else:
            rate = -math.log(self.lowest) / most.clamp(min=0.02)
            weight = (-rate * change).exp().clamp(self.lowest, 1.0)
        return signals.advantages[:, None] * weight
