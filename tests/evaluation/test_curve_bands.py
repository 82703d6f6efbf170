"""The band of two curves at all k, and the first k where one is below the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from sage.evaluation.counts import COUNTS
from sage.evaluation.curve_bands import CurveBand, bands_of, curve_band, ks_up_to
from sage.evaluation.curves import curves_of
from sage.evaluation.intervals import Groups, interval_of_difference
from sage.evaluation.pass_at_k import pass_at_k

KS = np.array([1, 2, 4, 8, 16, 32, 64])


def study(
    rng: np.random.Generator, runs: int, problems: int = 60, ks: np.ndarray = KS
) -> tuple[np.ndarray, np.ndarray]:
    """pass@k of two methods; the first is ahead at k = 1 and its runs differ in steepness."""
    level = logit(rng.beta(0.6, 2.4, (1, problems)).clip(1e-6, 1 - 1e-6))
    both = []
    for steeper in (1.5, 1.0):
        moved = level + 0.5 * rng.standard_normal((1, problems))
        moved = moved * (steeper + 0.2 * rng.standard_normal((runs, 1)))
        moved = moved + 0.3 * rng.standard_normal((runs, 1)) + (steeper - 1.0)
        moved = moved + 0.3 * rng.standard_normal((runs, problems))
        both.append(pass_at_k(64, rng.binomial(64, expit(moved)), ks))
    return both[0], both[1]


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    rng, total = np.random.default_rng(1_000), np.zeros(len(KS))
    for _ in range(40):
        one, other = study(rng, 200, 500)
        total += (one - other).mean(axis=(0, 1)) / 40
    return total


@pytest.mark.parametrize("runs", [3, 10])
def test_a_band_holds_the_whole_curve_and_the_first_k_below(runs: int, truth: np.ndarray) -> None:
    """Of 400 studies 93 % or more; intervals of single k hold the whole curve less often."""
    rng, studies = np.random.default_rng(runs), 400
    first = int(KS[truth < 0].min())
    assert first in (2, 4, 8, 16)
    held = at_first = alone = 0
    for _ in range(studies):
        one, other = study(rng, runs)
        band = curve_band(one - other, KS, draws=300)
        held += bool(((band.low <= truth) & (truth <= band.high)).all())
        least, most = (end or 1_000 for end in (band.first_low, band.first_high))
        at_first += least <= first <= most
        low, high = interval_of_difference(one - other, 300)
        alone += bool(((low <= truth) & (truth <= high)).all())
        assert (band.low <= low + 1e-12).all()
        assert (high <= band.high + 1e-12).all()
    assert held >= 0.93 * studies
    assert at_first >= 0.93 * studies
    assert alone < held


def test_one_k_has_the_interval_of_a_difference() -> None:
    one, other = study(np.random.default_rng(0), 5, ks=KS[3:4])
    band = curve_band(one - other, KS[3:4], draws=500)
    ends = np.concatenate(interval_of_difference(one - other, 500))
    assert np.concatenate([band.low, band.high]) == pytest.approx(ends, abs=0.1 * np.ptp(ends))
    wider = curve_band(one - other, KS[3:4], level=0.99, draws=500)
    assert wider.low[0] < band.low[0] < band.high[0] < wider.high[0]


def test_the_first_k_below_by_hand() -> None:
    """0.2, -0.1, -0.3 at k = 1, 2, 4; the band reaches below 0 from 1 and lies below it at 4."""
    value = np.array([0.2, -0.1, -0.3])
    band = CurveBand.around(np.array([1, 2, 4]), value, value - 0.2, value + 0.2, 0.95)
    assert (band.first, band.first_low, band.first_high) == (2, 2, 4)
    turned = band.turned()
    assert (turned.first, turned.first_low, turned.first_high) == (1, 1, None)
    assert turned.low.tolist() == (-band.high).tolist()


def test_no_difference_is_below_nowhere() -> None:
    band = curve_band(np.zeros((3, 20, 2)), np.array([1, 5]), draws=200)
    assert band.value.tolist() == [0.0, 0.0]
    assert (band.first, band.first_high) == (None, None)
    assert band.first_low == 1  # other problems might differ: Gaffke's bound


def test_clusters_widen_a_band() -> None:
    one, other = study(np.random.default_rng(2), 4)
    few = Groups(tuple(str(i % 6) for i in range(60)), drawn=True)
    clustered = curve_band(one - other, KS, draws=300, groups=few)
    plain = curve_band(one - other, KS, draws=300)
    assert (clustered.high - clustered.low > plain.high - plain.low).all()


def test_bands_of_counts_are_by_pair_with_runs_paired_by_seed() -> None:
    rng, rows = np.random.default_rng(3), []
    for name, seeds in (("base", (0,)), ("a", (1, 2, 3)), ("b", (3, 1, 4))):
        for seed in seeds:
            for problem in range(8):
                known = dict.fromkeys(COUNTS, "") | {"model": "m", "benchmark": "x"}
                known |= {"algorithm": name, "train_seed": seed, "problem_id": f"p{problem}"}
                correct = int(rng.integers(0, 9))
                chance = [np.nan] * 4
                rows.append(known | {"n_samples": 8, "correct": correct, "chance": chance})
    counts = pd.DataFrame(rows).assign(worked=np.nan)
    bands = bands_of(counts, 200)
    assert list(bands) == [("m", "x", "a", "base"), ("m", "x", "b", "base"), ("m", "x", "b", "a")]
    curves = {key[1]: curve.correct for key, curve in curves_of(counts).items()}
    ks, runs = ks_up_to(8), (curves["b"][[1, 0]], curves["a"][[0, 2]])  # seeds 1 and 3
    of_b, of_a = (pass_at_k(8, correct, ks).mean(axis=(0, 1)) for correct in runs)
    assert bands["m", "x", "b", "a"].value == pytest.approx(of_b - of_a)
    of_base = pass_at_k(8, curves["base"], ks).mean(axis=(0, 1))  # whose run meets each of b's
    every = pass_at_k(8, curves["b"], ks).mean(axis=(0, 1))
    assert bands["m", "x", "b", "base"].value == pytest.approx(every - of_base)
    assert ks_up_to(8).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {1, 2, 512, 1000} <= set(ks_up_to(1000).tolist())
    assert len(ks_up_to(1000)) < 120
