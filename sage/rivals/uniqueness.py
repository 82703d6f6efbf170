"""Uniqueness-aware RL (arXiv 2601.08763): a rare strategy's advantage counts for more.

    A_i = A / f^alpha,   f completions of the prompt follow the strategy of completion i

Working that follows no known strategy is one more strategy. With alpha 0 the advantages stay as
they are. Completions without a token under the loss (`mask_truncated`) or a reward are neither
weighted nor counted.

Its authors have a language model cluster all rollouts of a prompt, and alpha from 0 to 1. Here the
checker of the working tells strategies apart, for problems whose strategies it knows
(`sage.tasks`), and alpha is 1 over right completions only. Second-hand accounts of the
paper differ on wrong completions; `right_only: false` weighs all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sage.fields import NonNegativeFloat, about
from sage.method import Tensor
from sage.method.credit import TokenSignals, equal_rows


@dataclass(frozen=True)
class Uniqueness:
    """Completions weigh less the more of their prompt follow the same strategy."""

    alpha: Annotated[
        NonNegativeFloat, about("power of a strategy's frequency", unit="exponent")
    ] = 1.0
    right_only: Annotated[
        bool, about("whether only right completions are weighted, and only they are counted")
    ] = True
    whole_groups: ClassVar[bool] = True
    strategies: ClassVar[bool] = True

    @property
    def binary(self) -> str | None:
        """Why no reward can stand beside that for a right answer, where one cannot."""
        return "weights right completions only (right_only)" if self.right_only else None

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`. Raises ValueError if the strategies are not known."""
        if signals.strategies is None:
            raise ValueError("uniqueness needs the strategy of each completion")
        weighted = (signals.rewards > 0) | (not self.right_only)
        weighted &= (signals.mask.sum(dim=1) > 0) & ~signals.rewards.isnan()
        everyone = signals.everyone
        alike = equal_rows(signals.groups, everyone(signals.groups)) * equal_rows(
            signals.strategies, everyone(signals.strategies)
        )
        count = (alike * everyone(weighted)[None, :]).sum(dim=1).clamp(min=1.0)
        weight = (count**-self.alpha).where(weighted, 1.0).to(signals.advantages.dtype)
        return (signals.advantages * weight)[:, None].expand_as(signals.log_probs)
