"""APO (arXiv 2602.05717), anchored policy optimisation: where it was wrong, back to the reference.

S are the K tokens that the reference finds likeliest in a state, without the one that was drawn; Z
and M are the chances that reference and policy give to S in all, w is the ratio of the drawn token:

    loss of a token = |A| (lambda w - beta M / Z)   where A < 0
                      -A w                          else, as in GRPO

So the drawn token of a wrong completion is pushed down (`apo_push`, lambda), and the other likely
tokens of the reference are pulled up (`apo`; beta is kl_coefficient). With lambda 1 and beta 0 it
is GRPO, and where S is empty nothing is pulled.

Its authors take lambda 1.05, beta 0.1 and K = 8, as here. Formula and values are from a reader's
notes; the paper itself was not read. The notes do not say how the clip treats the pull: here w is
clipped as in GRPO, and the pull is not. In a small vocabulary 8 tokens are a larger share of it
than in theirs. In the world of sums no run ended with more than 0.1 % right, at any rate
(reports/rivals/second_tuning/tuned_rates.json). A likely reason: where the reference is sure of
the drawn token, Z is near 0, and the pull goes on when M is above Z, up to 1 / Z.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from sage.fields import Positive, PositiveFloat, about
from sage.method import Tensor
from sage.method.anchors import Direction, LogProbs
from sage.method.credit import TokenSignals


@dataclass(frozen=True)
class Apo:
    """Wrong completions raise what the policy gives to the reference's likeliest other tokens."""

    support: Annotated[
        Positive, about("the reference's likeliest tokens of a state, K", unit="tokens")
    ] = 8
    direction: ClassVar[Direction] = "reverse"
    over_vocabulary: ClassVar[bool] = True

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.guide:
            yield "ranks the vocabulary, but a guide is known for the drawn token only"

    def values(self, log_probs: LogProbs) -> Tensor:
        """The term per state: of logits `[B, T, V]`, `[B, T]`; ValueError without tokens.

        Its gradient is that of -|A| M / Z. Its value, which is logged as the KL, is |A| times the
        share of Z that the policy lacks, max(0, 1 - M / Z); 0 where A > 0 or S is empty.
        """
        tokens, advantages = log_probs.tokens, log_probs.advantages
        if tokens is None or advantages is None:
            raise ValueError("APO needs the drawn tokens and the advantages")
        reference = log_probs.anchor.softmax(dim=-1)
        chances, safe = reference.topk(min(self.support, reference.shape[-1]))
        others = safe != tokens[..., None]
        held = (chances * others).sum(dim=-1)
        reached = (log_probs.policy.softmax(dim=-1).gather(-1, safe) * others).sum(dim=-1)
        covered = reached / held.where(held > 0, float("inf"))
        lost = (1.0 - covered).clamp(min=0.0) * (held > 0)
        wrong = (-advantages).clamp(min=0.0)[:, None]
        return wrong * (lost.detach() + covered.detach() - covered)


@dataclass(frozen=True)
class ApoPush:
    """Tokens of wrong completions are pushed down more strongly."""

    push: Annotated[PositiveFloat, about("weight of advantages below 0, lambda", unit="factor")] = (
        1.05
    )
    kind: ClassVar[str] = "apo_push"

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`."""
        advantages = signals.advantages
        pushed = advantages.where(advantages >= 0, self.push * advantages)
        return pushed[:, None].expand_as(signals.log_probs)
