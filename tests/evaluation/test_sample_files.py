"""Files of samples: training seeds, rows that are there twice, and names of columns."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from sample_rows import one, rows

from sage.evaluation.foreign_samples import read_methods
from sage.tools.compare_samples import compare, main


class TestSeeds:
    def test_a_run_without_a_seed_is_compared_with_every_run(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """43.8 % beside seeds of 50, 75 and 93.8 %: +29.2, not the +6.2 of one of them."""
        rows([7] * 10, 16).to_csv(tmp_path / "alone.csv", index=False)
        runs = [rows([n] * 10, 16, [seed]) for seed, n in ((0, 8), (1, 12), (2, 15))]
        pd.concat(runs).to_csv(tmp_path / "runs.csv", index=False)
        files = [str(tmp_path / f"{name}.csv") for name in ("alone", "runs")]
        assert main(files) == 0
        printed = capsys.readouterr().out
        assert "alone: 16 samples of each problem, 1 run without a seed, from alone.csv" in printed
        assert "runs - alone: pass@1 +29.2 points" in printed
        assert ", of alone's one run and each run of the other" in printed
        assert main(files[::-1]) == 0
        assert "alone - runs: pass@1 −29.2 points" in capsys.readouterr().out

    def test_several_runs_without_seeds_are_not_paired_with_seeds(self, tmp_path: Path) -> None:
        for name, right in (("x", [1, 2]), ("y", [2, 1])):
            (tmp_path / "a").mkdir(exist_ok=True)
            rows(right).to_csv(tmp_path / "a" / f"{name}.csv", index=False)
        rows([1, 2], seeds=(1, 2)).to_csv(tmp_path / "b.csv", index=False)
        methods = read_methods([("a", tmp_path / "a"), ("b", tmp_path / "b.csv")])
        with pytest.raises(ValueError, match="b has the seeds 1, 2, and the 2 runs of a have none"):
            compare(methods, draws=100)
        (tmp_path / "a" / "x.csv").rename(tmp_path / "a" / "mine-seed2.csv")
        with pytest.raises(ValueError, match=r"y\.csv has no seed, .*mine-seed2\.csv has"):
            read_methods([("a", tmp_path / "a")])
        (tmp_path / "a" / "y.csv").rename(tmp_path / "a" / "mine-seed1.csv")
        methods = read_methods([("a", tmp_path / "a"), ("b", tmp_path / "b.csv")])
        _, differences = compare(methods, draws=100)
        assert differences["train_seeds"].iloc[0] == [1, 2]

    @pytest.mark.parametrize("seed", [-1, -2, 1.5, 1e300, 2**64])
    def test_what_is_no_seed_is_refused(self, tmp_path: Path, seed: float) -> None:
        """-1 and -2 stand for all runs and for an unknown one, and huge ones would be the same."""
        rows([1, 2], seeds=[seed, 3]).to_json(tmp_path / "a.jsonl", orient="records", lines=True)
        with pytest.raises(
            ValueError, match=r"seed must be a whole number from 0 to .* row 1 says"
        ):
            one(tmp_path / "a.jsonl")

    def test_what_a_difference_rests_on_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows([3] * 10, 8, [1, 2, 3]).to_csv(tmp_path / "a.csv", index=False)
        rows([2] * 10, 4, [2, 3, 7]).to_csv(tmp_path / "b.csv", index=False)
        assert main([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 0
        printed = capsys.readouterr().out
        assert "a: 8 samples of each problem, 3 runs (seeds 1, 2, 3), from a.csv" in printed
        assert "b: 4 samples of each problem, 3 runs (seeds 2, 3, 7), from b.csv" in printed
        assert ", of runs 2, 3 of both (b also has 7; a also has 1)" in printed
        assert "pass@2" in printed

    def test_parts_of_one_run_are_not_runs(self, tmp_path: Path) -> None:
        table = rows([1, 2, 3, 4])
        for part in (0, 1):
            here = table["problem_id"].isin([f"p{2 * part}", f"p{2 * part + 1}"])
            table[here].to_csv(tmp_path / f"part{part}.csv", index=False)
        with pytest.raises(
            ValueError, match=r"runs 1 \(part0\.csv\) and 2 \(part1\.csv\) have dif"
        ):
            one(tmp_path)


class TestRepeated:
    def test_a_row_with_the_number_of_another_is_named(self, tmp_path: Path) -> None:
        table = rows([1, 2, 3])
        pd.concat([table, table.iloc[[5]]]).to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(ValueError, match=r"row 13 repeats row 6 \(problem_id 'p1', sample '1'"):
            one(tmp_path / "a.csv")

    def test_rows_that_a_number_tells_apart_are_not_repeated(self, tmp_path: Path) -> None:
        pd.concat([rows([4, 4]), rows([4, 4], first=4)]).to_csv(tmp_path / "a.csv", index=False)
        assert one(tmp_path / "a.csv").counts["n_samples"].tolist() == [8, 8]

    @pytest.mark.parametrize("in_order", [True, False])
    def test_a_doubled_file_without_numbers_is_refused(
        self, tmp_path: Path, in_order: bool
    ) -> None:
        texts = [f"it is {number}" for number in range(40)]
        table = rows([1, 2, 1, 3, 2, 1, 2, 2, 1, 3]).drop(columns="sample")
        table["completion"] = texts
        twice = pd.concat([table, table])
        twice = twice if in_order else twice.sort_values("completion")
        twice.to_csv(tmp_path / "a.csv", index=False)
        match = "every row is there 2 times: row 41 repeats row 1;" if in_order else "row 2 repeats"
        with pytest.raises(ValueError, match=match):
            one(tmp_path / "a.csv")

    def test_a_log_of_verdicts_behind_itself_is_refused(self, tmp_path: Path) -> None:
        table = rows([1, 2, 1, 3, 2, 1]).drop(columns="sample")
        pd.concat([table, table]).to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(ValueError, match="row 25 repeats row 1; remove the copies, or number"):
            one(tmp_path / "a.csv")

    def test_equal_completions_of_a_problem_are_no_repetition(self, tmp_path: Path) -> None:
        table = rows([4, 0, 4, 2, 0, 4]).drop(columns="sample").assign(completion="4")
        table.to_csv(tmp_path / "a.csv", index=False)
        assert one(tmp_path / "a.csv").counts["n_samples"].tolist() == [4] * 6

    def test_a_copy_of_a_file_is_no_run(self, tmp_path: Path) -> None:
        for name in ("a.csv", "b.csv"):
            rows([1, 2]).to_csv(tmp_path / name, index=False)
        with pytest.raises(ValueError, match=r"b\.csv: is a copy of .*a\.csv; remove one, or"):
            one(tmp_path)


class TestColumns:
    @pytest.mark.parametrize(
        ("problem", "correct", "benchmark"),
        [
            ("problem_id", "is_correct", "task"),
            ("question", "score", "data_source"),
            ("prompt", "reward", "dataset"),
            ("id", "passed", "benchmark"),
        ],
    )
    def test_the_usual_names_are_taken(
        self, problem: str, correct: str, benchmark: str, tmp_path: Path
    ) -> None:
        names = {"problem_id": problem, "correct": correct}
        table = rows([1, 2]).rename(columns=names).assign(**{benchmark: "easy"})
        table.to_csv(tmp_path / "a.csv", index=False)
        method = one(tmp_path / "a.csv")
        assert method.counts["correct"].tolist() == [1, 2]
        assert set(method.counts["benchmark"]) == {"easy"}
        assert method.columns == (problem, correct)

    def test_models_of_one_file_are_methods_by_a_column(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        both = [rows([n] * 6).assign(model=name) for name, n in (("small", 1), ("large", 3))]
        file = tmp_path / "all.csv"
        pd.concat(both).to_csv(file, index=False)
        assert main([str(file)]) == 0
        assert "large - small: pass@1 +50.0 points" in capsys.readouterr().out
        pd.concat(both).rename(columns={"model": "who"}).to_csv(file, index=False)
        assert main([str(file)]) == 1
        assert "row 25 repeats row 1" in capsys.readouterr().err
        assert main([str(file), "--model", "who"]) == 0
        assert main([f"x={file}", f"y={file}", "--model", "who"]) == 0
        assert "  x large: 4 samples" in capsys.readouterr().out

    def test_methods_have_the_names_of_their_files(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            rows([1] * 6).to_csv(tmp_path / folder / "a.csv", index=False)
        assert main([str(tmp_path / "one"), str(tmp_path / "two")]) == 0
        assert "two - one: pass@1" in capsys.readouterr().out
        files = [str(tmp_path / folder / "a.csv") for folder in ("one", "two")]
        assert main(files) == 0
        assert f"{files[1]} - {files[0]}: pass@1" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_cluster_that_some_rows_name_is_that_of_the_problem(tmp_path: Path, kind: str) -> None:
    """One that no row names is a problem by itself."""
    table = rows([1, 2, 3]).assign(cluster=pd.Categorical([None, "a"] * 4 + [None] * 4))
    write = table.to_parquet if kind == "parquet" else table.to_csv
    write(tmp_path / f"a.{kind}")
    counts = one(tmp_path / f"a.{kind}").counts
    assert counts[["n_samples", "cluster"]].to_numpy().tolist() == [[4, "a"], [4, "a"], [4, ""]]


def test_a_folder_with_the_name_of_a_file_is_a_folder(tmp_path: Path) -> None:
    for right, name in ((1, "seed1.parquet"), (2, "seed2.json")):
        (tmp_path / name).mkdir()
        rows([right]).to_parquet(tmp_path / name / "part-0.parquet")
    assert one(tmp_path).counts[["train_seed", "correct"]].to_numpy().tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.parquet", "PAR1 and no end", "cannot be read, correct it: "),
        ("a.json", "[" * 100_000, "is not built as its logger builds it"),
        ("a.json", '{"samples": [{"id": 1, "scores": {"s": "C"}}]}', "is not built as its logger"),
        ("a.json", '{"samples": [null]}', "is not built as its logger builds it"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: str, says: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name}: {says}") as error:
        one(tmp_path / name)
    assert "run the study again" not in str(error.value)


def test_ids_beside_texts_bring_the_names_of_both_columns(tmp_path: Path) -> None:
    rows([1] * 6).to_csv(tmp_path / "a.csv", index=False)
    table = rows([1] * 6).rename(columns={"problem_id": "question"})
    table.assign(question="What is " + table["question"]).to_csv(tmp_path / "b.csv", index=False)
    methods = read_methods([(name, tmp_path / f"{name}.csv") for name in "ab"])
    with pytest.raises(ValueError, match="from the columns problem_id of a, question of b; name"):
        compare(methods, draws=100)
