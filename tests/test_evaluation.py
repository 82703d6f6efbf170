"""pass@k against exact arithmetic, and every table of metrics against numbers worked by hand."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.evaluation.comparisons import (
    adjusted,
    average,
    comparisons_table,
    over_bases,
)
from sage.evaluation.counts import counts_table
from sage.evaluation.curves import ANSWERS, POOLED, WORKING, curves_of, run_of
from sage.evaluation.intervals import mean_of, parts_of
from sage.evaluation.metrics import (
    TABLES,
    TAUS,
    answer_diversity,
    cover,
    cover_table,
    diversity_table,
    paper_reading_table,
    pass_at_k_table,
    rates_table,
    write_metrics,
)
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two
from sage.evaluation.support import support_scores, support_table


def exact(n: int, c: int, k: int) -> float:
    return float(1 - Fraction(comb(n - c, k), comb(n, k)))


def test_pass_at_k_equals_rational_arithmetic_for_every_n_up_to_64() -> None:
    for n in range(1, 65):
        counts, ks = np.arange(n + 1), np.arange(1, n + 1)
        expected = [[exact(n, c, k) for k in ks.tolist()] for c in counts.tolist()]
        np.testing.assert_allclose(pass_at_k(n, counts, ks), expected, rtol=0, atol=1e-14)


def test_pass_at_k_keeps_its_digits_at_large_n() -> None:
    counts = np.array([*range(50), 100, 1000, 4096, 4097, 8192])
    expected = [exact(8192, c, 4096) for c in counts.tolist()]
    got = pass_at_k(8192, counts, np.array([4096]))[:, 0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_problems_may_have_samples_of_their_own_number() -> None:
    got = pass_at_k(np.array([4, 2, 4]), np.array([1, 1, 4]), np.array([1, 2, 3]))
    expected = [[1 / 4, 1 / 2, 3 / 4], [1 / 2, 1.0, np.nan], [1.0, 1.0, 1.0]]
    np.testing.assert_allclose(got, expected, atol=1e-15)


def test_impossible_counts_and_ks_are_refused() -> None:
    with pytest.raises(ValueError, match="counts"):
        pass_at_k(4, np.array([5]), np.array([1]))
    with pytest.raises(ValueError, match="counts"):
        pass_at_k(np.array([4, 2]), np.array([4, 3]), np.array([1]))
    with pytest.raises(ValueError, match="k must be"):
        pass_at_k(4, np.array([1]), np.array([5]))


def test_ks_end_with_n() -> None:
    assert powers_of_two(1).tolist() == [1]
    assert powers_of_two(8).tolist() == [1, 2, 4, 8]
    assert powers_of_two(12).tolist() == [1, 2, 4, 8, 12]


def samples(counts: dict[str, int], n: int = 4) -> pd.DataFrame:
    """n samples of each problem, the first ones correct; the very first is cut off."""
    rows = [
        (
            problem,
            0,
            i,
            "7" if i < c else f"{i}",
            "correct" if i < c else "wrong",
            "stop" if i else "length",
        )
        for problem, c in counts.items()
        for i in range(n)
    ]
    columns = ["problem_id", "eval_seed", "sample_index", "answer", "status", "finish_reason"]
    return pd.DataFrame(rows, columns=columns)


def test_the_table_pools_training_seeds() -> None:
    runs = {
        ("m", "grpo", 1, "b"): samples({"p": 4, "q": 0}),
        ("m", "grpo", 2, "b"): samples({"q": 0, "p": 2}),
    }
    table = pass_at_k_table(counts_table(runs), draws=200).set_index(["train_seed", "k"])["value"]
    assert table[1, 1] == pytest.approx(0.5)
    assert table[2, 1] == pytest.approx(0.25)
    assert table[2, 2] == pytest.approx((5 / 6) / 2)
    assert table[POOLED, 1] == pytest.approx(0.375)


def test_problems_sampled_unequally_or_unlike_are_refused() -> None:
    frame = samples({"p": 1, "q": 2}).iloc[:-1]
    with pytest.raises(ValueError, match="unequally"):
        pass_at_k_table(counts_table({("m", "a", 0, "b"): frame}), draws=100)
    runs = {("m", "a", 1, "b"): samples({"p": 1}), ("m", "a", 2, "b"): samples({"q": 1})}
    with pytest.raises(ValueError, match="other problems"):
        curves_of(counts_table(runs))


def test_rates_count_statuses_and_truncation() -> None:
    table = rates_table({("m", "a", 0, "b"): samples({"p": 1, "q": 2})}).set_index("status")
    assert table.loc["correct", "share"] == pytest.approx(3 / 8)
    assert table.loc["truncated", "share"] == pytest.approx(2 / 8)
    assert table.loc["timeout", "share"] == 0.0


def test_a_run_is_named_by_its_path() -> None:
    path = Path("results/smoke/samples/tiny/grpo/seed3407/harder.parquet")
    assert run_of(path) == ("tiny", "grpo", 3407, "harder")
    with pytest.raises(ValueError, match="model/algorithm/seed1"):
        run_of(Path("a/b/c/d.parquet"))


def test_the_papers_reading_takes_first_and_any_per_evaluation_seed() -> None:
    """Two problems, three evaluation seeds of two samples: hits per seed by hand."""
    hits = {0: ("10", "00"), 1: ("01", "11"), 2: ("10", "10")}
    rows = [
        (problem, seed, i, "correct" if hit == "1" else "wrong")
        for seed, problems in hits.items()
        for problem, drawn in zip("pq", problems, strict=True)
        for i, hit in enumerate(drawn)
    ]
    frame = pd.DataFrame(rows, columns=["problem_id", "eval_seed", "sample_index", "status"])
    table = paper_reading_table({("m", "a", 1, "b"): frame, ("m", "a", 2, "b"): frame})
    one = table[table["train_seed"] == 1].set_index("k")
    first, any_ = [0.5, 0.5, 1.0], [0.5, 1.0, 1.0]
    assert one.loc[1, "value"] == pytest.approx(np.mean(first))
    assert one.loc[1, "std"] == pytest.approx(np.std(first, ddof=1))
    assert one.loc[2, "value"] == pytest.approx(np.mean(any_))
    assert one.loc[2, "std"] == pytest.approx(np.std(any_, ddof=1))
    pooled = table[table["train_seed"] == POOLED].set_index("k")
    assert pooled.loc[1, "value"] == pytest.approx(np.mean(first))
    assert pooled.loc[1, "std"] == pytest.approx(np.std(first, ddof=1))  # none between runs
    assert pooled["n_eval_seeds"].tolist() == [6, 6]
    alone = {run: frame[frame["eval_seed"] == run] for run in (0, 1)}
    single = paper_reading_table({("m", "a", run, "b"): one for run, one in alone.items()})
    assert single["std"].isna().all()  # runs are no evaluation seeds


def study(problems: int = 30) -> dict[tuple[str, str, int, str], pd.DataFrame]:
    """Base, an algorithm one sample better on every problem, and one that is like the base."""
    base = {f"p{i:02}": i % 4 for i in range(problems)}
    better = {name: count + 1 for name, count in base.items()}
    same = {name: base[f"p{(i + 4) % problems:02}"] for i, name in enumerate(base)}
    runs = {("m", "base", 0, "b"): samples(base)}
    runs |= {("m", "better", seed, "b"): samples(better) for seed in (1, 2, 3)}
    return runs | {("m", "same", seed, "b"): samples(same) for seed in (1, 2, 3)}


def test_comparisons_are_paired_by_problem_and_adjusted() -> None:
    table = adjusted(comparisons_table(counts_table(study()), draws=2_000))
    assert set(zip(table["algorithm"], table["other"], strict=True)) == {
        ("better", "base"),
        ("same", "base"),
        ("same", "better"),
    }
    first = table[table["k"] == 1].set_index(["algorithm", "other"])
    gain = first.loc[("better", "base")]
    assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((0.25, 0.25, 0.25))
    assert gain["p_problems"] == pytest.approx(1 / 2001)
    assert gain["p_runs"] == 0.0
    assert gain["p"] == gain["p_problems"]
    assert (gain["train_seeds"], gain["by_run"]) == ([1, 2, 3], [0.25] * 3)
    assert gain["p_holm"] == pytest.approx(3 / 2001)
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
    assert row["p"] == row["p_runs"] == pytest.approx(0.4226, abs=1e-4)
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


def test_the_mean_over_benchmarks_pairs_runs_and_adds_problems() -> None:
    """Runs differ by 0.1 and 0.3 on one benchmark, 0.3 and 0.1 on the other: 0.2 in the mean."""
    rows = [
        {
            "train_seeds": [1, 2],
            "by_run": by_run,
            "var_problems": 0.0004,
            "var_interaction": 0.0,
            "var_below": 0.0004,
            "var_above": 0.0004,
            "units": 21,
        }
        for by_run in ([0.1, 0.3], [0.3, 0.1])
    ]
    mean = average(rows)
    assert mean.value == pytest.approx(0.2)
    # no variance over runs; a quarter of 0.0004 + 0.0004; the degrees of freedom of one
    assert mean.total[0] == pytest.approx(0.0002)
    assert mean.df == pytest.approx(20)
    assert average(rows, [-1, 1]).value == pytest.approx(0.0)
    with pytest.raises(ValueError, match="seed in common"):
        average([rows[0], rows[1] | {"train_seeds": [3, 4]}])


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


def test_support_scores_are_worked_by_hand() -> None:
    scores = support_scores(preserved=6, expanded=2, shrunk=4)
    retention, discovery = 6 / 10, 2 / 8
    harmonic = 2 * retention * discovery / (retention + discovery)
    assert scores == pytest.approx(
        {"srr": retention, "ndr": discovery, "sds": harmonic, "nscr": -2 / 12}
    )
    assert all(np.isnan(value) for value in support_scores(0, 0, 0).values())


def test_support_counts_problems_against_the_base() -> None:
    runs = {
        ("m", "base", 0, "b"): samples({"p": 1, "q": 4, "r": 0, "s": 0}),
        ("m", "a", 1, "b"): samples({"p": 0, "q": 1, "r": 2, "s": 0}),
        ("m", "a", 2, "b"): samples({"p": 1, "q": 1, "r": 0, "s": 0}),
    }
    table = support_table(counts_table(runs), draws=500).set_index("train_seed")
    cells = ["preserved", "expanded", "shrunk", "neither"]
    assert table.loc[1, cells].tolist() == [1, 1, 1, 1]
    assert table.loc[2, cells].tolist() == [2, 0, 0, 2]
    assert table.loc[POOLED, cells].tolist() == [3, 1, 1, 3]
    assert table.loc[POOLED, "srr"] == pytest.approx(3 / 4)
    assert table.loc[1, "epsilon"] == pytest.approx(log(20) / 4)
    more = {("m", "a", seed, "b"): samples(dict.fromkeys("pqrs", 1), n=5) for seed in (1, 2)}
    with pytest.raises(ValueError, match="unlike the base"):
        support_table(counts_table({**runs, **more}), draws=500)


def test_support_has_intervals_and_a_null_of_the_base_against_itself() -> None:
    """Two of four samples correct: halves {2, 2} of 4 miss with 1/6 each, and never both.

    Both halves solve it in 2/3, one alone in 1/6 each: SRR = (2/3) / (5/6) = 0.8.
    """
    runs = {("m", name, 0, "b"): samples(dict.fromkeys("pqrs", 2)) for name in ("base", "a")}
    row = support_table(counts_table(runs), draws=2_000).iloc[0]
    assert row["srr_null"] == pytest.approx(0.8)
    # independent halves of two runs: each solves with 5/6
    assert row["srr_half"] == pytest.approx(5 / 6)
    assert row["nscr_null"] == row["nscr_half"] == pytest.approx(0.0)
    assert (row["srr"], row["srr_high"]) == (1.0, 1.0)
    assert 0.5 < row["srr_low"] < 0.95  # four kept problems of four do not show that all are


def test_cover_counts_problems_whose_rate_reaches_tau() -> None:
    assert TAUS == (0.1, 0.25, 0.5, 0.75, 0.9)
    assert cover(np.array([[0, 1, 2, 4]]), 4).sum(axis=1).tolist() == [[3, 3, 2, 1, 1]]
    runs = {("m", "a", 1, "b"): samples({"p": 1, "q": 2, "r": 4, "s": 0})}
    table = cover_table(counts_table(runs), draws=500)
    half = table[(table["tau"] == 0.5) & (table["train_seed"] == POOLED)].iloc[0]
    assert half["value"] == 0.5
    assert half["low"] < 0.5 < half["high"]


def test_answers_differ_by_text_and_correct_ones_are_one() -> None:
    rows = [
        ("p", "1/2", "correct"),
        ("p", "0.5", "correct"),
        ("p", "3 4", "wrong"),
        ("p", "3  4", "wrong"),
        ("p", None, "unparsed"),
        ("q", None, "unparsed"),
        ("r", "9", "wrong"),
        ("r", "correct", "wrong"),
    ]
    frame = pd.DataFrame(rows, columns=["problem_id", "answer", "status"])
    found = answer_diversity(frame)
    assert found.loc["p"].tolist() == pytest.approx([2, 1, log(2)])
    assert found.loc["q"].tolist() == [0, 0, 0]
    assert found.loc["r"].tolist() == pytest.approx([2, 2, log(2)])
    table = diversity_table({("m", "a", 1, "b"): frame, ("m", "a", 2, "b"): frame}, draws=100)
    pooled = table[table["train_seed"] == POOLED].set_index("metric")["value"]
    assert pooled["distinct_answers"] == pytest.approx(4 / 3)


def test_every_table_is_a_file_that_pandas_reads(tmp_path: Path) -> None:
    paths = []
    for (model, algorithm, seed, benchmark), frame in study().items():
        paths.append(tmp_path / model / algorithm / f"seed{seed}" / f"{benchmark}.parquet")
        paths[-1].parent.mkdir(parents=True)
        frame.to_parquet(paths[-1])
    folder = tmp_path / "metrics"
    write_metrics(paths, 500, folder)
    tables = {name: folder / f"{name}.parquet" for name in TABLES}
    once = {name: path.read_bytes() for name, path in tables.items()}
    for name, path in tables.items():
        table = pd.read_parquet(path)
        assert set(table["model"]) == {"m"}, name
        assert set(table["benchmark"]) == {"b"}, name
    write_metrics(paths, 500, folder)
    assert {name: path.read_bytes() for name, path in tables.items()} == once
