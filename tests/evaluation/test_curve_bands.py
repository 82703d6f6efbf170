"""The band of two curves at all k, and the first k where one is below the other."""

from __future__ import annotations

import numpy as np
import pytest
from counted import counts_of
from scipy.special import expit, logit

from sage.evaluation.curve_bands import Counts, CurveBand, bands_of, curve_band, ks_up_to
from sage.evaluation.curves import curves_of
from sage.evaluation.intervals import Groups, interval_of_difference
from sage.evaluation.pass_at_k import pass_at_k

KS = np.array([1, 2, 4, 8, 16, 32, 64])


def study(rng: np.random.Generator, runs: int, problems: int = 60) -> tuple[Counts, Counts]:
    """64 samples of two methods; the first is ahead at k = 1 and its runs differ in steepness."""
    level = logit(rng.beta(0.6, 2.4, (1, problems)).clip(1e-6, 1 - 1e-6))
    both = []
    for steeper in (1.5, 1.0):
        moved = level + 0.5 * rng.standard_normal((1, problems))
        moved = moved * (steeper + 0.2 * rng.standard_normal((runs, 1)))
        moved = moved + 0.3 * rng.standard_normal((runs, 1)) + (steeper - 1.0)
        moved = moved + 0.3 * rng.standard_normal((runs, problems))
        both.append((rng.binomial(64, expit(moved)), 64))
    return both[0], both[1]


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    rng = np.random.default_rng(1_000)
    one, other = (np.zeros(len(KS)) for _ in range(2))
    for _ in range(40):
        pair = study(rng, 200, 500)
        one, other = (
            total + pass_at_k(n, correct, KS).mean(axis=(0, 1)) / 40
            for total, (correct, n) in zip((one, other), pair, strict=True)
        )
    return one - other


@pytest.mark.parametrize("runs", [3, 10])
def test_a_band_holds_the_whole_curve_and_the_first_k_below(runs: int, truth: np.ndarray) -> None:
    """Of 400 studies 93 % or more; intervals of single k hold the whole curve less often."""
    rng, studies = np.random.default_rng(runs), 400
    first = int(KS[truth < 0].min())
    assert first in (2, 4, 8, 16)
    held = at_first = alone = 0
    for _ in range(studies):
        one, other = study(rng, runs)
        band = curve_band(one, other, KS, draws=300)
        held += bool(((band.low <= truth) & (truth <= band.high)).all())
        least, most = (end or 1_000 for end in (band.first_low, band.first_high))
        at_first += least <= first <= most
        values = pass_at_k(64, one[0], KS) - pass_at_k(64, other[0], KS)
        low, high = interval_of_difference(values, 300)
        alone += bool(((low <= truth) & (truth <= high)).all())
        assert (band.low <= low + 1e-12).all()
        assert (high <= band.high + 1e-12).all()
    assert held >= 0.93 * studies
    assert at_first >= 0.93 * studies
    assert alone < held


def test_one_k_has_the_interval_of_a_difference() -> None:
    one, other = study(np.random.default_rng(0), 5)
    band = curve_band(one, other, KS[3:4], draws=500)
    values = pass_at_k(64, one[0], KS[3:4]) - pass_at_k(64, other[0], KS[3:4])
    ends = np.concatenate(interval_of_difference(values, 500))
    assert np.concatenate([band.low, band.high]) == pytest.approx(ends, abs=0.1 * np.ptp(ends))


def test_the_first_k_below_by_hand() -> None:
    """0.2, -0.1, -0.3 at k = 1, 2, 4; the band reaches below 0 from 1 and lies below it at 4."""
    value = np.array([0.2, -0.1, -0.3])
    band = CurveBand.around(np.array([1, 2, 4]), value, value - 0.2, value + 0.2)
    assert (band.first, band.first_low, band.first_high) == (2, 2, 4)
    turned = band.turned()
    assert (turned.first, turned.first_low, turned.first_high) == (1, 1, None)
    assert turned.low.tolist() == (-band.high).tolist()


def test_no_difference_is_below_nowhere() -> None:
    ten = np.full((3, 20), 5)
    band = curve_band((ten, 10), (ten, 10), np.array([1, 5]), draws=200)
    assert band.value.tolist() == [0.0, 0.0]
    assert (band.first, band.first_high) == (None, None)
    assert band.first_low == 1  # other problems might differ: Gaffke's bound


def test_a_single_run_is_paired_with_each_and_groups_count() -> None:
    (correct, n), other = study(np.random.default_rng(2), 4)
    base = curve_band((correct, n), (other[0][:1], n), KS, draws=300)
    again = curve_band((correct, n), (np.repeat(other[0][:1], 4, axis=0), n), KS, draws=300)
    assert base.low.tolist() == again.low.tolist()
    few = Groups(tuple(str(i % 6) for i in range(60)), drawn=True)
    clustered = curve_band((correct, n), other, KS, draws=300, groups=few)
    plain = curve_band((correct, n), other, KS, draws=300)
    assert (clustered.high - clustered.low > plain.high - plain.low).all()


def test_bands_of_counts_are_by_pair_with_runs_paired_by_seed() -> None:
    base, *runs = np.random.default_rng(3).integers(0, 9, (7, 8)).tolist()
    counts = counts_of(base=[base], a=runs[:3], b=runs[3:])
    of_b = counts["algorithm"] == "b"
    counts.loc[of_b, "train_seed"] = counts.loc[of_b, "train_seed"].map({1: 3, 2: 1, 3: 4})
    bands = bands_of(counts, 200)
    assert list(bands) == [("m", "b", "a", "base"), ("m", "b", "b", "base"), ("m", "b", "b", "a")]
    curves = {key[1]: curve for key, curve in curves_of(counts).items()}
    of_b, of_a = curves["b"].correct[[1, 0]], curves["a"].correct[[0, 2]]  # seeds 1 and 3
    expected = curve_band((of_b, 8), (of_a, 8), ks_up_to(8), draws=200)
    assert bands["m", "b", "b", "a"].value == pytest.approx(expected.value)
    assert ks_up_to(8).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {1, 2, 512, 1000} <= set(ks_up_to(1000).tolist())
    assert len(ks_up_to(1000)) < 120
