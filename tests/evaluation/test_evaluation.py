"""pass@k against exact arithmetic, and every table of metrics against numbers worked by hand."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from counted import counts_of, samples, study

from sage.evaluation.counts import counts_table
from sage.evaluation.curves import POOLED, curves_of, run_of
from sage.evaluation.metrics import (
    TABLES,
    paper_reading_table,
    pass_at_k_table,
    rates_table,
    write_metrics,
)
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two
from sage.evaluation.snapshots import by_step, trajectory_table
from sage.evaluation.support import SCORES, _intervals, support_scores, support_table
from sage.problems.record import Problem


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
    for count in (1.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"whole numbers, not {count} correct"):
            pass_at_k(4, np.array([1.0, count]), np.array([1]))
        with pytest.raises(ValueError, match=f"whole numbers, not {count} samples"):
            pass_at_k(np.array([4.0, count]), np.array([1, 1]), np.array([1]))
    assert pass_at_k(4, np.array([2.0]), np.array([1]))[0, 0] == 0.5
    for k in (5, 0, 1.5):
        with pytest.raises(ValueError, match="k must be"):
            pass_at_k(4, np.array([1]), np.array([k]))


def test_ks_end_with_n() -> None:
    assert powers_of_two(1).tolist() == [1]
    assert powers_of_two(8).tolist() == [1, 2, 4, 8]
    assert powers_of_two(12).tolist() == [1, 2, 4, 8, 12]


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
    with pytest.raises(ValueError, match="problems have 3 to 4 samples, but need equally many"):
        pass_at_k_table(counts_table({("m", "a", 0, "b"): frame}), draws=100)
    runs = {("m", "a", 1, "b"): samples({"p": 1}), ("m", "a", 2, "b"): samples({"q": 1})}
    with pytest.raises(ValueError, match="other problems"):
        curves_of(counts_table(runs))


def test_moments_of_training_are_measured_at_all_samples_too() -> None:
    """Twelve are no power of two: of 12 samples one right is certain, of 8 it is 2 in 3."""
    counts = counts_of(base=[[1, 0]], late=[[1, 1]])
    counts = counts.assign(n_samples=12, chance=[[np.nan] * 5] * 4)
    for k, each in ((8, 2 / 3), (12, 1.0)):
        found = by_step(counts, {"base": 0, "late": 5}, [], k, draws=100)
        assert found.loc[found["k"] == k, "value"].tolist() == pytest.approx([each / 2, each])


def test_moments_of_training_have_intervals_over_clusters(tmp_path: Path) -> None:
    """Two clusters of ten problems, one solved and one not, are two units and not twenty."""
    frame = samples({f"p{i:02}": 4 * (i < 10) for i in range(20)})
    frame.assign(completion="", n_tokens=1).to_parquet(tmp_path / "samples.parquet")
    policy = tmp_path / "m" / "grpo" / "seed1"
    (policy / "snapshots" / "step5").mkdir(parents=True)
    widths = []
    for clusters in ([""] * 20, ["a"] * 10 + ["b"] * 10):
        sampler: Any = SimpleNamespace(
            model="m",
            benchmark="b",
            problems=[
                Problem(f"p{i:02}", "?", str(i), "number", "", "made", "1", cluster=name)
                for i, name in enumerate(clusters)
            ],
            samples=lambda *_: tmp_path / "samples.parquet",
        )
        table, tokens = trajectory_table(sampler, [policy], 1, 200)
        assert (table["step"].tolist(), table["value"].tolist(), tokens) == ([0, 5], [0.5] * 2, 160)
        widths.append(float((table["high"] - table["low"])[0]))
    assert widths[1] > 1.5 * widths[0]


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


def test_support_has_intervals() -> None:
    runs = {("m", name, 0, "b"): samples(dict.fromkeys("pqrs", 2)) for name in ("base", "a")}
    row = support_table(counts_table(runs), draws=2_000).iloc[0]
    assert (row["srr"], row["srr_high"]) == (1.0, 1.0)
    assert row["srr_low"] == pytest.approx(0.025 ** (1 / 4), abs=0.02)  # Clopper and Pearson's


@pytest.mark.parametrize(("kept", "new"), [(0.97, 0.05), (0.9, 0.3)])
def test_intervals_of_support_cover_the_truth(kept: float, new: float) -> None:
    """60 problems, of which the base solves 80 %, one run; truth by expectation."""
    rng, studies = np.random.default_rng(1), 400
    parts = 0.8 * kept, 0.2 * new, 0.8 * (1 - kept)
    truth, held = support_scores(*parts), dict.fromkeys(SCORES, 0)
    for _ in range(studies):
        kind = rng.choice(4, size=(1, 60), p=[*parts, 1 - sum(parts)])
        ends = _intervals(tuple(kind == each for each in range(4)), 400)
        for name, value in truth.items():
            held[name] += ends[f"{name}_low"] <= value <= ends[f"{name}_high"]
    assert min(held.values()) / studies >= 0.94, held


def test_runs_without_a_score_do_not_narrow_its_interval() -> None:
    """A run that solves nothing has no share of new problems: the two others tell their spread."""
    names = "abcdefghijklmnopqrst"
    pooled = []
    for solved in (names[:15], names[:16], ""), (names[:15], names[:16]):
        runs = {("m", "base", 0, "b"): samples({name: int(name < "k") for name in names})}
        for seed, own in enumerate(solved, start=1):
            runs["m", "a", seed, "b"] = samples({name: int(name in own) for name in names})
        table = support_table(counts_table(runs), draws=500).set_index("train_seed")
        pooled.append(table.loc[POOLED])
    three, two = pooled
    for name in ("ndr", "ndr_low", "ndr_high"):
        assert three[name] == pytest.approx(two[name], abs=0.01)


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
