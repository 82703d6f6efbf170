"""The theory's closed forms against numbers by hand, exact ascent and random instances.

Everything is enumerated in float64: where two quantities are said to be equal they agree to
rounding, and where a claim fails a concrete instance shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from ascent import ascend
from enumerated import Instance, close, each_tree, logs, numbers, visits
from exact_objectives import (
    conditionals,
    entropy_bonus_objective,
    entropy_bonus_policy,
    expected_leash,
    forward_kl_objective,
    token_pseudo_kl,
)
from fixed_points import forward_kl_policy
from off_target import compare_off_target

from sage.method.anchors import pseudo_kl
from sage.theory import toy
from sage.theory.credit import reverse_kl_objective
from sage.theory.spaces import TokenTree, entropies, sequence_log_probs
from sage.theory.toy import (
    empirical_support,
    rlvr_policy,
    sage_policy,
    support_expansion,
    toy_example,
    valid_completions,
)


def test_a_tree_by_hand() -> None:
    tree = TokenTree(2, 2)
    assert tree.completions.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert tree.states.tolist() == [[0, 1], [0, 1], [0, 2], [0, 2]]
    table = logs(0.3, 0.7, 0.5, 0.5, 0.1, 0.9).view(3, 2)
    close(sequence_log_probs(tree, table).exp(), numbers(0.15, 0.15, 0.07, 0.63))
    close(visits(tree, table), numbers(1.0, 0.3, 0.7))
    close(entropies(table)[1], numbers(math.log(2.0))[0])


@each_tree
def test_every_distribution_is_an_autoregressive_policy(tree: TokenTree) -> None:
    one = Instance(tree)
    close(conditionals(tree, one.whole(one.policy) + 3.0), one.policy)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 65536"):
        TokenTree(10, 10)
    with pytest.raises(ValueError, match="must be float64"):
        visits(TokenTree(2, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"beta is 0\.0"):
        rlvr_policy(logs(0.5, 0.5), numbers(0.0, 1.0), 0.0)
    with pytest.raises(ValueError, match=r"found 0\.5"):
        valid_completions(numbers(0.5, 1.0))
    with pytest.raises(ValueError, match=r"epsilon is 0\.0"):
        empirical_support(logs(1.0), torch.tensor([True]), 0.0)
    with pytest.raises(ValueError, match="one valid and one invalid"):
        compare_off_target(logs(0.5, 0.5), logs(1.0, 1.0), numbers(1.0, 1.0), 1.0)


def test_closed_forms_by_hand() -> None:
    reward, beta = numbers(0.0, 1.0), 1.0 / math.log(3.0)  # exp(r / beta) = 1, 3
    close(rlvr_policy(logs(0.75, 0.25), reward, beta).exp(), numbers(0.5, 0.5))
    guided = sage_policy(logs(0.75, 0.25), logs(1.0, 2.0), reward, beta)
    close(guided.exp(), numbers(1 / 3, 2 / 3))
    # pi_ref^(1/2) = 3 : 1, and exp(r / (alpha + beta)) = 1, 3
    flat = entropy_bonus_policy(logs(0.9, 0.1), reward, beta / 2, beta / 2)
    close(flat.exp(), numbers(0.5, 0.5))
    # 0.5/l + 0.5/(l - 1) = 1 has the root l = 1 + sqrt(0.5)
    forward = forward_kl_policy(logs(0.5, 0.5), reward, 1.0)
    close(forward.multiplier, torch.tensor(1.0 + math.sqrt(0.5)).double(), atol=1e-6)
    close(forward.gap, numbers(math.sqrt(0.5))[0])
    close(forward.log_policy.exp(), numbers(1.0 - math.sqrt(0.5), math.sqrt(0.5)))
    of = pseudo_kl(logs(0.5, 0.5), logs(1.0, 0.5))
    close(of, numbers(0.5 - 0.5 * math.log(2.0))[0])


@pytest.mark.parametrize("beta", [1e-3, 0.05, 1.0, 30.0])
def test_the_forward_kl_multiplier_is_exact(beta: float) -> None:
    draw = torch.Generator().manual_seed(1)
    anchor = 4.0 * torch.randn(2000, 9, generator=draw, dtype=torch.float64)
    reward = torch.rand(2000, 9, generator=draw, dtype=torch.float64)
    reward[:1000] = (reward[:1000] < 0.2).double()
    found = forward_kl_policy(anchor, reward, beta)
    policy = found.log_policy.exp()
    assert bool((found.gap > 0).all())
    close(policy.sum(-1), torch.ones(2000).double(), atol=1e-14)
    identity = (policy * reward).sum(-1) + beta * anchor.exp().sum(-1)
    torch.testing.assert_close(found.multiplier, identity, rtol=1e-13, atol=0.0)


def objectives(one: Instance) -> dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor]]:
    """Each objective of whole completions beside the closed form of its maximiser."""
    reference, anchor, reward = one.whole(one.reference), one.whole(one.anchor), one.reward
    guide = one.whole(one.guide)
    return {
        "Eq. 1, 2": (
            lambda p: reverse_kl_objective(p, reference, reward, 0.3),
            rlvr_policy(reference, reward, 0.3),
        ),
        "Eq. 6, 4": (
            lambda p: reverse_kl_objective(p, anchor, reward, 0.3),
            sage_policy(reference, guide, reward, 0.3),
        ),
        "Eq. 19, 21": (
            lambda p: entropy_bonus_objective(p, reference, reward, 0.3, 0.2),
            entropy_bonus_policy(reference, reward, 0.3, 0.2),
        ),
        "Eq. 27": (
            lambda p: forward_kl_objective(p, anchor, reward, 0.3),
            forward_kl_policy(anchor, reward, 0.3).log_policy,
        ),
    }


@each_tree
@pytest.mark.parametrize("name", ["Eq. 1, 2", "Eq. 6, 4", "Eq. 19, 21", "Eq. 27"])
def test_ascent_ends_at_the_closed_form(tree: TokenTree, name: str) -> None:
    one = Instance(tree)
    objective, closed = objectives(one)[name]
    reached = ascend(lambda table: objective(one.whole(table)), one.logits)
    close(one.whole(reached).exp(), closed.exp(), atol=1e-6)


def test_an_entropy_bonus_keeps_the_order_of_valid_completions_and_a_guide_can_turn_it() -> None:
    reference, reward = logs(0.6, 0.3, 0.1), numbers(1.0, 1.0, 0.0)
    for alpha in (0.01, 1.0, 100.0):
        flat = entropy_bonus_policy(reference, reward, 0.05, alpha)
        assert flat[0] > flat[1]
    guided = sage_policy(reference, logs(0.6, 1.4, 1.0), reward, 0.05)
    assert guided[1] > guided[0]


@each_tree
def test_the_leash_divides_over_tokens(tree: TokenTree) -> None:
    one = Instance(tree)
    whole_anchor = one.whole(one.reference) + one.whole(one.guide)
    close(one.whole(one.anchor), whole_anchor)  # Eq. 7: product of token anchors
    leash = expected_leash(tree, one.policy, one.reference, one.guide)
    mass = whole_anchor.exp().sum() - 1.0
    close(leash.sum() + mass, pseudo_kl(one.whole(one.policy), whole_anchor))
    # a pseudo-KL per token has other masses, and they depend on the policy
    masses = one.anchor.exp().sum(-1) - 1.0
    close(
        token_pseudo_kl(tree, one.policy, one.anchor),
        leash.sum() + (visits(tree, one.policy) * masses).sum(),
    )


@each_tree
def test_normalising_each_token_is_not_normalising_the_completion(tree: TokenTree) -> None:
    one = Instance(tree)
    per_token = torch.log_softmax(one.anchor, dim=-1)
    whole = conditionals(tree, one.whole(one.anchor))
    assert torch.allclose(per_token, whole) == (tree.length == 1)
    # with a guide of states alone, normalising each token leaves nothing of it
    close(torch.log_softmax(one.reference + one.state_guide, dim=-1), one.reference)


def many(count: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    normal = partial(torch.randn, (count, size), generator=draw, dtype=torch.float64)
    reward = (torch.rand(count, size, generator=draw) < 0.4).double()
    reward[:, 0], reward[:, 1] = 0.0, 1.0
    return torch.log_softmax(2.0 * normal(), dim=-1), normal(), reward


@pytest.mark.parametrize("beta", [0.05, 0.5, 2.0])
def test_theorem_4_3_is_an_equivalence(beta: float) -> None:
    reference, guide, reward = many(5000, 8, seed=2)
    found = support_expansion(reference, guide, reward, beta, epsilon=0.05)
    assert torch.equal(found.condition, found.conclusion)
    close((found.log_rlvr.exp() * found.guide_ratio), found.log_sage.exp())
    valid = reward == 1.0
    before = empirical_support(found.log_rlvr, valid, 0.05)
    assert int((~before & found.conclusion).sum()) > 100  # enter
    assert int((before & ~found.conclusion).sum()) > 100  # and others leave
    assert int((valid & ~before & ~found.condition).sum()) > 100  # condition fails, stays outside


def test_theorem_4_3_by_hand() -> None:
    # beta so small that RLVR is (0, 0.9, 0.1); q = 1, 1, 2 has mean 1.1 under it
    found = support_expansion(
        logs(0.5, 0.45, 0.05), logs(1.0, 1.0, 2.0), numbers(0.0, 1.0, 1.0), 0.01, 0.15
    )
    close(found.guide_ratio[2], numbers(2 / 1.1)[0])
    close(found.required[2], numbers(1.5)[0])
    close(found.log_sage.exp()[2], numbers(0.2 / 1.1)[0])
    assert found.condition.tolist() == found.conclusion.tolist() == [False, True, True]


def test_at_eq_2_the_support_grows_so_theorem_4_2_speaks_of_sampling_only() -> None:
    reference, _, reward = many(5000, 8, seed=3)
    rlvr = rlvr_policy(reference, reward, 0.5)
    valid = reward == 1.0
    assert bool((rlvr >= reference)[valid].all())
    before, after = (empirical_support(p, valid, 0.05) for p in (reference, rlvr))
    assert not bool((before & ~after).any())
    assert bool((after & ~before).any())


def test_separation_puts_less_mass_off_target_than_forward_kl() -> None:
    separated = 0
    for seed, beta in enumerate((0.05, 0.2, 0.5, 1.0, 3.0)):
        reference, guide, reward = many(2000, 6, seed)
        found = compare_off_target(reference, guide, reward, beta)
        sage = sage_policy(reference, guide, reward, beta)
        forward = forward_kl_policy(reference, reward, beta).log_policy
        close(found.log_ratio, sage - forward, atol=1e-10)  # Eq. 29
        assert torch.equal(found.sufficient, found.separated)  # Eq. 32 is Eq. 30
        less = found.sage_mass < found.forward_kl_mass
        assert bool(less[found.separated].all())
        separated += int(found.separated.sum())
        if beta >= 1.0:  # not necessary, and where it fails either may hold
            assert bool(less[~found.separated].any())
            assert bool((~less)[~found.separated].any())
    assert 2000 < separated < 9000


def test_off_target_mass_by_hand() -> None:
    # forward KL leaves 1 - sqrt(1/2) off target (above); Eq. 4 leaves q0 / (q0 + e)
    reference, reward = logs(0.5, 0.5), numbers(0.0, 1.0)
    bound = math.e * math.sqrt(0.5) / (1.0 + math.sqrt(0.5))
    for q0, better in ((0.99 * bound, True), (1.01 * bound, False)):
        found = compare_off_target(reference, logs(q0, 1.0), reward, 1.0)
        close(found.sage_mass, numbers(q0 / (q0 + math.e))[0])
        close(found.forward_kl_mass, numbers(1.0 - math.sqrt(0.5))[0])
        assert bool(found.sufficient) == better
        assert bool(found.sage_mass < found.forward_kl_mass) == better


def test_without_a_guide_forward_kl_is_better_on_target_where_valid_completions_are_rare() -> None:
    unguided, reward = logs(1.0, 1.0), numbers(0.0, 1.0)
    common, rare = 1e-3, 1e-11  # on either side of exp(-1 / 0.05) = 2e-9
    easy = compare_off_target(logs(1.0 - common, common), unguided, reward, 0.05)
    hard = compare_off_target(logs(1.0 - rare, rare), unguided, reward, 0.05)
    assert bool(easy.separated)
    assert not bool(hard.sufficient)
    assert hard.sage_mass > 0.99
    assert hard.forward_kl_mass < 0.05


def test_the_toy_lifts_the_rare_completion_over_epsilon() -> None:
    example = toy_example()
    assert (example.condition, example.conclusion) == (True, True)
    numbers = example.numbers.set_index("quantity")
    frequent, rare = numbers["frequent"], numbers["rare"]
    reference, rlvr, sage = (rare[f"probability, {name}"] for name in ("reference", "RLVR", "SAGE"))
    assert reference < rlvr < toy.EPSILON <= sage
    factor = 1.0 + 0.3 * (math.log(5.0) - 1.2)  # the branch is uniform over five tokens
    factors = ["guide factor of token 1", "guide factor of token 2"]
    assert rare[factors].tolist() == pytest.approx([1.0, factor], abs=1e-12)
    assert frequent[factors].tolist() == [1.0, 1.0]
    assert reference == pytest.approx(0.04 * 0.2, abs=1e-15)
    assert frequent["probability, reference"] == pytest.approx(0.9 * 0.96, abs=1e-15)
    # at beta = 0.05 the invalid completions weigh e^-20: what is left is 0.008 against 0.864
    assert rlvr == pytest.approx(0.008 / 0.872, rel=1e-8)
    assert sage == pytest.approx(0.008 * factor / (0.864 + 0.008 * factor), rel=1e-8)
    assert rare["guide ratio q(y) / E[q]"] * rlvr == pytest.approx(sage, rel=1e-12)


def test_the_toy_fails_where_the_guide_is_too_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "RATIO", 0.1)
    weak = toy_example()
    assert (weak.condition, weak.conclusion) == (False, False)


def test_the_toy_fails_where_the_branch_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the paper tells it: the high entropy is that of the first token's state."""
    monkeypatch.setattr(toy, "FIRST_TOKEN", (0.36, 0.16, 0.16, 0.16, 0.16))
    monkeypatch.setattr(toy, "STRAIGHT_ON", (0.96, 0.01, 0.01, 0.01, 0.01))
    monkeypatch.setattr(toy, "BRANCH", (0.01, 0.05, 0.92, 0.01, 0.01))
    numbers = toy_example().numbers.set_index("quantity")
    assert (numbers.loc["guide factor of token 1"] > 1.0).all()
    assert (numbers.loc["guide factor of token 2"] == 1.0).all()
    rare = numbers["rare"]
    assert rare["probability, SAGE"] == pytest.approx(rare["probability, RLVR"], rel=1e-12)


