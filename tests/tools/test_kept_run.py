"""A run held against a kept run: intervals by hand, chance among many, and what is said."""

import math
from pathlib import Path

import pandas as pd
import pytest

from sage.tools.kept_run import compare, compared_with_kept, kept_file, read_kept, summary

ROOT = Path(__file__).resolve().parents[2]


def metrics(**values: list[float]) -> pd.DataFrame:
    """pass@1 and pass@4 of runs by algorithm, and the row that pools them."""
    rows = [
        ("m", name, seed, "b", "pass@k", k, value, 50)
        for name, runs in values.items()
        for k in (1, 2, 4)
        for seed, value in [*enumerate(runs), (-1, sum(runs) / len(runs))]
    ]
    columns = ["model", "algorithm", "train_seed", "benchmark", "metric", "k", "value"]
    return pd.DataFrame(rows, columns=[*columns, "n_problems"])


def test_the_interval_is_students_for_the_mean_of_further_runs() -> None:
    """Runs 0.4, 0.5, 0.6: s = 0.1, t with 2 df 4.303, sqrt(1/2 + 1/3) = 0.9129: 0.3928."""
    table = compared_with_kept(metrics(a=[0.7, 0.8]), metrics(a=[0.4, 0.5, 0.6]))
    assert table["k"].tolist() == [1, 4]
    row = table.iloc[0]
    assert (row["kept"], row["value"]) == pytest.approx((0.5, 0.75))
    assert (row["low"], row["high"]) == pytest.approx((0.5 - 0.3928, 0.5 + 0.3928), abs=1e-4)
    assert row["place"] == "inside"
    assert summary(table)[1]


def test_what_lies_far_outside_fails() -> None:
    table = compared_with_kept(metrics(a=[0.9, 0.9]), metrics(a=[0.49, 0.50, 0.51]))
    assert set(table["place"]) == {"outside"}
    assert not summary(table)[1]


def test_one_among_many_outside_may_be_chance() -> None:
    """s = 0.0079 over 5 runs, t = 0.029 / (s sqrt(1 + 1/5)) = 3.35, p = 0.029; sixteen rows."""
    reference = {name: [0.49, 0.495, 0.50, 0.505, 0.51] for name in "abcdefgh"}
    run = {name: [0.50] for name in "abcdefgh"} | {"a": [0.529]}
    table = compared_with_kept(metrics(**run), metrics(**reference))
    outside = table[table["place"] == "outside"]
    assert set(outside["algorithm"]) == {"a"}
    assert (outside["p"] < 0.05).all()
    assert summary(table)[1]


def test_without_spread_an_interval_is_one_problem_wide() -> None:
    table = compared_with_kept(metrics(a=[0.99]), metrics(a=[1.0, 1.0]))
    assert (table.loc[0, "low"], table.loc[0, "place"]) == (pytest.approx(0.98), "inside")
    table = compared_with_kept(metrics(a=[0.97]), metrics(a=[1.0, 1.0]))
    assert table.loc[0, "place"] == "outside"
    assert not summary(table)[1]


def test_one_run_on_both_sides_tells_nothing() -> None:
    table = compared_with_kept(metrics(a=[0.1]), metrics(a=[0.9]))
    assert set(table["place"]) == {"unknown"}
    assert math.isnan(table.loc[0, "low"])
    assert summary(table)[1]
    assert "0 of 2 are" in summary(table)[0]


def test_a_kept_run_is_compared_and_the_table_written(tmp_path: Path) -> None:
    metrics(a=[0.4, 0.5]).to_parquet(tmp_path / "run.parquet")
    kept, table = tmp_path / "pass_at_k.csv", tmp_path / "compare.csv"
    metrics(a=[0.4, 0.5, 0.6], other=[0.1, 0.2]).to_csv(kept)
    text, agrees = compare(tmp_path / "run.parquet", kept, table)
    assert agrees
    assert text.startswith("2 inside, 0 outside, ")
    assert len(pd.read_csv(table)) == 2
    metrics(other=[0.4]).to_parquet(tmp_path / "run.parquet")
    metrics(a=[0.4]).to_csv(kept)
    with pytest.raises(ValueError, match="share no model"):
        compare(tmp_path / "run.parquet", kept, table)


def test_a_kept_run_is_one_file_with_a_row_for_each_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no kept run"):
        kept_file(None)
    with pytest.raises(FileNotFoundError, match=r"no pass_at_k\.csv.*results folder of a finished"):
        kept_file(tmp_path)
    (tmp_path / "metrics").mkdir()
    metrics(a=[0.4]).to_parquet(tmp_path / "metrics/pass_at_k.parquet")
    assert kept_file(tmp_path) == tmp_path / "metrics/pass_at_k.parquet"
    path = tmp_path / "pass_at_k.csv"
    metrics(a=[0.4]).drop(columns="n_problems").to_csv(path)
    assert kept_file(tmp_path) == path
    with pytest.raises(ValueError, match="no column n_problems"):
        read_kept(path)
    table = metrics(a=[0.4, 0.5])
    twice, percent = pd.concat([table, table]), table.assign(value=100 * table["value"])
    for wrong, said in (
        (table[table["train_seed"] == -1], "only pooled rows"),
        (twice, "row 10 is of a run that is there before"),
        (percent, "the value in row 1 is no share"),
        (table.assign(value=math.nan), "the value in row 1 is no share"),
    ):
        wrong.to_csv(path)
        with pytest.raises(ValueError, match=said):
            read_kept(path)


def test_a_kept_run_that_has_moved_is_named_with_its_place() -> None:
    with pytest.raises(FileNotFoundError, match=r"kept/mini: has moved to .*reports/mini/mini$"):
        kept_file(ROOT / "reports/kept/mini")


def test_three_runs_can_be_compared_with_the_committed_kept_run() -> None:
    reference = read_kept(kept_file(ROOT / "reports/mini/mini"))
    row = reference[(reference["algorithm"] == "grpo") & (reference["train_seed"] == 1)]
    runs = pd.concat([row.assign(train_seed=seed) for seed in (1, 2, 3)])
    runs["value"] += 0.01 * (runs["train_seed"] - 2.0)
    table = compared_with_kept(runs, reference)
    assert set(table["place"]) == {"inside"}
    assert sorted(set(table["benchmark"])) == ["rare", "routes", "seen", "sheets", "unseen"]
    far = compared_with_kept(runs.assign(value=runs["value"] - 0.5), reference)
    assert not summary(far)[1]
