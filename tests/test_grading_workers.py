"""The grader's processes: shared, limited, replaced; bombs and hostile text end in a status."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verdicts import block, children, statuses

from sage.grading import MAX_ANSWER, STATUSES, Grader
from sage.grading.quantities import read_quantity
from sage.grading.serving import MEMORY_BYTES
from sage.grading.tidy import is_balanced, tidy
from sage.grading.workers import Workers
from sage.prompting import TAGS


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2) as shared:
        yield shared


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
