"""Differences of methods: over problems, runs, benchmarks and bases."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from counted import samples, study

from sage.evaluation.comparisons import adjusted, average, comparisons_table, over_bases
from sage.evaluation.counts import counts_table
from sage.evaluation.curves import ANSWERS, WORKING
from sage.evaluation.intervals import mean_of, parts_of


def test_comparisons_are_paired_by_problem_and_adjusted() -> None:
    table = adjusted(comparisons_table(counts_table(study()), draws=2_000))
    assert set(zip(table["algorithm"], table["other"], strict=True)) == {
        ("better", "base"),
        ("same", "base"),
        ("same", "better"),
    }
    first = table[table["k"] == 1].set_index(["algorithm", "other"])
    gain = first.loc[("better", "base")]
    assert gain["value"] == pytest.approx(0.25)
    assert 0 < gain["low"] < 0.25 < gain["high"]  # equal on ten problems, not on all there could be
    assert gain["p_problems"] == pytest.approx(1 / 2001)
    assert gain["p_runs"] == 0.0
    assert gain["p"] >= gain["p_problems"]
    assert (gain["train_seeds"], gain["by_run"]) == ([1, 2, 3], [0.25] * 3)
    assert gain["p"] < gain["p_holm"] <= 3 * gain["p"]
    assert first["n_tests"].tolist() == [3, 3, 3]
    assert first.loc[("same", "base"), "p_holm"] > 0.3
    loss = first.loc[("same", "better")]
    assert loss["high"] < 0
    assert loss["n_seeds"] == 3


def test_comparisons_count_correct_working_beside_answers() -> None:
    """Half of `better`'s right answers have wrong working; `same` has none of those."""
    counts = counts_table(study())
    half = counts["algorithm"] == "better"
    known = counts.assign(worked=counts["correct"].where(~half, counts["correct"] // 2))
    table = comparisons_table(known, draws=500)
    assert set(comparisons_table(counts, draws=500)["metric"]) == {ANSWERS}  # nobody can say
    assert set(table["metric"]) == {ANSWERS, WORKING}
    first = table[table["k"] == 1].set_index(["algorithm", "other", "metric"])
    assert first.loc[("better", "base", ANSWERS), "value"] == pytest.approx(0.25)
    base = known[known["algorithm"] == "base"]["worked"].mean() / 4
    better = known[half]["worked"].mean() / 4
    assert first.loc[("better", "base", WORKING), "value"] == pytest.approx(better - base)
    alike = table[(table["algorithm"] == "same") & (table["other"] == "base")]
    one, two = (
        alike[alike["metric"] == name].drop(columns="metric") for name in (ANSWERS, WORKING)
    )
    pd.testing.assert_frame_equal(one.reset_index(drop=True), two.reset_index(drop=True))
    p = adjusted(table)
    assert set(p["n_tests"]) == {3}  # each count is a family of its own


def test_a_difference_between_runs_alone_is_no_difference_of_algorithms() -> None:
    """One of three runs is better on every problem: p over problems is small, over runs not."""
    runs = {("m", "base", 0, "b"): samples({f"p{i}": 1 + i % 2 for i in range(20)})}
    for seed, gain in ((1, 2), (2, 0), (3, 0)):
        runs["m", "a", seed, "b"] = samples({f"p{i}": 1 + i % 2 + gain for i in range(20)})
    row = comparisons_table(counts_table(runs), draws=2_000).iloc[0]
    assert row["value"] == pytest.approx(1 / 6)
    assert row["p_problems"] < 0.001
    assert row["p"] >= row["p_runs"] == pytest.approx(0.4226, abs=1e-4)
    assert row["low"] < 0 < row["high"]


def test_algorithms_with_the_same_counts_are_one_test() -> None:
    runs = study() | {
        ("m", "twin", seed, "b"): study()["m", "better", seed, "b"] for seed in (1, 2, 3)
    }
    first = adjusted(comparisons_table(counts_table(runs), draws=2_000))
    first = first[first["k"] == 1].set_index(["algorithm", "other"])
    assert first["n_tests"].unique().tolist() == [3]  # as without the twin
    assert first.loc[("twin", "base"), "p_holm"] == first.loc[("better", "base"), "p_holm"]
    assert np.isnan(first.loc[("twin", "better"), "p_holm"])


def benchmark(by_run: list[float], variances: tuple[float, ...]) -> dict[str, Any]:
    """A row of the comparisons with the runs 1, 2, … and 21 problems; `variances` in order."""
    parts = ("var_problems", "var_interaction", "var_below", "var_above")
    seeds = [*range(1, len(by_run) + 1)]
    return {"train_seeds": seeds, "by_run": by_run, "units": 21} | dict(
        zip(parts, variances, strict=True)
    )


def test_the_mean_over_benchmarks_pairs_runs_and_adds_problems() -> None:
    """Runs differ by 0.1 and 0.3 on one benchmark, 0.3 and 0.1 on the other: 0.2 in the mean."""
    rows = [benchmark(by_run, (0.0004, 0.0, 0.0004, 0.0004)) for by_run in ([0.1, 0.3], [0.3, 0.1])]
    mean = average(rows)
    assert mean.value == pytest.approx(0.2)
    # no variance over runs; a quarter of 0.0004 + 0.0004; the degrees of freedom of one
    assert mean.total[0] == pytest.approx(0.0002)
    assert mean.df == pytest.approx(20)
    assert average(rows, [-1, 1]).value == pytest.approx(0.0)
    with pytest.raises(ValueError, match="seed in common"):
        average([rows[0], rows[1] | {"train_seeds": [3, 4]}])


def test_a_mean_over_fewer_runs_is_less_sure_of_each_problem() -> None:
    """One of four runs is that of the other benchmark: its problems vary as in a single run."""
    # s_e^2 / P is 0.0016: 0.0004 for the mean of four runs
    row = benchmark([0.1, 0.2, 0.1, 0.2], (0.001, 0.0004, 0.001, 0.002))
    mean = average([row, benchmark([0.3], (0.0, 0.0, 0.0, 0.0))])
    assert mean.value == pytest.approx(0.2)
    of_one = 0.001 + 0.0016 - 0.0004
    assert mean.problems[0] == pytest.approx(of_one / 4)
    assert mean.problems[1] == pytest.approx((of_one + 0.001) / 4)
    assert average([row]).problems[0] == pytest.approx(0.001)


def test_a_contrast_over_bases_by_hand() -> None:
    """Three bases, three problems, two runs or one: bases and problems random and crossed.

    Over the runs of a base the differences are 0, 2, 4 | 1, 3, 2 | 5, 4, 6 tenths, so bases have
    the means 2, 2, 5, problems 2, 3, 4, and all 3. Mean squares, in hundredths: bases
    3 (1 + 1 + 4) / 2 = 9, problems 3 (1 + 0 + 1) / 2 = 3, what is left 6 / 4 = 1.5. The mean has
    the variance (9 + 3 - 1.5) / 9, with at least 2 degrees of freedom, which is more than
    10.5 / (9 / 2 + 3 / 2); by bases alone it is 9 / 9, with 2 as well.
    """
    by_base = np.array([[0, 2, 4], [1, 3, 2], [5, 4, 6]]) / 10
    nested = [
        np.stack([by_base[0] - 0.05, by_base[0] + 0.05]),
        np.stack([by_base[1] - 0.2, by_base[1] + 0.2]),
        by_base[2][None],
    ]
    ks = np.array([4])
    values, _, bases = over_bases([(runs[..., None], ks, [7, 8]) for runs in nested])
    assert bases == [1, 2, 3]
    np.testing.assert_allclose(values[..., 0], by_base)
    parts = parts_of(values, draws=500)
    mean = mean_of([parts])
    assert mean.value == pytest.approx(0.3)
    assert parts.problems == pytest.approx(0.03 / 9)
    assert parts.interaction == pytest.approx(0.015 / 9)
    assert (mean.runs[0], mean.runs[2]) == (pytest.approx(0.09 / 9), 2.0)
    assert mean.df == pytest.approx(2.0)
    low, _ = mean.interval()
    assert low < 0.3 - 4.3027 * 0.1  # Student's t with 2 degrees of freedom
    assert mean.p() > 0.0955  # of t = 3


def test_runs_of_few_bases_are_no_bases() -> None:
    """Two equal methods that differ by chance from base to base: 3 bases with 4 runs each.

    Of 800 such studies 5 % may find a difference. Taken as 12 runs of one base, many more do.
    """
    rng = np.random.default_rng(0)

    def draw(scale: float, *shape: int) -> np.ndarray:
        return rng.normal(0.0, scale, shape)

    false = {"bases": 0, "runs": 0}
    for _ in range(800):
        of_bases, of_runs = draw(0.05, 3, 1, 1), draw(0.02, 3, 4, 1)
        values = of_bases + of_runs + draw(0.1, 1, 1, 40) + draw(0.1, 3, 1, 40)
        values = values + draw(0.05, 3, 4, 40)
        taken = {"bases": values.mean(axis=1), "runs": values.reshape(12, 40)}
        for name, differences in taken.items():
            low, high = mean_of([parts_of(differences[..., None], draws=200)]).interval()
            false[name] += bool(low[0] > 0 or high[0] < 0)
    assert false["bases"] <= 0.07 * 800
    assert false["runs"] > 0.15 * 800


def test_bases_with_unlike_numbers_of_samples_are_compared_at_the_ks_of_all() -> None:
    first, second = np.array([[[0.1, 0.2, 0.5]]]), np.array([[[0.3, 0.4, 0.6, 0.9]]])
    ks = [np.array([1, 2, 48]), np.array([1, 2, 40, 48])]
    values, shared, _ = over_bases([(first, ks[0], [1]), (second, ks[1], [1])])
    assert shared.tolist() == [1, 2, 48]
    np.testing.assert_allclose(values[:, 0], [[0.1, 0.2, 0.5], [0.3, 0.4, 0.9]])


def test_comparisons_over_bases_count_a_base_once() -> None:
    """The second base has one run, the first three that are alike: the mean is over two."""
    runs = {key: frame for key, frame in study().items() if key[1] != "same"}
    runs["n", "base", 0, "b"] = runs["m", "base", 0, "b"]
    runs["n", "better", 1, "b"] = runs["m", "base", 0, "b"]
    counts = counts_table(runs)
    both = comparisons_table(counts, 500, {"group": ["m", "n"]})
    row = both[both["k"] == 1].iloc[0]
    assert (row["model"], row["algorithm"], row["other"]) == ("group", "better", "base")
    assert row["value"] == pytest.approx(0.25 / 2)
    assert (row["n_bases"], row["n_seeds"], row["by_run"]) == (2, 4, [0.25, 0.0])
    assert row["p"] > 0.4  # t = 1 with one degree of freedom
    alone = comparisons_table(counts, 500)
    assert set(zip(alone["model"], alone["n_bases"], strict=True)) == {("m", 1), ("n", 1)}
    assert comparisons_table(counts, 500, {"group": ["m", "absent"]}).empty


def test_comparisons_need_common_problems_and_training_seeds() -> None:
    runs = {("m", "a", 1, "b"): samples({"p": 1}), ("m", "c", 2, "b"): samples({"p": 1})}
    with pytest.raises(ValueError, match="no training seed in common"):
        comparisons_table(counts_table(runs), draws=100)
    runs["m", "c", 1, "b"] = runs.pop(("m", "c", 2, "b")).assign(problem_id="q")
    with pytest.raises(ValueError, match="different problems"):
        comparisons_table(counts_table(runs), draws=100)
