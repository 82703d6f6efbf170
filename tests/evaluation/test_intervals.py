"""Intervals and p-values against known truth: coverage and size on simulated studies."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln, expit, logit, stdtrit
from scipy.stats import beta

from sage.evaluation.intervals import (
    Groups,
    detectable,
    groups_of,
    holm,
    interval_of_difference,
    interval_of_mean,
    interval_of_share,
    mean_of,
    p_of_problems,
    p_of_runs,
    parts_of,
)

SIMULATIONS = 2_000
SAMPLES = 64
DRAWS = 2_000
INTERACTION = 0.3  # logits by which runs differ on single problems


def studies(
    mean: float, run_effect: float, problems: int, rng: np.random.Generator, runs: int = 3
) -> np.ndarray:
    """Observed pass@1 of simulated studies, `[runs, problems, SIMULATIONS]`.

    Difficulties are Beta distributed; runs shift all logits by N(0, run_effect).
    """
    shape = (runs, problems, SIMULATIONS)
    difficulty = rng.beta(2 * mean, 2 * (1 - mean), (1, *shape[1:])).clip(1e-6, 1 - 1e-6)
    shift = run_effect * rng.standard_normal((runs, 1, SIMULATIONS))
    rates = expit(logit(difficulty) + shift + INTERACTION * rng.standard_normal(shape))
    return rng.binomial(SAMPLES, rates) / SAMPLES


def truth(mean: float, run_effect: float, rng: np.random.Generator) -> float:
    """What `studies` has the mean of, to three digits and a half."""
    difficulty = rng.beta(2 * mean, 2 * (1 - mean), 2_000_000).clip(1e-6, 1 - 1e-6)
    spread = np.hypot(run_effect, INTERACTION)
    return float(expit(logit(difficulty) + spread * rng.standard_normal(2_000_000)).mean())


def held(ends: tuple[np.ndarray, np.ndarray], true: float = 0.0) -> float:
    """The share of studies whose interval holds what is true."""
    low, high = ends
    return float(((low <= true) & (true <= high)).mean())


@pytest.mark.slow
@pytest.mark.parametrize("runs", [3, 5, 10, 20])
def test_intervals_cover_the_truth_whatever_the_number_of_runs(runs: int) -> None:
    """Problems have effects that runs share; the wider of two variances alone fails from five."""
    rng = np.random.default_rng(runs)
    effects = (0.0, 0.3, 0.6)
    table = {
        effect: held(
            interval_of_share(studies(0.5, effect, 60, rng, runs), DRAWS), truth(0.5, effect, rng)
        )
        for effect in effects
    }
    print(f"{runs} runs of 60 problems, by run effect in logits: {table}")
    assert all(0.93 <= share <= 0.98 for share in table.values()), table


def of_both(ratio: float, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Differences of mean 0; SE over runs is `ratio` times that over problems."""
    spread = ratio * 0.2 * np.sqrt(runs / 60)
    return (
        0.2 * rng.standard_normal((1, 60, SIMULATIONS))
        + spread * rng.standard_normal((runs, 1, SIMULATIONS))
        + 0.1 * rng.standard_normal((runs, 60, SIMULATIONS))
    )


@pytest.mark.parametrize("runs", [5, 20])
def test_variances_of_problems_and_runs_add(runs: int) -> None:
    values = of_both(1.0, runs, np.random.default_rng(runs))
    assert held(interval_of_difference(values, 500)) >= 0.93
    parts = parts_of(values, 500)
    wider = np.maximum(parts.problems, parts.by_run.var(axis=0, ddof=1) / runs)
    reach = 2.0 * np.sqrt(wider)
    assert (np.abs(values.mean(axis=(0, 1))) <= reach).mean() < 0.9  # what one alone would cover


