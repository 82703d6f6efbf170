"""The gradient that each estimator descends with each guide, beside that of Eq. 4's objective.

All completions of a token tree are enumerated, so that nothing is estimated: the gradients are
those in expectation, on policy. A single tree says little about others, so tables are over many
random trees. A guide is what Eq. 3 says, a function q(x, y) fixed within one update: signals and
noise are those of the policy at that moment, one draw for each completion.

On policy k1 has no gradient, k2 and corrected k3 descend the reverse KL, k3 the forward KL, and
the sampled forward KL neither. All act state by state, without credit for later states, so over
several tokens none has Eq. 4 as its fixed point (tests/builders/fixed_points.py has theirs). A
guide that is equal for all tokens of a state, as the branch guide is, then cancels under k2 and
corrected k3 and under k3 multiplies beta in that state; only with credit does it act as in Eq. 4.
That is so for losses that sum over tokens: a mean per completion weighs a token by what follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import torch

from sage.method.anchors import forward_kl_sampled, k1, k2, k3, k3_corrected, pseudo_kl
from sage.method.guides import GuideFunction, Signals
from sage.theory.figures import GUIDES
from sage.theory.spaces import TokenTree, entropies, first_log_q, per_token, sequence_log_probs

PER_TOKEN = ("k2", "k3", "k3_corrected")
LOSSES = ("sum", "mean")
"""How a loss adds up a completion's tokens: their sum, over a constant; or their mean."""
ROUNDING = 1e-10
BETA = 0.05
"""The coefficient of the KL term, per nat."""
TREES = 64
"""Random trees behind a table."""

Estimator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

ESTIMATORS: dict[str, Estimator] = {
    "k1": lambda policy, anchor, _: k1(policy, anchor),
    "k2": lambda policy, anchor, _: k2(policy, anchor),
    "k3": lambda policy, anchor, _: k3(policy, anchor),
    "k3_corrected": k3_corrected,
    "sampled": lambda policy, anchor, _: forward_kl_sampled(policy, anchor),
}
"""Losses per token, `[N, T]`, of the log-probabilities under policy, anchor and old policy."""


def check_coefficient(name: str, value: float) -> None:
    """Raise ValueError unless the coefficient `value` is positive."""
    if not value > 0:
        raise ValueError(f"{name} is {value} but must be positive")


def reverse_kl_objective(
    log_policy: torch.Tensor, log_anchor: torch.Tensor, reward: torch.Tensor, beta: float
) -> torch.Tensor:
    """E_pi[r] - beta KL~(pi || anchor), `[..., N]` to `[...]`.

    Eq. 1 with the reference as anchor, Eq. 6 with log q + log pi_ref. Raises ValueError unless
    beta is positive.
    """
    check_coefficient("beta", beta)
    expected_reward = (log_policy.exp() * reward).sum(dim=-1)
    return expected_reward - beta * pseudo_kl(log_policy, log_anchor)


def expected_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_anchor: torch.Tensor,
    estimator: Estimator,
    behaviour: torch.Tensor | None = None,
    token_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """E[sum_t w_t grad estimator(...)] over completions, by autograd, in the logits; `[S, V]`.

    `logits` and `log_anchor` are `[S, V]`; an anchor that depends on the whole completion is
    `[N, T]`. Completions are drawn from the old policy, `behaviour` (logits `[S, V]`), which by
    default is the policy itself. `token_weights` w `[N, T]` are those of a loss aggregation, 1 by
    default: a sum over tokens.
    """
    tree.check(logits, "logits")
    drawn_from = (logits if behaviour is None else behaviour).detach()
    free = logits.detach().clone().requires_grad_()
    policy = per_token(tree, torch.log_softmax(free, dim=-1))
    old = per_token(tree, torch.log_softmax(drawn_from, dim=-1))
    whole = log_anchor.shape == policy.shape
    loss = estimator(policy, log_anchor if whole else per_token(tree, log_anchor), old)
    if token_weights is not None:
        loss = loss * token_weights
    (gradient,) = torch.autograd.grad((old.sum(dim=-1).exp() @ loss).sum(), free)
    return gradient


def ends(tree: TokenTree) -> tuple[torch.Tensor, torch.Tensor]:
    """Completions that end with their first token 0: mask `[N, T]`, and which one each is, `[N]`.

    The mask is 1 up to the end, the end among it. Rows of the tree that differ behind the end only
    are the same completion, that of the row named second; what is said of one holds for all.
    """
    tokens = tree.completions
    before = torch.cat([tokens.new_ones(len(tokens), 1), (tokens[:, :-1] != 0).cumprod(1)], dim=1)
    powers = tree.vocabulary ** torch.arange(tree.length).flip(0)
    return before.double(), (tokens * before * powers).sum(dim=1)


