"""Methods are compared from anyone's samples: `sage-rlvr compare A B`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pages import Markings, parsed, words_of
from sample_rows import one, rows

from sage.evaluation.foreign_samples import Method, read_methods
from sage.tools import command
from sage.tools.compare_samples import compare, falls_below, main

LOGS = Path(__file__).parents[1] / "builders/logs"
"""Eight sums by mock models: of Inspect AI 0.3.285 without transcripts, and of lm-eval 0.4.13."""


def counts_of(path: Path, **columns: str) -> pd.DataFrame:
    return one(path, **columns).counts


def methods_of(**paths: Path) -> dict[str, Method]:
    return read_methods(list(paths.items()))


def samples(right: list[int], seeds: tuple[int, ...] = (1, 2), n: int = 4) -> pd.DataFrame:
    return rows(right, n, seeds).rename(columns={"problem_id": "problem"})


def write(folder: Path) -> tuple[Path, Path]:
    """Ten problems: one of four samples right, and two of four."""
    one, two = folder / "one.csv", folder / "two.jsonl"
    samples([1] * 10).to_csv(one, index=False)
    samples([2] * 5 + [1] * 5).to_json(two, orient="records", lines=True)
    return one, two


def test_csv_and_json_lines_are_compared_by_problem_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = write(tmp_path)
    curves, differences = compare(methods_of(one=one, two=two), draws=500)
    at_one = curves[curves["k"] == 1].set_index("algorithm")["value"]
    assert at_one.to_dict() == pytest.approx({"one": 0.25, "two": 0.375})
    row = differences[differences["k"] == 1].iloc[0]
    assert (row["algorithm"], row["other"], row["n_seeds"]) == ("two", "one", 2)
    assert row["value"] == pytest.approx(0.125)
    assert row["low"] < 0.125 < row["high"] < row["value"] + row["detectable"]
    assert main([f"A={one}", f"B={two}"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "All problems: 10 problems\n"
        "  A: 4 samples of each problem, 2 runs (seeds 1, 2), from one.csv\n"
        "  B: 4 samples of each problem, 2 runs (seeds 1, 2), from two.jsonl\n"
        "  A (2 runs): pass@1 25"
    )
    assert "  B - A: pass@1 +12.5 points (" in printed
    assert "  B - A: pass@2 " in printed
    never = "  no k from 1 to 4 shows B below A (95 % band: some from k = 4 on)"
    assert never in printed.splitlines()
    assert (differences["band_low"] <= differences["low"] + 1e-12).all()


def test_it_says_where_the_method_that_is_ahead_falls_below(tmp_path: Path) -> None:
    """Two of twenty problems always right, or all now and then: 10 and 6 % at k = 1."""
    often, seldom = tmp_path / "often.csv", tmp_path / "seldom.csv"
    samples([32] * 2 + [0] * 18, n=32).to_csv(often, index=False)
    samples([2] * 20, n=32).to_csv(seldom, index=False)
    _, differences = compare(methods_of(often=often, seldom=seldom), draws=500)
    band = differences["band"].iloc[0]
    said = falls_below("seldom", "often", band)
    assert said.startswith("often is below seldom from k = 2 on (95 % band: from 1, or ")
    assert band.turned().first == 2


def test_files_of_this_project_are_read_as_they_are(tmp_path: Path) -> None:
    """The seed is that of the path; a folder holds all runs."""
    for seed in (3, 7):
        path = tmp_path / f"tiny/grpo/seed{seed}/harder.parquet"
        path.parent.mkdir(parents=True)
        rows = samples([1, 4], (seed,))
        status = rows["correct"].map({True: "correct", False: "unparsed"})
        own = {"problem_id": rows["problem"], "status": status, "sample_index": rows["sample"]}
        pd.DataFrame({**own, "eval_seed": seed}).to_parquet(path)
    counts = counts_of(tmp_path)
    assert counts["train_seed"].tolist() == [3, 3, 7, 7]
    assert set(counts["benchmark"]) == {"harder"}
    assert counts["correct"].tolist() == [1, 4, 1, 4]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_nested_rows_are_the_same_in_every_format(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"of": {"task": {"id": str(i % 2)}}, "scores": {"match": i in (0, 2, 3)}} for i in range(8)
    ]
    file = tmp_path / f"nested.{suffix}"
    if suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pd.DataFrame(rows).to_parquet(file)
    counts = counts_of(file, problem="of.task.id", correct="scores.match")
    assert counts["correct"].tolist() == [2, 1]


def test_files_of_a_folder_are_runs_with_verdicts_as_numbers(tmp_path: Path) -> None:
    for name, right in (("first.csv", [1, 2]), ("second.csv", [2, 1])):
        rows(right).astype({"correct": float}).to_csv(tmp_path / name)
    assert counts_of(tmp_path)["train_seed"].tolist() == [1, 1, 2, 2]


def test_what_a_kill_left_in_a_folder_is_no_run(tmp_path: Path) -> None:
    for name in ("a/seed1/b.parquet", "a/seed1/.b.parquet.7-x.parquet", "a/.seed2.7-x/b.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        samples([1, 2], seeds=(1,)).drop(columns="seed").to_parquet(tmp_path / name)
    (tmp_path / "a").rename(tmp_path / ".a")  # what is above the folder does not count
    assert counts_of(tmp_path / ".a")["train_seed"].tolist() == [1, 1]


def test_a_log_that_inspect_wrote_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 16 samples of the weak and of the strong model, as Inspect counted them."""
    weak, strong = (LOGS / f"inspect_{name}.json" for name in ("weak", "strong"))
    counts = {name: method.counts for name, method in methods_of(weak=weak, strong=strong).items()}
    for path in (weak, strong):
        (score,) = json.loads(path.read_text())["results"]["scores"]
        of_log = counts[path.stem.removeprefix("inspect_")]
        assert (len(of_log), set(of_log["n_samples"])) == (8, {2})
        assert of_log["correct"].sum() / 16 == score["metrics"]["accuracy"]["value"]
    assert main([f"weak={weak}", f"strong={strong}", "--k", "2"]) == 0
    assert "  strong - weak: pass@2 +" in capsys.readouterr().out


