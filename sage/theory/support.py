"""Empirical support (Def. 4.1) and Theorem 4.3, on the exact stationary policies.

The theorem is an equivalence: as pi_SAGE = q pi_RLVR / E_RLVR[q], its condition *is*
pi_SAGE(y) >= epsilon. The same identity says what enters at whose cost: a completion gains if
q(y) > E_RLVR[q] and loses, perhaps its place in the support, if below. Theorem 4.2 is a statement
about finite sampling and not about Eq. 2, where every valid completion gains over the reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sage.theory.objectives import check_coefficient


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
