"""Public data sets: rows become the right problems, and a study draws them by their entries.

The public files themselves are read where SAGE_MIRROR names a folder that holds them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from small_benchmark import ROWS, entry, fault, lines, write_mirror

from sage.exhibits import load_study
from sage.grading.assignments import parse_assignment
from sage.problems.benchmarks import benchmark_problems, gold_answer, solved_problems
from sage.problems.entries import Benchmark
from sage.problems.record import DataError, Problem
from sage.study import StudyError
from sage.tasks import draw_problems
from sage.tasks.data import FileSet, HubSet

ROOT = Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("SAGE_MIRROR")

needs_files = pytest.mark.skipif(
    not MIRROR, reason="the environment variable SAGE_MIRROR names no folder with the public files"
)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A mirror with the copy of `entry()`."""
    return write_mirror(tmp_path / "mirror")


# Answers


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        ("073", "73"),
        (27.0, "27"),
        ("27.0", "27"),
        (-1.0, "-1"),
        (204, "204"),
        ("000", "0"),
        ("-0", "0"),
        ("+5", "5"),
        ("0.50", "0.50"),
        (0.5, "0.5"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"so \boxed{\boxed{a} \}} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{ 042 }", "42"),
        ("4.5e33", "4.5e33"),
        ("010_2", "010_2"),
    ],
)
def test_a_gold_answer_is_brought_into_one_form(given: Any, gold: str) -> None:
    assert gold_answer(given) == gold


def test_an_answer_behind_a_marker_is_cut_out() -> None:
    assert gold_answer("48/2 = 24. 48+24 = 72.\n#### 072", after="####") == "72"


# Rows


def test_rows_become_problems(mirror: Path) -> None:
    checksum = hashlib.sha256(lines(ROWS)).hexdigest()
    first, second = benchmark_problems("sums", entry(), mirror)
    assert (first.problem, first.answer, first.kind) == ("What is 1+1?", "2", "math")
    assert (second.answer, second.source) == ("5", "mirror:sums.jsonl")
    assert second.revision == f"sha256:{checksum}"


def test_an_id_made_from_the_problem_does_not_hang_on_its_place(mirror: Path) -> None:
    before = benchmark_problems("sums", entry(), mirror)
    (mirror / "sums.jsonl").write_bytes(lines(ROWS[::-1]))
    after = benchmark_problems("sums", entry(), mirror)
    assert [p.problem_id for p in after] == [p.problem_id for p in before[::-1]]
    # printf 'What is 1+1?' | sha256sum
    digest = hashlib.sha256(b"What is 1+1?").hexdigest()
    assert before[0].problem_id == f"sums-{digest[:12]}"


def test_a_problem_that_stands_twice_gets_two_ids(mirror: Path) -> None:
    (mirror / "sums.jsonl").write_bytes(lines([ROWS[0]] * 2))
    first, second = (p.problem_id for p in benchmark_problems("sums", entry(), mirror))
    assert second == f"{first}-2"


def test_two_rows_of_one_declared_id_are_refused(mirror: Path) -> None:
    (mirror / "sums.jsonl").write_bytes(lines([{**row, "n": 7} for row in ROWS]))
    fields = {"problem": "problem", "answer": "answer", "id": "n"}
    message = fault(lambda: benchmark_problems("sums", entry(fields=fields), mirror))
    assert "two problems have the id 'sums-7', in rows 1 and 2; leave fields.id out" in message


def test_fields_may_be_paths_of_which_the_first_there_counts(tmp_path: Path) -> None:
    rows = [
        {"prompt": [{"content": "a?", "role": "user"}], "gold": {"value": 1}, "level": 3},
        {"prompt": [{"content": "b?", "role": "user"}], "gold": {"value": 2}, "level": 4},
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "sums.parquet")
    fields = {"problem": ["text", "prompt.0.content"], "answer": "gold.value", "level": "level"}
    of_parquet = entry(mirror=[{"path": "sums.parquet", "rows": 2}], fields=fields)
    problems = benchmark_problems("sums", of_parquet, tmp_path)
    assert [(p.problem, p.answer, p.level) for p in problems] == [
        ("a?", "1", "3"),
        ("b?", "2", "4"),
    ]
    assert benchmark_problems("sums", of_parquet, tmp_path, levels=[4]) == problems[1:]
    assert benchmark_problems("sums", of_parquet, tmp_path, first=1) == problems[:1]


