"""Problem sets from tasks of reasoning-gym: drawing, scoring, hostile answers, what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import ROOT

from sage.exhibits import load_study
from sage.grading import MAX_GRID, Grader
from sage.grading.reasoning_gym_worker import EVALUATING, is_formula, is_list
from sage.problems import reasoning_gym as source
from sage.problems.reasoning_gym import Gold, reasoning_gym_problems
from sage.problems.reasoning_gym_tasks import Task
from sage.problems.record import Problem, readable_gold, split_of
from sage.problems.sets import draw_problems
from sage.results import Results
from sage.study import StudyError
from sage.tools.check import sources

pytestmark = [pytest.mark.timeout(900)]

SUMS: dict[str, Any] = {
    "source": "reasoning_gym",
    "title": "Sums",
    "task": "chain_sum",
    "settings": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
    "count": 12,
    "seed": 5,
    "split": "test",
}


@pytest.fixture(scope="module")
def installed() -> None:
    """Skips, and says why, without the extra."""
    pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")


@pytest.fixture(scope="module")
def sums(installed: None) -> list[Problem]:
    return draw_problems("sums", SUMS)


@pytest.fixture(scope="module")
def grader(installed: None) -> Any:
    with Grader(workers=1) as grader:
        yield grader


def graded(grader: Grader, problem: Problem, answer: str) -> str:
    completion = f"<SOLUTION>{answer}</SOLUTION>"
    return grader.grade(completion, problem.answer, problem.kind).status


def test_problems_are_different_of_their_split_and_the_same_again(sums: list[Problem]) -> None:
    assert len({problem.problem for problem in sums}) == 12
    assert {split_of(problem.problem) for problem in sums} == {"test"}
    assert {problem.level for problem in sums} == {"chain_sum"}
    assert sums[0].source.startswith("reasoning-gym 0.1.")
    train = draw_problems("sums", {**SUMS, "split": "train", "count": 5})
    assert not {p.problem for p in train} & {p.problem for p in sums}
    assert draw_problems("sums", SUMS) == sums


def test_the_tasks_own_scorer_decides(sums: list[Problem], grader: Grader) -> None:
    for problem in sums[:3]:
        left, sign, right = problem.problem.split("=")[0].split(":")[-1].split()
        value = int(left) + int(right) if sign == "+" else int(left) - int(right)
        assert readable_gold(problem.answer, problem.kind) == str(value)
        assert graded(grader, problem, str(value)) == "correct"
        assert graded(grader, problem, str(value + 1)) == "wrong"
    assert grader.grade("no block", sums[0].answer, "reasoning_gym").status == "unparsed"


def test_any_answer_that_solves_a_task_counts(installed: None, grader: Grader) -> None:
    settings = {"min_numbers": 3, "max_numbers": 3, "min_target": 1, "max_target": 99}
    (problem,) = reasoning_gym_problems("c", "countdown", settings, 1, 3, "test")
    formula = readable_gold(problem.answer, problem.kind)
    assert graded(grader, problem, formula) == "correct"
    assert graded(grader, problem, f"({formula})+0") == "wrong"  # 0 is none of its numbers
    assert graded(grader, problem, f"0*({formula})") == "wrong"
    lenient = json.dumps({**json.loads(problem.answer), "correct_from": 0.04})
    half = Problem(**{**problem.__dict__, "answer": lenient})
    assert graded(grader, half, f"0*({formula})") == "correct"  # which the scorer gives 0.05


HOSTILE = [
    "__import__('os').system('touch {mark}')",
    "[__import__('os').system('touch {mark}')]",
    "[c for c in ().__class__.__base__.__subclasses__()][0]('{mark}')",
    "(lambda: open('{mark}', 'w'))()",
    "open('{mark}','w').write('x')",
    'S(\'open("{mark}","w")\')',
    "[1].append(open(r'{mark}','w'))",
    "(" * 300,
    "x" * (MAX_GRID + 1),
    "\x00\ud800",
]


@pytest.mark.slow  # reasoning-gym takes ten seconds to import, here and in two workers
def test_hostile_answers_are_neither_run_nor_correct(installed: None, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    tasks = {task: {} for task in EVALUATING} | {
        "n_queens": {"n": 5, "min_remove": 1, "max_remove": 2},
        "chain_sum": {},
    }
    golds = {}
    for task, given in tasks.items():
        drawn = [
            Gold(**gold, correct_from=1.0)
            for _, gold in source.draw(task, json.dumps(given), 3, 3, "test")
        ]
        golds[task] = next(gold for gold in drawn if "Integral" not in gold.answer)
    with Grader(limit_seconds=2.0, workers=1) as grader:
        for task, gold in golds.items():
            for answer in HOSTILE:
                completion = f"<SOLUTION>{answer.replace('{mark}', str(mark))}</SOLUTION>"
                found = grader.grade(completion, gold.text(), "reasoning_gym").status
                assert found in ("wrong", "unparsed", "gold_unparsed"), (task, answer)
        tower = "<SOLUTION>9**9**9**9**9</SOLUTION>"
        endless = grader.grade(tower, golds["countdown"].text(), "reasoning_gym").status
        assert endless in ("timeout", "wrong")
    with Grader(limit_seconds=60.0, workers=1) as grader:  # whatever else the machine does
        for task, gold in golds.items():
            right = f"<SOLUTION>{gold.answer}</SOLUTION>"
            assert grader.grade(right, gold.text(), "reasoning_gym").status == "correct", task
    assert not mark.exists()


def test_lists_and_formulas_are_let_through_and_nothing_that_calls() -> None:
    assert is_list("[[0, 1], [1, 0]]")
    assert is_list("['a', \"b\"]")
    assert not is_list("[f(1)]")
    assert not is_list("{1: 2}")
    assert is_formula("2*(3+4)/x - sin(x)**2 + C")
    assert not is_formula("x.y")
    assert not is_formula("f'a'")
    assert not is_formula("eval(1)")
    assert not is_formula("a_b")
    assert not is_formula("x . real")


SPY = """
import sys, random
from typing import get_args
from sage.problems.reasoning_gym_tasks import Task
from sage.grading.reasoning_gym_worker import EVALUATING
import reasoning_gym
from reasoning_gym.factory import DATASETS

