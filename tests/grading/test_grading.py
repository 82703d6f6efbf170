"""The grader on every benchmark's golds and on pairs settled by hand.

The real benchmark files are looked for in the folder named by SAGE_MIRROR.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from drawn_sets import sums
from verdicts import MIRROR, block, needs_mirror, statuses

from sage.grading import MAX_ANSWER
from sage.grading.quantities import read_quantity
from sage.grading.tidy import tidy
from sage.prompting import last_boxed
from sage.tasks import Grader, Verdict

PAIRS = Path(__file__).with_name("grading_pairs.yaml")


@pytest.fixture(scope="module")
def grader() -> Grader:
    return Grader()


# Golds


def rows(file: str) -> list[dict[str, Any]]:
    assert MIRROR is not None
    with open(Path(MIRROR) / file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def golds(benchmark: str) -> list[str]:
    if benchmark == "aime":
        files = ("aime2024_gair", "aime2025_I_gair", "aime2025_II_gair")
        return [str(row["answer"]) for file in files for row in rows(f"{file}.jsonl")]
    if benchmark == "minerva":
        return [str(last_boxed(row["solution"])) for row in rows("minerva_math_qwen.jsonl")]
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


@needs_mirror
@pytest.mark.parametrize(
    ("benchmark", "unreadable"), [("math500", set()), ("minerva", {"np.arcsin(10/13)"})]
)
def test_golds_that_can_only_be_matched_letter_by_letter(
    grader: Grader, benchmark: str, unreadable: set[str]
) -> None:
    # Against another answer a gold has to be read, not only matched letter by letter.
    answers = [gold for gold in golds(benchmark) if read_quantity(tidy(gold)) is None]
    found = statuses(grader, [(gold, r"\sqrt{7919}") for gold in answers])
    assert {g for g, s in zip(answers, found, strict=True) if s == "gold_unparsed"} == unreadable


@needs_mirror
def test_every_gold_of_the_training_set_is_correct_in_tight_form(grader: Grader) -> None:
    assert MIRROR is not None
    table = pd.read_parquet(Path(MIRROR) / "dapo_math_17k_steer.parquet").head(2_000)
    answers = [str(model["ground_truth"]) for model in table["reward_model"]]
    assert statuses(grader, [(gold, gold) for gold in answers]) == ["correct"] * 2_000
    assert "correct" not in statuses(grader, [(gold, gold + "1") for gold in answers])


# Pairs


def pairs_of(table: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [
        (gold, answer, verdict == "equal")
        for name, group in table.items()
        if name != "disagreements"
        for verdict, pairs in group.items()
        for gold, answer in pairs
    ]


def test_tricky_pairs_are_judged_as_mathematics_does_but_for_the_known_ones(
    grader: Grader,
) -> None:
    table = yaml.safe_load(PAIRS.read_text(encoding="utf-8"))
    pairs = pairs_of(table)
    found = statuses(grader, [(gold, answer) for gold, answer, _ in pairs])
    assert "timeout" not in found
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
    ("gold", "answer"),
    [
        (r"\{-1,1,2\}", r"\{x|x=\pm 1\} \cup \{2\}"),
        (r"\{-1,1,2\}", r"\{\pm 1\} \cup \{2\}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\[4pt] 2 \end{pmatrix}"),
        (r"\frac{3}{4}", r"{3 \over 4}"),
        (r"\frac{\sqrt{3}}{2}", r"\sqrt{3\over4}"),
        ("4200", r"\frac{10!}{3!3!4!}"),
        ("-1<x<1", r"|\lvert x\rvert|<1"),
    ],
)
def test_it_is_read_as_it_is_meant(grader: Grader, gold: str, answer: str) -> None:
    assert grader.grade(block(answer), gold, "math").status == "correct"


@pytest.mark.parametrize(
    ("gold", "status", "answers"),
    [
        ("26", "correct", ["26", "26.0", "x=26", r"\boxed{26}", "26 apples", "The answer is 26."]),
        ("26", "correct", ["10+7+10-1=26", "$20+6=26$"]),
        ("26", "wrong", ["27", "10+7+10-1=27", "26=10+7+10-1", "2*13", "26+0", r"26\mathrm{x}"]),
        ("26", "wrong", [r"26\text{ at most}", r"27=\boxed{26}"]),
        ("26", "unparsed", ["?!"]),
        ("0", "correct", ["0", "x=0", "5-5=0", "3-5+2=0", "$10-9-1=0$"]),
        ("0", "wrong", ["5-5", "0=5-5", "3-5=-2", "5-4=1=0", r"5 \geq 0", "5>=0", "5!=0", "4<5=0"]),
        ("42", "correct", ["x=40+2=42", "40+2=41+1=42", r"6 \cdot 7 = 42", r"\boxed{40+2=42}"]),
        ("42", "correct", ["The sum is 40+2=42.", "S_4=42"]),
        ("42", "wrong", ["not = 42", r"\neq=42", r"\ne 3=42", "?=42", "never=42", "40 or 41=42"]),
        ("42", "wrong", ["x = 41, x = 42", r"x=41 \text{ or } x=42", "x=41 y=42", "x=41\ny=42"]),
        ("42", "wrong", ["41=40+2=42", "a=1,b=42", "41+1=43, or 40+2=42"]),
        ("42", "wrong", ["It is not 42, it is 41+0=42"]),
    ],
)
def test_where_a_number_is_asked_for_nothing_is_worked_out_but_behind_working(
    grader: Grader, gold: str, status: str, answers: list[str]
) -> None:
    found = {answer: grader.grade(block(answer), gold, "number").status for answer in answers}
    assert found == dict.fromkeys(answers, status)


def test_a_sum_does_not_answer_itself(grader: Grader) -> None:
    problems = sums(count=50, seed=1, min_terms=2, max_terms=5, split="train")
    for problem in problems:
        expression = problem.problem.removeprefix("Calculate ").rstrip(".")
        for copied in (problem.problem, expression, rf"\boxed{{{expression}}}"):
            assert grader.grade(block(copied), problem.answer, problem.kind).reward == 0
        assert grader.grade(block(problem.answer), problem.answer, problem.kind).reward == 1


@pytest.mark.parametrize(
    ("text", "held"),
    [
        (r"first \boxed{1}, then \boxed {5}", "5"),
        (r"\fbox{6}", "6"),
        (r"\boxed{1} and \fbox {\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{1} then \boxed{x^{2} + \{y\}}", r"x^{2} + \{y\}"),
        (r"\boxed{1} \boxed{2", None),
        (r"\boxed{1", None),
        ("42", None),
        (r"\boxedthing{1}", None),
    ],
)
def test_the_last_box_is_found_however_it_is_written(text: str, held: str | None) -> None:
    assert last_boxed(text) == held


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("The answer is 42.", "unparsed"),
        (r"<think> so \boxed{42}", "unparsed"),
        (r"<think> so </think> \boxed{42}", "correct"),
        (r"so \boxed{42} </think>", "correct"),  # the prompt opened the thinking
        (r"<think> 41 </think> <think> \boxed{42}", "unparsed"),
        (r"<reasoning> so \boxed{42}", "unparsed"),
    ],
)
def test_an_answer_stands_in_its_place_behind_the_thinking(completion: str, status: str) -> None:
    assert Grader(last_boxed).grade(completion, "42", "math").status == status
    tagged = completion.replace(r"\boxed{42}", block("42"))
    assert Grader().grade(tagged, "42", "math").status == status


def test_a_long_answer_is_right_only_letter_by_letter(grader: Grader) -> None:
    gold = "+".join(f"x_{{{i}}}" for i in range(100))
    assert len(gold) > MAX_ANSWER
    asked = [(gold, f" {gold} "), (gold, f"{gold}+0"), (gold, gold[:-1])]
    assert statuses(grader, asked) == ["correct", "unparsed", "unparsed"]
