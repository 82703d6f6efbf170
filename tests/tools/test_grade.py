"""Completions from files: graded, counted, and written as what comparisons read."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from sample_rows import one

from sage.tools import command


def counts_of(path: Path) -> pd.DataFrame:
    return one(path).counts


RIGHT, WRONG = "so <SOLUTION>4</SOLUTION>", "<SOLUTION>5</SOLUTION>"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_lists_of_completions_are_graded_with_answers_from_another_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn = pd.DataFrame({"problem": ["2+2", "8/2"], "completion": [[RIGHT, WRONG], ["4", WRONG]]})
    drawn.to_json("drawn.jsonl", orient="records", lines=True)
    Path("data.csv").write_text("problem,answer\n2+2,4\n8/2,4\n")
    assert command.main(["grade", "drawn.jsonl", "--data", "data.csv"]) == 0
    graded = pd.read_parquet("graded.parquet")
    assert graded["status"].tolist() == ["correct", "wrong", "unparsed", "wrong"]
    printed = capsys.readouterr().out
    assert "2 wrong, 1 correct" in printed
    assert "pass@1 25.0 %" in printed
    counts = counts_of(Path("graded.parquet"))
    assert counts.set_index("problem_id")["correct"].to_dict() == {"2+2": 1, "8/2": 0}


def test_answers_in_boxes_are_taken_where_no_completion_has_a_tag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = "problem;answer;completion\n2,5+1;3,5;so \\boxed{3,5}\n8/2;4;it is 4\n"
    Path("a.csv").write_text(rows)
    assert command.main(["grade", "a.csv"]) == 0
    printed = capsys.readouterr().out
    assert "1 correct, 1 unparsed" in printed
    said = "Answers are those in \\boxed{} (--answers boxed): none is in <SOLUTION>"
    assert said in printed
    for more, asked in (("", ["--answers", "tags"]), (f"2+2;4;{RIGHT}\n", [])):
        Path("a.csv").write_text(rows + more)
        assert command.main(["grade", "a.csv", *asked]) == 0
        printed = capsys.readouterr().out
        assert "2 unparsed" in printed
        assert said not in printed
        assert "try --answers boxed" in printed
        assert "without <SOLUTION>…</SOLUTION>: 1" in printed


@pytest.mark.parametrize("name", ["before.csv", "before.jsonl", "before.parquet"])
def test_what_is_written_is_what_comparisons_read(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("drawn.csv").write_text(f"problem,answer,completion\n2+2,4,{RIGHT}\n8/2,4,{WRONG}\n")
    assert command.main(["grade", "drawn.csv", "--out", name]) == 0
    assert "pass@1 50.0 %" in capsys.readouterr().out
    assert counts_of(Path(name))["correct"].tolist() == [1, 0]
    assert command.main(["grade", "drawn.csv", "--out", "before.txt"]) == 1
    said = "--out before.txt: must end in .csv, .jsonl, .parquet"
    assert said in capsys.readouterr().err


NAMES = ["--problem", "q", "--answer", "gold", "--completion", "text", "--answers", "boxed"]


def test_columns_and_places_of_answers_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    own = Path("a.csv")
    own.write_text("q,gold,text\n1/2+1/2,1,it is \\boxed{\\frac{2}{2}}\n2+2,4,\\boxed{3}\n")
    assert command.main(["grade", "a.csv", *NAMES, "--out", "own.parquet"]) == 0
    assert pd.read_parquet("own.parquet")["correct"].tolist() == [True, False]
    own.write_text(own.read_text() + "2+2,4,\\boxed{4}\n")
    assert command.main(["grade", "a.csv", *NAMES, "--out", "own.parquet"]) == 0
    assert "No pass@k: " in capsys.readouterr().out


MIXED = [
    {"problem": "2+2", "answer": 4, "completion": RIGHT, "id": 1, "more": {}},
    {"problem": 3, "answer": "3", "completion": [WRONG, RIGHT], "id": "b"},
    {"problem": "9" * 30, "answer": int("9" * 30), "completion": 5, "id": 10**30},
    {"problem": ["a", "b"], "answer": 2.5, "completion": RIGHT},
]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_columns_of_mixed_types_are_graded_and_written(name: str) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in MIXED)
    Path("drawn.jsonl").write_text(lines, encoding="utf-8-sig")
    assert command.main(["grade", "drawn.jsonl", "--data", "drawn.jsonl", "--out", name]) == 0
    assert counts_of(Path(name))["correct"].sum() >= 1


def test_a_long_completion_is_graded() -> None:
    Path("a.csv").write_text(f"problem,answer,completion\n2+2,4,{'x' * 140_000}{RIGHT}\n")
    assert command.main(["grade", "a.csv"]) == 0


@pytest.mark.parametrize(
    ("completion", "said"),
    [
        ("[" * 100_000 + "]" * 100_000, "brackets are nested too deeply"),
        (r'"\ud83d\ude00 but \ud800"', r"line 1 has '\ud800', which is half a character"),
    ],
)
def test_rows_that_cannot_be_kept_are_named(
    completion: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.jsonl").write_text(f'{{"problem": "a", "answer": "1", "completion": {completion}}}')
    assert command.main(["grade", "a.jsonl"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("sage-rlvr grade: a.jsonl: ")
    assert said in printed


def test_a_problem_without_its_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gap.csv").write_text("problem,completion\n9+9,18\n")
    Path("data.csv").write_text("problem,answer\n2+2,4\n")
    assert command.main(["grade", "gap.csv"]) == 1
    said = "gap.csv: no column 'answer'; it has problem, completion. Name one with --answer"
    assert said in capsys.readouterr().err
    assert command.main(["grade", "gap.csv", "--data", "data.csv"]) == 1
    assert "no problem '9+9'" in capsys.readouterr().err
    Path("data.csv").write_text("problem,answer\n9+9,18\n2+2,4\n2+2,5\n")
    assert command.main(["grade", "gap.csv", "--data", "data.csv"]) == 1
    said = "data.csv: problem '2+2' has two correct answers, '4' and '5'; correct one"
    assert said in capsys.readouterr().err


CHAT = [{"role": "assistant", "content": RIGHT}]


@pytest.mark.parametrize(
    ("row", "out", "said"),
    [
        ({"completion": CHAT}, "a.csv", "problem '2+2' has as completion a dict, {'role': "),
        ({"answer": [4, 5]}, "a.csv", "problem '2+2' has as answer a list, [4, 5]"),
        ({"answer": {"value": 4}}, "a.csv", "no column 'answer'; it has problem, answer.value"),
        (None, "a.csv", "rows.jsonl: has no rows"),
        ({"answer": " "}, "a.csv", "rows.jsonl: problem '2+2' has an empty answer; fill it in"),
        ({"completion": None}, "a.csv", "has no completion (completion 1); fill it in (an empty"),
        ({}, "rows.jsonl", "--out rows.jsonl: is a file that is read; name another"),
        ({}, "rows.jsonl/a.csv", "--out rows.jsonl/a.csv: cannot be written there; name another"),
    ],
)
def test_what_is_no_text_or_has_no_place_is_refused_before_grading(
    row: dict[str, object] | None, out: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"problem": "2+2", "answer": 4, "completion": RIGHT} | (row or {})
    Path("rows.jsonl").write_text("" if row is None else json.dumps(whole))
    assert command.main(["grade", "rows.jsonl", "--out", out]) == 1
    assert said in capsys.readouterr().err


def test_nested_rows_are_named_by_dots(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.jsonl").write_text(json.dumps({"doc": {"q": "2+2", "gold": 4}, "completion": RIGHT}))
    names = ["--problem", "doc.q", "--answer", "doc.gold"]
    assert command.main(["grade", "a.jsonl", *names]) == 0
    printed = capsys.readouterr().out
    assert "1 completions: 1 correct." in printed
    assert "100.0 % (no interval" in printed


def test_what_ends_a_line_in_a_completion_ends_no_row_and_numbers_stay_whole() -> None:
    rows = [{"problem": "2+2", "answer": "4", "completion": f"{RIGHT}\r", "mine": 0.12345678901234}]
    Path("drawn.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 2))
    for name in ("back.csv", "back.jsonl"):
        assert command.main(["grade", "drawn.jsonl", "--out", name]) == 0
        back = pd.read_csv(name) if name.endswith("csv") else pd.read_json(name, lines=True)
        assert back["status"].tolist() == ["correct"] * 2
        assert back["mine"].tolist() == pytest.approx([0.12345678901234] * 2, rel=1e-12)


def test_a_column_that_is_named_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text(f"problem,answer,completion,answer\n2+2,4,{RIGHT},7\n")
    assert command.main(["grade", "a.csv"]) == 1
    assert "column 'answer' twice" in capsys.readouterr().err


LOGS = Path(__file__).parents[1] / "builders/logs"


class TestBenchmarks:
    """A file of two benchmarks, both with problems 1 and 2."""

    DATA = "benchmark,problem_id,answer\neasy,1,4\neasy,2,5\nhard,1,6\nhard,2,7\n"
    DRAWN = "benchmark,problem_id,completion\neasy,1,4\neasy,2,5\nhard,1,6\nhard,2,7\n"

    def test_each_problem_has_the_answer_of_its_benchmark(self) -> None:
        Path("data.csv").write_text(self.DATA)
        Path("drawn.csv").write_text(self.DRAWN)
        asked = ["grade", "drawn.csv", "--data", "data.csv", "--answers", "whole"]
        assert command.main(asked) == 0
        assert pd.read_parquet("graded.parquet")["answer"].tolist() == list("4567")
        assert pd.read_parquet("graded.parquet")["correct"].all()

    @pytest.mark.parametrize("lacking", ["data", "drawn"])
    def test_a_file_that_does_not_say_which_is_refused(
        self, lacking: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name, text in (("data", self.DATA), ("drawn", self.DRAWN)):
            rows = [line.partition(",")[2] for line in text.splitlines()]
            one = text if name != lacking else "\n".join(rows[: 3 if name == "data" else None])
            Path(f"{name}.csv").write_text(one)
        assert command.main(["grade", "drawn.csv", "--data", "data.csv"]) == 1
        assert (
            f"problem '1' is in several benchmarks, easy, hard; {lacking}.csv has to say which, in "
            "a column `benchmark`"
        ) in capsys.readouterr().err

    def test_a_problem_of_another_benchmark_is_not_taken(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("data.csv").write_text(self.DATA)
        Path("drawn.csv").write_text("benchmark,problem_id,completion\neasy,1,4\nhard,3,5\n")
        assert command.main(["grade", "drawn.csv", "--data", "data.csv"]) == 1
        assert "no problem '3' of" in capsys.readouterr().err

    def test_other_benchmarks_do_not_matter_where_ids_differ(self) -> None:
        Path("data.csv").write_text("benchmark,id,answer\neasy,e1,4\nhard,h1,6\n")
        Path("drawn.csv").write_text("id,completion\ne1,4\nh1,6\n")
        asked = ["grade", "drawn.csv", "--data", "data.csv", "--answers", "whole"]
        assert command.main(asked) == 0
        assert pd.read_parquet("graded.parquet")["correct"].all()


class TestAnswerAfter:
    GOLD = "There were 48 / 2 = 24. In all 48 + 24 = 72.\n#### 72"

    def write(self, gold: str = GOLD) -> None:
        row = {"question": "How many clips?", "answer": gold, "completion": "72"}
        Path("gsm.jsonl").write_text(json.dumps(row))

    def test_the_answer_stands_behind_a_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.write()
        asked = ["grade", "gsm.jsonl", "--answers", "whole"]
        assert command.main(asked) == 0
        said = "1 counted as wrong have a correct answer with '####': try --answer-after '####'"
        assert said in capsys.readouterr().out
        assert command.main([*asked, "--answer-after", "####"]) == 0
        assert "1 completions: 1 correct." in capsys.readouterr().out
        assert pd.read_parquet("graded.parquet")["answer"].tolist() == ["72"]

    def test_an_answer_without_the_text_is_refused(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.write("72")
        assert command.main(["grade", "gsm.jsonl", "--answer-after", "####"]) == 1
        said = (
            "the answer of problem 'How many clips?' does not hold '####', behind which it should"
        )
        assert said in capsys.readouterr().err


class TestLogs:
    """Logs that other programs wrote: all of their completions are graded."""

    def grade(self, *arguments: str) -> pd.DataFrame:
        assert command.main(["grade", *arguments, "--out", "graded.jsonl"]) == 0
        return pd.read_json("graded.jsonl", lines=True, dtype=False)

    def test_of_lm_eval(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Both completions of each problem, once, though there are verdicts of two filters."""
        graded = self.grade(f"{LOGS}/lm_eval_sums.jsonl", "--answer-after", "####")
        assert len(graded) == 12
        assert graded["problem"].value_counts().tolist() == [2] * 6
        assert counts_of(Path("graded.jsonl"))["n_samples"].tolist() == [2] * 6
        assert "pass@1" in capsys.readouterr().out

    def test_of_lighteval(self) -> None:
        kept = pd.read_parquet(LOGS / "lighteval_sums.parquet").to_dict("records")
        share = [row["metric"]["pass@k:k=1&n=2"] for row in kept]
        graded = self.grade(f"{LOGS}/lighteval_sums.parquet", "--answers", "whole")
        assert set(graded["benchmark"]) == {"sums|0"}
        counts = counts_of(Path("graded.jsonl"))
        assert (counts["correct"] / counts["n_samples"]).tolist() == share

    def test_of_inspect(self, capsys: pytest.CaptureFixture[str]) -> None:
        graded = self.grade(f"{LOGS}/inspect_weak.json", "--answers", "whole")
        log = json.loads((LOGS / "inspect_weak.json").read_text())
        theirs = [sample["scores"]["number"]["value"] == "C" for sample in log["samples"]]
        assert graded["correct"].tolist() == theirs
        assert "pass@1 25.0 %" in capsys.readouterr().out

    def test_a_failed_sample_has_an_empty_completion(self) -> None:
        graded = self.grade(f"{LOGS}/inspect_failed.eval", "--answers", "whole")
        failed = graded[(graded["problem"] == "sum-4") & (graded["sample"].astype(str) == "2")]
        assert failed[["completion", "correct"]].to_numpy().tolist() == [["", False]]

    def test_of_trl(self) -> None:
        table = pd.DataFrame(
            {
                "step": [5, 5],
                "prompt": [[{"role": "user", "content": "2 + 2"}]] * 2,
                "completion": [[{"role": "assistant", "content": text}] for text in (RIGHT, WRONG)],
                "reward_func": [1.0, 0.0],
                "solution": ["4", "4"],
                "advantage": [0.7, -0.7],
            }
        )
        table.to_parquet("completions_00005.parquet")
        graded = self.grade("completions_00005.parquet", "--answer", "solution")
        assert graded["problem"].tolist() == ["2 + 2"] * 2
        assert graded["correct"].tolist() == [True, False]


