"""Guides and anchors against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sage.method.anchors import (
    forward_kl_exact,
    forward_kl_sampled,
    k1,
    k2,
    k3,
    pseudo_kl,
    shaped_anchor,
)
from sage.method.guides import (
    BranchGuide,
    Moment,
    Noise,
    RandomGuide,
    Signals,
    TokenGuide,
    cosine,
    guide_log_factors,
    quantile_normalised,
    rank_normalised,
    zscore_normalised,
)
from sage.study import Guide


def signals(entropies: list[list[float]], mask: list[list[int]] | None = None) -> Signals:
    values = torch.tensor(entropies)
    return Signals(
        log_probs=torch.zeros_like(values),
        entropies=values,
        mask=torch.ones_like(values) if mask is None else torch.tensor(mask),
    )


def moment() -> Moment:
    return Moment(0, 80, Noise("0"))


def test_branch_amplifies_above_the_threshold_only() -> None:
    factors = BranchGuide(ratio=0.3, threshold=1.2).factors(
        signals([[0.0, 1.2, 2.2, 3.2]]), moment()
    )
    torch.testing.assert_close(factors, torch.tensor([[1.0, 1.0, 1.3, 1.6]]))


def test_factors_are_clamped_and_one_on_padding() -> None:
    of = signals([[2.2, 9.0, 9.0]], mask=[[1, 1, 0]])
    logs = guide_log_factors(BranchGuide(ratio=0.3, threshold=1.2), of, moment(), 0.6, 1.4)
    torch.testing.assert_close(logs, torch.tensor([[math.log(1.3), math.log(1.4), 0.0]]))


def test_a_guide_may_have_no_number_on_padding() -> None:
    class Relative:
        def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
            return 1.0 + 0.1 * signals.entropies / -signals.log_probs

    of = Signals(
        log_probs=torch.tensor([[-0.5, -2.0, 0.0]]),
        entropies=torch.tensor([[1.0, 2.0, 0.0]]),
        mask=torch.tensor([[1, 1, 0]]),
    )
    logs = guide_log_factors(Relative(), of, moment(), 0.6, 1.4)
    torch.testing.assert_close(logs, torch.tensor([[math.log(1.2), math.log(1.1), 0.0]]))


def test_factors_carry_no_gradient() -> None:
    entropies = torch.tensor([[2.0]], requires_grad=True)
    of = Signals(log_probs=entropies, entropies=entropies, mask=torch.ones(1, 1))
    assert not guide_log_factors(BranchGuide(), of, moment(), 0.6, 1.4).requires_grad


def test_signals_of_different_shapes_are_refused() -> None:
    of = Signals(torch.zeros(1, 2), torch.zeros(1, 3), torch.ones(1, 2))
    with pytest.raises(ValueError, match="different shapes"):
        guide_log_factors(BranchGuide(), of, moment(), 0.6, 1.4)


def test_the_anchor_is_the_reference_times_the_guide() -> None:
    reference = torch.log(torch.tensor([[0.2, 0.5]]))
    anchor = shaped_anchor(reference, torch.log(torch.tensor([[1.3, 1.0]])))
    torch.testing.assert_close(anchor.exp(), torch.tensor([[0.26, 0.5]]))
    with pytest.raises(ValueError, match="differ in shape"):
        shaped_anchor(reference, torch.zeros(1, 3))


def test_the_cosine_restarts_lower_after_each_period() -> None:
    def value(step: int, high: float = 0.3) -> float:
        return cosine(Moment(step, 80, Noise("")), high, low=0.1, periods=8, decay=0.9)

    values = [value(step) for step in (0, 5, 10, 15, 20, 70)]
    assert values == pytest.approx([0.3, 0.2, 0.27, 0.185, 0.243, 0.3 * 0.9**7])
    assert value(80) == pytest.approx(0.1)
    assert value(70, high=0.12) == pytest.approx(0.1)
    assert [value(step) for step in (81, 85, 400)] == pytest.approx([0.1] * 3)  # no way back up
    # 9 of 18 steps are exactly 7 of 14 periods, though 9 / (18 / 14) is a little less.
    assert cosine(Moment(9, 18, Noise("")), 0.3, 0.1, periods=14) == 0.3 * 0.9**7


def test_random_touches_a_share_epsilon_with_deviation_sigma() -> None:
    of = signals([[1.0] * 500] * 200)
    factors = RandomGuide(epsilon_high=0.1, sigma_high=0.15).factors(of, moment())
    touched = factors[factors != 1.0]
    assert touched.numel() / factors.numel() == pytest.approx(0.1, abs=0.005)
    assert touched.mean().item() == pytest.approx(1.0, abs=0.01)
    assert touched.std().item() == pytest.approx(0.15, abs=0.01)


def test_noise_belongs_to_the_completion_whatever_it_is_batched_with() -> None:
    wide, narrow = torch.zeros(4, 50), torch.zeros(2, 17)
    for draw in (Noise.normal, Noise.uniform):
        whole = draw(Noise("a"), "x", wide)
        assert torch.equal(draw(Noise("a", [3, 1]), "x", narrow), whole[[3, 1], :17])
        assert not torch.equal(draw(Noise("a"), "y", wide), whole)
        assert not torch.equal(draw(Noise("b"), "x", wide), whole)
        assert len(whole.unique()) == whole.numel()
    with pytest.raises(ValueError, match="3 completions are numbered, but the batch has 2"):
        Noise("a", [0, 1, 2]).normal("x", narrow)


def test_token_amplifies_by_normalised_surprisal() -> None:
    log_probs = -torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]])
    of = Signals(log_probs, torch.zeros(1, 5), torch.ones(1, 5))
    guide = TokenGuide(sigma_high=0.0, sigma_low=0.0, normalisation="rank")
    expected = 1.0 + 0.3 * torch.tensor([[0.0, 0.25, 0.5, 0.75, 1.0]])
    torch.testing.assert_close(guide.factors(of, moment()), expected)


def test_quantiles_are_taken_within_each_completion() -> None:
    torch.manual_seed(0)
    values, lengths = torch.rand(5, 40), torch.tensor([40, 21, 3, 1, 0])
    mask = (torch.arange(40) < lengths[:, None]).long()
    got = quantile_normalised(values, mask)
    for row, length in enumerate(lengths.tolist()):
        inside = values[row, :length].numpy()
        expected = np.zeros(40, dtype=np.float32)
        if length > 1:
            low, high = np.quantile(inside, [0.05, 0.95])
            expected[:length] = np.clip((inside - low) / (high - low), 0.0, 1.0)
        np.testing.assert_allclose(got[row].numpy(), expected, atol=1e-5)


def test_ranks_and_zscores_by_hand() -> None:
    values, mask = torch.tensor([[3.0, 1.0, 2.0, 9.0]]), torch.tensor([[1, 1, 1, 0]])
    assert rank_normalised(values, mask).tolist() == [[1.0, 0.0, 0.5, 0.0]]
    tied = rank_normalised(torch.tensor([[2.0, 0.0, 0.0, 9.0]]), mask)
    assert tied.tolist() == [[1.0, 0.25, 0.25, 0.0]]  # whatever their places are
    z = math.sqrt(1.5)
    expected = [1 / (1 + math.exp(-z)), 1 / (1 + math.exp(z)), 0.5, 0.0]
    torch.testing.assert_close(zscore_normalised(values, mask), torch.tensor([expected]))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("branch", {"ratios": 0.1}, "settings.ratios: unknown key; did you mean 'ratio'"),
        ("branch", {"ratio": -0.1}, "must be at least 0"),
        ("branch", {"threshold": -1.0}, "must be at least 0"),
        ("random", {"epsilon_high": 1.5}, "epsilon"),
        ("token", {"alpha_low": 0.5}, "alpha"),
        ("token", {"normalisation": "softmax"}, "is not allowed; allowed: quantile, rank, zscore"),
        ("token", {"periods": 0}, "periods"),
    ],
)
def test_unusable_guides_are_refused(
    kind: str, settings: dict[str, float | str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Guide(kind=kind, settings=settings)


def test_divergences_by_hand() -> None:
    log_p, log_a = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    ln2 = math.log(2.0)
    torch.testing.assert_close(k1(log_p, log_a), torch.tensor([ln2]))
    torch.testing.assert_close(k2(log_p, log_a), torch.tensor([ln2**2 / 2]))
    torch.testing.assert_close(k3(log_p, log_a), torch.tensor([0.5 + ln2 - 1.0]))
    torch.testing.assert_close(
        forward_kl_sampled(log_p, log_a), torch.tensor([-0.5 * ln2 - 0.5 + 1.0])
    )
    policy, anchor = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
    torch.testing.assert_close(
        forward_kl_exact(policy, anchor),
        torch.tensor(0.25 * math.log(0.5) + 0.75 * math.log(1.5)),
    )
    torch.testing.assert_close(
        pseudo_kl(policy, anchor + math.log(2.0)),
        torch.tensor(0.5 * math.log(1.0) + 0.5 * math.log(1 / 3) - 1.0 + 2.0),
    )


@pytest.mark.parametrize("mass", [1.0, 1.3])
def test_the_estimators_expectations_are_the_divergences(mass: float) -> None:
    """On a policy listed whole; `tests/theory` has their gradients."""
    torch.manual_seed(1)
    policy, anchor = torch.randn(2, 6, dtype=torch.double).log_softmax(1)
    anchor = anchor + math.log(mass)
    weights = policy.exp()
    reverse, forward = (weights @ (policy - anchor)), anchor.exp() @ (anchor - policy)
    torch.testing.assert_close(weights @ k1(policy, anchor), reverse)
    torch.testing.assert_close(weights @ k3(policy, anchor), pseudo_kl(policy, anchor))
    sampled = weights @ forward_kl_sampled(policy, anchor)
    torch.testing.assert_close(sampled, forward - mass + 1.0)


def test_the_branch_guide_on_the_reference_by_hand() -> None:
    ones = torch.ones(1, 2)
    guide = BranchGuide(ratio=0.5, threshold=1.0, entropy_of="reference")
    told = Signals(-ones, 9.0 * ones, ones, reference_entropies=torch.tensor([[0.5, 1.4]]))
    factors = guide_log_factors(guide, told, Moment(0, 1, Noise("x")), 0.6, 1.4).exp()
    torch.testing.assert_close(factors, torch.tensor([[1.0, 1.2]]))
    with pytest.raises(ValueError, match="entropies of the reference"):
        guide.factors(Signals(-ones, ones, ones), Moment(0, 1, Noise("x")))
