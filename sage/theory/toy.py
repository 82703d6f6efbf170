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

import pandas as pd
import torch

from sage.method.guides import BranchGuide, Signals
from sage.theory.credit import check_coefficient
from sage.theory.spaces import TokenTree, entropies, first_log_q, per_token, sequence_log_probs

TREE = TokenTree(vocabulary=5, length=2)
FREQUENT, RARE = (0, 0), (1, 1)  # the two valid completions, as tokens
FIRST_TOKEN = (0.90, 0.04, 0.02, 0.02, 0.02)  # token 0 goes straight on, token 1 branches
STRAIGHT_ON = (0.96, 0.01, 0.01, 0.01, 0.01)
BRANCH = (0.2, 0.2, 0.2, 0.2, 0.2)
RATIO, THRESHOLD = 0.3, 1.2  # of the branch guide; the threshold is in nats
EPSILON, BETA = 0.01, 0.05


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
class ToyExample:
    """The numbers of two valid completions, and both sides of Theorem 4.3 for the rare one.

    `numbers` has the columns quantity, frequent and rare: entropies in nats, guide factors and
    probabilities. What concerns the rare completion only is NaN in the other column.
    `expected_guide` is E_RLVR[q].
    """

    numbers: pd.DataFrame
    expected_guide: float
    condition: bool
    conclusion: bool


def toy_example() -> ToyExample:
    """Run Appendix C: guide the reference by its own entropies and compare with RLVR."""
    states = [FIRST_TOKEN, STRAIGHT_ON, BRANCH, *[STRAIGHT_ON] * 3]  # the root, then by token
    table = torch.log(torch.tensor(states, dtype=torch.float64))
    log_tokens = per_token(TREE, table)
    signals = Signals(log_tokens, entropies(table)[TREE.states], torch.ones_like(log_tokens))
    log_factors = first_log_q(BranchGuide(RATIO, THRESHOLD), signals)
    log_guide = log_factors.sum(dim=-1)
    valid = [TREE.vocabulary * first + second for first, second in (FREQUENT, RARE)]
    reward = torch.zeros(TREE.n_completions, dtype=torch.float64)
    reward[valid] = 1.0
    log_reference = sequence_log_probs(TREE, table)
    result = support_expansion(log_reference, log_guide, reward, BETA, EPSILON)
    tokens = range(TREE.length)
    values = {
        **{f"entropy before token {t + 1} (nats)": signals.entropies[:, t] for t in tokens},
        **{f"guide factor of token {t + 1}": log_factors[:, t].exp() for t in tokens},
        "guide q(y)": log_guide.exp(),
        "probability, reference": log_reference.exp(),
        "probability, RLVR": result.log_rlvr.exp(),
        "probability, SAGE": result.log_sage.exp(),
        "guide ratio q(y) / E[q]": result.guide_ratio,
        "guide ratio required by Theorem 4.3": result.required,
    }
    rows = [(quantity, *value[valid].tolist()) for quantity, value in values.items()]
    numbers = pd.DataFrame(rows, columns=["quantity", "frequent", "rare"])
    numbers.loc[numbers["quantity"].str.startswith("guide ratio"), "frequent"] = math.nan
    return ToyExample(
        numbers,
        expected_guide=float((result.log_rlvr.exp() * log_guide.exp()).sum()),
        condition=bool(result.condition[valid[1]]),
        conclusion=bool(result.conclusion[valid[1]]),
    )
