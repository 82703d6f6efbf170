"""Tasks of a user's own: what is refused, how they are graded, and a study of one to its page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, copy_project, snakemake_in
from pydantic import TypeAdapter

from sage.evaluation.chance import chance_level, checks_working
from sage.evaluation.counts import counts_table
from sage.faults import validated
from sage.problems.record import DataError, Problem, read_problems, write_problems
from sage.runtime.files import file_sum
from sage.study import Algorithm
from sage.tasks import Grader, ProblemSet, draw_problems, own_kinds, task_files, task_of
from sage.training.checkpoints import sources

EXAMPLES = re.findall(r"```python\n(.+?)```", (ROOT / "config/README.md").read_text(), re.S)
COUNTDOWN, UNIT_TESTS = (
    next(text for text in EXAMPLES if f"class {name}" in text)
    for name in ("Countdown", "UnitTests")
)
FAULTY = """
class Bound:
    def problems(self):
        return [{"problem": "a"}]
    def settle(self, gold, answer):
        return True

class Mute:
    def problems(self):
        return []

class Odd:
    rows: int = 1
    def __init__(self, row: str = "answer"):
        self.row = row
    def problems(self):
        return [{"problem": "a", self.row: 7}]
    @staticmethod
    def settle(gold, answer):
        return {"yes": True, "no": False}.get(answer) if answer != "stop" else 1 / 0
    @staticmethod
    def working(problem, working, answer):
        return working.startswith(problem)
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tasks of the documentation, and with faulty ones."""
    texts = {"my_tasks": COUNTDOWN, "my_code": UNIT_TESTS, "my_faults": FAULTY}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def countdown(**settings: Any) -> list[Problem]:
    section = {"source": "my_tasks:Countdown", "title": "Countdown", "settings": settings}
    return draw_problems("made", section)


def test_the_example_of_the_documentation_is_short() -> None:
    assert len([line for line in COUNTDOWN.splitlines() if line.strip()]) <= 32


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"source": "my_tasks:Nothing"}, r"source: .+ cannot be imported \(AttributeError"),
        ({"source": "my_faults:Mute"}, "has no method settle that takes gold, answer"),
        ({"source": "my_faults:Bound"}, "source: .+ must be a @staticmethod"),
        ({"source": "os:system"}, "not a class; a task is"),
        ({"source": "my_tasks:Countdown", "settings": {"counts": 3}}, "did you mean 'count'"),
        (
            {"source": "my_tasks:Countdown", "settings": {"count": "3"}},
            "settings.count: must be",
        ),
        ({"source": "my_tasks:Countdown", "settings": [3]}, "settings: must be a mapping"),
        ({"source": "my_tasks:Countdown", "count": 3}, "count: unknown key"),
        ({"source": "countdown"}, "'countdown' is not allowed"),
    ],
)
def test_what_is_no_task_is_refused(section: dict[str, Any], message: str) -> None:
    _, faults = validated(ProblemSet, {"title": "x", **section})
    assert re.search(message, "; ".join(faults))


def test_a_section_is_dumped_and_read_as_it_stands() -> None:
    section = {"source": "my_tasks:Countdown", "title": "x", "settings": {"count": 3}}
    adapter: TypeAdapter[Any] = TypeAdapter(ProblemSet)
    assert adapter.dump_python(adapter.validate_python(section)) == section


def test_problems_are_drawn_from_the_class_and_kept_in_their_file(tmp_path: Path) -> None:
    train, test = countdown(count=30), countdown(count=30, split="test")
    assert not {p.problem for p in train} & {p.problem for p in test}
    write_problems(train, tmp_path / "made.jsonl")
    assert read_problems(tmp_path / "made.jsonl") == train
    assert {p.kind for p in train} == {p.source for p in train} == {"my_tasks:Countdown"}
    with pytest.raises(DataError):
        draw_problems("x", {"source": "my_faults:Odd", "title": "x", "settings": {"row": "y"}})


@pytest.mark.parametrize(
    ("kind", "gold", "answer", "status"),
    [
        ("my_tasks:Countdown", "10 = 2 3 4", "2*3+4", "correct"),
        ("my_tasks:Countdown", "10 = 2 3 4", "(4) + 3*2", "correct"),
        ("my_tasks:Countdown", "10 = 2 3 4", "2+3+4", "wrong"),
        ("my_tasks:Countdown", "10 = 2 3 4", "10", "wrong"),
        ("my_tasks:Countdown", "10 = 2 3 4", "2**3+4", "unparsed"),
        ("my_tasks:Countdown", "10 = 2 3 4", "2*(3+4", "unparsed"),
        ("my_tasks:Countdown", "10 = 2 3 4", "ten", "unparsed"),
        ("my_faults:Odd", "x", "yes", "correct"),
        ("my_faults:Odd", "x", "no", "wrong"),
        ("my_code:UnitTests", "assert add(2, 3) == 5", "def add(a, b): return a + b", "correct"),
        ("my_code:UnitTests", "assert add(2, 3) == 5", "def add(a, b): return a", "wrong"),
        ("my_code:UnitTests", "assert add(2, 3) == 5", "raise SystemExit(0)", "wrong"),
        ("my_code:UnitTests", "assert add(2, 3) == 5", "x = bytearray(2**30)", "wrong"),
        ("my_code:UnitTests", "assert f()", "import time; time.sleep(9)", "timeout"),
        ("my_code:UnitTests", "assert f()", "f" * 5000, "unparsed"),
    ],
)
def test_answers_get_the_statuses_of_the_class(
    kind: str, gold: str, answer: str, status: str
) -> None:
    verdict = Grader(find_answer=str).grade(answer, gold, kind)
    assert verdict.status == status


@pytest.mark.parametrize(("answer", "message"), [("stop", "ZeroDivisionError"), ("x", "None")])
def test_a_checker_that_fails_ends_the_run(answer: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grader(find_answer=str).grade(answer, "x", "my_faults:Odd")


@pytest.mark.parametrize("kind", ["sudoku", "my_faults:Bound", "nowhere_at_all:Task"])
def test_an_unknown_kind_is_refused_where_its_chance_is_asked(kind: str) -> None:
    if ":" not in kind:
        with pytest.raises(ValueError, match="sudoku"):
            Problem("1", "a", "b", kind, "", "x", "1")
        return
    problems = [Problem(str(i), "a", f"b{i}", kind, "", kind, "1") for i in range(2)]
    for ask in (lambda: chance_level([{}, {}], problems, 1, np.array([1])), lambda: task_of(kind)):
        with pytest.raises(ValueError, match=re.escape(kind)):
            ask()
    with pytest.raises(ValueError, match=re.escape(kind)):
        checks_working(problems)


def test_the_chance_level_asks_the_checker_of_other_problems() -> None:
    """Of two samples of the first, `2*3+4` also makes the 10 of the third from the same numbers."""
    golds = ["10 = 2 3 4", "9 = 2 3 4", "10 = 4 3 2"]
    problems = [
        Problem(str(i), "a", gold, "my_tasks:Countdown", "", "x", "1")
        for i, gold in enumerate(golds)
    ]
    levels = chance_level([{"2*3+4": 1, "2+3+4": 1}, {}, {}], problems, 2, np.array([1]))
    np.testing.assert_allclose(levels[0], [1 / 2])
    code = [Problem(str(i), "a", f"{i}", "my_code:UnitTests", "", "x", "1") for i in range(2)]
    assert np.isnan(chance_level([{"0": 1}, {}], code, 1, np.array([1]))).all()


def test_working_counts_where_the_class_can_check_it() -> None:
    problems = [Problem("0", "a", "x", "my_faults:Odd", "", "my_faults:Odd", "1")]
    frame = pd.DataFrame(
        {
            "problem_id": ["0"] * 3,
            "status": ["correct", "correct", "wrong"],
            "completion": ["a steps", "b", "a"],
            "answer": ["yes", "yes", "no"],
        }
    )
    run = ("m", "grpo", 1, "made")
    assert counts_table({run: frame}, problems)["worked"].tolist() == [1.0]
    assert not checks_working(countdown(count=1))


def test_the_file_of_a_task_counts_with_a_run(own: Path, parent: Path) -> None:
    file = own / "my_tasks.py"
    assert {file} == task_files(["my_tasks:Countdown"]) - set((ROOT / "sage").rglob("*.py"))
    row = {"title": "x", "loss": "grpo", "kl": "none"}
    problems = countdown(count=2)
    files = task_files(own_kinds(problems))
    made = sources(parent, problems, Algorithm.model_validate(row), None, files)
    assert file_sum(file) in made["code"]


STUDY = """
extends: smoke
title: Countdown
claims: {others: null}
problems:
  others: null
  countdown_train: {source: "my_tasks:Countdown", title: For RL, settings: {count: 16}}
  countdown: {source: "my_tasks:Countdown", title: Countdown, settings: {count: 6, split: test}}