@pytest.mark.parametrize("beta", [0.05, 0.2, 1.0, 5.0])
def test_a_guide_multiplies_the_odds_of_a_right_answer_whatever_beta(beta: float) -> None:
    """Eq. 4 beside Eq. 2, and of two right ways beside the reference: docs/method.md."""
    generator = torch.Generator().manual_seed(7)
    log_reference = torch.randn(12, generator=generator, dtype=torch.float64).log_softmax(0)
    log_guide = torch.randn(12, generator=generator, dtype=torch.float64)
    reward = torch.tensor([1.0] * 5 + [0.0] * 7, dtype=torch.float64)
    first, second = slice(0, 2), slice(2, 5)

    def mean_of_q(where: torch.Tensor | slice) -> torch.Tensor:
        weights = log_reference.exp()[where]
        return (weights * log_guide.exp()[where]).sum() / weights.sum()

    def odds(log_policy: torch.Tensor) -> torch.Tensor:
        right = (log_policy.exp() * reward).sum()
        return right / (1 - right)

    plain = rlvr_policy(log_reference, reward, beta)
    guided = sage_policy(log_reference, log_guide, reward, beta)
    factor = mean_of_q(reward == 1) / mean_of_q(reward == 0)
    torch.testing.assert_close(odds(guided), odds(plain) * factor, rtol=1e-5, atol=0.0)
    ways = [each.exp()[first].sum() / each.exp()[second].sum() for each in (log_reference, guided)]
    torch.testing.assert_close(ways[1], ways[0] * mean_of_q(first) / mean_of_q(second))
