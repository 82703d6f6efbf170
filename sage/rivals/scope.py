"""SCOPE (ACL Findings 2026, 641): the KL term on few tokens only, and 0 on all others.

    KL_t = `of` at the `share` of a micro-batch's tokens with the highest score, else 0
    score_t = p (1 - p) max(A, 0)

p is the policy's probability of the token, A its completion's advantage; a token with score 0 is
never among them. With `score: entropy`, which the paper has as an ablation, tokens are ranked by
the policy's entropy; with that and share 1 this is the estimator `of`.

Its authors add the KL on 5 % of the tokens to GRPO. Here it is the same share of each micro-batch,
with the study's coefficient: runs that split a step into other micro-batches choose other tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sage.fields import about
from sage.method import Tensor
from sage.method.anchors import K2, K3, Direction, K3Corrected, LogProbs


@dataclass(frozen=True)
class Scope:
    """The KL term at the tokens with the highest score, and 0 on all others."""

    direction: ClassVar[Direction] = "reverse"

    share: Annotated[
        float, Field(gt=0.0, le=1.0), about("tokens with a KL term", unit="share of tokens, 0 to 1")
    ] = 0.05
    score: Annotated[Literal["redistribution", "entropy"], about("what tokens are ranked by")] = (
        "redistribution"
    )
    of: Annotated[
        Literal["k2", "k3", "k3_corrected"], about("the estimator at the tokens chosen")
    ] = "k3"

    def values(self, log_probs: LogProbs) -> Tensor:
        kinds: dict[str, Any] = {"k2": K2, "k3": K3, "k3_corrected": K3Corrected}
        values: Tensor = kinds[self.of]().values(log_probs)
        return values * self.chosen(log_probs)

    def chosen(self, log_probs: LogProbs) -> Tensor:
        """1 at the tokens that have a KL term, `[B, T]`; raises ValueError without signals.

        Of a tie at the lowest score all are chosen. The number of tokens is rounded up.
        """
        mask, advantages = log_probs.mask, log_probs.advantages
        if mask is None or advantages is None or log_probs.entropies is None:
            raise ValueError("SCOPE needs entropies, mask and advantages")
        if self.score == "entropy":
            scores = log_probs.entropies.detach()
        else:
            chance = log_probs.policy.detach().exp()
            scores = chance * (1.0 - chance) * advantages.clamp(min=0.0)[:, None]
        inside = mask.bool() & ((scores > 0) | (self.score == "entropy"))
        everyone = log_probs.everyone
        ranked = everyone(scores.masked_fill(~inside, 0.0)).flatten().sort(descending=True).values
        # Not up for what rounding adds: 0.07 of 100 tokens are 7.
        count = math.ceil(round(self.share * int(everyone(mask).sum()), 6))
        lowest = ranked[max(count, 1) - 1]
        return (inside & (scores >= lowest)).to(scores)