def test_the_standard_error_is_worked_by_hand() -> None:
    """Runs (rows) by problems 0, 2 / 2, 4 / 4, 12: means over runs 2 and 6, over problems 1, 3, 8.

    s_p^2 / P = 8 / 2 = 4, s_r^2 / S = 13 / 3, s_e^2 = 6 (deviations 1, 1, -2 from both, twice,
    over 2 degrees of freedom), / 6 = 1: 4 + 13 / 3 - 1 = 22 / 3. Degrees of freedom are
    (22 / 3) / (4 / 1 + 13 / 3 / 2) = 44 / 37, so at least 1; of (25 / 3) it would be 50 / 37.
    """
    values = np.array([[0.0, 2.0], [2.0, 4.0], [4.0, 12.0]])[..., None]
    parts = parts_of(values, 500, None)
    assert parts.problems == pytest.approx(4.0)
    assert parts.interaction == pytest.approx(1.0)
    found = mean_of([parts])
    assert found.df == pytest.approx(44 / 37)
    flat = replace(parts, below=parts.problems, above=parts.problems)
    assert mean_of([flat]).total[0] == pytest.approx(22 / 3)


@pytest.mark.parametrize("ratio", [2.0, 3.0])
def test_five_runs_that_spread_more_than_problems_are_covered(ratio: float) -> None:
    """Of 8,000 studies 5 % may miss 0, give or take 0.24; after Satterthwaite 5.6 % did."""
    rng, chunks = np.random.default_rng(0), 4
    found = [held(interval_of_difference(of_both(ratio, 5, rng), 500)) for _ in range(chunks)]
    assert 1 - np.mean(found) <= 0.0525


def test_no_variance_is_taken_from_the_larger_part() -> None:
    """Runs that agree better than chance would have them: not less than problems alone."""
    values = np.array([[0.0, 2.0], [2.0, 0.0]])[..., None]  # the interaction is all there is
    found = mean_of([parts_of(values, 500, None)])
    assert found.total[0] == 0.0
    values = np.array([[0.0, 4.0], [2.0, 2.0]])[..., None]
    parts = parts_of(values, 500, None)
    assert parts.problems == pytest.approx(1.0)
    flat = replace(parts, below=parts.problems, above=parts.problems)
    assert mean_of([flat]).total[0] == pytest.approx(1.0)


def test_all_and_none_correct_are_bounded_as_by_clopper_and_pearson() -> None:
    """60 of 60, in one run and in three: 0.025^(1/60) = 0.940; none of 60: 0.060."""
    for runs in (1, 3):
        low, high = interval_of_share(np.ones((runs, 60, 1)), draws=20_000)
        assert (low[0], high[0]) == (pytest.approx(0.025 ** (1 / 60), abs=0.004), 1.0)
        low, high = interval_of_share(np.zeros((runs, 60, 1)), draws=20_000)
        assert (low[0], high[0]) == (0.0, pytest.approx(1.0 - 0.025 ** (1 / 60), abs=0.004))
    low, high = interval_of_difference(np.zeros((3, 60, 1)), draws=20_000)
    assert (low[0], high[0]) == pytest.approx((-0.06, 0.06), abs=0.004)


def test_one_failure_of_sixty_is_bounded_no_closer_than_by_clopper_and_pearson() -> None:
    values = np.ones((1, 60, 1))
    values[0, 0] = 0.0
    low, high = interval_of_share(values, draws=20_000)
    assert beta.ppf(0.025, 59, 2) - 0.02 < low[0] < beta.ppf(0.025, 59, 2) + 0.004
    assert high[0] == pytest.approx(beta.ppf(0.975, 60, 1), abs=0.002)


@pytest.mark.parametrize("runs", [1, 3])
def test_shares_near_one_are_covered(runs: int) -> None:
    """True pass@64 of 0.986 over 60 problems with 64 samples: many studies see no failure."""
    rng = np.random.default_rng(runs)
    rates = rng.beta(2.2, 10.0, (1, 60, SIMULATIONS))
    true = 1.0 - np.exp(betaln(2.2, 74.0) - betaln(2.2, 10.0))
    assert true == pytest.approx(0.986, abs=0.001)
    solved = rng.binomial(64, np.broadcast_to(rates, (runs, 60, SIMULATIONS))) > 0
    assert held(interval_of_share(solved.astype(float), 500), true) >= 0.95


def test_the_smallest_detectable_difference_is_two_quantiles_wide() -> None:
    """Standard error 0.01, normal: (1.960 + 0.842) x 0.01."""
    found = detectable(-0.0196, 0.0196, 0.0, math.inf)
    assert found == pytest.approx(0.0280, abs=1e-4)


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_the_detectable_difference_is_found_in_four_of_five_studies(runs: int) -> None:
    """Also with few runs, whose spread is badly known."""
    values = np.random.default_rng(3).standard_normal((40_000, runs))
    reach = stdtrit(runs - 1, 0.975) / math.sqrt(runs)  # a study whose spread is 1
    away = detectable(-reach, reach, 0.0, runs - 1)
    ratios = (values.mean(axis=1) + away) / values.std(axis=1, ddof=1) * math.sqrt(runs)
    assert (ratios > stdtrit(runs - 1, 0.975)).mean() == pytest.approx(0.8, abs=0.008)