def test_the_usual_names_of_columns_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("problem_id,expected_answer,generation\n1,4,4\n2,5,4\n")
    assert command.main(["grade", "a.csv", "--answers", "whole", "--out", "b.csv"]) == 0
    assert "1 correct" in capsys.readouterr().out
    assert counts_of(Path("b.csv"))["problem_id"].tolist() == ["1", "2"]


def test_two_columns_that_can_be_the_answer_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One of them may be what the model said."""
    Path("a.csv").write_text("problem,answer,gold,completion\np,4,5,4\nq,5,5,4\n")
    assert command.main(["grade", "a.csv", "--answers", "whole"]) == 1
    said = "columns answer and gold can both be the correct answer, and row 1 has '4' and '5'"
    assert said in capsys.readouterr().err
    assert command.main(["grade", "a.csv", "--answers", "whole", "--answer", "gold"]) == 0


def test_rows_that_are_there_twice_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"p{n},{k},4,it is {n + k}" for n in range(5) for k in range(4)]
    Path("a.csv").write_text("\n".join(["problem,sample,answer,completion", *rows, rows[7]]))
    assert command.main(["grade", "a.csv"]) == 1
    said = "a.csv: row 21 repeats row 8 (problem 'p1', sample '3'); remove one, or name the column"
    assert said in capsys.readouterr().err
    Path("a.csv").write_text("\n".join(["problem,index,answer,completion", *rows, *rows]))
    assert command.main(["grade", "a.csv"]) == 1
    assert "row 21 repeats row" in capsys.readouterr().err


def test_files_that_name_different_things_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("problem,answer,completion,benchmark\np,4,4,easy\n")
    Path("b.csv").write_text("problem,answer,completion\np,4,4\n")
    assert command.main(["grade", "a.csv", "b.csv"]) == 1
    assert "but b.csv has none" in capsys.readouterr().err
