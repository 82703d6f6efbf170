"""The toy example of Appendix C with numbers of our own, on a real two-token tree.

The paper gives the first tokens of its two completions different entropies, but both are drawn in
the one state x, which has one entropy: an amplification there is shared and changes nothing. Here
the rare completion's first token *opens* a high-entropy state, so its second token is amplified.
Entropies, guide and policies are all computed from the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sage.method.guides import BranchGuide, Moment, Noise, Signals, guide_log_factors
from sage.theory.spaces import TokenTree, entropies, per_token, sequence_log_probs
from sage.theory.support import support_expansion

TREE = TokenTree(vocabulary=5, length=2)
FREQUENT, RARE = (0, 0), (1, 1)  # the two valid completions, as tokens
FIRST_TOKEN = (0.90, 0.04, 0.02, 0.02, 0.02)  # token 0 goes straight on, token 1 branches
STRAIGHT_ON = (0.96, 0.01, 0.01, 0.01, 0.01)
BRANCH = (0.2, 0.2, 0.2, 0.2, 0.2)
LOWEST, HIGHEST = 0.6, 1.4


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
