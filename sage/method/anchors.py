"""Anchors and the divergences that measure a policy's distance to them (Eq. 3-8, 38).

SAGE multiplies the reference by a guide function, so the anchor's log-probability of a
token is that of the reference plus log q_t. It need not be normalised. The estimators take
the sampled token only; rho is anchor / policy at that token. They agree in expectation as
numbers but not as losses: see `sage.theory.credit`. The classes at the end are what an
method can choose as its estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sage.method import Tensor

Direction = Literal["reverse", "forward"]


def shaped_anchor(reference_log_probs: Tensor, log_factors: Tensor) -> Tensor:
    """log(q_t * pi_ref(y_t | s_t)), `[B, T]`, in nats (Eq. 8); carries no gradient.

    Raises ValueError if the shapes differ.
    """
    if reference_log_probs.shape != log_factors.shape:
        raise ValueError(
            f"reference {tuple(reference_log_probs.shape)} and guide "
            f"{tuple(log_factors.shape)} differ in shape"
        )
    return (reference_log_probs + log_factors).detach()


def k1(log_probs: Tensor, anchor_log_probs: Tensor) -> Tensor:
    """-log rho per token, `[B, T]`; as a loss its expected gradient on policy is zero."""
    return log_probs - anchor_log_probs


def k2(log_probs: Tensor, anchor_log_probs: Tensor) -> Tensor:
    """(log rho)^2 / 2 per token, `[B, T]`; as a loss it has the gradient of the reverse KL."""
    return 0.5 * (log_probs - anchor_log_probs).square()


def k3(log_probs: Tensor, anchor_log_probs: Tensor) -> Tensor:
    """rho - log rho - 1 per token (Eq. 38), `[B, T]`; as a loss it descends a forward KL."""
    log_ratio = anchor_log_probs - log_probs
    return log_ratio.exp() - log_ratio - 1.0


def k3_corrected(log_probs: Tensor, anchor_log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """k3 times policy / old policy, `[B, T]`: as a loss the gradient of the reverse KL."""
    return (log_probs - old_log_probs).exp() * k3(log_probs, anchor_log_probs)


def forward_kl_sampled(log_probs: Tensor, anchor_log_probs: Tensor) -> Tensor:
    """rho log rho - rho + 1 per token, `[B, T]`: unbiased for KL(anchor || policy)."""
    log_ratio = anchor_log_probs - log_probs
    ratio = log_ratio.exp()
    return ratio * log_ratio - ratio + 1.0


def forward_kl_exact(logits: Tensor, anchor_logits: Tensor) -> Tensor:
    """KL(anchor || policy) over the vocabulary at each visited state: `[B, T, V]` to `[B, T]`."""
    anchor = anchor_logits.log_softmax(dim=-1)
    return (anchor.exp() * (anchor - logits.log_softmax(dim=-1))).sum(dim=-1)


def pseudo_kl(log_probs: Tensor, anchor_log_masses: Tensor) -> Tensor:
    """sum_y p log(p / m) - p + m for a positive measure m (Eq. 5): `[..., Y]` to `[...]`."""
    p, m = log_probs.exp(), anchor_log_masses.exp()
    return (p * (log_probs - anchor_log_masses) - p + m).sum(dim=-1)


@dataclass(frozen=True)
class LogProbs:
    """What an estimator sees of a micro-batch: log-probabilities of the drawn tokens, in nats.

    `[B, T]` under the `policy`, which carries the gradient, the `anchor`, which has log q in it,
    and the `old` policy that drew the tokens. For an estimator that chooses among tokens: the
    policy's `entropies` and the `mask` of tokens with loss, both `[B, T]`, the `advantages` `[B]`
    of completions, and `everyone`, which turns this process's rows into those of the micro-batch.
    One that says `over_vocabulary = True` gets logits `[B, T, V]` as `policy` and `anchor`, and the
    drawn `tokens` `[B, T]`.
    """

    policy: Tensor
    anchor: Tensor
    old: Tensor
    entropies: Tensor | None = None
    mask: Tensor | None = None
    advantages: Tensor | None = None
    everyone: Callable[[Tensor], Tensor] = lambda rows: rows
    tokens: Tensor | None = None


@dataclass(frozen=True)
class K2:
    """Half the squared log ratio; as a loss it has the gradient of the reverse KL."""

    direction: ClassVar[Direction] = "reverse"

    def values(self, log_probs: LogProbs) -> Tensor:
        """The KL term per token, not negative, `[B, T]`."""
        return k2(log_probs.policy, log_probs.anchor)


@dataclass(frozen=True)
class K3:
    """rho - log rho - 1, as the paper; as a loss it descends a forward KL. TRL's own."""

    direction: ClassVar[Direction] = "reverse"

    def values(self, log_probs: LogProbs) -> Tensor:
        return k3(log_probs.policy, log_probs.anchor)


@dataclass(frozen=True)
class K3Corrected:
    """k3 times the importance weight, a loss with the gradient of the reverse KL. TRL's own."""

    direction: ClassVar[Direction] = "reverse"

    def values(self, log_probs: LogProbs) -> Tensor:
        return k3_corrected(log_probs.policy, log_probs.anchor, log_probs.old)


@dataclass(frozen=True)
class SampledForwardKL:
    """rho log rho - rho + 1, at the drawn token."""

    direction: ClassVar[Direction] = "forward"

    def values(self, log_probs: LogProbs) -> Tensor:
        return forward_kl_sampled(log_probs.policy, log_probs.anchor)


@dataclass(frozen=True)
class ExactForwardKL:
    """The forward KL summed over the vocabulary; without a guide."""

    direction: ClassVar[Direction] = "forward"
    over_vocabulary: ClassVar[bool] = True

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.guide:
            yield (
                "sums over the vocabulary, but a guide is known for the drawn token only; use "
                "estimator: sampled"
            )

    def values(self, log_probs: LogProbs) -> Tensor:
        """KL per state, `[B, T, V]` to `[B, T]`: given logits in the place of log-probs."""
        return forward_kl_exact(log_probs.policy, log_probs.anchor)
