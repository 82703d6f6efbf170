"""The conceptual figures show what they claim: their data are computed, and here checked."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from sage.exhibits.theory import OPEN, anchors_figure, modes_figure
from sage.rendering.lines import PALETTE
from sage.theory.figures import TREE, GuidedAnchors, ModeFits, guided_anchors, mode_fits


@pytest.fixture(scope="module")
def anchors() -> GuidedAnchors:
    return guided_anchors()


@pytest.fixture(scope="module")
def fits() -> ModeFits:
    return mode_fits()


def test_anchors_are_the_reference_times_the_guide(anchors: GuidedAnchors) -> None:
    assert anchors.reference.sum() == pytest.approx(1.0)
    assert (np.diff(anchors.reference) <= 1e-15).all()
    for name in ("random", "token", "branch"):
        product = anchors.factors[name] * anchors.reference
        np.testing.assert_allclose(anchors.anchors[name], product, rtol=1e-12)


def test_the_branch_guide_lifts_open_states_only(anchors: GuidedAnchors) -> None:
    above = np.maximum(anchors.entropies - 1.2, 0.0)
    np.testing.assert_allclose(anchors.factors["branch"], np.prod(1 + 0.3 * above, axis=1))
    straight = (anchors.entropies <= 1.2).all(axis=1)
    assert (anchors.factors["branch"][straight] == 1.0).all()
    assert anchors.factors["branch"][~straight].min() > 1.0
    # Two uniform choices of six follow the rarest beginnings: (1 + 0.3 (ln 6 - 1.2))^2.
    assert anchors.factors["branch"].max() == pytest.approx((1 + 0.3 * (np.log(6) - 1.2)) ** 2)
    # On average the rarer beginnings, which open what follows, are lifted more.
    lift = [
        anchors.factors["branch"][anchors.completions[:, 0] == token].mean()
        for token in range(TREE.vocabulary)
    ]
    assert (np.diff(lift) > -1e-12).all()
    assert lift[-1] > lift[0] + 0.1


def test_the_token_guide_lifts_all_and_the_random_guide_few(anchors: GuidedAnchors) -> None:
    """A token is touched with probability 0.1, so a completion of three with 1 - 0.9^3 = 0.271."""
    assert anchors.factors["token"].mean() > 1.2
    touched = np.mean([(guided_anchors(s).factors["random"] != 1.0).mean() for s in range(20)])
    assert touched == pytest.approx(0.271, abs=4 * np.sqrt(0.271 * 0.729 / (20 * 216)))


def test_the_noise_is_that_of_the_seed(anchors: GuidedAnchors) -> None:
    again, other = guided_anchors(), guided_anchors(seed=1)
    assert (again.factors["token"] == anchors.factors["token"]).all()
    assert (other.factors["token"] != anchors.factors["token"]).any()
    assert len(anchors.reference) == TREE.n_completions


def test_reverse_kl_sits_on_one_mode(fits: ModeFits) -> None:
    assert fits.reverse.mean == pytest.approx(-3.0, abs=0.01)
    assert fits.reverse.deviation == pytest.approx(0.7, abs=0.01)
    # Alone on a mode of weight 0.7, the divergence is -log 0.7.
    assert fits.reverse.divergence == pytest.approx(-np.log(0.7), abs=1e-3)


def test_forward_kl_covers_both_modes(fits: ModeFits) -> None:
    """The normal law nearest in forward KL has the mean and the variance of the mixture.

    0.3 at 3 and 0.7 at -3: mean -1.2, variance 0.49 + 0.21 * 36.
    """
    assert fits.forward.mean == pytest.approx(-1.2, abs=1e-3)
    assert fits.forward.deviation**2 == pytest.approx(8.05, abs=1e-2)
    covered = abs(np.array([-3.0, 3.0]) - fits.forward.mean)
    assert (covered < 2 * fits.forward.deviation).all()


def test_sage_reaches_the_mode_that_the_guide_favours(fits: ModeFits) -> None:
    assert fits.guided.mean == pytest.approx(3.0, abs=0.01)
    assert fits.guided.deviation == pytest.approx(0.7, abs=0.01)
    # Four open states at the upper clamp: 1.4^4 = 3.84, enough to turn 0.3 to 0.7 around.
    assert fits.factor.max() == pytest.approx(1.4**4)
    assert fits.factor[0] == pytest.approx(1.0)
    # Unnormalised mass 0.7 + 0.3 * 3.84 less 1, and the mode's share of it by Eq. 5.
    rare = 0.3 * 1.4**4
    assert fits.guided.divergence == pytest.approx(-np.log(rare) - 1 + 0.7 + rare, abs=2e-3)


@pytest.mark.parametrize("side", [-3.0, 3.0])
def test_the_favoured_mode_is_the_better_one_too(side: float, fits: ModeFits) -> None:
    """Descent is local: from each mode it stays there, and SAGE ranks the rarer one first."""
    local = mode_fits(start=(side, 1.0), steps=200)
    assert local.reverse.mean == pytest.approx(side, abs=0.05)
    assert local.guided.mean == pytest.approx(side, abs=0.05)
    assert fits.reverse.divergence <= local.reverse.divergence + 1e-6
    assert fits.guided.divergence <= local.guided.divergence + 1e-6


def test_without_a_branch_sage_is_reverse_kl() -> None:
    plain = mode_fits(branch_entropy=1.2, steps=50)
    assert (plain.factor == 1.0).all()
    np.testing.assert_allclose(plain.guided.path, plain.reverse.path, rtol=0, atol=1e-12)


def test_all_fits_start_alike_and_are_densities(fits: ModeFits) -> None:
    spacing = fits.grid[1] - fits.grid[0]
    for fit in (fits.reverse, fits.forward, fits.guided):
        assert fit.path[0].tolist() == pytest.approx([0.0, 3.0])
        assert fit.path.shape == (601, 2)
        assert np.abs(fit.path[-1] - fit.path[-50]).max() < 1e-6
        assert fit.density.sum() * spacing == pytest.approx(1.0)
    np.testing.assert_allclose(fits.anchor, fits.factor * fits.reference, rtol=1e-12)


def test_figure_1_draws_the_anchors_and_the_guides(anchors: GuidedAnchors) -> None:
    axes = anchors_figure(anchors, likeliest=10).axes
    above, below = axes[: len(anchors.anchors)], axes[len(anchors.anchors) :]
    for name, top, bottom in zip(anchors.anchors, above, below, strict=True):
        bars = [bar.get_height() for bar in top.patches]
        assert bars == pytest.approx(anchors.reference[:10].tolist())
        dots = top.collections[-1].get_offsets()[:, 1]
        assert dots.tolist() == pytest.approx(anchors.anchors[name][:10].tolist())
        factors = bottom.collections[-1].get_offsets()[:, 1]
        assert factors.tolist() == pytest.approx(anchors.factors[name].tolist())


def test_filled_dots_of_figure_1_pass_an_open_state(anchors: GuidedAnchors) -> None:
    branch = anchors_figure(anchors).axes[-1].collections[-1]
    passes = anchors.entropies.max(axis=1) >= OPEN
    alphas = branch.get_facecolors()[:, 3]
    assert (alphas > 0).tolist() == passes.tolist()
    assert 0 < passes.sum() < len(passes)


def test_figure_5_draws_the_fits_in_the_colours_of_their_algorithms(fits: ModeFits) -> None:
    reverse, forward, guided = modes_figure(fits).axes
    for axes, fit, colour in (
        (reverse, fits.reverse, "blue"),
        (forward, fits.forward, "ochre"),
        (guided, fits.guided, "green"),
    ):
        policy = axes.lines[-1]
        np.testing.assert_array_equal(policy.get_ydata(), fit.density)
        assert to_rgba(policy.get_color()) == to_rgba(PALETTE[colour][0])
    assert len(guided.lines) == 2
    np.testing.assert_array_equal(guided.lines[0].get_ydata(), fits.anchor)