def test_a_field_that_is_not_there_is_named_with_those_that_are(mirror: Path) -> None:
    fields = {"problem": "question", "answer": "answer"}
    assert fault(lambda: benchmark_problems("sums", entry(fields=fields), mirror)) == (
        "benchmark 'sums', mirror:sums.jsonl, row 1: no problem under question; the row has "
        "answer, problem; correct fields.problem in config/benchmarks.yaml"
    )


def test_wrapper_filters_and_number_of_problems(mirror: Path) -> None:
    rows = [
        {"problem": "Solve.\n\nWhat is 1+1?\n\nBox it.", "answer": "2"},
        {"problem": "1+1 等于多少？", "answer": "2"},
        {"problem": "Solve.\n\nName a number.\n\nBox it.", "answer": "any"},
    ]
    (mirror / "sums.jsonl").write_bytes(lines(rows))
    changes: dict[str, Any] = {
        "mirror": [{"path": "sums.jsonl"}],
        "wrappers": [{"before": "Please:"}, {"before": "Solve.", "after": "Box it."}],
        "english_only": True,
    }
    texts = [p.problem for p in benchmark_problems("sums", entry(**changes), mirror)]
    assert texts == ["What is 1+1?", "Name a number."]
    only = entry(**changes, numbers_only=True, kept=1)
    assert [p.answer for p in benchmark_problems("sums", only, mirror)] == ["2"]
    more = entry(**changes, kept=3)
    assert "2 problems are left after its filters, but 3 are expected" in fault(
        lambda: benchmark_problems("sums", more, mirror)
    )


def test_numbers_may_have_commas_between_thousands(mirror: Path) -> None:
    answers = ["1,234", "-12,345,678.5", "7", "1,23", "12,34,567", "1,2"]
    (mirror / "sums.jsonl").write_bytes(lines([{"problem": a, "answer": a} for a in answers]))
    numbers = entry(mirror=[{"path": "sums.jsonl"}], numbers_only=True)
    assert [p.answer for p in benchmark_problems("sums", numbers, mirror)] == answers[:3]


def test_a_wrapper_that_some_rows_lack_is_an_error(mirror: Path) -> None:
    wrapped = entry(wrappers=[{"after": "1+1?"}])
    assert "1 of 2 problems stand in the wrapper" in fault(
        lambda: benchmark_problems("sums", wrapped, mirror)
    )


def test_hints_are_the_first_steps_of_solutions(mirror: Path) -> None:
    rows = [{**ROWS[0], "how": "Add 1. Then 2. Done."}, {**ROWS[1], "how": " "}]
    (mirror / "sums.jsonl").write_bytes(lines(rows[:1]))
    fields = {"problem": "problem", "answer": "answer", "solution": "how"}
    copy = [{"path": "sums.jsonl"}]
    hinted = entry(fields=fields, mirror=copy)
    (problem,) = benchmark_problems("sums", hinted, mirror, hints=True)
    assert problem.hint == "Add 1."
    assert [p.hint for p in benchmark_problems("sums", hinted, mirror)] == [""]
    (mirror / "sums.jsonl").write_bytes(lines(rows))
    with pytest.raises(DataError, match=r"1 problems, the first 'sums-.*', have none"):
        benchmark_problems("sums", hinted, mirror, hints=True)


def test_solutions_of_the_data_set_come_along_for_fine_tuning(mirror: Path) -> None:
    (mirror / "sums.jsonl").write_bytes(lines([{**row, "how": "by hand"} for row in ROWS]))
    fields = {"problem": "problem", "answer": "answer", "solution": "how"}
    solved = solved_problems("sums", entry(fields=fields), mirror)
    assert [(row.problem.answer, row.solution) for row in solved] == [
        ("2", "by hand"),
        ("5", "by hand"),
    ]


