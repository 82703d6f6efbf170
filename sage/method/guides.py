"""Guide functions q(x, y): how a SAGE anchor leans away from the reference (Eq. 7-12).

A guide turns signals of the policy's own forward pass into one positive factor per token;
their product over a completion is q(x, y). A guide holds settings only: what varies in
training, the step and the noise, comes in with each call, so the same call gives the same
factors after a restart. A new guide is one small class, here with its name in
`sage.study.choices`, or in any module that can be imported: `module:Class`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from sage.fields import NonNegativeFloat, Positive, Share, about
from sage.method import Tensor


@dataclass(frozen=True)
class Signals:
    """What a guide may look at, all `[B, T]` and without gradient.

    `log_probs` are the policy's log-probabilities of the sampled tokens and `entropies` the
    entropies of its next-token distributions, both in nats; `mask` is 1 on completion tokens.
    `reference_entropies` are those of the reference at the same places, for a guide that says
    `entropy_of = "reference"`; else None.
    """

    log_probs: Tensor
    entropies: Tensor
    mask: Tensor
    reference_entropies: Tensor | None = None


@dataclass(frozen=True)
class Noise:
    """Random numbers of a batch, in streams named by `name`, the completion and the draw.

    `rows` number the completions, by default from 0. What a completion gets depends neither on
    what is batched with it nor on padding, so that it is the same on one GPU or on several.
    """

    name: str
    rows: Sequence[int] | None = None

    def normal(self, draw: str, like: Tensor) -> Tensor:
        """Standard normal numbers of the draw of that name, in the shape `[B, T]` of `like`."""
        return self._rows("standard_normal", draw, like)

    def uniform(self, draw: str, like: Tensor) -> Tensor:
        """Numbers in [0, 1), likewise."""
        return self._rows("random", draw, like)

    def _rows(self, kind: str, draw: str, like: Tensor) -> Tensor:
        import numpy as np
        import torch

        rows = range(len(like)) if self.rows is None else self.rows
        if len(rows) != len(like):
            raise ValueError(f"{len(rows)} completions are numbered, but the batch has {len(like)}")
        drawn = np.empty(tuple(like.shape), dtype=np.float32)
        for place, row in enumerate(rows):
            digest = hashlib.sha256(f"{self.name}|{row}|{draw}".encode()).digest()
            stream = np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], "<u8")))
            drawn[place] = getattr(stream, kind)(like.shape[1], dtype="float32")
        return torch.from_numpy(drawn).to(like.device)


@dataclass(frozen=True)
class Moment:
    """When a guide is asked: optimizer step, or loss call, `step` of `total_steps`; its noise."""

    step: int
    total_steps: int
    noise: Noise


class GuideFunction(Protocol):
    """A guide: per-token factors q_t before clamping.

    A class may say `causal = True` if a factor depends on no later token of its completion; the
    KL in the reward then need not count the factors of earlier tokens; and `of_state = True` if a
    factor does not depend on which token was drawn. A guide that learns may have
    `observe(signals, reference_log_probs, advantages)`, called in training before `factors`, and
    `end_step`, `state_dict` and `load_state_dict` (`sage.training.shaping`).
    """

    def factors(self, signals: Signals, moment: Moment) -> Tensor:
        """Positive factors `[B, T]`; the value on padding does not matter."""
        ...


Periods = Annotated[Positive, about("cosine periods over training", unit="periods")]
Decay = Annotated[
    float, Field(gt=0.0, le=1.0), about("the high end shrinks by it at each restart", unit="factor")
]


def cosine(moment: Moment, high: float, low: float, periods: int = 8, decay: float = 0.9) -> float:
    """A cosine from `high` down to `low`, restarted `periods` times over training.

    In a period of P = total / periods steps, v(t) = low + (high - low)(1 + cos(pi t / P)) / 2;
    `high` shrinks by `decay` at each restart, but not below `low`. In a schedule of loss calls
    (fidelity `released`) steps and total are loss calls. Behind the last period, where a run is
    prolonged, it stays where that ends.
    """
    done = moment.step * periods / max(moment.total_steps, 1)  # in periods
    period = min(int(done), periods - 1)
    high = max(high * decay**period, low)
    place = min(done - period, 1.0)
    return low + (high - low) * (1 + math.cos(math.pi * place)) / 2


@dataclass(frozen=True)
class RandomGuide:
    """Perturbs a random share of the tokens (Eq. 9).

    q_t = 1 + sigma * N(0, 1) with probability epsilon, else 1. Each schedule is a cosine from high
    to low, restarted.
    """

    of_state: ClassVar[bool] = True

    epsilon_high: Annotated[
        Share, about("perturbed tokens at the start of a period", unit="share of tokens, 0 to 1")
    ] = 0.1
    epsilon_low: Annotated[
        Share, about("perturbed tokens at its end", unit="share of tokens, 0 to 1")
    ] = 0.0
    sigma_high: Annotated[
        float, about("standard deviation of the factor at the start of a period", unit="factor")
    ] = 0.15
    sigma_low: Annotated[
        float, about("standard deviation of the factor at its end", unit="factor")
    ] = 0.05
    periods: Periods = 8
    decay: Decay = 0.9

    def __post_init__(self) -> None:
        _check_ranges(self, "epsilon", "sigma")

    def factors(self, signals: Signals, moment: Moment) -> Tensor:
        """See the class; shape `[B, T]`."""
        epsilon = cosine(moment, self.epsilon_high, self.epsilon_low, self.periods, self.decay)
        sigma = cosine(moment, self.sigma_high, self.sigma_low, self.periods, self.decay)
        chosen = moment.noise.uniform("chosen", signals.log_probs) < epsilon
        return 1.0 + chosen * sigma * moment.noise.normal("value", signals.log_probs)


@dataclass(frozen=True)
class TokenGuide:
    """Favours surprising tokens (Eq. 10).

    q_t = 1 + alpha * s_t + sigma * s_t * N(0, 1), with s_t in [0, 1] the token's surprisal
    normalised within its completion; alpha and sigma on a cosine schedule.
    """

    alpha_high: Annotated[
        float,
        about("amplification of the most surprising token at the start of a period", unit="factor"),
    ] = 0.3
    alpha_low: Annotated[
        float, about("amplification of the most surprising token at its end", unit="factor")
    ] = 0.1
    sigma_high: Annotated[
        float, about("standard deviation of its noise at the start of a period", unit="factor")
    ] = 0.25
    sigma_low: Annotated[
        float, about("standard deviation of its noise at its end", unit="factor")
    ] = 0.1
    periods: Periods = 8
    decay: Decay = 0.9
    normalisation: Annotated[
        Literal["quantile", "rank", "zscore"],
        about("how surprisals of a completion are brought to [0, 1]"),
    ] = "quantile"

    def __post_init__(self) -> None:
        _check_ranges(self, "alpha", "sigma")

    def factors(self, signals: Signals, moment: Moment) -> Tensor:
        """See the class; shape `[B, T]`."""
        alpha = cosine(moment, self.alpha_high, self.alpha_low, self.periods, self.decay)
        sigma = cosine(moment, self.sigma_high, self.sigma_low, self.periods, self.decay)
        surprisal = NORMALISATIONS[self.normalisation](-signals.log_probs, signals.mask)
        return 1.0 + surprisal * (alpha + sigma * moment.noise.normal("value", signals.log_probs))


@dataclass(frozen=True)
class BranchGuide:
    """Amplifies tokens drawn from a high-entropy state (Eq. 11, 12).

    q_t = 1 + ratio * max(0, H_t - threshold), with H_t and `threshold` in nats. With the policy's
    entropy the guide can feed itself: q pays for noise, which raises the entropy and with it q. The
    reference's entropy at the same places does not move, but takes one more forward pass. `causal`:
    a factor depends on no later token.
    """

    causal: ClassVar[bool] = True
    of_state: ClassVar[bool] = True

    ratio: Annotated[
        NonNegativeFloat, about("growth of the factor above the threshold", unit="per nat")
    ] = 0.3
    threshold: Annotated[
        NonNegativeFloat, about("entropy above which tokens are amplified", unit="nats")
    ] = 1.2
    entropy_of: Annotated[
        Literal["policy", "reference"], about("whose entropy H_t is; the paper's is the policy's")
    ] = "policy"

    def factors(self, signals: Signals, moment: Moment) -> Tensor:
        """See the class; shape `[B, T]`. Raises ValueError without the entropies it needs."""
        of_reference = self.entropy_of == "reference"
        entropies = signals.reference_entropies if of_reference else signals.entropies
        if entropies is None:
            raise ValueError("the branch guide needs the entropies of the reference")
        return 1.0 + self.ratio * (entropies - self.threshold).clamp(min=0.0)


def guide_log_factors(
    guide: GuideFunction, signals: Signals, moment: Moment, lowest: float, highest: float
) -> Tensor:
    """log q_t, clamped to [log lowest, log highest], zero on padding; `[B, T]`, no gradient.

    Raises ValueError if the signals differ in shape.
    """
    import torch

    shapes = {signals.log_probs.shape, signals.entropies.shape, signals.mask.shape}
    if len(shapes) != 1:
        raise ValueError(f"signals of different shapes: {sorted(map(tuple, shapes))}")
    with torch.no_grad():
        factors = guide.factors(signals, moment).clamp(lowest, highest)
        # Not a product: a guide may have no number on padding.
        return torch.where(signals.mask == 0, torch.zeros_like(signals.mask), factors.log())


def quantile_normalised(values: Tensor, mask: Tensor) -> Tensor:
    """Min-max within each row between its 5 % and 95 % quantiles, masked; `[B, T]` in [0, 1].

    Rows whose quantiles coincide, and padding, are 0.
    """
    inside = values.float().masked_fill(mask == 0, math.nan)
    low, high = inside.nanquantile(inside.new_tensor([0.05, 0.95]), dim=1, keepdim=True)
    scaled = (inside - low) / (high - low)
    return scaled.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).clamp(0.0, 1.0)


def rank_normalised(values: Tensor, mask: Tensor) -> Tensor:
    """Ranks within each row's masked values, from 0 (smallest) to 1; `[B, T]`, padding 0.

    Equal values have the mean of their ranks.
    """
    import torch

    inside = values.float().masked_fill(mask == 0, math.inf)
    ordered = inside.sort(dim=1).values
    below, up_to = (torch.searchsorted(ordered, inside, right=right) for right in (False, True))
    ranks = (below + up_to - 1) / 2
    last = (mask.sum(dim=1, keepdim=True) - 1).clamp(min=1)
    return (ranks / last).clamp(0.0, 1.0) * mask


def zscore_normalised(values: Tensor, mask: Tensor) -> Tensor:
    """The logistic function of z-scores within each row; `[B, T]` in (0, 1), padding 0."""
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    mean = (values * mask).sum(dim=1, keepdim=True) / count
    variance = ((values - mean).square() * mask).sum(dim=1, keepdim=True) / count
    return ((values - mean) / variance.sqrt().clamp(min=1e-6)).sigmoid() * mask


NORMALISATIONS = {
    "quantile": quantile_normalised,
    "rank": rank_normalised,
    "zscore": zscore_normalised,
}


def _check_ranges(guide: RandomGuide | TokenGuide, *names: str) -> None:
    """Raise ValueError unless 0 <= low <= high of each scheduled setting."""
    for name in names:
        low, high = getattr(guide, f"{name}_low"), getattr(guide, f"{name}_high")
        if not 0.0 <= low <= high:
            raise ValueError(f"{name}: low {low} and high {high} must satisfy 0 <= low <= high")