known = set(get_args(Task))
assert known == set(DATASETS) - {"composite"}, known ^ set(DATASETS)
seen = set()
def spy(event, arguments):
    if event in ("compile", "exec") and b"zqx" in repr(arguments).encode():
        seen.add(task)
sys.addaudithook(spy)
for task in sorted(known):
    dataset = reasoning_gym.create_dataset(task, seed=3, size=2)
    entry = dataset[0]
    for answer in ("zqx", "[zqx]", "[[zqx]]", "zqx+1", "['zqx']", "zqx zqx", "zqx,zqx"):
        try:
            dataset.score_answer(answer, entry)
        except Exception:
            pass
print()
print(sorted(seen ^ set(EVALUATING)))
"""


@pytest.mark.slow
def test_every_task_is_listed_and_those_that_evaluate_answers_are_known(installed: None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPY], cwd=ROOT, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_scorer_can_write_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from sage.grading.reasoning_gym_worker import refuse\n"
        "sys.addaudithook(refuse)\n"
        "print(len(open('pyproject.toml').read()) > 0)\n"
        "import os\n"
        "for forbidden in (lambda: open(sys.argv[1], 'w'), lambda: os.system('true'),\n"
        "                  lambda: os.open(sys.argv[1], 65)):\n"
        "    try: forbidden()\n"
        "    except PermissionError: print('refused')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mark")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["True", *["refused"] * 3], done.stderr
    assert not (tmp_path / "mark").exists()


def test_an_entry_that_is_another_one_now_is_a_fault_of_the_gold(
    sums: list[Problem], grader: Grader
) -> None:
    gold = Gold.parse(sums[0].answer)
    other = Gold(**{**gold.__dict__, "index": gold.index + 1})
    verdict = grader.grade("<SOLUTION>1</SOLUTION>", other.text(), "reasoning_gym")
    assert verdict.status == "gold_unparsed"
    with pytest.raises(ValueError, match="generates another entry"):
        other.entry()


def test_wrong_settings_are_named_with_those_there_are(installed: None) -> None:
    with pytest.raises(ValueError, match=r"chain_sum refuses .*terms_min.*it has .*min_terms"):
        reasoning_gym_problems("x", "chain_sum", {"terms_min": 2}, 2, 1, "test")
    few = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(ValueError, match=r"only \d+ of 500 different problems"):
        reasoning_gym_problems("x", "chain_sum", few, 500, 1, "test")


def test_a_study_names_a_task_and_check_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study = load_study("tasks", ROOT / "config")
    find_spec = sources.importlib.util.find_spec
    hidden = {"reasoning_gym"}
    monkeypatch.setattr(
        sources.importlib.util,
        "find_spec",
        lambda name, *rest: None if name in hidden else find_spec(name, *rest),
    )
    findings = [
        finding
        for finding in sources.source_findings(study, Results(tmp_path))
        if finding.what.startswith("problems ")
    ]
    assert [f.state for f in findings] == ["failed"] * 4
    assert all("--extra reasoning-gym" in f.way_out for f in findings)
    with pytest.raises(ModuleNotFoundError, match="--extra reasoning-gym"):
        source.check_installed()
    hidden.clear()
    text = (ROOT / "config/studies/tasks.yaml").read_text()
    for wrong, message in [("task: chain_sums", "chain_sum"), ("settings: {seed: 1}", "own seed")]:
        key = wrong.split(":")[0]
        old = next(line.strip() for line in text.splitlines() if line.strip().startswith(key + ":"))
        file = tmp_path / "mine.yaml"
        file.write_text(text.replace(old, wrong, 1))
        with pytest.raises(StudyError, match=message):
            load_study(str(file), ROOT / "config")


def test_sums_of_this_project_need_no_such_package() -> None:
    code = (
        "import sys; sys.modules['reasoning_gym'] = None\n"
        "from sage.problems.sets import draw_problems\n"
        "from sage.grading import Grader\n"
        "(p,) = draw_problems('s', dict(source='arithmetic', title='', count=1, seed=1,"
        " split='test', min_terms=2, max_terms=3, max_digits=1, running_total='any'))\n"
        "print(Grader().grade(f'<SOLUTION>{p.answer}</SOLUTION>', p.answer, p.kind).status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "correct", done.stderr


def test_readme_lists_every_task() -> None:
    text = (ROOT / "config/README.md").read_text()
    assert all(f"`{task}`" in text for task in get_args(Task))
