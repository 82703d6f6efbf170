"""DPPO (arXiv 2602.04879): a trust region by divergence, in place of the clip of the ratio.

With p and m the chances of the drawn token under the policy and under the one that drew it:

    D   = |p - m|                                              binary total variation
    D   = m log(m / p) + (1 - m) log((1 - m) / (1 - p))        binary KL
    A_t = 0 where D > delta and A (p - m) > 0, else A

So a token is left out once its chance has moved too far, and would move on. A clip of the ratio
leaves out rare tokens long before that, and frequent ones too late. On policy D is 0 and this is
GRPO. The ratio itself is not clipped.

Its authors' values are not known here, but verl's example of the method, which measures D from the
policy that drew as well, takes delta 0.15 with total variation and 0.05 with KL. Here D is total
variation with 0.15 unless `kl` is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from sage.fields import PositiveFloat, about
from sage.method import Tensor
from sage.method.credit import TokenSignals


@dataclass(frozen=True)
class Dppo:
    """Tokens whose chance has moved too far already are left out."""

    delta: Annotated[
        PositiveFloat, about("the largest divergence of a token", unit="divergence")
    ] = 0.15
    divergence: Annotated[
        Literal["tv", "kl"], about("total variation, or KL in nats, of drawing the token or not")
    ] = "tv"
    single_turn: ClassVar[str] = (
        "compares tokens with the policy that drew them, but tools write tokens between turns that "
        "no policy draws"
    )

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.clip_low is not None or algorithm.clip_high is not None:
            yield "takes the place of the clip, so clip_low and clip_high must be null"

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`."""
        now, before = (each.double() for each in (signals.log_probs, signals.old_log_probs))
        moved = now.exp() - before.exp()
        if self.divergence == "tv":
            distance = moved.abs()
        else:
            drawn, rest = before.exp(), (-before.expm1()).clamp(min=1e-12)
            other = (-now.expm1()).clamp(min=1e-12)
            distance = drawn * (before - now) + rest * (rest / other).log()
        advantages = signals.advantages[:, None].expand_as(signals.log_probs)
        out = (distance > self.delta) & (advantages * moved > 0)
        return advantages.masked_fill(out, 0.0)