def test_no_arm_of_a_difference_is_shorter_than_students() -> None:
    """20 problems at -0.1, 5 at 0.4: s^2 = 1 / 24, t_24 = 2.0639, t s / sqrt 25 = 0.0843.

    The bootstrap alone takes from the lower arm, for the sample is skewed upwards.
    """
    values = np.repeat([-0.1, 0.4], [20, 5]).reshape(1, 25, 1)
    low, high = interval_of_difference(values, draws=10_000)
    assert low[0] == pytest.approx(-0.0843, abs=1e-4)
    assert high[0] > 0.09
    bootstrap = interval_of_mean(values, draws=10_000)
    assert bootstrap[0][0] > -0.0775
    assert high == pytest.approx(bootstrap[1])


def test_no_end_jumps_where_few_problems_carry_a_difference() -> None:
    """Of 60 problems m differ by 0.3 and one by 0.3 t: (m + t^2)^2 / (m + t^4) carry, 3 to 5."""
    values = np.zeros((1, 60, 101))
    for column, size in enumerate(np.linspace(3.0, 5.0, 101)):
        whole = int(min(size, 4.0))
        values[0, :whole, column] = 0.3
        values[0, whole, column] = 0.3 * np.sqrt(size - whole)
    low, high = interval_of_difference(values, draws=10_000)
    widths = high - low
    assert widths[0] == pytest.approx(0.125, abs=0.003)  # Gaffke's
    assert widths[-1] == pytest.approx(0.052, abs=0.003)  # the bootstrap's
    assert np.abs(np.diff(widths)).max() < 0.006  # 0.075 at once, were there a step


@pytest.mark.parametrize("zeros", [0, 1, 3])
def test_the_interval_of_a_difference_does_not_depend_on_its_sign(zeros: int) -> None:
    values = np.ones((3, 40, 1))
    values[:, :zeros] = 0.0
    low, high = interval_of_difference(values, draws=2_000)
    lower, upper = interval_of_difference(-values, draws=2_000)
    assert low[0] < 0.95
    assert high[0] == pytest.approx(1.0, abs=0.01)
    assert (-upper[0], -lower[0]) == pytest.approx((low[0], high[0]), abs=0.01)


def test_skewness_that_goes_with_the_mean_makes_no_differences() -> None:
    """Symmetric differences with heavy tails (Student's t, 5 df) over 40 problems and 8 runs."""
    rng = np.random.default_rng(8)
    values = 0.05 * rng.standard_t(5, (1, 40, 4 * SIMULATIONS))
    values = values + 0.004 * rng.standard_normal((8, 1, 4 * SIMULATIONS))
    assert held(interval_of_difference(values, 500)) >= 0.945
    assert held(interval_of_mean(values, 500)) < 0.94  # the bootstrap alone


def test_unknown_differences_have_no_p() -> None:
    values = np.zeros((3, 4, 2))
    values[0, 0, 0] = np.nan
    for p in (p_of_problems(values, 200), p_of_runs(values), mean_of([parts_of(values, 200)]).p()):
        assert np.isnan(p).tolist() == [True, False]


def test_an_interval_of_one_run_covers_that_run_on_other_problems() -> None:
    rng = np.random.default_rng(5)
    values = studies(0.5, 0.0, 50, rng, runs=1)
    assert 0.93 <= held(interval_of_share(values, DRAWS), truth(0.5, 0.0, rng)) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_a_difference_is_covered_and_a_true_null_seldom_rejected(effect: float) -> None:
    rng = np.random.default_rng(11)
    difficulty = logit(rng.beta(1.0, 1.0, (1, 50, SIMULATIONS)).clip(1e-6, 1 - 1e-6))

    def algorithm() -> np.ndarray:
        shift = effect * rng.standard_normal((3, 1, SIMULATIONS))
        noise = INTERACTION * rng.standard_normal((3, 50, SIMULATIONS))
        return rng.binomial(SAMPLES, expit(difficulty + shift + noise)) / SAMPLES

    differences = algorithm() - algorithm()
    # Wide where three runs do not differ: it is never narrower than that of the runs alone, whose
    # Student's t has two degrees of freedom.
    assert 0.93 <= held(interval_of_difference(differences, DRAWS)) <= 0.995
    p = np.fmax(p_of_problems(differences, DRAWS), p_of_runs(differences))
    assert (p <= 0.05).mean() <= 0.06
    if effect:
        assert (p_of_problems(differences, DRAWS) <= 0.05).mean() > 0.2