def token_weights(
    tree: TokenTree, logits: torch.Tensor, mask: torch.Tensor, loss: str
) -> torch.Tensor:
    """Weights `[N, T]` of the tokens in a loss of LOSSES: 1, or the mean length over the length.

    The mean length is the policy's; with it, both losses are of the same size.
    """
    if loss == "sum":
        return mask
    chance = sequence_log_probs(tree, torch.log_softmax(logits.detach(), dim=-1)).exp()
    lengths = mask.sum(dim=1)
    return mask * (chance @ lengths) / lengths[:, None]


def log_factors_of(
    tree: TokenTree, logits: torch.Tensor, guide: GuideFunction, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """log q_t of every token of every completion under the policy of `logits`, `[N, T]`.

    The guide is asked as in training at step 0: each completion is one rollout, with its own noise.
    With the `mask` of `ends` the guide sees completions up to their end.
    """
    log_table = torch.log_softmax(logits.detach(), dim=-1)
    log_probs = per_token(tree, log_table)
    inside = torch.ones_like(log_probs) if mask is None else mask
    signals = Signals(log_probs, entropies(log_table)[tree.states], inside)
    factors = first_log_q(guide, signals, "theory").double()
    return factors if mask is None else factors[ends(tree)[1]] * mask


def eq4_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_reference: torch.Tensor,
    log_factors: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """grad (E_pi[r] - beta KL~(pi || q pi_ref)) in the logits (Eq. 3, 6), by autograd; `[S, V]`.

    `logits` and `log_reference` are `[S, V]`, `log_factors` `[N, T]`, `reward` `[N]`. With the
    `mask` of `ends` completions are those up to their end.
    """
    free = logits.detach().clone().requires_grad_()
    policy = per_token(tree, torch.log_softmax(free, dim=-1))
    inside = torch.ones_like(policy) if mask is None else mask
    # Behind the end anchor and policy agree, whatever the policy is.
    anchor = torch.where(inside > 0, per_token(tree, log_reference) + log_factors, policy)
    objective = reverse_kl_objective(policy.sum(dim=-1), anchor.sum(dim=-1), reward, beta)
    (gradient,) = torch.autograd.grad(objective, free)
    return gradient


def credited_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_reference: torch.Tensor,
    log_factors: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    causal: bool,
    mask: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Expected gradient of a step with the KL in the reward (`K1InReward`); `[S, V]`.

    Rewards are centred, and the loss adds up the tokens, each times its entry of `weights`
    `[N, T]`. The rest of a group is independent of a rollout, so a group's means are the policy's;
    the factor 1 - 1/G, by which means that include the rollout itself shrink all of it, is left
    out. Other arguments as for `eq4_gradient`; with `beta` 0 it is the gradient of the reward.
    """
    free = logits.detach().clone().requires_grad_()
    policy = per_token(tree, torch.log_softmax(free, dim=-1))
    leash = (policy.detach() - per_token(tree, log_reference)) * mask
    guided = log_factors * mask
    later = (leash - guided if causal else leash).flip(1).cumsum(1).flip(1)
    if not causal:  # log q of earlier tokens depends on this one as well
        later = later - guided.sum(dim=1, keepdim=True)
    value = reward[:, None] - beta * later
    chance = policy.detach().sum(dim=1).exp()
    credit = weights * (value - chance @ value)
    (gradient,) = torch.autograd.grad((chance @ (credit * policy)).sum(), free)
    return gradient


def over_trees() -> pd.DataFrame:
    """`guide_gradients` of TREES random trees, one after the other; `tree` numbers them."""
    frames = [guide_gradients(seed).assign(tree=seed) for seed in range(TREES)]
    return pd.concat(frames, ignore_index=True)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Over the trees of `over_trees`: a row for each guide, estimator and loss.

    Medians of `gradient_norm`, `cosine`, `relative_distance`; of `guide_norm` and `guide_cosine`
    the median and, as `_low` and `_high`, the quartiles; `opposed`, the share of trees where the
    guide's change points away from Eq. 4's (NaN where it changes nothing); `effect`, the same in
    every tree, else "depends on the tree"; `trees`, their number.
    """
    signs = rows["guide_cosine"].lt(0).astype(float).where(rows["guide_cosine"].notna())
    groups = rows.assign(opposed=signs).groupby(["guide", "estimator", "loss"], sort=False)
    columns = {"opposed": groups["opposed"].mean(), "trees": groups.size()}
    for name in ("gradient_norm", "cosine", "relative_distance", "guide_norm", "guide_cosine"):
        columns[name] = groups[name].median()
    for name in ("guide_norm", "guide_cosine"):
        columns[f"{name}_low"] = groups[name].quantile(0.25)
        columns[f"{name}_high"] = groups[name].quantile(0.75)
    columns["effect"] = groups["effect"].agg(
        lambda effects: effects.iloc[0] if effects.nunique() == 1 else "depends on the tree"
    )
    return pd.DataFrame(columns).reset_index()


def guide_gradients(seed: int = 0) -> pd.DataFrame:
    """What each guide does to the gradient under each estimator and loss: a row each, tidy.

    On a tree of up to three tokens from a vocabulary of four, one of which ends a completion, with
    a random policy, another reference and rewards 0 or 1; the KL coefficient is BETA. The random
    and the token guide are shown for one draw of their noise; over many draws the random guide's
    change per token averages out. Besides `guide` ("none" first), `estimator` and `loss` (LOSSES):

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
    moved = logits + 0.5 * torch.randn(shape, generator=draw, dtype=torch.float64)
    reference = torch.log_softmax(moved, dim=-1)
    mask, same = ends(tree)
    reward = (torch.rand(tree.n_completions, generator=draw) < 0.2).double()[same]
    nothing = torch.zeros(tree.n_completions, tree.length, dtype=torch.float64)

    def directions(factors: torch.Tensor, causal: bool, loss: str) -> dict[str, torch.Tensor]:
        """Where each estimator leads, and the centred reward alone, `[S, V]`."""
        anchor = per_token(tree, reference) + factors
        weights = token_weights(tree, logits, mask, loss)
        of_reward, k1_reward = (
            credited_gradient(tree, logits, reference, factors, reward, beta, causal, mask, weights)
            for beta in (0.0, BETA)
        )
        leashes = {
            name: expected_gradient(tree, logits, anchor, ESTIMATORS[name], token_weights=weights)
            for name in PER_TOKEN
        }
        ascents = {name: of_reward - BETA * leash for name, leash in leashes.items()}
        return {"reward": of_reward, "k1_reward": k1_reward, **ascents}

    plain_eq4 = eq4_gradient(tree, logits, reference, nothing, reward, BETA, mask)
    plain = {loss: directions(nothing, False, loss) for loss in LOSSES}
    rows = []
    for name, guide in [("none", None), *GUIDES.items()]:
        factors = nothing if guide is None else log_factors_of(tree, logits, guide, mask)
        wanted = eq4_gradient(tree, logits, reference, factors, reward, BETA, mask)
        due = wanted - plain_eq4
        for loss, without in plain.items():
            reached = directions(factors, bool(getattr(guide, "causal", False)), loss)
            for estimator in ("k1_reward", *PER_TOKEN):
                gradient = reached[estimator]
                change = gradient - without[estimator]
                leash = without[estimator] - without["reward"]
                row = {
                    "guide": name,
                    "estimator": estimator,
                    "loss": loss,
                    "gradient_norm": float(gradient.norm()),
                    "cosine": _cosine(gradient, wanted),
                    "relative_distance": float((gradient - wanted).norm() / wanted.norm()),
                    "guide_norm": float(change.norm() / due.norm()),
                    "guide_cosine": _cosine(change, due),
                    "effect": "no guide" if guide is None else _effect(change, leash),
                }
                rows.append(row)
    return pd.DataFrame(rows)


def _effect(change: torch.Tensor, leash: torch.Tensor) -> str:
    """What a guide's change `[S, V]` is beside the KL term's own gradient `[S, V]`."""
    scale = float(leash.norm())
    if float(change.norm()) < ROUNDING * scale:
        return "none"
    squares = leash.square().sum(dim=-1, keepdim=True)
    along = (change * leash).sum(dim=-1, keepdim=True) / squares.where(squares > 0, 1.0)
    beside = float((change - along * leash).norm())
    return "other beta" if beside < ROUNDING * scale else "own"


def _cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    if float(left.norm()) <= ROUNDING * float(right.norm()):
        return math.nan
    return float((left * right).sum()) / float(left.norm() * right.norm())