def test_samples_that_lm_eval_wrote_are_read() -> None:
    file = LOGS / "lm_eval.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    counts = counts_of(file)
    assert counts["problem_id"].tolist() == [str(row["doc_id"]) for row in rows]
    assert counts["correct"].tolist() == [int(row["acc"]) for row in rows]


def test_instances_of_every_eval_ever_are_read(tmp_path: Path) -> None:
    """Its fields of a row with the schema 0.2.1 of instances."""
    row = {"sample_id": "p", "evaluation_name": "sums", "evaluation": {"is_correct": True}}
    file = tmp_path / "instances.jsonl"
    file.write_text(f"{json.dumps(row)}\n{json.dumps(row | {'sample_id': 'q'})}\n")
    counts = counts_of(file)
    assert counts[["problem_id", "benchmark", "correct"]].to_numpy().tolist() == [
        ["p", "sums", 1],
        ["q", "sums", 1],
    ]


def test_clusters_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, frame in zip(write(tmp_path), (samples([1] * 10), samples([2] * 10)), strict=True):
        shared = frame.assign(cluster=frame["problem"].str[-1].astype(int) // 2)
        shared.to_csv(path.with_suffix(".csv"), index=False)
    figure = tmp_path / "curves.svg"
    files = [str(tmp_path / f"{name}.csv") for name in ("one", "two")]
    assert main([*files, "--figure", str(figure)]) == 0
    assert "10 problems (5 clusters)\n  one: 4 samples of each" in capsys.readouterr().out
    assert figure.read_text().startswith("<?xml")


def test_a_method_called_base_may_have_several_runs(tmp_path: Path) -> None:
    """Also more than the other."""
    base, two = write(tmp_path)
    samples([2] * 10, (2,)).to_csv(tmp_path / "other.csv", index=False)
    for other, seeds in ((two, [1, 2]), (tmp_path / "other.csv", [2])):
        _, differences = compare(methods_of(base=base, other=other), draws=200)
        assert set(differences["n_seeds"]) == {len(seeds)}
        assert differences["train_seeds"].tolist()[0] == seeds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one.csv"], "name two or more methods"),
        (["one.csv", "absent.csv"], "absent.csv: does not exist (seen from "),
        (["one.csv", "notes.txt"], "notes.txt: not a file .csv, .jsonl"),
        (["one.csv", "two.jsonl", "--problem", "doc"], "no column 'doc'; it has problem, seed, "),
        (["one.csv", "maybe.csv"], "maybe.csv: correct says 'perhaps' in row 1; known are true, 1"),
        (["one.csv", "two.jsonl", "--k", "3"], "--k 3: with 4 samples of a problem it can be 1, 2"),
        (["one.csv", "two.jsonl", "--k", "0"], "--k 0: with 4 samples of a problem it can be 1, 2"),
        (["one.csv", "named.csv"], "every row; row 1 says 'first'"),
        (["one.csv", "fewer.csv"], "different problems; 1 are not in both, such as 'p9'"),
        (["one.csv", "broken.jsonl"], "broken.jsonl: cannot be read, correct it: line 2 is not"),
        (
            ["one.csv", "packed.gz"],
            "packed.gz: not a file .csv, .jsonl, .parquet, .json, .eval; co",
        ),
        (["one.csv", "other.csv"], "no training seed in common; one has 3, the other 1, 2"),
        (["a=one.csv", "a=two.jsonl", "b=two.jsonl"], "a is given twice; put all its runs into"),
        (["one.csv", "none.parquet"], "none.parquet: has no rows; it needs one for each"),
        (["one.csv", "nowhere.csv"], "nowhere.csv: benchmark is empty in 8 rows, the first"),
    ],
)
def test_what_cannot_be_compared_says_why(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    Path("notes.txt").touch()
    samples([1]).assign(correct="perhaps").to_csv("maybe.csv")
    samples([1]).assign(seed="first").to_csv("named.csv")
    samples([1] * 9).to_csv("fewer.csv")
    samples([1] * 10, (3,)).to_csv("other.csv")
    samples([1]).head(0).to_parquet("none.parquet")
    samples([1, 2]).assign(benchmark=[None, "easy"] * 8).to_csv("nowhere.csv")
    Path("broken.jsonl").write_text('{"problem": 1, "correct": true}\n{"problem')
    Path("packed.gz").touch()
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_files_of_two_programs_are_read_alike(tmp_path: Path) -> None:
    """Ids with zeros in front, a byte order mark, semicolons; `=` in a path."""
    one, two = tmp_path / "lr=1.csv", tmp_path / "two.jsonl"
    table = samples([1] * 10).assign(problem=lambda rows: rows["problem"].str.replace("p", "00"))
    table.to_csv(one, index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n")
    lines = table.to_json(orient="records", lines=True)
    two.write_text(f"\ufeff{lines}", encoding="utf-8")
    first, second = (counts_of(path) for path in (one, two))
    pd.testing.assert_frame_equal(first, second)
    assert first["problem_id"][0] == "000"
    assert main([str(one), f"b={two}"]) == 0


def test_clusters_hold_for_all_methods_whichever_names_them(tmp_path: Path) -> None:
    methods = methods_of(**dict(zip("ab", write(tmp_path), strict=True)))
    number = methods["a"].counts["problem_id"].str[1:].astype(int)

    def clustered(name: str, size: int) -> Method:
        cluster = (number // size).astype(str)
        return replace(methods[name], counts=methods[name].counts.assign(cluster=cluster))

    named = {**methods, "a": clustered("a", 2)}
    both = {name: clustered(name, 2) for name in methods}
    _, plain = compare(methods, draws=200)
    expected = compare(both, draws=200)[1]["low"].tolist()
    assert compare(named, draws=200)[1]["low"].tolist() == expected != plain["low"].tolist()
    other = {**named, "b": clustered("b", 5)}
    with pytest.raises(ValueError, match="problem 'p2' is in two clusters, '1' and '0'"):
        compare(other, draws=200)


@pytest.mark.parametrize("folder", ["exp/grpo/seed42", "exp/grpo/seeds", "seed42"])
def test_the_folder_of_anyones_file_says_nothing(tmp_path: Path, folder: str) -> None:
    """Only this project's own samples have their seed and benchmark in their path."""
    place = tmp_path / folder
    place.mkdir(parents=True)
    one, two = write(place)
    for method in methods_of(one=one, two=two).values():
        assert set(method.counts["benchmark"]) == {""}
        assert set(method.counts["train_seed"]) == {1, 2}


class TestCommand:
    """`sage-rlvr compare` with files, in a folder without a Snakefile."""

    @pytest.fixture(autouse=True)
    def in_an_empty_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_a_difference_that_no_result_could_show_is_said(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name, right in (("one", "false"), ("two", "true")):
            rows = "".join(f"p{i},{right}\n" for i in (1, 2))
            Path(f"{name}.csv").write_text(f"problem,correct\n{rows}")
        assert command.main(["compare", "one.csv", "two.csv", "--html", "page.html"]) == 0
        assert "detectable none, for these single runs" in capsys.readouterr().out
        assert re.search(r"<td[^>]*>none</td>", Path("page.html").read_text())

    def test_files_and_folders_are_compared(self, capsys: pytest.CaptureFixture[str]) -> None:
        one, two = write(Path())
        assert command.main(["compare", str(one), str(two)]) == 0
        assert "two - one: pass@1 +12.5 points" in capsys.readouterr().out
        assert command.main(["compare", "--k", "4", f"a={one}", f"b={two}"]) == 0
        assert "b - a: pass@4" in capsys.readouterr().out
        for file in (one, two):
            Path(file.stem).mkdir()
            file.rename(Path(file.stem, file.name))
        assert command.main(["compare", "one", "x=two"]) == 0
        assert "x - one: pass@1 +12.5 points" in capsys.readouterr().out

    def test_a_page_and_a_figure(self, capsys: pytest.CaptureFixture[str]) -> None:
        one, two = write(Path())
        asked = ["compare", str(one), str(two), "--html", "page.html", "--figure", "curves.svg"]
        assert command.main(asked) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "page.html"
        page = Path("page.html").read_text("utf-8")
        assert Markings(page).values("src") == []
        assert "://" not in page
        tree = parsed(page)
        (lede,) = tree.findall(".//p[@class='lede']")
        assert words_of(lede).startswith("two has 16.7 points more of pass@2 on all problems than")
        (drawn,) = tree.findall(".//figure")
        assert "".join(words_of(drawn).split()).startswith("124samplesperproblem,k")
        assert len(tree.findall(".//table[@class='forest']")) == 2
        basis = [words_of(line) for line in tree.findall(".//section[@id='basis']//dd")]
        assert basis[0] == "4 samples of each problem, 2 runs (seeds 1, 2), from one.csv"
        figure = Path("curves.svg").read_text("utf-8")
        assert [f">{k}<" in figure for k in (1, 2, 4, 3)] == [True, True, True, False]

    def test_what_is_written_into_a_page_is_text(self) -> None:
        frame = samples([1] * 6).assign(benchmark="<b>easy</b>")
        frame.to_csv("a.csv", index=False)
        frame.to_csv("<i>b.csv", index=False)
        assert command.main(["compare", "a.csv", "<i>b.csv", "--html", "page.html"]) == 0
        page = Path("page.html").read_text("utf-8")
        assert "<b>easy" not in page
        assert "<i>b" not in page

    @pytest.mark.parametrize(
        "words",
        [
            ["mini", "reports/mini/mini"],
            ["reports/mini/mini", "reports/smollm/smollm"],
            ["mini", "nothing.csv.d"],
            ["a", "b", "--html", "page.html"],
            ["--config", "study=mini", "kept=a.csv"],
        ],
    )
    def test_studies_are_compared_as_before(
        self, words: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(LOGS.parents[1])
        assert not command.compares_samples(words)

    def test_it_starts_without_what_it_does_not_need(self) -> None:
        heavy = ("torch", "transformers", "snakemake", "matplotlib", "huggingface_hub", "sympy")
        said = "import sys, sage.tools.command, sage.tools.grade, sage.tools.compare_samples\n"
        said += f"print([name for name in {heavy} if name in sys.modules])"
        environment = {**os.environ, "PYTHONPATH": str(LOGS.parents[1])}
        done = subprocess.run(
            [sys.executable, "-c", said],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert done.stdout.strip() == "[]"