def test_more_problems_than_there_are_and_unknown_levels_are_errors(mirror: Path) -> None:
    assert "has 2 problems, not first: 3" in fault(
        lambda: benchmark_problems("sums", entry(), mirror, first=3)
    )
    assert "no level 6; its levels: none" in fault(
        lambda: benchmark_problems("sums", entry(), mirror, levels=[6])
    )


# Studies


def add_set(config: Path, **settings: Any) -> None:
    file = config / "studies/smoke.yaml"
    content = yaml.safe_load(file.read_text())
    content["problems"]["public"] = {"source": "benchmark", "title": "Public", **settings}
    file.write_text(yaml.safe_dump(content, sort_keys=False))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"benchmark": "math50"},
            r"problems\.public\.benchmark: 'math50' is not a benchmark of .+benchmarks\.yaml; did "
            r"you mean 'math500'\? Allowed: aime, ",
        ),
        (
            {"benchmark": "aime", "levels": [2023]},
            r"problems\.public\.levels\[0\]: '2023' is not a level of 'aime'; .+ 2024, 2025",
        ),
        ({"benchmark": "aime", "levels": []}, r"problems\.public\.levels: must have 1 or more"),
        ({"benchmark": "aime", "frist": 3}, r"problems\.public\.frist: unknown key; .+ 'first'\?"),
        ({"benchmark": "aime", "levels": [1, 1]}, r"problems\.public\.levels\[1\]: 1 occurs twice"),
    ],
)
def test_a_data_set_that_is_not_there_is_refused_before_any_job(
    config: Path, settings: dict[str, Any], message: str
) -> None:
    add_set(config, **settings)
    with pytest.raises(StudyError, match=message):
        load_study("smoke", config)


def test_a_mistake_in_an_entry_is_named_with_its_file(config: Path) -> None:
    file = config / "benchmarks.yaml"
    content = yaml.safe_load(file.read_text())
    content["math500"]["hub"][0]["revision"] = "main"
    content["aime"]["mirror"][0]["path"] = "../aime.jsonl"
    content["amc23"] = {"fields": {"problem": "p", "answer": "a"}}
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(StudyError) as caught:
        load_study("smoke", config)
    heading, *faults, _ = str(caught.value).splitlines()
    assert heading == f"{file}: 3 faults"
    assert [re.sub(r" \(line \d+\)$", "", fault) for fault in faults] == [
        "  aime.mirror[0]: path must not lead out of its folder, but is '../aime.jsonl'",
        "  amc23: names no file: give hub, mirror or both",
        "  math500.hub[0].revision: must be a commit, 40 hexadecimal digits, so that the files "
        "stay the same, not 'main'",
    ]


def test_a_study_draws_its_data_sets_with_their_entries(
    config: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config / "benchmarks.yaml").write_text(yaml.safe_dump({"sums": entry().model_dump()}))
    add_set(config, benchmark="sums", first=1)
    study = load_study("smoke", config)
    assert study.benchmarks == {"sums": entry()}
    monkeypatch.setenv("SAGE_MIRROR", str(mirror))
    (problem,) = draw_problems("public", study.problem_set("public"))
    assert problem.problem == "What is 1+1?"


# The public files


def public(name: str, **options: Any) -> list[Problem]:
    content = yaml.safe_load((ROOT / "config/benchmarks.yaml").read_text())
    return benchmark_problems(
        name, Benchmark.model_validate(content[name]), Path(str(MIRROR)), **options
    )


@needs_files
@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("aime", {}, 60),
        ("aime", {"levels": [2025]}, 30),
        ("amc23", {}, 40),
        ("math500", {}, 500),
        ("math500", {"levels": [5]}, 134),
        ("minerva", {}, 272),
        ("dapo_math_17k", {}, 14_116),
        ("dapo_math_17k", {"first": 2000}, 2000),
        ("knights_and_knaves", {"levels": [3, 4, 5]}, 300),
    ],
)
def test_the_public_files_have_the_known_number_of_problems(
    name: str, options: dict[str, Any], count: int
) -> None:
    found = public(name, **options)
    assert len(found) == count
    assert len({problem.problem_id for problem in found}) == count


