"""Which estimator descends Eq. 4's objective: exact gradients on trees enumerated whole."""

from __future__ import annotations

import math
from functools import partial

import pandas as pd
import pytest
import torch

from sage.method.advantages import Centred
from sage.method.credit import K1InReward, TokenSignals
from sage.method.guides import BranchGuide, RandomGuide, TokenGuide
from sage.theory.credit import (
    TREES,
    credited_gradient,
    ends,
    eq4_gradient,
    guide_gradients,
    log_factors_of,
    over_trees,
    summary,
    token_weights,
)
from sage.theory.spaces import TokenTree, per_token

GUIDES = {
    "random": RandomGuide(epsilon_high=0.8),
    "token": TokenGuide(),
    "branch": BranchGuide(threshold=0.4),
}
BETA = 0.3
close = partial(torch.testing.assert_close, rtol=0.0, atol=1e-10)


def instance(tree: TokenTree) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of a policy and log-probabilities of a reference `[S, V]`, and rewards `[N]`."""
    draw = torch.Generator().manual_seed(tree.n_completions)
    shape = (tree.n_states, tree.vocabulary)
    logits = torch.randn(shape, generator=draw, dtype=torch.float64)
    reference = torch.randn(shape, generator=draw, dtype=torch.float64).log_softmax(-1)
    reward = (torch.arange(tree.n_completions) % 3 == 1).double()
    return logits, reference, reward


def k1_reward_gradient(
    tree: TokenTree,
    logits: torch.Tensor,
    log_reference: torch.Tensor,
    log_factors: torch.Tensor,
    reward: torch.Tensor,
    beta: float,
    causal: bool = False,
    rollouts: int = 2,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """That of `credited_gradient` by the class that trains, over all groups; `[S, V]`.

    Means that include the rollout itself shrink it by 1 - 1/rollouts, which is undone here.
    """
    free = logits.detach().clone().requires_grad_()
    policy = per_token(tree, torch.log_softmax(free, dim=-1))
    inside = torch.ones_like(policy.detach()) if mask is None else mask
    share = inside if weights is None else weights
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
            mask=inside[rows],
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
        advantages = K1InReward().token_advantages(signals) * share[rows]
        credited = (advantages * policy[rows]).sum(dim=-1)
        total = total + chance[groups].prod(dim=1) @ credited.view(-1, rollouts).mean(dim=1)
    (gradient,) = torch.autograd.grad(total, free)
    return gradient * rollouts / (rollouts - 1)


@pytest.mark.parametrize("name", GUIDES)
@pytest.mark.parametrize(
    ("tree", "rollouts"),
    [(TokenTree(2, 2), 3), (TokenTree(3, 2), 2), (TokenTree(2, 3), 2)],
    ids=str,
)
def test_the_kl_in_the_reward_has_the_gradient_of_eq_4(
    tree: TokenTree, rollouts: int, name: str
) -> None:
    logits, reference, reward = instance(tree)
    factors = log_factors_of(tree, logits, GUIDES[name])
    assert factors.abs().max() > 0.01
    causal = getattr(GUIDES[name], "causal", False)
    got = k1_reward_gradient(tree, logits, reference, factors, reward, BETA, causal, rollouts)
    wanted = eq4_gradient(tree, logits, reference, factors, reward, BETA)
    close(got, wanted)
    without = eq4_gradient(tree, logits, reference, torch.zeros_like(factors), reward, BETA)
    assert (wanted - without).abs().max() > 1e-4


@pytest.mark.parametrize("size", [0.0, 0.3])
def test_any_function_of_the_completion_may_be_the_guide_and_none(size: float) -> None:
    tree = TokenTree(2, 3)
    logits, reference, reward = instance(tree)
    factors = size * torch.randn(tree.n_completions, tree.length, dtype=torch.float64)
    close(
        k1_reward_gradient(tree, logits, reference, factors, reward, BETA),
        eq4_gradient(tree, logits, reference, factors, reward, BETA),
    )


def test_a_guide_that_looks_ahead_must_not_pass_for_causal() -> None:
    """The token guide normalises within the completion: later tokens change earlier factors."""
    tree = TokenTree(2, 3)
    logits, reference, reward = instance(tree)
    factors = log_factors_of(tree, logits, TokenGuide())
    wanted = eq4_gradient(tree, logits, reference, factors, reward, BETA)
    shortened = k1_reward_gradient(tree, logits, reference, factors, reward, BETA, causal=True)
    assert (shortened - wanted).abs().max() > 1e-4
    assert not hasattr(TokenGuide, "causal")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return guide_gradients().set_index(["loss", "guide", "estimator"]).sort_index()


def test_only_the_kl_in_the_reward_and_a_sum_follow_eq_4_under_every_guide(
    table: pd.DataFrame,
) -> None:
    exact = table["relative_distance"] < 1e-10
    assert exact.loc["sum"].xs("k1_reward", level="estimator").all()
    assert not exact.loc["sum"].drop("k1_reward", level="estimator").any()
    assert not exact.loc["mean"].any()
    guided = table.loc["sum"].xs("k1_reward", level="estimator").drop("none")
    assert guided["guide_norm"].tolist() == pytest.approx([1.0] * 3)
    assert guided["guide_cosine"].tolist() == pytest.approx([1.0] * 3)


def test_the_branch_guide_has_an_effect_of_its_own_only_there_or_under_a_mean(
    table: pd.DataFrame,
) -> None:
    assert table.loc[("sum", "branch"), "effect"].to_dict() == {
        "k1_reward": "own",
        "k2": "none",
        "k3": "other beta",
        "k3_corrected": "none",
    }
    assert set(table.loc[("mean", "branch"), "effect"]) == {"own"}
    assert math.isnan(table.loc[("sum", "branch", "k2"), "guide_cosine"])
    assert set(table.loc[("sum", "none"), "effect"]) == {"no guide"}


def test_completions_end_with_their_first_token_0() -> None:
    mask, same = ends(TokenTree(2, 2))  # 00, 01, 10, 11: the first two are one completion
    assert mask.tolist() == [[1, 0], [1, 0], [1, 1], [1, 1]]
    assert same.tolist() == [0, 0, 2, 3]


def test_a_mean_weighs_tokens_by_the_length_of_their_completion_by_hand() -> None:
    """Two tokens equally likely: half of all completions have one token, half have two."""
    tree = TokenTree(2, 2)
    even = torch.zeros(tree.n_states, 2, dtype=torch.float64)
    mask, _ = ends(tree)
    close(token_weights(tree, even, mask, "sum"), mask)
    close(
        token_weights(tree, even, mask, "mean"),
        torch.tensor([[1.5, 0], [1.5, 0], [0.75, 0.75], [0.75, 0.75]], dtype=torch.float64),
    )


@pytest.mark.parametrize("loss", ["sum", "mean"])
def test_the_kl_in_the_reward_under_each_loss_by_its_definition(loss: str) -> None:
    """E[w sum_t (r - beta L_t) grad log pi_t] less the group's means, over whole completions."""
    tree = TokenTree(3, 2)
    logits, reference, _ = instance(tree)
    mask, same = ends(tree)
    reward = (torch.arange(tree.n_completions) % 3 == 1).double()[same]
    factors = log_factors_of(tree, logits, GUIDES["branch"], mask)
    weights = token_weights(tree, logits, mask, loss)
    got = k1_reward_gradient(
        tree, logits, reference, factors, reward, BETA, True, mask=mask, weights=weights
    )
    closed = credited_gradient(tree, logits, reference, factors, reward, BETA, True, mask, weights)
    close(got, closed)


