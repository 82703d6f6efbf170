"""Credit of single tokens: advantages `[B, T]`, set where the loss has its log-probs.

A rule is a class that holds its settings and turns what is known of a micro-batch into one
advantage per token, without gradient; the loss multiplies each by the gradient of the token's
probability ratio. What depends on other completions is taken over the whole micro-batch, whichever
processes share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from sage.method import Tensor
from sage.method.anchors import Direction, LogProbs, k3


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
    True`. NaN among `rewards` stands for a completion that is not scored, whose advantage is 0.
    `training` is False in evaluation, when a rule must not learn.
    """

    log_probs: Tensor
    old_log_probs: Tensor
    entropies: Tensor
    mask: Tensor
    advantages: Tensor
    rewards: Tensor
    groups: Tensor
    group_sizes: Tensor
    rows: Tensor
    reference_log_probs: Tensor | None = None
    log_factors: Tensor | None = None
    causal: bool = False
    kl_coefficient: float = 0.0
    everyone: Callable[[Tensor], Tensor] = lambda rows: rows
    hidden_states: Tensor | None = None
    strategies: Tensor | None = None
    training: bool = True


class CreditRule(Protocol):
    """A rule: the advantage of each token.

    One with `whole_groups = True` compares all completions of a prompt, which must be in one
    micro-batch.
    """

    def token_advantages(self, signals: TokenSignals) -> Tensor:
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

    def values(self, log_probs: LogProbs) -> Tensor:
        """What is logged as the KL per token, `[B, T]`: k3, as for the other estimators."""
        return k3(log_probs.policy, log_probs.anchor)

    def token_advantages(self, signals: TokenSignals) -> Tensor:
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
        from_here_on = leash.flip(1).cumsum(dim=1).flip(1)  # the sum over t' >= t
        centred = own * sum(
            part - _mean_of_others(part, signals) for part in (from_here_on, of_all)
        )
        return signals.advantages[:, None] - (signals.kl_coefficient * centred).to(
            signals.advantages.dtype
        )


def equal_rows(rows: Tensor, others: Tensor) -> Tensor:
    """1 where a row has the same value as another, `[B]` and `[M]` to `[B, M]`, float64."""
    return (rows[:, None] == others[None, :]).double()


def _mean_of_others(values: Tensor, signals: TokenSignals) -> Tensor:
    """Mean over the prompt's other completions in the micro-batch, 0 if none; `[B, T]`."""
    everyone, groups = signals.everyone(values), signals.everyone(signals.groups)
    together = equal_rows(signals.groups, groups).to(values.dtype)
    count = together.sum(dim=1, keepdim=True) - 1
    total = (together @ everyone)[:, : values.shape[1]]  # other processes may hold longer ones
    return (total - values) / count.clamp(min=1)
