"""The grader under load and under attack: any order and thread, bombs and hostile text."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verdicts import block, statuses

from sage.grading import MAX_ANSWER, STATUSES, exact
from sage.grading.quantities import read_quantity
from sage.grading.tidy import is_balanced, tidy
from sage.prompting import TAGS
from sage.tasks import Grader


@pytest.fixture(scope="module")
def grader() -> Grader:
    return Grader()


MIXED = [
    (gold, answer)
    for gold in (r"\sqrt{8}", "x^2-1", r"7\pi", "(3,4)", r"[1,2]\cup[3,4]")
    for answer in (r"2\sqrt{2}", "(x-1)(x+1)", r"\pi \cdot 7", "(3, 4)", r"[3,4]\cup[1,2]", "9")
]


def test_verdicts_do_not_depend_on_the_order() -> None:
    shuffled = random.Random(0).sample(MIXED, len(MIXED))
    expected = dict(zip(MIXED, statuses(Grader(), MIXED), strict=True))
    assert dict(zip(shuffled, statuses(Grader(), shuffled), strict=True)) == expected
    assert Counter(expected.values())["correct"] == 5


def test_the_same_question_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    same_mathematics = exact._same_mathematics

    def counted(gold: str, answer: str) -> str:
        asked.append(answer)
        return same_mathematics(gold, answer)

    monkeypatch.setattr(exact, "_same_mathematics", counted)
    pairs = [(r"\sqrt{18}", r"3 \sqrt{2}"), (r"\sqrt{18}", r" $3\sqrt{2}$. ")] * 50
    grader = Grader()
    assert statuses(grader, pairs) == ["correct"] * 100
    assert statuses(grader, pairs) == ["correct"] * 100
    assert len(asked) == 2


def test_the_bar_counts_new_answers(grader: Grader, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(r"\sqrt{175}", r"5\sqrt{7}"), ("1750", "1750.0"), ("1750", "1750.0")]
    statuses(grader, pairs, progress=True)
    assert "grading: 100%" in (shown := capsys.readouterr().err)
    assert "2/2" in shown
    statuses(grader, [("76", "76")])
    assert capsys.readouterr().err == ""


def test_any_thread_may_grade(grader: Grader) -> None:
    found: dict[int, list[str]] = {}

    def work(number: int, own: Grader) -> None:
        found[number] = statuses(own, [(f"x+{number}", f"{number}+x"), ("x", f"x^{number}+1")])

    threads = [
        threading.Thread(target=work, args=(number, grader if number % 2 else Grader()))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: ["correct", "wrong"] for number in range(8)}


# Hostile text


BOMBS = [
    "9^{9^{9^9}}", "x^{9^{9^{9^9}}}", "10^{9999999}", "1000000!", "((9999!)!)!",
    r"\binom{10^9}{10^8}", "a(" * 100 + "x+1" + ")" * 100, r"3\frac{" * 60 + "x" + "}{2}" * 35,
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
    r"\lvert" * 36 + " x" + r"\rvert" * 36 + "<1", "x" + "^x" * 249, r"\ln(\ln({}))",
    "10^{1199}-10^{1199}" + "".join(rf"+\binom{{3.{n}}}{{1.7}}" for n in range(19)),
    r"|\{x|x=\pm 1\}|",
]  # fmt: skip


def test_bombs_take_no_time_and_are_not_right(grader: Grader) -> None:
    for gold in ("x+1", r"\sqrt{2}"):
        start = time.monotonic()
        found = statuses(grader, [(gold, bomb) for bomb in BOMBS])
        assert set(found) <= set(STATUSES) - {"correct", "gold_unparsed"}
        assert "timeout" in found
        assert time.monotonic() - start < 0.1 * len(BOMBS)
    assert statuses(grader, [("x+1", "1+x")]) == ["correct"]


def joined(form: str, joint: str, count: int) -> str:
    return joint.join(form.replace("N", str(n)).replace("M", str(n + 1)) for n in range(count))


MANY = {
    "a list": joined("N", ",", 120),
    "a set": rf"\{{{joined('N', ',', 120)}\}}",
    "a union of sets": joined(r"\{N\}", r"\cup", 50),
    "intervals": joined("(N,M)", r"\cup", 45),
    "values by name": joined("x=N", " or ", 55),
    "half lines": joined("x>N", " or ", 55),
    "bands": joined("N<x<M", " or ", 38),
    "all but some": rf"\mathbb{{R}}\setminus\{{{joined('N', ',', 120)}\}}",
    "roots": r"\{" + joined(r"\sqrt{N}", ",", 48) + r"\}",
    "two signs": joined(r"\pm N", ",", 70),
}


@pytest.mark.parametrize("many", MANY)
def test_sets_of_many_numbers_take_no_time(many: str) -> None:
    assert len(MANY[many]) <= MAX_ANSWER
    grader, start = Grader(), time.process_time()
    golds = ("x>3", r"x\ne 3", "[0,1]", r"\{1,2\}")
    assert "correct" not in statuses(grader, [(gold, MANY[many]) for gold in golds])
    assert time.process_time() - start < 0.5


def test_a_batch_of_different_towers_takes_seconds(grader: Grader) -> None:
    towers = [
        f"{a}^{{{b}^{{{c}^{d}}}}}" for a in "6789" for b in "6789" for c in "789" for d in "89"
    ]
    start = time.monotonic()
    assert set(statuses(grader, [(r"\sqrt{2}", tower) for tower in towers])) == {"timeout"}
    assert time.monotonic() - start < 3


def test_a_deep_answer_has_a_status_within_deep_calls(grader: Grader) -> None:
    def within(calls: int) -> str:
        if calls:
            return within(calls - 1)
        return grader.grade(block("q" + "^q" * 249), "q+1", "math").status

    assert within(500) in STATUSES


@pytest.mark.parametrize("answer", ["4\x002", "\x0042", "4\ud8002", "42\udfff", "4\x072"])
@pytest.mark.parametrize("kind", ["math", "number"])
def test_what_no_text_holds_is_no_number(grader: Grader, answer: str, kind: Any) -> None:
    assert grader.grade(block(answer), "42", kind).status in ("unparsed", "wrong")


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
    grader, seen = Grader(), Counter[str]()
    answered: list[bool] = []

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
