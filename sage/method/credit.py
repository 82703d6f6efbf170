"""Credit of single tokens: advantages `[B, T]`, set where the loss has its log-probs.

A rule is a class that holds its settings and turns what is known of a micro-batch into one
advantage per token, without gradient; the loss multiplies each by the gradient of the token's
probability ratio. What depends on other completions is taken over the whole micro-batch, whichever
processes share it. Torch is not imported here: a study is read without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from sage.fields import about
from sage.method.anchors import Direction, LogProbs, k3

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TokenSignals:
    """What a rule may look at: B completions of a micro-batch, T tokens, nothing with gradient.

    `[B, T]`: `log_probs` of the drawn tokens under the policy and `old_log_probs` under the policy
    that drew them, `entropies` of the policy, all in nats; `mask`, 1 on tokens with loss;
    `reference_log_probs` and `log_factors`, the two parts log pi_ref and log q of the anchor (None
    without a KL term). `[B]`: `advantages` and `rewards` of the completions, `groups`, equal for
    completions of one prompt, `group_sizes`, how many completions a prompt has in all, and `rows`,
    the completion's place among those of all processes.
    `causal` says that log q of a token depends on no later token. `everyone` turns rows of this
    process, `[B, ...]`, into those of the whole micro-batch, `[M, ...]`. `hidden_states` are the
    last layer's, `[B, T, D]`, for a rule that says `hidden_states = True`; `strategies` `[B]` are
    equal for completions that solve a problem in the same way, for one that says `strategies =
    True`. `training` is False in evaluation, when a rule must not learn.
    """

    log_probs: torch.Tensor
    old_log_probs: torch.Tensor
    entropies: torch.Tensor
    mask: torch.Tensor
    advantages: torch.Tensor
    rewards: torch.Tensor
    groups: torch.Tensor
    group_sizes: torch.Tensor
    rows: torch.Tensor
    reference_log_probs: torch.Tensor | None = None
    log_factors: torch.Tensor | None = None
    causal: bool = False
    kl_coefficient: float = 0.0
    everyone: Callable[[torch.Tensor], torch.Tensor] = lambda rows: rows
    hidden_states: torch.Tensor | None = None
    strategies: torch.Tensor | None = None
    training: bool = True


class CreditRule(Protocol):
    """A rule: the advantage of each token.

    One with `whole_groups = True` compares all completions of a prompt, which must be in one
    micro-batch.
    """

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        """Advantages `[B, T]`, finite; the value on padding does not matter."""
        ...


@dataclass(frozen=True)
class K1InReward:
    """The log ratio as part of the reward: a token is charged with it, and with those after it.

    A_t = A - beta (L_t - mean of L_t over the prompt's other completions) (1 - 1/G), where
    L_t = sum over t' >= t of log pi - log pi_ref - log q. With centred A and a loss that sums over
    tokens, the expected gradient is 1 - 1/G times that of Eq. 4's objective (`sage.theory.credit`).
    With A over the group's deviation it is Eq. 4 with beta times that deviation.
    """

    direction: ClassVar[Direction] = "reverse"

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.credit:
            yield (
                "sets the advantage of each token, and so does credit: "
                f"{algorithm.credit}; choose one of them"
            )

    def values(self, log_probs: LogProbs) -> torch.Tensor:
        """What is logged as the KL per token, `[B, T]`: k3, as for the other estimators."""
        return k3(log_probs.policy, log_probs.anchor)

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        """See the class; `[B, T]`. Raises ValueError without an anchor.

        log q of earlier tokens counts as well unless the guide is causal: the token guide
        normalises within the completion, so that a token changes the factors of those before it.
        The mean is over the completions that share the micro-batch; it is a baseline, and without
        any the gradient is the same in expectation.
        """
        if signals.reference_log_probs is None:
            raise ValueError("the KL in the reward needs a reference")
        leash = (signals.log_probs - signals.reference_log_probs).double() * signals.mask
        of_all = leash.new_zeros(len(leash), 1)
        if signals.log_factors is not None:
            log_factors = signals.log_factors.double() * signals.mask
            if signals.causal:
                leash = leash - log_factors
            else:
                of_all = -log_factors.sum(dim=1, keepdim=True)
        own = 1.0 - 1.0 / signals.group_sizes.double()[:, None]
        centred = own * sum(
            part - _mean_of_others(part, signals) for part in (_from_here_on(leash), of_all)
        )
        return signals.advantages[:, None] - (signals.kl_coefficient * centred).to(
            signals.advantages.dtype
        )


@dataclass(frozen=True)
class Steer:
    """STEER (arXiv 2510.10150): tokens whose update would change the entropy most weigh least.

    The change is estimated as |A / pi_old * pi (1 - pi) (log pi + H)|, the range taken over the
    tokens of a micro-batch.
    """

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

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        """See the class; `[B, T]`."""
        policy = signals.log_probs.exp()
        change = (
            signals.advantages[:, None]
            * (-signals.old_log_probs).exp()
            * policy
            * (1.0 - policy)
            * (signals.log_probs + signals.entropies)
        ).abs()
        inside = signals.mask.bool()
        most = signals.everyone(change.masked_fill(~inside, 0.0).amax().view(1)).amax()
        least = signals.everyone(change.masked_fill(~inside, float("inf")).amin().view(1)).amin()
        if self.form == "linear":
            place = ((change - least) / (most - least)).nan_to_num(nan=0.5).clamp(0.0, 1.0)
            weight = self.highest - (self.highest - self.lowest) * place
        else:
            rate = -math.log(self.lowest) / most.clamp(min=0.02)
            weight = (-rate * change).exp().clamp(self.lowest, 1.0)
        return signals.advantages[:, None] * weight


@dataclass(frozen=True)
class Pacs:
    """PACS (arXiv 2509.02522): learns which completions are right, by binary cross-entropy.

    s_i = beta sum_t (log pi - log pi_old), psi_i = s_i - mean of the group's other s_j; the loss is
    the cross-entropy of (psi_i, r_i), both classes of a prompt weighing the same. The advantages
    are minus its derivative in each completion's log-probability, divided by the probability
    ratio, which the loss of a policy gradient brings in. Completions without a token under the
    loss (`mask_truncated`) are left out.
    """

    beta: Annotated[
        float, Field(gt=0.0), about("weight of a completion's log ratio", unit="per nat")
    ] = 1.0
    whole_groups: ClassVar[bool] = True
    binary: ClassVar[str] = "learns to tell right from wrong completions"

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.clip_low is not None or algorithm.clip_high is not None:
            yield (
                "is a loss without ratios, which a clip would cut to none; write clip_low: null "
                "and clip_high: null"
            )
        if algorithm.loss != "dr_grpo":
            yield (
                "sums over the tokens of a completion, so loss must be dr_grpo, "
                f"not {algorithm.loss}"
            )
        if algorithm.advantage.kind != "group":
            yield (
                f"takes rewards, not advantages; advantage: {algorithm.advantage} would have no "
                "effect"
            )

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        """See the class; `[B, T]`. Raises ValueError if a group is not whole."""
        log_ratios = (signals.log_probs - signals.old_log_probs) * signals.mask
        scores = self.beta * log_ratios.double().sum(dim=1)
        everyone = signals.everyone
        all_scores, rewards, groups = map(everyone, (scores, signals.rewards, signals.groups))
        together = _together(groups, groups)
        if bool((together.sum(dim=1) != everyone(signals.group_sizes)).any()):
            raise ValueError("PACS needs whole groups in a micro-batch")
        together *= everyone(signals.mask.sum(dim=1) > 0)[None, :]
        sizes = together.sum(dim=1)
        rest = (sizes - 1).clamp(min=1.0)
        others = (together @ all_scores - all_scores) / rest
        right = (rewards > 0).double()
        of_class = together @ right * right + (together @ (1 - right)) * (1 - right)
        classes = 1.0 + (of_class < sizes).double()
        weight = sizes / (classes * of_class.clamp(min=1.0))
        slope = weight * ((all_scores - others).sigmoid() - right)
        pull = slope - (together @ slope - slope) / rest
        place = (signals.rows[:, None] == everyone(signals.rows)[None, :]).int().argmax(dim=1)
        own = -self.beta * pull[place]
        return (own[:, None] / log_ratios.double().exp()).to(signals.advantages.dtype)


@dataclass(frozen=True)
class Ucpo:
    """UCPO (arXiv 2605.00365): of the right completions of a prompt, the unlikely ones get more.

    With c right completions of a prompt and q_i = softmax over them of the mean log-probability of
    their tokens under the policy that drew them, the advantage of a right one is multiplied by
    (1 - tau) + tau c (1 / q_i) / sum_j (1 / q_j): the sum over the right ones stays as it is. With
    tau 0, or one right completion, the advantages stay as they are. Completions without a token
    under the loss (`mask_truncated`) are left out.
    """

    tau: Annotated[
        float,
        Field(ge=0.0, le=1.0),
        about("share of the right ones' advantage that is shared out anew", unit="share, 0 to 1"),
    ] = 0.2

    whole_groups: ClassVar[bool] = True
    binary: ClassVar[str] = "tells right from wrong completions"

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        """See the class; `[B, T]`."""
        mask = signals.mask.double()
        means = (signals.old_log_probs.double() * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        right = (signals.rewards > 0) & (mask.sum(1) > 0)
        everyone = signals.everyone
        peers = _together(signals.groups, everyone(signals.groups)) * everyone(right)[None, :]
        rarity = (-everyone(means))[None, :].masked_fill(peers == 0, -float("inf"))
        share = (-means - rarity.logsumexp(dim=1)).exp()
        weight = 1.0 - self.tau + self.tau * peers.sum(dim=1) * share
        weighted = signals.advantages * weight.where(right, 1.0).to(signals.advantages.dtype)
        return weighted[:, None].expand_as(signals.log_probs)


@dataclass(frozen=True)
class Uniqueness:
    """Uniqueness-aware RL (arXiv 2601.08763): a rare strategy's advantage counts for more.

    The advantage of a completion is multiplied by 1 / f^alpha, where f completions of the prompt
    follow the same strategy. The paper has a language model tell strategies apart; here the checker
    of the working does, for problems whose strategies it knows (`sage.problems.working`). Working
    that follows none is one more strategy. With alpha 0 the advantages stay as they are.
    Completions without a token under the loss (`mask_truncated`) are neither weighted nor counted.
    """

    alpha: Annotated[
        float, Field(ge=0.0), about("power of a strategy's frequency", unit="exponent")
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

    def token_advantages(self, signals: TokenSignals) -> torch.Tensor:
        """See the class; `[B, T]`. Raises ValueError if the strategies are not known."""
        if signals.strategies is None:
            raise ValueError("uniqueness needs the strategy of each completion")
        weighted = (signals.rewards > 0) | (not self.right_only)
        weighted &= signals.mask.sum(dim=1) > 0
        everyone = signals.everyone
        alike = _together(signals.groups, everyone(signals.groups)) * _together(
            signals.strategies, everyone(signals.strategies)
        )
        count = (alike * everyone(weighted)[None, :]).sum(dim=1).clamp(min=1.0)
        weight = (count**-self.alpha).where(weighted, 1.0).to(signals.advantages.dtype)
        return (signals.advantages * weight)[:, None].expand_as(signals.log_probs)


def _together(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """1 where a row has the same value as another, `[B]` and `[M]` to `[B, M]`, float64."""
    return (rows[:, None] == others[None, :]).double()


def _from_here_on(values: torch.Tensor) -> torch.Tensor:
    """Sum over t' >= t, `[B, T]`."""
    return values.flip(1).cumsum(dim=1).flip(1)


def _mean_of_others(values: torch.Tensor, signals: TokenSignals) -> torch.Tensor:
    """Mean over the prompt's other completions in the micro-batch, 0 if none; `[B, T]`."""
    everyone, groups = signals.everyone(values), signals.everyone(signals.groups)
    together = _together(signals.groups, groups).to(values.dtype)
    count = together.sum(dim=1, keepdim=True) - 1
    total = (together @ everyone)[:, : values.shape[1]]  # other processes may hold longer ones
    return (total - values) / count.clamp(min=1)