models:
  others: null
  tiny: {algorithms: [grpo], benchmarks: [countdown], rl: {problems: countdown_train, steps: 2}}
exhibits:
  others: null
  table1: {kind: accuracy, title: Accuracy, model: tiny}
"""


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(4000)
def test_a_study_of_ones_own_task_goes_from_problems_to_page(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "sage")
    (project / "mine").mkdir()
    (project / "mine/my_tasks.py").write_text(COUNTDOWN, encoding="utf-8")
    (project / "mine/countdown.yaml").write_text(STUDY, encoding="utf-8")
    snakemake, study = snakemake_in(project), ("--config", "study=mine/countdown.yaml")
    done = snakemake("--cores", "2", *study)
    assert done.returncode == 0, done.stdout
    results = project / "results/countdown"
    counts = pd.read_parquet(results / "metrics/counts.parquet")
    assert set(counts["algorithm"]) == {"base", "grpo"}
    assert counts["chance"].map(lambda each: np.isfinite(each).all()).all()
    pairs = pd.read_csv(results / "metrics/contamination/pairs.csv")
    assert list(pairs.columns)[:2] == ["training", "training_id"]
    page = (results / "report/index.html").read_text(encoding="utf-8")
    assert "my_tasks:Countdown" in page
    again = snakemake("--dry-run", *study)
    assert "Nothing to be done" in again.stdout
    assert snakemake("plan", "--cores", "1", *study).returncode == 0
    with open(project / "mine/my_tasks.py", "a", encoding="utf-8") as file:
        file.write("\n# another thought\n")
    planned = snakemake("--dry-run", *study).stdout
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", planned, re.M))
    assert (jobs["problems"], jobs["rl"], jobs["sample"]) == ("2", "1", "2")
    assert not {"pretrain", "sft"} & jobs.keys()