@needs_files
def test_answers_of_the_public_files_are_in_one_form() -> None:
    for name in ("aime", "amc23", "dapo_math_17k"):
        for problem in public(name):
            assert re.fullmatch(r"0|-?[1-9]\d*", problem.answer), problem
    assert not any("boxed" in problem.answer for problem in public("minerva"))
    assert {p.answer for p in public("amc23")} >= {"27", "-1"}
    for problem in public("knights_and_knaves", levels=[3, 4, 5]):
        assignment = parse_assignment(problem.answer)
        assert assignment is not None
        assert len(assignment) == int(problem.level)


@needs_files
def test_the_training_set_is_english_and_without_its_wrapper() -> None:
    for problem in public("dapo_math_17k"):
        assert not re.search("[一-鿿]", problem.problem)
        assert not problem.problem.startswith("Solve the following math problem step by step")
        assert "Remember to put your answer" not in problem.problem


# Files of one's own


def own(file: Path, **settings: object) -> FileSet:
    given = {"source": "file", "title": "t", "file": str(file)}
    return FileSet.model_validate(given | settings)


def test_cluster_0_is_a_cluster_and_decimals_are_answers(tmp_path: Path) -> None:
    rows = [{"problem": f"q{i}", "answer": Decimal(f"{i}.5"), "template": i // 2} for i in range(4)]
    pd.DataFrame(rows).to_parquet(tmp_path / "own.parquet")
    problems = own(tmp_path / "own.parquet", fields={"cluster": "template"}).problems("own")
    assert [one.cluster for one in problems] == ["0", "0", "1", "1"]
    assert [one.answer for one in problems] == ["0.5", "1.5", "2.5", "3.5"]


def test_a_decimal_comma_is_refused_where_semicolons_separate(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("problem;answer\na;2\nb;-1,5\n")
    with pytest.raises(DataError, match=r"'-1,5' can be one number or two; write '-1.5' or '-1, "):
        own(file).problems("own")
    for text in ('problem,answer\na,2\nb,"-1,5"\n', "problem;answer\na;2\nb;-1, 5\n"):
        file.write_text(text)
        assert own(file).problems("own")[1].answer.replace(" ", "") == "-1,5"


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_short_floats_of_parquet_are_as_they_print(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"problem": ["a", "b", "c"], "answer": [0.5, 3.75, 2.0]})
    frame["answer"] = (frame["answer"] / 5).astype(kind)
    frame.to_parquet(tmp_path / "own.parquet")
    answers = [one.answer for one in own(tmp_path / "own.parquet").problems("own")]
    assert answers == ["0.1", "0.75", "0.4"]


def test_an_answer_without_what_it_stands_behind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("problem,answer\na,2 + 2. #### 4\nb,3. ### 3\n")
    with pytest.raises(DataError, match="row 2: the answer does not hold '####'"):
        own(file, answer_after="####").problems("own")
    file.write_text("problem,answer\na,2 + 2. #### 4\n")
    assert own(file, answer_after="####").problems("own")[0].answer == "4"


def test_a_copy_in_the_mirror_is_known_by_its_files_and_not_by_when_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_MIRROR", str(tmp_path))
    folder, hidden = tmp_path / "a/b", tmp_path / "a/b/.cache/huggingface"
    hidden.mkdir(parents=True)
    hub = HubSet.model_validate({"source": "hub", "title": "t", "repository": "a/b"})

    def known(train: str, test: str, came: str) -> list[str]:
        (folder / "train.jsonl").write_text(train)
        (folder / "test.jsonl").write_text(test)
        (hidden / "train.metadata").write_text(came)
        return hub.sums()

    before = known("one", "two", "yesterday")
    assert known("one", "two", "today") == before
    assert known("two", "one", "today") != before


def test_a_field_that_the_first_row_lacks_is_found(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    rows = [{"problem": "a", "answer": 1}, {"problem": "b", "answer": 2, "tag": "hard"}]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    problems = own(file, fields={"level": "tag"}).problems("own")
    assert [one.level for one in problems] == ["", "hard"]