@pytest.mark.parametrize(("problems", "value"), [(10, 0.3), (50, 0.5), (8, 0.5), (50, 1.0)])
def test_equal_problems_say_what_so_many_can(problems: int, value: float) -> None:
    """Gaffke's interval moves 1 - 0.025^(1/P) of the way to each end."""
    low, high = interval_of_share(np.full((2, problems, 1), value), draws=20_000)
    far = 1 - 0.025 ** (1 / problems)
    assert low[0] == pytest.approx(value * (1 - far), abs=0.01)
    assert high[0] == pytest.approx(value + (1 - value) * far, abs=0.01)


def test_no_end_jumps_where_few_problems_differ_from_the_others() -> None:
    widths = []
    for others in range(9):
        values = np.repeat([0.5, 1.0], [50 - others, others])[None, :, None]
        low, high = interval_of_share(values, draws=10_000)
        widths.append(float(high[0] - low[0]))
    assert min(widths) > 0.06
    assert np.abs(np.diff(widths)).max() < 0.025


def test_one_problem_has_no_interval() -> None:
    assert np.isnan(interval_of_share(np.full((3, 1, 2), 0.3), draws=500)).all()


def test_an_interval_holds_its_mean_and_stays_within_bounds() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((3, 12, 200)) ** rng.uniform(0.02, 20, 200)
    low, high = interval_of_share(values, draws=500)
    mean = values.mean(axis=(0, 1))
    assert (low >= 0).all()
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert (high <= 1).all()


def test_columns_do_not_change_one_another() -> None:
    values = np.random.default_rng(0).random((3, 12, 100))
    low, high = interval_of_share(values, draws=500)
    for k in (0, 63, 64, 99):
        np.testing.assert_allclose(
            interval_of_share(values[..., k : k + 1], draws=500), ([low[k]], [high[k]]), rtol=1e-12
        )


def test_runs_widen_an_interval_by_students_t() -> None:
    """Two runs at 0.4 and 0.6, all problems alike: Student's t with one degree of freedom."""
    values = np.repeat([0.4, 0.6], 20).reshape(2, 20, 1)
    low, high = interval_of_mean(values, draws=500)
    assert (low[0], high[0]) == pytest.approx((0.5 - 12.706 * 0.1, 0.5 + 12.706 * 0.1), abs=1e-4)


