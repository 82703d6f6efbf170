"""Theorem 4.3 on the exact stationary policies, and the toy example of Appendix C.

The theorem is an equivalence: as pi_SAGE = q pi_RLVR / E_RLVR[q], its condition *is*
pi_SAGE(y) >= epsilon. The same identity says what enters at whose cost: a completion gains if
q(y) > E_RLVR[q] and loses, perhaps its place in the support, if below. Theorem 4.2 is a statement
about finite sampling and not about Eq. 2, where every valid completion gains over the reference.

The example has numbers of our own, on a real two-token tree.

The paper gives the first tokens of its two completions different entropies, but both are drawn in
the one state x, which has one entropy: an amplification there is shared and changes nothing. Here
the rare completion's first token *opens* a high-entropy state, so its second token is amplified.
Entropies, guide and policies are all computed from the tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sage.method.guides import BranchGuide, Moment, Noise, Signals, guide_log_factors
from sage.theory.credit import check_coefficient
from sage.theory.spaces import TokenTree, entropies, per_token, sequence_log_probs

TREE = TokenTree(vocabulary=5, length=2)
FREQUENT, RARE = (0, 0), (1, 1)  # the two valid completions, as tokens
FIRST_TOKEN = (0.90, 0.04, 0.02, 0.02, 0.02)  # token 0 goes straight on, token 1 branches
STRAIGHT_ON = (0.96, 0.01, 0.01, 0.01, 0.01)
BRANCH = (0.2, 0.2, 0.2, 0.2, 0.2)
LOWEST, HIGHEST = 0.6, 1.4


def rlvr_policy(log_reference: torch.Tensor, reward: torch.Tensor, beta: float) -> torch.Tensor:
    """log pi*, pi* ∝ pi_ref exp(r / beta), the policy that RLVR ends at (Eq. 2); `[..., N]`.

    Raises ValueError unless beta is positive.
    """
    check_coefficient("beta", beta)
    return torch.log_softmax(log_reference + reward / beta, dim=-1)


def sage_policy(
    log_reference: torch.Tensor, log_guide: torch.Tensor, reward: torch.Tensor, beta: float
) -> torch.Tensor:
    """log pi*, pi* ∝ q pi_ref exp(r / beta) (Eq. 4); `[..., N]`, `log_guide` being log q.

    Raises ValueError unless beta is positive.
    """
    return rlvr_policy(log_reference + log_guide, reward, beta)


def valid_completions(reward: torch.Tensor) -> torch.Tensor:
    """C(x), the completions of reward 1; `[..., N]`, bool.

    Raises ValueError if a reward is neither 0 nor 1.
    """
    valid: torch.Tensor = reward == 1.0
    if not bool((valid | (reward == 0.0)).all()):
        others = reward[~(valid | (reward == 0.0))]
        raise ValueError(f"rewards must be 0 or 1, found {float(others[0])}")
    return valid


def empirical_support(
    log_policy: torch.Tensor, valid: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """supp_epsilon(pi): valid completions of probability at least epsilon (Def. 4.1).

    `[..., N]`, bool. Raises ValueError unless 0 < epsilon <= 1.
    """
    if not 0.0 < epsilon <= 1.0:
        raise ValueError(f"epsilon is {epsilon} but must be above 0 and at most 1")
    return valid & (log_policy >= math.log(epsilon))


@dataclass(frozen=True)
class SupportExpansion:
    """Theorem 4.3 for every completion as the target y*; all fields `[..., N]`.

    `guide_ratio` is q(y*) / E_RLVR[q] and `required` epsilon / pi_RLVR(y*). `condition` is the
    theorem's (y* valid and ratio >= required); `conclusion`, y* in supp_epsilon(pi_SAGE), comes
    from Eq. 4 itself and not from the condition.
    """

    log_rlvr: torch.Tensor
    log_sage: torch.Tensor
    guide_ratio: torch.Tensor
    required: torch.Tensor
    condition: torch.Tensor
    conclusion: torch.Tensor


def support_expansion(
    log_reference: torch.Tensor,
    log_guide: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    epsilon: float,
) -> SupportExpansion:
    """Both sides of Theorem 4.3, each computed on its own.

    `log_reference`, `log_guide` (log q) and `reward` (0 or 1) are `[..., N]`. Raises ValueError on
    other rewards, a beta that is not positive, or an epsilon outside (0, 1].
    """
    valid = valid_completions(reward)
    log_rlvr = rlvr_policy(log_reference, reward, beta)
    log_sage = sage_policy(log_reference, log_guide, reward, beta)
    log_mean = torch.logsumexp(log_rlvr + log_guide, dim=-1, keepdim=True)
    guide_ratio = (log_guide - log_mean).exp()
    required = (math.log(epsilon) - log_rlvr).exp()
    return SupportExpansion(
        log_rlvr=log_rlvr,
        log_sage=log_sage,
        guide_ratio=guide_ratio,
        required=required,
        condition=valid & (guide_ratio >= required),
        conclusion=empirical_support(log_sage, valid, epsilon),
    )


@dataclass(frozen=True)
class CompletionNumbers:
    """One valid completion: its entropies and guide factors per token, and its probabilities."""

    entropies: tuple[float, ...]
    factors: tuple[float, ...]
    guide: float
    reference: float
    rlvr: float
    sage: float


@dataclass(frozen=True)
class ToyExample:
    """The settings (entropies and threshold in nats) and both sides of Theorem 4.3.

    `expected_guide` is E_RLVR[q], `guide_ratio` q(rare) over it, `required` the least ratio that
    lifts the rare completion to `epsilon`.
    """

    epsilon: float
    beta: float
    ratio: float
    threshold: float
    frequent: CompletionNumbers
    rare: CompletionNumbers
    expected_guide: float
    guide_ratio: float
    required: float
    condition: bool
    conclusion: bool


def reference_table(
    first: tuple[float, ...] = FIRST_TOKEN,
    straight_on: tuple[float, ...] = STRAIGHT_ON,
    branch: tuple[float, ...] = BRANCH,
) -> torch.Tensor:
    """log pi_ref as a table `[6, 5]`: the root, the branch after token 1, else straight on."""
    rows = [first, straight_on, branch, *[straight_on] * 3]
    return torch.log(torch.tensor(rows, dtype=torch.float64))


def toy_example(
    log_reference: torch.Tensor | None = None,
    ratio: float = 0.3,
    threshold: float = 1.2,
    epsilon: float = 0.01,
    beta: float = 0.05,
) -> ToyExample:
    """Run Appendix C: guide the reference by its own entropies and compare with RLVR.

    `log_reference` is a table `[6, 5]`, by default `reference_table()`; `ratio` and `threshold`
    (nats) are the branch guide's. Raises ValueError on settings out of range.
    """
    table = reference_table() if log_reference is None else log_reference
    log_tokens = per_token(TREE, table)
    signals = Signals(log_tokens, entropies(table)[TREE.states], torch.ones_like(log_tokens))
    moment = Moment(step=0, total_steps=1, noise=Noise("none"))
    guide = BranchGuide(ratio, threshold)
    log_factors = guide_log_factors(guide, signals, moment, LOWEST, HIGHEST)
    log_guide = log_factors.sum(dim=-1)
    index = [TREE.vocabulary * first + second for first, second in (FREQUENT, RARE)]
    reward = torch.zeros(TREE.n_completions, dtype=torch.float64)
    reward[index] = 1.0
    log_sequences = sequence_log_probs(TREE, table)
    result = support_expansion(log_sequences, log_guide, reward, beta, epsilon)

    def numbers(at: int) -> CompletionNumbers:
        return CompletionNumbers(
            entropies=tuple(signals.entropies[at].tolist()),
            factors=tuple(log_factors[at].exp().tolist()),
            guide=float(log_guide[at].exp()),
            reference=float(log_sequences[at].exp()),
            rlvr=float(result.log_rlvr[at].exp()),
            sage=float(result.log_sage[at].exp()),
        )

    rare = index[1]
    return ToyExample(
        epsilon=epsilon,
        beta=beta,
        ratio=ratio,
        threshold=threshold,
        frequent=numbers(index[0]),
        rare=numbers(rare),
        expected_guide=float((result.log_rlvr.exp() * log_guide.exp()).sum()),
        guide_ratio=float(result.guide_ratio[rare]),
        required=float(result.required[rare]),
        condition=bool(result.condition[rare]),
        conclusion=bool(result.conclusion[rare]),
    )