@pytest.mark.parametrize("name", GUIDES)
def test_the_closed_form_is_what_training_credits(name: str) -> None:
    """By the class that trains, over all groups of three; the token guide looks ahead."""
    tree = TokenTree(2, 2)
    logits, reference, reward = instance(tree)
    factors = log_factors_of(tree, logits, GUIDES[name])
    causal = getattr(GUIDES[name], "causal", False)
    inside = torch.ones_like(factors)
    close(
        credited_gradient(tree, logits, reference, factors, reward, BETA, causal, inside, inside),
        k1_reward_gradient(tree, logits, reference, factors, reward, BETA, causal, 3),
    )


@pytest.fixture(scope="module")
def trees() -> pd.DataFrame:
    return over_trees()


def test_one_tree_says_little_of_the_branch_guide_under_a_sum(trees: pd.DataFrame) -> None:
    """With k3 it has no fixed direction; under a mean it opposes Eq. 4 in nearly all trees."""
    assert trees["tree"].nunique() == TREES >= 60
    rows = summary(trees).set_index(["loss", "guide", "estimator"])
    k3 = rows.loc[("sum", "branch", "k3")]
    assert (k3["guide_cosine_low"], k3["guide_cosine_high"]) == pytest.approx(
        (-0.46, 0.43), abs=0.01
    )
    assert k3["guide_cosine"] == pytest.approx(0.09, abs=0.01)
    assert k3["opposed"] == 27 / 64
    assert rows.loc[("mean", "branch", "k3"), "opposed"] == 62 / 64
    assert rows.loc[("mean", "branch", "k3_corrected"), "opposed"] == 1.0
    assert math.isnan(rows.loc[("sum", "branch", "k3_corrected"), "opposed"])
    assert rows.loc[("sum", "branch", "k1_reward"), "guide_cosine_low"] == pytest.approx(1.0)


def test_the_summary_by_hand() -> None:
    row = {"guide": "g", "estimator": "k3", "loss": "sum", "gradient_norm": 1.0, "cosine": 1.0}
    cosines, norms = (-1.0, 0.0, 1.0, 0.5), (1.0, 2.0, 3.0, 4.0)
    frame = pd.DataFrame(
        [
            {**row, "relative_distance": 0.0, "guide_cosine": c, "guide_norm": n, "effect": "own"}
            for c, n in zip(cosines, norms, strict=True)
        ]
    )
    (got,) = summary(frame).to_dict("records")
    assert (got["guide_cosine_low"], got["guide_cosine"], got["guide_cosine_high"]) == (
        -0.25,
        0.25,
        0.625,
    )
    assert (got["guide_norm"], got["opposed"], got["effect"], got["trees"]) == (2.5, 0.25, "own", 4)
    mixed = frame.assign(effect=["own", "own", "own", "none"])
    assert summary(mixed)["effect"].tolist() == ["depends on the tree"]
