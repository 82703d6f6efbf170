"""The gradient that each estimator descends with each guide, beside that of Eq. 4's objective.

All completions of a token tree are enumerated, so that nothing is estimated: the gradients are
those in expectation, on policy. The KL in the reward is computed by the very class that trains,
over all groups of two rollouts. A guide is what Eq. 3 says, a function q(x, y) fixed within one
update: signals and noise are those of the policy at that moment, one draw for each completion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
import torch

from sage.advantages import Centred
from sage.credit import K1InReward, TokenSignals
from sage.guides import (
    BranchGuide,
    GuideFunction,
    Moment,
    Noise,
    RandomGuide,
    Signals,
    TokenGuide,
    guide_log_factors,
)
from sage.theory.estimators import ESTIMATORS, expected_gradient, reward_gradient
from sage.theory.objectives import reverse_kl_objective
from sage.theory.spaces import TokenTree, entropies, per_token, sequence_log_probs

GUIDES: Mapping[str, GuideFunction] = {
    "random": RandomGuide(),
    "token": TokenGuide(),
    "branch": BranchGuide(),
}
PER_TOKEN = ("k2", "k3", "k3_corrected")
CLAMP = (0.6, 1.4)
ROUNDING = 1e-10


def log_factors_of(tree: TokenTree, logits: torch.Tensor, guide: GuideFunction) -> torch.Tensor:
    """log q_t of every token of every completion under the policy of `logits`, `[N, T]`.

    The guide is asked as in training at step 0: each completion is one rollout, with its own noise.
    """
    log_table = torch.log_softmax(logits.detach(), dim=-1)
    log_probs = per_token(tree, log_table)
    signals = Signals(log_probs, entropies(log_table)[tree.states], torch.ones_like(log_probs))
    moment = Moment(step=0, total_steps=1, noise=Noise("theory"))
    return guide_log_factors(guide, signals, moment, *CLAMP).double()


def eq4_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_reference: torch.Tensor,
    log_factors: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
) -> torch.Tensor:
    """grad (E_pi[r] - beta KL~(pi || q pi_ref)) in the logits (Eq. 3, 6), by autograd; `[S, V]`.

    `logits` and `log_reference` are `[S, V]`, `log_factors` `[N, T]`, `reward` `[N]`.
    """
    free = logits.detach().clone().requires_grad_()
    anchor = sequence_log_probs(tree, log_reference) + log_factors.sum(dim=-1)
    policy = sequence_log_probs(tree, torch.log_softmax(free, dim=-1))
    (gradient,) = torch.autograd.grad(reverse_kl_objective(policy, anchor, reward, beta), free)
    return gradient


def k1_reward_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_reference: torch.Tensor,
    log_factors: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    causal: bool = False,
    rollouts: int = 2,
) -> torch.Tensor:
    """Expected gradient of a step with the KL in the reward, over all groups; `[S, V]`.

    The advantages are those of `K1InReward` with centred rewards, the loss the sum over tokens and
    the mean over rollouts. A mean that includes the rollout itself shrinks all of it by
    1 - 1/rollouts, which is undone here. Arguments as for `eq4_gradient`.
    """
    free = logits.detach().clone().requires_grad_()
    policy = per_token(tree, torch.log_softmax(free, dim=-1))
    log_probs = policy.detach()
    reference, chance = per_token(tree, log_reference), log_probs.sum(dim=-1).exp()
    total = torch.zeros((), dtype=torch.float64)
    others = torch.cartesian_prod(*[torch.arange(tree.n_completions)] * (rollouts - 1))
    others = others.view(-1, rollouts - 1)
    for first in range(tree.n_completions):  # groups that begin with this completion
        groups = torch.cat([torch.full((len(others), 1), first), others], dim=1)
        rows = groups.flatten()
        signals = TokenSignals(
            log_probs=log_probs[rows],
            old_log_probs=log_probs[rows],
            entropies=torch.zeros_like(log_probs)[rows],
            mask=torch.ones_like(log_probs)[rows],
            advantages=Centred().advantages(reward[groups]).flatten(),
            rewards=reward[rows],
            groups=torch.arange(len(groups)).repeat_interleave(rollouts),
            group_sizes=torch.full_like(rows, rollouts),
            rows=torch.arange(len(rows)),
            reference_log_probs=reference[rows],
            log_factors=log_factors[rows],
            causal=causal,
            kl_coefficient=beta,
        )
        credited = (K1InReward().token_advantages(signals) * policy[rows]).sum(dim=-1)
        total = total + chance[groups].prod(dim=1) @ credited.view(-1, rollouts).mean(dim=1)
    (gradient,) = torch.autograd.grad(total, free)
    return gradient * rollouts / (rollouts - 1)


def estimator_gradients(
    tree: TokenTree,
    logits: torch.Tensor,
    log_reference: torch.Tensor,
    log_factors: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    causal: bool = False,
) -> dict[str, torch.Tensor]:
    """The ascent direction of each estimator, `[S, V]`, by its name; arguments as above."""
    anchor = per_token(tree, log_reference) + log_factors
    towards_reward = reward_gradient(tree, logits, reward)
    gradients = {
        name: towards_reward - beta * expected_gradient(tree, logits, anchor, ESTIMATORS[name])
        for name in PER_TOKEN
    }
    gradients["k1_reward"] = k1_reward_gradient(
        tree, logits, log_reference, log_factors, reward, beta, causal
    )
    return gradients


def guide_gradients(
    guides: Mapping[str, GuideFunction] = GUIDES, beta: float = 0.05, seed: int = 0
) -> pd.DataFrame:
    """What each guide does to the gradient under each estimator: one row per pair, tidy.

    On a tree of 64 completions of three tokens, with a random policy, another reference and
    rewards 0 or 1; `beta` is per nat. The random and the token guide are shown for one draw of
    their noise; over many draws the random guide's change per token averages out. Besides `guide`
    ("none" first) and `estimator`:

    - `gradient_norm`: of the expected ascent direction;
    - `cosine` with, and `relative_distance` from, the gradient of Eq. 4's objective and that guide;
    - `guide_norm`: norm of what the guide alone changes of the direction, over that of what it
      changes of Eq. 4's; 1 if it acts as strongly as it should, NaN without a guide;
    - `guide_cosine`: cosine of these two changes, NaN if the guide changes nothing;
    - `effect`: `no guide`; `none`, the guide cancels; `other beta`, it multiplies the gradient of
      the KL term in each state and so only changes its coefficient there; `own`, a direction of its
      own.

    Distances of 1e-10 and less are rounding.
    """
    tree = TokenTree(vocabulary=4, length=3)
    draw = torch.Generator().manual_seed(seed)
    shape = (tree.n_states, tree.vocabulary)
    logits = 0.4 * torch.randn(shape, generator=draw, dtype=torch.float64)
    reference = torch.log_softmax(
        logits + 0.5 * torch.randn(shape, generator=draw, dtype=torch.float64), dim=-1
    )
    reward = (torch.rand(tree.n_completions, generator=draw) < 0.2).double()
    nothing = torch.zeros(tree.n_completions, tree.length, dtype=torch.float64)
    plain = estimator_gradients(tree, logits, reference, nothing, reward, beta)
    plain_eq4 = eq4_gradient(tree, logits, reference, nothing, reward, beta)
    towards_reward = reward_gradient(tree, logits, reward)
    rows = []
    for name, guide in [("none", None), *guides.items()]:
        factors = nothing if guide is None else log_factors_of(tree, logits, guide)
        causal = bool(getattr(guide, "causal", False))
        wanted = eq4_gradient(tree, logits, reference, factors, reward, beta)
        reached = estimator_gradients(tree, logits, reference, factors, reward, beta, causal)
        for estimator in ("k1_reward", *PER_TOKEN):
            gradient = reached[estimator]
            change, due = gradient - plain[estimator], wanted - plain_eq4
            leash = plain[estimator] - towards_reward
            rows.append(
                {
                    "guide": name,
                    "estimator": estimator,
                    "gradient_norm": float(gradient.norm()),
                    "cosine": _cosine(gradient, wanted),
                    "relative_distance": float((gradient - wanted).norm() / wanted.norm()),
                    "guide_norm": math.nan if guide is None else float(change.norm() / due.norm()),
                    "guide_cosine": math.nan if guide is None else _cosine(change, due),
                    "effect": "no guide" if guide is None else _effect(change, leash),
                }
            )
    return pd.DataFrame(rows)


def _effect(change: torch.Tensor, leash: torch.Tensor) -> str:
    """What a guide's change `[S, V]` is beside the KL term's own gradient `[S, V]`."""
    scale = float(leash.norm())
    if float(change.norm()) < ROUNDING * scale:
        return "none"
    along = (change * leash).sum(dim=-1, keepdim=True) / leash.square().sum(dim=-1, keepdim=True)
    beside = float((change - along * leash).norm())
    return "other beta" if beside < ROUNDING * scale else "own"


def _cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    norms = float(left.norm() * right.norm())
    if float(left.norm()) < ROUNDING * float(right.norm()):
        return math.nan
    return float((left * right).sum()) / norms
