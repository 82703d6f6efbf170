"""UCPO (arXiv 2605.00365): of the right completions of a prompt, the unlikely ones get more.

q_i is the softmax, over the c right completions of a prompt, of the mean log-probability of their
tokens under the policy that drew them:

    A_i = A ((1 - tau) + tau c (1 / q_i) / sum_j (1 / q_j))   for a right completion

The sum over the right ones stays as it is. With tau 0, or one right completion, the advantages stay
as they are. Completions without a token under the loss (`mask_truncated`) are left out.

Its authors take tau 0.2 (1.5B) to 0.3, a learning rate of 5e-6, no KL term, 1 step and 8 rollouts.
Here tau is 0.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sage.fields import Share, about
from sage.method import Tensor
from sage.method.credit import TokenSignals, equal_rows


@dataclass(frozen=True)
class Ucpo:
    """The right completions of a prompt share their advantage by how unlikely they are."""

    tau: Annotated[
        Share,
        about("share of the right ones' advantage that is shared out anew", unit="share, 0 to 1"),
    ] = 0.2

    whole_groups: ClassVar[bool] = True
    binary: ClassVar[str] = "tells right from wrong completions"

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`."""
        mask = signals.mask.double()
        means = (signals.old_log_probs.double() * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        right = (signals.rewards > 0) & (mask.sum(1) > 0)
        everyone = signals.everyone
        peers = equal_rows(signals.groups, everyone(signals.groups)) * everyone(right)[None, :]
        rarity = (-everyone(means))[None, :].masked_fill(peers == 0, -float("inf"))
        share = (-means - rarity.logsumexp(dim=1)).exp()
        weight = 1.0 - self.tau + self.tau * peers.sum(dim=1) * share
        weighted = signals.advantages * weight.where(right, 1.0).to(signals.advantages.dtype)
        return weighted[:, None].expand_as(signals.log_probs)