def test_sign_flips_of_four_problems_are_enumerable() -> None:
    """Differences 1, 2, 3, 4: of 16 sign patterns two reach a sum of 10, four one of 8 or more."""
    differences = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1)
    assert p_of_problems(differences, 20_000)[0] == pytest.approx(2 / 16, abs=0.01)
    differences = np.array([-1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1)
    assert p_of_problems(differences, 20_000)[0] == pytest.approx(4 / 16, abs=0.01)


def test_students_p_over_three_runs_is_worked_by_hand() -> None:
    """Means 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.464 with 2 degrees of freedom, p = 0.0742."""
    differences = np.repeat([1.0, 2.0, 3.0], 5).reshape(3, 5, 1)
    assert p_of_runs(differences)[0] == pytest.approx(0.0742, abs=1e-4)
    assert np.isnan(p_of_runs(differences[:1])[0])
    assert p_of_runs(np.zeros((3, 5, 1)))[0] == 1.0


def test_holm_multiplies_by_the_tests_left_and_never_falls() -> None:
    adjusted = holm(np.array([0.04, 0.01, np.nan, 0.03]))
    assert adjusted[[0, 1, 3]] == pytest.approx([0.06, 0.03, 0.06])
    assert np.isnan(adjusted[2])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_a_cluster_is_a_unit_by_hand() -> None:
    """Four problems of mean 3 deviate by -3, -1, 1, 3; two clusters by -2 and 2.

    The variance of the mean is 8 / 1 / 2 over clusters, 20 / 3 / 4 over problems. Clusters of three
    problems and of one, with deviations -2, -2, 1 | 3, are units of 2 - 3/2 and 2 + 3/2.
    """
    values = np.array([0.0, 2.0, 4.0, 6.0])[None, :, None] / 10
    pairs = Groups(("a", "a", "b", "b"), drawn=True)
    parts = parts_of(values, 500, groups=pairs)
    assert (parts.problems, parts.units) == (pytest.approx(0.08 / 2), 2)
    assert parts_of(values, 500).problems == pytest.approx(0.2 / 3 / 4)
    uneven = np.array([0.0, 0.0, 3.0, 5.0])[None, :, None]
    units, count = Groups(("a", "a", "a", "b"), drawn=True).applied(uneven)
    assert (units.ravel().tolist(), count) == ([0.5, 3.5], 2)
    alike = Groups(("a", "b", "a", "b"), drawn=True)  # clusters of mean 2 and 4: less than problems
    assert parts_of(values, 500, groups=alike).problems == pytest.approx(0.2 / 3 / 4)
    one = parts_of(values, 500, groups=Groups(("a",) * 4, drawn=True))
    assert np.isnan(one.problems).all()


def test_what_differs_between_strata_is_no_uncertainty() -> None:
    """Two strata with two problems each, 2 apart: (1/2)^2 (2/2) + (1/2)^2 (2/2) = 1/2."""
    values = np.array([[0.0, 2.0, 10.0, 12.0], [2.0, 2.0, 12.0, 12.0]])[..., None] / 20
    strata = Groups(("a", "a", "b", "b"), drawn=False)
    first = parts_of(values[:1], 500, groups=strata)
    assert first.problems == pytest.approx(0.5 / 400)
    assert first.units == 3  # 4 - 2 degrees of freedom
    both = parts_of(values, 500, groups=strata)
    np.testing.assert_allclose(both.by_run, parts_of(values, 500).by_run)
    assert mean_of([both]).problems[2] == 2.0


def test_strata_may_be_of_unlike_size() -> None:
    """Variance of the mean: the sum of P_h s_h^2 over P^2."""
    sizes, rng = {"a": 4, "b": 56}, np.random.default_rng(0)
    spread = {"a": 0.3, "b": 0.01}
    values = np.concatenate([spread[name] * rng.standard_normal(n) for name, n in sizes.items()])
    strata = Groups(tuple(name for name, n in sizes.items() for _ in range(n)), drawn=False)
    by_hand = 4 * values[:4].var(ddof=1) + 56 * values[4:].var(ddof=1)
    found = parts_of(values[None, :, None], 500, groups=strata)
    assert found.problems == pytest.approx(by_hand / 60**2)


def test_clusters_come_before_strata_and_lone_problems_are_clusters() -> None:
    assert groups_of(["", "t", "t"], ["a", "a", "b"]) == Groups((" 0", "t", "t"), drawn=True)
    assert groups_of([""] * 4, ["a", "a", "b", "b"]) == Groups(("a", "a", "b", "b"), drawn=False)
    assert groups_of([""] * 3, ["a", "a", "b"]) is None  # one of b says nothing of its spread
    assert groups_of([""] * 2, ["", ""]) is None


@pytest.mark.parametrize("sizes", [[6] * 10, [1, 2, 3, 4, 6, 8, 9, 9, 9, 9]])
def test_clustered_problems_seldom_show_a_difference_that_is_none(sizes: list[int]) -> None:
    """Ten clusters, half of the variance between them: of 600 studies 5 % may find something."""
    rng = np.random.default_rng(1)
    labels = tuple(str(name) for name, size in enumerate(sizes) for _ in range(size))
    shared = np.repeat(rng.normal(0.0, 0.1, (1, 10, 600)), sizes, axis=1)
    values = shared + rng.normal(0.0, 0.1, (1, sum(sizes), 600))
    values = values + rng.normal(0.0, 0.1, (3, sum(sizes), 600))
    assert held(interval_of_difference(values, 300, Groups(labels, drawn=True))) > 0.93
    assert held(interval_of_difference(values, 300)) < 0.88
