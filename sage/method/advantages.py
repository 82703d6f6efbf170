"""Advantages of the rollouts of a group, from their rewards.

Each is a class that holds its settings and maps rewards `[N, G]` of N prompts to advantages
`[N, G]`. Where prompts have unequal numbers of rollouts, NaN stands for those that are missing, and
their advantage is 0. The first two are what TRL computes in training, which the tests hold against
them. One with `binary` takes rewards of 0 or 1 alone, for the reason it says. Torch is not imported
here: a study is read without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from sage.fields import about

if TYPE_CHECKING:
    import torch

EPSILON = 1e-4


@dataclass(frozen=True)
class GroupNormalised:
    """GRPO (arXiv 2402.03300): (reward - group's mean) / (its unbiased deviation + 1e-4)."""

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`."""
        _check(rewards)
        deviation = rewards - rewards.nanmean(dim=1, keepdim=True)
        count = rewards.isfinite().sum(dim=1, keepdim=True)
        variance = deviation.square().nansum(dim=1, keepdim=True) / (count - 1)
        return (deviation / (variance.sqrt() + EPSILON)).nan_to_num(nan=0.0)


@dataclass(frozen=True)
class Centred:
    """Dr. GRPO (arXiv 2503.20783): the reward less the group's mean."""

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`."""
        _check(rewards)
        return (rewards - rewards.nanmean(dim=1, keepdim=True)).nan_to_num(nan=0.0)


@dataclass(frozen=True)
class BetaNormalised:
    """BNPO (arXiv 2506.02864): the centred reward over a Beta density fitted over the prompts.

    p is a group's success rate; a and b are the moment estimates from mean m and unbiased
    variance v of p over the prompts, alpha = max(1, 1 + a/3), beta = max(1, 1 + b/3); the
    weight 1 / BetaPDF(p) is at most 1e6.
    """

    binary: ClassVar[str] = "fits a Beta density to success rates"

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        if rl.prompts_per_step < 2:
            yield (
                "fits a Beta density over the prompts of a step, so prompts_per_step must be at "
                f"least 2, not {rl.prompts_per_step}"
            )

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`. Raises ValueError with one prompt, or rewards not 0 or 1."""
        _check(rewards, binary=True)
        if rewards.shape[0] < 2:
            raise ValueError("BNPO's Beta distribution needs at least two prompts a step")
        rates = rewards.double().nanmean(dim=1)
        mean, variance = rates.mean(), rates.var()
        common = mean * (1 - mean) / variance.clamp(min=1e-12) - 1
        alpha = (1 + mean * common / 3).clamp(min=1.0)
        beta = (1 + (1 - mean) * common / 3).clamp(min=1.0)
        log_norm = alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
        log_density = (alpha - 1).xlogy(rates) + (beta - 1).xlogy(1 - rates) - log_norm
        weight = (-log_density).exp().clamp(max=1e6)
        advantages = weight[:, None] * (rewards - rates[:, None])
        return advantages.nan_to_num(nan=0.0).to(rewards.dtype)


@dataclass(frozen=True)
class _OfSets:
    """Advantages of sets of k rollouts of a group, from how many of it are right."""

    k: Annotated[int, Field(ge=1), about("rollouts of a set", unit="rollouts")] = 4

    binary: ClassVar[str] = "counts right rollouts"

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        yield from _too_few(self.k, rl)


@dataclass(frozen=True)
class PassAtK(_OfSets):
    """pass@k training (arXiv 2508.10751): the advantages of sets of k rollouts, in closed form.

    With w wrong ones among G, R = 1 - C(w, k) / C(G, k) is the chance that a set of k holds a right
    one, s^2 = R (1 - R). A right rollout gets (1 - R) / s, a wrong one
    (1 - R - C(w - 1, k - 1) / C(G - 1, k - 1)) / s, and all get 0 where s is 0. With k = 1 this is
    GRPO's with the biased standard deviation.
    """

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`. Raises ValueError on rewards not 0 or 1, or fewer than k."""
        _check(rewards, binary=True)
        count, right = _counts(rewards, self.k)
        failure = _chance_of_none(count, right, self.k)
        deviation = ((1 - failure) * failure).sqrt()
        of_wrong = failure - _chance_of_none(count - 1, right, self.k - 1)
        advantages = rewards.double() * (failure - of_wrong) + of_wrong
        usable = deviation > 0
        scaled = (advantages / deviation.where(usable, deviation + 1)) * usable
        return scaled.nan_to_num(nan=0.0).to(rewards.dtype)


@dataclass(frozen=True)
class Pkpo(_OfSets):
    """PKPO (arXiv 2505.15201, Eq. 33: s^(loo-1)): an unbiased gradient of pass@k.

    Of each set of k rollouts a rollout is credited with what it adds to the set's best reward. With
    c right ones among G, a right rollout gets k C(G - c, k - 1) / C(G - 1, k - 1), a wrong one 0: G
    times the paper's weights, for the loss takes the mean over rollouts where the paper sums. With
    k = 1 this is the reward itself. k must be below G: at k = G a group has a gradient only if
    exactly one of its rollouts is right.
    """

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        yield from super().conflicts_with_run(rl)
        if rl.rollouts == self.k:
            yield (
                f"takes sets of k = {self.k} of a prompt's {rl.rollouts} rollouts: of a whole "
                "group only a single right rollout would be credited; choose a smaller k"
            )

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`. Raises ValueError on rewards not 0 or 1, or fewer than k."""
        _check(rewards, binary=True)
        count, right = _counts(rewards, self.k)
        # k - 1 others drawn from the G - 1 others, all wrong: C(G - c, k - 1) / C(G - 1, k - 1).
        alone = _chance_of_none(count - 1, right - 1, self.k - 1)
        return (rewards.double() * self.k * alone).nan_to_num(nan=0.0).to(rewards.dtype)


@dataclass(frozen=True)
class MaxRl:
    """MaxRL (arXiv 2602.02710): the gradient of log p, cut off after some of its terms.

    log p = -sum over k of (1 - p)^k / k, where p is the chance of a right rollout; the first term
    alone is REINFORCE. Of c right ones among G, without `order`, a rollout of reward r gets
    (r - c/G) / (c/G), and all get 0 where c is 0: the gradient of the first G - 1 terms. With
    `order` T, a right one gets sum over j < T of C(G - c, j) / C(G - 1, j), a wrong one 0: that of
    the first T terms. Both are unbiased for G independent rollouts.
    """

    order: Annotated[
        Annotated[int, Field(ge=1)] | None,
        about("terms of log p, at most the rollouts; `null` all but one, centred", unit="terms"),
    ] = None

    binary: ClassVar[str] = "counts right rollouts"

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        yield from _too_few(self.order or 1, rl)

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`. Raises ValueError on rewards not 0 or 1, or fewer than order."""
        _check(rewards, binary=True)
        count, right = _counts(rewards, self.order or 1)
        if self.order is None:
            advantages = (rewards.double() * count / right.clamp(min=1.0) - 1.0) * (right > 0)
        else:
            weights = [_chance_of_none(count - 1, right - 1, j) for j in range(self.order)]
            advantages = rewards.double() * sum(weights)
        return advantages.nan_to_num(nan=0.0).to(rewards.dtype)


@dataclass(frozen=True)
class WeightedReinforce:
    """W-REINFORCE (arXiv 2506.01347): lambda for right, -1 for wrong, without the group.

    With `weight` 0 only wrong rollouts count: negative-sample reinforcement.
    """

    weight: Annotated[
        float, Field(ge=0.0), about("advantage of a right rollout, λ", unit="advantage")
    ] = 0.1

    binary: ClassVar[str] = "tells right from wrong rollouts"

    def advantages(self, rewards: torch.Tensor) -> torch.Tensor:
        """See the class; `[N, G]`. Raises ValueError on rewards not 0 or 1."""
        _check(rewards, binary=True)
        return (rewards * (self.weight + 1) - 1).nan_to_num(nan=0.0)


def pass_at_k(rewards: torch.Tensor, k: int) -> torch.Tensor:
    """Unbiased pass@k of each prompt from rewards of 0 or 1, `[N, G]` to `[N]` (arXiv 2107.03374).

    Raises ValueError if a prompt has fewer than k rollouts.
    """
    count, right = _counts(rewards, k)
    return 1.0 - _chance_of_none(count, right, k)[:, 0]


def _too_few(k: int, rl: Any) -> Iterator[str]:
    if rl.rollouts < k:
        yield f"takes sets of k = {k} rollouts, but a prompt has {rl.rollouts}"


def _counts(rewards: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rollouts and right rollouts of each prompt, `[N, 1]`; ValueError if any has fewer than k."""
    count = rewards.isfinite().sum(dim=1, keepdim=True).double()
    if bool((count < k).any()):
        raise ValueError(f"a prompt has {int(count.min())} rollouts, fewer than k = {k}")
    return count, rewards.double().nansum(dim=1, keepdim=True)


def _chance_of_none(count: torch.Tensor, right: torch.Tensor, k: int) -> torch.Tensor:
    """C(count - right, k) / C(count, k): k of `count` drawn without replacement, none right."""
    chance = count.new_ones(count.shape)
    for drawn in range(k):
        chance = chance * (count - right - drawn).clamp(min=0.0) / (count - drawn)
    return chance


def _check(rewards: torch.Tensor, binary: bool = False) -> None:
    if rewards.ndim != 2 or rewards.shape[1] < 2:
        raise ValueError(f"rewards must be [prompts, rollouts >= 2], not {tuple(rewards.shape)}")
    if binary and not bool(((rewards == 0) | (rewards == 1) | rewards.isnan()).all()):
        raise ValueError(f"rewards must be 0 or 1, but there are {rewards.unique().tolist()[:4]}")
