"""The grader on every benchmark's golds, on pairs settled by hand, and on hostile text.

The real benchmark files are looked for in the folder named by SAGE_MIRROR.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage.grading import MAX_ANSWER, STATUSES, Grader, Verdict
from sage.grading.math_verify_worker import compare
from sage.grading.quantities import read_quantity
from sage.grading.serving import MEMORY_BYTES
from sage.grading.tidy import is_balanced, tidy
from sage.grading.workers import Workers
from sage.problems.arithmetic import arithmetic_problems
from sage.prompting import TAGS

MIRROR = os.environ.get("SAGE_MIRROR")
needs_mirror = pytest.mark.skipif(
    MIRROR is None, reason="SAGE_MIRROR names no folder of benchmark files"
)
PAIRS = Path(__file__).with_name("grading_pairs.yaml")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2) as shared:
        yield shared


def block(answer: str) -> str:
    return f"so it is<end_working_out><SOLUTION>{answer}</SOLUTION>"


def statuses(grader: Grader, pairs: list[tuple[str, str]], **options: bool) -> list[str]:
    """The status of each (gold, answer)."""
    samples = [(block(answer), gold, "math") for gold, answer in pairs]
    return [verdict.status for verdict in grader.grade_many(samples, **options)]  # type: ignore[arg-type]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


# Golds


def rows(file: str) -> list[dict[str, Any]]:
    assert MIRROR is not None
    with open(Path(MIRROR) / file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def last_boxed(solution: str) -> str:
    start = solution.rindex(r"\boxed{") + len(r"\boxed{")
    depth, end = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(solution[end], 0)
        end += 1
    return solution[start : end - 1]


def golds(benchmark: str) -> list[str]:
    if benchmark == "aime":
        files = ("aime2024_gair", "aime2025_I_gair", "aime2025_II_gair")
        return [str(row["answer"]) for file in files for row in rows(f"{file}.jsonl")]
    if benchmark == "minerva":
        return [last_boxed(row["solution"]) for row in rows("minerva_math_qwen.jsonl")]
    file = {"amc23": "amc23_qwen", "math500": "math500_prm800k_split"}[benchmark]
    return [str(row["answer"]) for row in rows(f"{file}.jsonl")]


SIZES = {"aime": 60, "amc23": 40, "math500": 500, "minerva": 272}
WAYS = {
    "tight": "<SOLUTION>{}</SOLUTION>",
    "spaced": "<SOLUTION> {} </SOLUTION>",
    "dollars": "<SOLUTION>${}$</SOLUTION>",
    "boxed": "<SOLUTION>\\boxed{{{}}}</SOLUTION>",
}


@needs_mirror
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("benchmark", SIZES)
def test_every_gold_is_correct_against_itself(grader: Grader, benchmark: str, way: str) -> None:
    answers = golds(benchmark)
    verdicts = grader.grade_many([(WAYS[way].format(gold), gold, "math") for gold in answers])
    refused = [g for g, v in zip(answers, verdicts, strict=True) if v.status != "correct"]
    assert refused == []
    assert len(answers) == SIZES[benchmark]


UNREADABLE = {
    "np.arcsin(10/13)",
    r"\frac{dM}{dt}=\frac{10^{5} L_{\odot}}{0.007 c^{2} M_{\odot}^{6}} M^{6}",
    r"\hbar \omega(v+1 / 2)-\frac{E_{0}^{2} e^{2}}{2 m \omega^{2}}",
    "E_{1},E_{2}",
}


@needs_mirror
@pytest.mark.parametrize(("benchmark", "unreadable"), [("math500", set()), ("minerva", UNREADABLE)])
@pytest.mark.slow
def test_golds_that_can_only_be_matched_letter_by_letter(
    grader: Grader, benchmark: str, unreadable: set[str]
) -> None:
    # Against another answer a gold has to be read, not only matched letter by letter.
    answers = [gold for gold in golds(benchmark) if read_quantity(tidy(gold)) is None]
    found = statuses(grader, [(gold, r"\sqrt{7919}") for gold in answers])
    assert {g for g, s in zip(answers, found, strict=True) if s == "gold_unparsed"} == unreadable


@needs_mirror
def test_every_gold_of_the_training_set_is_correct_in_tight_form() -> None:
    assert MIRROR is not None
    table = pd.read_parquet(Path(MIRROR) / "dapo_math_17k_steer.parquet").head(2_000)
    answers = [str(model["ground_truth"]) for model in table["reward_model"]]
    before = children()
    with Grader() as grader:
        assert statuses(grader, [(gold, gold) for gold in answers]) == ["correct"] * 2_000
        assert "correct" not in statuses(grader, [(gold, gold + "1") for gold in answers])
        assert children() == before  # integers need no process


# Pairs


def pairs_of(table: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [
        (gold, answer, verdict == "equal")
        for name, group in table.items()
        if name != "disagreements"
        for verdict, pairs in group.items()
        for gold, answer in pairs
    ]


@pytest.mark.slow
def test_tricky_pairs_are_judged_as_mathematics_does_but_for_the_known_ones(
    grader: Grader,
) -> None:
    table = yaml.safe_load(PAIRS.read_text(encoding="utf-8"))
    pairs = pairs_of(table)
    found = statuses(grader, [(gold, answer) for gold, answer, _ in pairs])
    assert set(found) <= {"correct", "wrong", "unparsed"}
    wrong = [
        [gold, answer]
        for (gold, answer, equal), status in zip(pairs, found, strict=True)
        if (status == "correct") != equal
    ]
    assert wrong == table["disagreements"]
    assert len(wrong) / len(pairs) < 0.01


def test_the_pairs_are_many_different_and_of_both_kinds() -> None:
    pairs = pairs_of(yaml.safe_load(PAIRS.read_text(encoding="utf-8")))
    assert len({(gold, answer) for gold, answer, _ in pairs}) == len(pairs) >= 400
    assert min(Counter(equal for *_, equal in pairs).values()) >= 150


def test_math_verify_alone_misjudges_what_the_normalisation_mends() -> None:
    assert compare("1e-8", r"\frac{1}{100000000}") == "wrong"
    assert compare("42", "42.") != "correct"


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("42", "42", "correct"),
        ("42", "43", "wrong"),
        ("42", "?!", "unparsed"),
        ("42", r"\frac{42", "unparsed"),
        ("42", "4" * (MAX_ANSWER + 1), "unparsed"),
        ("np.arcsin(10/13)", "0.877", "gold_unparsed"),
        ("np.arcsin(10/13)", "np.arcsin(10/13)", "correct"),
    ],
)
def test_each_status_has_its_cause(grader: Grader, gold: str, answer: str, status: str) -> None:
    verdict = grader.grade(block(answer), gold, "math")
    assert verdict == Verdict(status, answer[:MAX_ANSWER])  # type: ignore[arg-type]
    assert verdict.reward == (status == "correct")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        *((right, "correct") for right in ("26", "26.0", "x=26", r"\boxed{26}", "26 apples")),
        *((right, "correct") for right in ("The answer is 26.", "10+7+10-1=26", "$20+6=26$")),
        *((wrong, "wrong") for wrong in ("27", "10+7+10-1=27", "26=10+7+10-1", "2*13", "26+0")),
        ("?!", "unparsed"),
    ],
)
def test_where_a_number_is_asked_for_nothing_is_worked_out(answer: str, status: str) -> None:
    with Grader(workers=1) as alone:
        assert alone.grade(block(answer), "26", "number").status == status


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        *((right, "correct") for right in ("0", "x=0", "5-5=0", "3-5+2=0", "$10-9-1=0$")),
        *((wrong, "wrong") for wrong in ("5-5", "0=5-5", "3-5=-2", "5-4=1=0", r"5 \geq 0")),
        *((wrong, "wrong") for wrong in ("5>=0", "5!=0", "4<5=0")),
    ],
)
def test_where_the_number_is_0_an_equation_may_end_in_it(answer: str, status: str) -> None:
    with Grader(workers=1) as alone:
        assert alone.grade(block(answer), "0", "number").status == status


def test_a_sum_does_not_answer_itself() -> None:
    sums = arithmetic_problems("sums", 50, 1, 2, 5, 1, "any", "train")
    with Grader(workers=1) as alone:
        for problem in sums:
            expression = problem.problem.removeprefix("Calculate ").rstrip(".")
            for copied in (problem.problem, expression, rf"\boxed{{{expression}}}"):
                assert alone.grade(block(copied), problem.answer, problem.kind).reward == 0
            assert alone.grade(block(problem.answer), problem.answer, problem.kind).reward == 1


def test_without_a_solution_block_there_is_no_answer(grader: Grader) -> None:
    assert grader.grade("The answer is 42.", "42", "math") == Verdict("unparsed", None)


# Processes


MIXED = [
    (gold, answer)
    for gold in (r"\sqrt{8}", "x^2-1", r"7\pi", "(3,4)", r"[1,2]\cup[3,4]")
    for answer in (r"2\sqrt{2}", "(x-1)(x+1)", r"\pi \cdot 7", "(3, 4)", r"[3,4]\cup[1,2]", "9")
]


@pytest.mark.slow
def test_verdicts_depend_neither_on_the_order_nor_on_the_number_of_workers() -> None:
    shuffled = random.Random(0).sample(MIXED, len(MIXED))
    with Grader(workers=1) as one, Grader(workers=2) as two:
        expected = dict(zip(MIXED, statuses(one, MIXED), strict=True))
        assert dict(zip(shuffled, statuses(two, shuffled), strict=True)) == expected
    assert Counter(expected.values())["correct"] == 5


def test_the_same_question_is_asked_once(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    settle = Workers.outcomes

    def counted(self: Workers, pairs: Any, report: Any) -> Any:
        asked.extend(pairs)
        return settle(self, pairs, report)

    monkeypatch.setattr(Workers, "outcomes", counted)
    pairs = [(r"\sqrt{18}", r"3 \sqrt{2}"), (r"\sqrt{18}", r" $3\sqrt{2}$. ")] * 50
    assert statuses(grader, pairs) == ["correct"] * 100
    assert statuses(grader, pairs) == ["correct"] * 100
    assert len(asked) <= 2


def test_the_bar_counts_new_answers(grader: Grader, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(r"\sqrt{175}", r"5\sqrt{7}"), ("1750", "1750.0"), ("1750", "1750.0")]
    statuses(grader, pairs, progress=True)
    assert "grading: 100%" in (shown := capsys.readouterr().err)
    assert "2/2" in shown
    statuses(grader, [("76", "76")])
    assert capsys.readouterr().err == ""


def test_numbers_words_and_puzzles_start_no_process() -> None:
    before = children()
    with Grader() as grader:
        grader.grade(block("3/4"), "0.75", "math")
        grader.grade(block("Even"), r"\text{even}", "math")
        grader.grade(block("Ann knight"), "Ann knight", "knights")
        assert children() == before


def test_workers_are_reused_bounded_in_memory_and_gone_after_closing() -> None:
    before = children()
    with Grader(workers=1) as grader:
        assert statuses(grader, [(r"\sqrt{8}", r"2\sqrt{2}")]) == ["correct"]
        (worker,) = children() - before
        if sys.platform == "linux":
            assert psutil.Process(worker).rlimit(psutil.RLIMIT_AS) == (MEMORY_BYTES,) * 2
        assert statuses(grader, [(r"\sqrt{8}", r"3\sqrt{2}")]) == ["wrong"]
        assert children() - before == {worker}
    assert children() == before


TOWER = "x^{9^{9^{9^9}}}"


def test_a_comparison_without_end_is_a_timeout_and_its_worker_is_replaced() -> None:
    with Grader(limit_seconds=0.5, workers=1) as grader:
        assert statuses(grader, [("x", r"\sqrt{x^2+1}")]) == ["wrong"]
        start = time.monotonic()
        assert statuses(grader, [("x+1", TOWER), ("x+1", "1+x")]) == ["timeout", "correct"]
        assert time.monotonic() - start < 30  # the limit, and a new process on a busy machine


@pytest.mark.slow
def test_a_worker_killed_from_outside_changes_no_verdict() -> None:
    before = children()
    with Grader(workers=1) as grader:
        assert statuses(grader, [("x+1", "1+x")]) == ["correct"]
        (idle,) = children() - before
        os.kill(idle, signal.SIGKILL)
        assert statuses(grader, [("x+2", "2+x")]) == ["correct"]

        found: list[str] = []
        slow = r"(x+y+z)^{24}-(x+y+z)^{23}"
        thread = threading.Thread(target=lambda: found.extend(statuses(grader, [(slow, "x+y")])))
        thread.start()
        time.sleep(0.2)
        for busy in children() - before:
            os.kill(busy, signal.SIGKILL)
        thread.join()
    with Grader(workers=1) as undisturbed:
        assert found == statuses(undisturbed, [(slow, "x+y")]) == ["wrong"]


def test_a_worker_stopped_for_longer_than_its_wall_time_keeps_its_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sage.grading.workers._WALL_FACTOR", 2.0)
    before = children()
    with Grader(limit_seconds=0.5, workers=1) as grader:
        assert statuses(grader, [("x+1", "1+x")]) == ["correct"]
        (worker,) = children() - before
        os.kill(worker, signal.SIGSTOP)
        threading.Timer(2.5, os.kill, (worker, signal.SIGCONT)).start()
        assert statuses(grader, [("x+1", "x+2")]) == ["wrong"]
        assert children() - before == {worker}


def test_a_worker_that_neither_computes_nor_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import time; print('\"ready\"', flush=True); time.sleep(600)"
    (tmp_path / "idle_worker.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool = Workers(1, 0.1, "idle_worker")
    try:
        assert pool.outcomes([("1", "2")]) == ["timeout"]
    finally:
        pool.close()


def test_any_thread_may_grade(grader: Grader) -> None:
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = statuses(grader, [(f"x+{number}", f"{number}+x"), ("x", f"x^{number}+1")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: ["correct", "wrong"] for number in range(4)}


@pytest.mark.slow
def test_no_worker_outlives_a_killed_parent() -> None:
    code = (
        "import psutil, time\nfrom sage.grading import Grader\n"
        "Grader(workers=1).grade('<SOLUTION>1+x</SOLUTION>', 'x+1', 'math')\n"
        "keep = Grader(workers=1)\nkeep.grade('<SOLUTION>1+x</SOLUTION>', 'x+1', 'math')\n"
        "print(*[c.pid for c in psutil.Process().children()], flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert workers
        parent.kill()
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_running(pid) for pid in workers)


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="worker did not start; run"):
        Grader().grade(block("1+x"), "x+1", "math")


@pytest.mark.parametrize(("limit", "workers"), [(0.0, 1), (1.0, 0)])
def test_senseless_limits_are_refused(limit: float, workers: int) -> None:
    with pytest.raises(ValueError, match="must both be positive"):
        Grader(limit, workers)


# Hostile text


BOMBS = [
    "9^{9^{9^9}}", TOWER, "10^{9999999}", "1000000!", "((9999!)!)!", r"\binom{10^9}{10^8}",
    r"\sum_{n=1}^{99999999} \frac{1}{n}", "(x+y+z+w)^{60}", r"\sin(x)^{200}(x+1)^{500}",
    r"\frac{" * 40 + "1" + "}{2}" * 40, "(" * 240 + "x" + ")" * 240, "{" * 25 + "x" + "}" * 25,
    "1+" * 240 + "1", "9" * 490, "1/" * 240 + "1", "a" * 499, "^" * 400 + "1", "$" * 499 + "1",
    r"\int x^{x^x} dx", r"\boxed{" * 60, r"\boxed{1}" * 50, "1,234" * 99, "1 000 " * 80 + "!",
    "\\" * 499 + "1", "__import__('os').system('exit 3')", r"\text{" + "a b " * 100 + "}",
    "x>" * 240 + "x", "=".join(["1"] * 240), "√(" * 200 + "1", "<SOLUTION>" * 40, "٣^{٣}", "1e999",
    r"\left" * 90 + "1", r"\begin{pmatrix}" * 30 + "1", "\x00\x01\x02 1", "\u202e42\u202c", "٤٢",
    "\ud800\udfff4", "½" * 400, "1e9999999999", "0." + "3" * 480, "-" * 400 + "1",
    r"0.\overline{" + "3" * 480 + "}", "is " * 160 + "1", "so the " * 70 + "1", "a. A" * 120,
    "(" * 240 + "one" + ")" * 240, "since it is so, " * 30 + "1", "the sum of " * 40 + "1",
    "answer: " * 60, "\\boxed{the " * 40 + "1" + "}" * 40, "and " * 120, "\n \n" * 150 + "is 1",
    "hundred " * 60, "**a" * 160, r"\text{is}" * 55, "that is, where as " * 27, "so, " * 120,
]  # fmt: skip


@pytest.mark.slow
def test_bombs_end_within_their_limits_and_the_next_answer_is_graded() -> None:
    limit = 0.4
    with Grader(limit, workers=2) as grader:
        start = time.monotonic()
        found = statuses(grader, [("x+1", bomb) for bomb in BOMBS])
        assert set(found) <= set(STATUSES) - {"correct", "gold_unparsed"}
        assert "timeout" in found
        assert time.monotonic() - start < 2 * len(BOMBS) * (limit + 2.5)
        assert statuses(grader, [("x+1", "1+x")]) == ["correct"]


@pytest.mark.parametrize(
    "answer",
    ["{" * 10**6, "9" * 10**6, r"\frac{" * 10**5, "<" * 10**6, "\ud800" * 10**6, "1," * 10**6],
    ids=["braces", "digits", "fractions", "tags", "surrogates", "list"],
)
def test_megabytes_are_refused_at_once(grader: Grader, answer: str) -> None:
    start = time.monotonic()
    for completion in (block(answer), f"<SOLUTION>{answer}", answer):
        for kind in ("math", "knights"):
            assert grader.grade(completion, "42", kind).status == "unparsed"  # type: ignore[arg-type]
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("bomb", BOMBS)
def test_normalisation_alone_takes_no_time(bomb: str) -> None:
    start = time.monotonic()
    text = tidy(bomb[:MAX_ANSWER])
    is_balanced(text)
    read_quantity(text)
    assert time.monotonic() - start < 0.5


anything = st.text(alphabet=st.characters(exclude_categories=()), max_size=30)
fragment = st.one_of(
    anything,
    st.sampled_from([*TAGS, "<SOLUTION>", "<SOL", "</", "knight", "Ann", "42", "1e5", r"\frac"]),
    st.sampled_from([r"\boxed{", r"\text{", r"\left(", r"\sqrt", *"-,.%{}$\\^_(] "]),
    st.sampled_from(["\x00", "\u202e", "\ud83d"]),
    st.sampled_from([BOMBS[0], "{" * 5_000, "9" * 20_000, "<SOLUTION>" * 500, "1,234," * 1_000]),
)
fragments = st.lists(fragment, min_size=1, max_size=6).map("".join)
PER_EXAMPLE = 50


@pytest.mark.slow
def test_twenty_thousand_hostile_completions_each_get_a_status() -> None:
    limit, seen = 0.25, Counter[str]()
    answered: list[bool] = []
    with Grader(limit, workers=2) as grader:

        @settings(
            max_examples=20_000 // PER_EXAMPLE,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            completions=st.lists(
                st.tuples(st.sampled_from(["", "<SOLUTION>"]), fragments).map("".join),
                min_size=PER_EXAMPLE,
                max_size=PER_EXAMPLE,
            ),
            gold=st.sampled_from(["42", r"\sqrt{2}", r"\text{even}"]),
            kind=st.sampled_from(["math", "math", "knights"]),
        )
        def grade_all(completions: list[str], gold: str, kind: Any) -> None:
            for verdict in grader.grade_many([(text, gold, kind) for text in completions]):
                assert verdict.status in STATUSES
                assert verdict.answer is None or len(verdict.answer) <= MAX_ANSWER
                seen[verdict.status] += 1
                answered.append(verdict.answer is not None)

        grade_all()
    assert sum(seen.values()) >= 20_000
    assert seen["gold_unparsed"] == 0
    assert sum(answered) > 5_000
    assert seen["wrong"] > 200, seen  # these got as far as being compared


# Knights and Knaves


GOLD = "Ann knight, Bob knave, Cat knave"
TICKS = "| Who | Knight | Knave |\n|:--|:-:|:-:|\n| Ann | ✓ | |\n| Bob | | ✓ |\n| Cat | | ✓ |"


@pytest.mark.parametrize(
    "answer",
    [
        "Ann knight, Bob knave, Cat knave",
        "Cat knave, Ann knight, Bob knave",
        "Ann is a knight, Bob is a knave, and Cat is a knave.",
        "(1) Ann is a knight\n(2) Bob is a knave\n(3) Cat is a knave",
        "- **Ann**: Knight\n- **Bob**: Knave\n- **Cat**: Knave",
        "Ann is a knight; Bob and Cat are knaves",
        "Bob and Cat are both knaves, Ann is a knight",
        "Ann is a knight and Bob, Cat are knaves",
        "Knights: Ann; Knaves: Bob, Cat",
        "The knaves are Bob and Cat, and the knight is Ann.",
        r"\text{Ann: knight, Bob: knave, Cat: knave}",
        "| Name | Role |\n|---|---|\n| Ann | Knight |\n| Bob | Knave |\n| Cat | Knave |",
        "| Ann | knight |\n| Bob | knave |\n| Cat | knave |",
        TICKS,
        TICKS.replace("✓", "yes").replace("| |", "| no |"),
        r"\begin{tabular}{|c|c|}\hline Ann & knight \\ Bob & knave \\ Cat & knave \end{tabular}",
        '{"Ann": "knight", "Bob": "knave", "Cat": "knave"}',
        '{"knights": ["Ann"], "knaves": ["Bob", "Cat"]}',
        '[{"name": "Ann", "role": "knight"}, {"name": "Bob", "role": "knave"}, '
        '{"name": "Cat", "role": "knave"}]',
        "Ann -> knight, Bob -> knave, Cat -> knave",
        "Ann → knight\nBob → knave\nCat → knave",
        r"Ann \rightarrow \text{knight}, Bob \rightarrow \text{knave}, Cat \to \text{knave}",
        "• Ann: knight\n• Bob: knave\n• Cat: knave",
        "### Knights\n- Ann\n### Knaves\n- Bob\n- Cat",
        "**Knights:**\n1. Ann\n\n**Knaves:**\n1. Bob\n2. Cat",
        "Ann is a truth-teller, Bob is a liar, Cat is a liar",
        "Truth tellers: Ann. Liars: Bob, Cat.",
        "Ann is a knight (truth-teller), Bob is a knave (liar), Cat is a knave (lies)",
        "Ann tells the truth, Bob and Cat are lying",
    ],
)
def test_an_assignment_in_any_order_and_wording_is_correct(grader: Grader, answer: str) -> None:
    assert grader.grade(block(answer), GOLD, "knights").status == "correct"


@pytest.mark.parametrize(
    "answer",
    [
        "Ann knight, Bob knave",
        "Ann knight, Bob knave, Cat knight",
        "Ann knight, Bob knave, Cat knave, Dan knight",
        "Ann knight, Bob knave, Cat knave, Ann knave",
        "Ann knight, Bob knave, Cat knave. Or: Ann knave, Bob knight, Cat knight",
        "Ann knight, Bob knave, Cat knave; Ann knight, Bob knave, Cat knave",
        "Ann is a knight and a knave, Bob is a knave, Cat is a knave",
        "Ann and Bob are knights and knaves, Cat is a knave",
        "Ann is a knight, Bob and Cat are not knaves",
        "Ann is a knight, Bob is a knave, Cat is either",
        "Knights: Ann; Knaves: Bob, Cat, Ann",
        "Knights: Ann; Knaves: Bob",
        "All are knaves",
        "42",
        "| Name | Role |\n|---|---|\n| Ann | Knight |\n| Bob | Knave |\n| Cat | Knight |",
        "| Ann | knight | knave |\n| Bob | knave |\n| Cat | knave |",
        TICKS.replace("| Ann | ✓ | |", "| Ann | ✓ | ✓ |"),
        TICKS.replace("| Ann | ✓ | |", "| Ann | | |"),
        '{"Ann": "knight", "Bob": "knave", "Cat": "knave", "Ann": "knave"}',
        '{"knights": ["Ann", "Bob"], "knaves": ["Bob", "Cat"]}',
        '{"knights": [], "knaves": ["Ann", "Bob", "Cat"]}',
        "Ann -> knave, Bob -> knave, Cat -> knave",
        "Ann -> knight or knave, Bob -> knave, Cat -> knave",
        "### Knights\n- Ann\n- Bob\n### Knaves\n- Cat",
        "Ann is a knight (liar), Bob is a knave, Cat is a knave",
        "Ann is a truth-teller, Bob is a liar, Cat is not a liar",
        "Ann is a knight. Bob is lying when he says Cat is a knave",
        "Ann: knight?\nBob: knave\nCat: knave",
    ],
)
def test_partial_doubled_and_contradictory_assignments_are_refused(
    grader: Grader, answer: str
) -> None:
    assert grader.grade(block(answer), GOLD, "knights").status in ("wrong", "unparsed")


def other_role(role: re.Match[str]) -> str:
    return {"knight": "knave", "knave": "knight"}[role[0]]


@needs_mirror
@pytest.mark.parametrize("people", [3, 4, 5])
def test_real_puzzles_accept_their_solution_in_any_order_and_nothing_near_it(
    grader: Grader, people: int
) -> None:
    assert MIRROR is not None
    rng = random.Random(people)
    table = pd.read_parquet(Path(MIRROR) / f"kk_{people}ppl_test_logicrl.parquet")
    assert len(table) == 100
    for row in table.itertuples():
        gold = str(row.solution_text)
        clauses = str(row.solution_text_format).splitlines()
        shuffled = "\n".join(rng.sample(clauses, people))
        flipped = [*clauses[1:], re.sub("knight|knave", other_role, clauses[0])]
        for text, expected in (
            (gold, True),
            ("\n".join(clauses), True),
            (shuffled, True),
            ("\n".join(flipped), False),
            ("\n".join(clauses[1:]), False),
        ):
            status = grader.grade(block(text), gold, "knights").status
            assert (status == "correct") == expected, text
