"""VERL (arXiv 2509.23808): credit by the effective rank of a completion's hidden states.

The rank (ER) of a growing completion says how many directions its hidden states explore; its growth
(ERV), and the change of that (ERA), say how. Completions in which these exceed their running means
get a larger advantage:

    ER    = exp(-sum p log p),   p the singular values of the centred states, over their sum
    dev x = (x - m) / |m|,   m the running mean of x over the steps before
    g     = sigmoid(2 dev ERA)
    Φ     = g tanh(dev ER) + (1 - g) tanh(dev ERV)
    A_t   = A + weight min(relu(Φ), |A| / 2)

Its authors measure every 40 tokens. The entries here do so every 8, for a completion of at most 64
tokens has no second difference at 40.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from sage.fields import NonNegativeFloat, Positive, Share, about
from sage.method import Tensor
from sage.method.credit import TokenSignals


@dataclass
class VerlRank:
    """A completion counts for more where the rank of its hidden states, and its growth, are large.

    A measure (`rank_measures`) that a completion is too short for counts as its running mean. The
    first optimizer step has no running means, and there A stays as it is. Hidden states are those
    of the loss's own forward pass. An eigenvalue problem is solved for each measured prefix, so
    long completions need a larger `every`.
    """

    every: Annotated[
        Positive, about("the rank is measured after every so many tokens", unit="tokens")
    ] = 40
    weight: Annotated[
        NonNegativeFloat, about("weight of what is added to an advantage", unit="factor")
    ] = 1.0
    decay: Annotated[
        Share, about("share of the running means that a step keeps", unit="share, 0 to 1")
    ] = 0.7
    hidden_states: ClassVar[bool] = True
    single_turn: ClassVar[str] = (
        "follows the hidden states of a whole completion, but tools write tokens between turns "
        "that the policy does not draw"
    )
    _means: list[float] = field(init=False, default_factory=list, repr=False, compare=False)
    _sums: Tensor | None = field(init=False, default=None, repr=False, compare=False)

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        if rl.sampling.max_tokens <= 2 * self.every + 1:
            yield (
                f"measures the rank every {self.every} tokens and needs three measurements of a "
                "completion for its acceleration, but rl.sampling.max_tokens is "
                f"{rl.sampling.max_tokens}; set every below {rl.sampling.max_tokens // 2}"
            )

    def token_advantages(self, signals: TokenSignals) -> Tensor:
        """See above; `[B, T]`. Raises ValueError without hidden states."""
        import torch

        if signals.hidden_states is None:
            raise ValueError("VERL needs the hidden states of the policy")
        measures = rank_measures(signals.hidden_states, signals.mask, self.every)
        if signals.training:
            known = measures.isfinite()
            sums = torch.stack([measures.nan_to_num(nan=0.0).sum(dim=0), known.sum(dim=0)])
            self._sums = sums if self._sums is None else self._sums + sums
        advantages = signals.advantages
        if self._means:
            mean = measures.new_tensor(self._means)
            scale = mean.abs().clamp(min=1e-8)
            rank, growth, change = ((measures - mean) / scale).nan_to_num(nan=0.0).unbind(dim=1)
            share = (2 * change).sigmoid()
            bonus = share * rank.tanh() + (1 - share) * growth.tanh()
            most = advantages.abs() / 2
            more = torch.minimum(bonus.clamp(min=0.0).to(advantages.dtype), most)
            advantages = advantages + self.weight * more
        return advantages[:, None].expand_as(signals.log_probs)

    def end_step(self, total: Callable[[Tensor], Tensor]) -> None:
        """Move the running means; `total` adds a tensor up over all processes."""
        if self._sums is None:
            return
        sums, counts = total(self._sums).tolist()
        self._sums = None
        means = self._means or [math.nan] * len(sums)
        for place, (old, value, count) in enumerate(zip(means, sums, counts, strict=True)):
            if count:  # the first value, where there was none
                now = value / count
                moved = self.decay * old + (1 - self.decay) * now
                means[place] = now if math.isnan(old) else moved
        self._means = means

    def state_dict(self) -> dict[str, Any]:
        """The running means of ER, ERV and ERA."""
        return {"means": list(self._means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._means = list(state["means"])


def effective_rank(states: Tensor, mask: Tensor) -> Tensor:
    """exp(-Σ p log p) with p the singular values of the centred states, over their sum.

    `states` `[B, T, D]` and `mask` `[B, T]`, which says which tokens count, to `[B]`, float64;
    from 1 to min(T - 1, D), and 0 where all states are equal.
    """
    import torch

    inside = mask.double()[..., None]
    wide = states.double() * inside
    mean = wide.sum(dim=1, keepdim=True) / inside.sum(dim=1, keepdim=True).clamp(min=1.0)
    centred = (wide - mean) * inside
    tall = centred.shape[1] > centred.shape[2]
    gram = centred.mT @ centred if tall else centred @ centred.mT
    values = torch.linalg.eigvalsh(gram).clamp(min=0.0).sqrt()
    # What rounding leaves of a singular value of 0, in a matrix of products.
    values = values * (values > 1e-6 * values.amax(dim=1, keepdim=True))
    share = values / values.sum(dim=1, keepdim=True)
    rank = (-share.xlogy(share).sum(dim=1)).exp()
    return rank.nan_to_num(nan=0.0)


def rank_measures(states: Tensor, mask: Tensor, every: int) -> Tensor:
    """ER, ERV and ERA of each completion, `[B, 3]`, float64; NaN where it is too short for one.

    m_1, m_2, ... are effective ranks of the first `every`, 2 `every`, ... tokens, the last of the
    whole completion, unless it has a single token more than the one before, as in the release. ER
    is that of the whole completion. v_j = m_j - mean of m_1 .. m_(j-1); ERV is the mean of the
    v_j, and ERA that of v_(j+1) - v_j. `states` `[B, T, D]`, `mask` `[B, T]`, 1 on the first
    tokens of each completion.
    """
    import torch

    lengths = mask.sum(dim=1).long()
    columns = int(lengths.max()) // every + 1
    ranks = states.new_full((len(states), columns), float("nan"), dtype=torch.float64)
    for place in range(columns):
        end = min((place + 1) * every, states.shape[1])
        rows = (lengths > place * every).nonzero()[:, 0]
        if len(rows):
            ranks[rows, place] = effective_rank(states[rows, :end], mask[rows, :end])
    last = ((lengths - 1) // every).clamp(min=0)[:, None]
    whole = ranks.gather(1, last)[:, 0]
    single = (lengths[:, None] - last * every == 1) & (last > 0)  # a last window of one token
    ranks = ranks.scatter(1, last, ranks.gather(1, last).masked_fill(single, torch.nan))
    count = torch.arange(1, columns + 1, device=ranks.device)
    speeds = ranks[:, 1:] - (ranks.cumsum(dim=1) / count)[:, :-1]
    return torch.stack([whole, speeds.nanmean(1), speeds.diff(dim=1).nanmean(1)], dim=1)
