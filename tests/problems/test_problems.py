"""Problem sets: answers that are right, splits that are kept, records that survive a file."""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from pathlib import Path

import pytest
from drawn_sets import puzzles, sums
from solved import expression_of, solutions_of_text, value_of

from sage.grading.assignments import parse_assignment, same_assignment
from sage.problems import knights
from sage.problems.arithmetic import running_totals, signed_terms
from sage.problems.record import Problem, read_problems, split_of, write_problems
from sage.tasks import draw_problems
from sage.tasks.arithmetic import ArithmeticSet
from sage.tasks.knights import KnightsSet

SUMS = {
    "count": 40,
    "seed": 5,
    "min_terms": 3,
    "max_terms": 4,
    "max_digits": 1,
    "running_total": "any",
    "split": "test",
}
PROBLEM = Problem("a-0", "Calculate 1+1.", "2", "math", "2 terms", "by hand", "1")


# Sums


@pytest.mark.parametrize(
    ("expression", "terms", "totals"),
    [("5-3-6", [5, -3, -6], [5, 2, -4]), ("7", [7], [7]), ("0+10-9", [0, 10, -9], [0, 10, 1])],
)
def test_terms_and_running_totals_by_hand(
    expression: str, terms: list[int], totals: list[int]
) -> None:
    assert signed_terms(expression) == terms
    assert running_totals(terms) == totals


@pytest.mark.parametrize("digits", [1, 2])
def test_answers_of_sums_are_right(digits: int) -> None:
    problems = sums(**{**SUMS, "max_digits": digits})
    for problem in problems:
        expression = expression_of(problem.problem)
        assert int(problem.answer) == value_of(expression)
        terms = [int(number) for number in re.findall(r"\d+", expression)]
        assert len(terms) in (3, 4)
        assert max(terms) <= 10**digits
        assert problem.level == f"{len(terms)} terms"
    assert len({problem.problem for problem in problems}) == 40
    assert len({problem.problem_id for problem in problems}) == 40


def test_splits_share_no_problem() -> None:
    sets = {
        split: {
            p.problem
            for p in sums(**{**SUMS, "count": 90, "min_terms": 2, "max_terms": 2, "split": split})
        }
        for split in ("train", "test")
    }
    assert all(split_of(text) == split for split, texts in sets.items() for text in texts)
    assert not sets["train"] & sets["test"]


@pytest.mark.parametrize("running_total", ["nonnegative", "negative"])
def test_the_running_total_is_as_asked(running_total: str) -> None:
    for problem in sums(**{**SUMS, "running_total": running_total}):
        expression = expression_of(problem.problem)
        prefixes = [expression[: match.end()] for match in re.finditer(r"\d+", expression)]
        falls_below_zero = any(value_of(prefix) < 0 for prefix in prefixes)
        assert falls_below_zero == (running_total == "negative")


def test_the_same_seed_gives_the_same_sums() -> None:
    first = sums(**SUMS)
    assert first == sums(**SUMS)
    assert first[:10] == sums(**{**SUMS, "count": 10})
    other = sums(**{**SUMS, "seed": 6})
    assert {p.problem for p in first} != {p.problem for p in other}


def test_more_sums_than_there_are_is_an_error() -> None:
    # There are 10 x 2 x 10 sums of two digits; about half of them are in a split.
    with pytest.raises(ValueError, match=r"count: 150, but only 1?\d\d different .* lower it"):
        sums(**{**SUMS, "count": 150, "min_terms": 2, "max_terms": 2})


# Knights and Knaves


@pytest.mark.parametrize("people", [2, 3, 4, 5])
def test_a_puzzle_has_one_solution_and_it_is_the_answer(people: int) -> None:
    for problem in puzzles("kk", [people], per_size=15, seed=1, split="test"):
        (solution,) = solutions_of_text(problem.problem)
        assert len(solution) == people
        assert problem.answer == ", ".join(f"{name} {role}" for name, role in solution.items())
        assert parse_assignment(problem.answer) == {
            name.lower(): role == "knight" for name, role in solution.items()
        }
        assert (problem.kind, problem.level) == ("knights", f"{people} people")


def test_statements_of_every_form_are_drawn() -> None:
    texts = [puzzle.problem for puzzle in puzzles("kk", [5], 50, seed=1, split="test")]
    for joiner in (" and ", " or ", "if ", " exactly if "):
        assert any(joiner in text for text in texts)


def test_puzzles_for_eight_people_are_drawn_fast() -> None:
    started = time.perf_counter()
    assert len(puzzles("kk", [8], 100, seed=1, split="test")) == 100
    assert time.perf_counter() - started < 5.0  # some 0.15 s on an idle machine


@pytest.mark.parametrize(
    ("statement", "truths"),
    [  # the assignments of Ann and Bob (True: knight) under which the statement holds
        (("is", 0, True), {(True, True), (True, False)}),
        (("and", ("is", 0, True), ("is", 1, False)), {(True, False)}),
        (("or", ("is", 0, True), ("is", 1, True)), {(True, True), (True, False), (False, True)}),
        (("if", ("is", 0, True), ("is", 1, True)), {(True, True), (False, True), (False, False)}),
        (("iff", ("is", 0, True), ("is", 1, True)), {(True, True), (False, False)}),
    ],
)
def test_statements_hold_where_logic_says(
    statement: knights.Statement, truths: set[tuple[bool, bool]]
) -> None:
    assignments = itertools.product((False, True), repeat=2)
    assert {a for a in assignments if knights.holds(statement, a)} == truths


def test_a_puzzle_worked_by_hand() -> None:
    # Ann: "Bob is a knave." Bob: "Ann is a knave and I am a knight." Either of them may be the
    # knight. Cat: "I am a knave and so is Ann": no knight says that, so it is false: Ann is one.
    ann = ("is", 1, False)
    bob = ("and", ("is", 0, False), ("is", 1, True))
    cat = ("and", ("is", 2, False), ("is", 0, False))
    assert knights.solutions((ann, bob)) == [(False, True), (True, False)]
    assert knights.solutions((ann, bob, cat)) == [(True, False, False)]


def test_splits_of_puzzles_are_kept() -> None:
    for split in ("train", "test"):
        problems = puzzles("kk", [3, 4], per_size=10, seed=2, split=split)
        assert {split_of(p.problem) for p in problems} == {split}
        assert len({p.problem for p in problems}) == 20


def test_the_same_seed_gives_the_same_puzzles() -> None:
    assert puzzles("kk", [3], 5, 3, "test") == puzzles("kk", [3], 5, 3, "test")
    assert puzzles("kk", [3], 5, 3, "test") != puzzles("kk", [3], 5, 4, "test")


def test_more_puzzles_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'kk-2ppl': only \d+ of 400 .*; ask for fewer"):
        puzzles("kk", [3, 2], per_size=400, seed=1, split="test")


@pytest.mark.parametrize("people", [1, 9])
def test_puzzles_are_for_two_to_eight_people(people: int) -> None:
    with pytest.raises(ValueError, match=f"from 2 to 8, not {people}"):
        knights.draw_puzzle(people, random.Random(0))


@pytest.mark.parametrize(
    ("same", "answers"),
    [
        (True, ["Ann knight, Bob knave", "Bob knave, Ann knight", "ann = KNIGHT; bob = Knave"]),
        (True, ["Ann is a knight and Bob is a knave.", "Ann: a knight\nBob: a knave"]),
        (True, ["1. Ann is the knight 2. Bob is the knave", "**Ann**: knight, **Bob**: knave"]),
        (True, ["Ann is a **knight**, Bob is a _knave_", "Ann (knight), Bob (knave)"]),
        (True, ["Ann – knight, Bob → knave", r"\text{Ann is a knight, Bob is a knave}"]),
        (None, ["", "I do not know", "both are lying", "Ann knight " * 500]),
        (None, ["Ann knight, Ann knave", "Ann knight, Bob knave, Ann knight"]),
        (None, ["Ann is not a knight, Bob is a knave", "Ann isn't a knave, Bob is a knave"]),
        (None, ["Ann isn’t a knave, Bob is a knave", "Ann is no knave, Bob is a knave"]),
        (None, ["Ann is a knight or Bob is a knave", "If Ann is a knight, Bob is a knave"]),
        (None, ["Ann knight, Bob either"]),
        (False, ["Ann knave, Bob knave", "Ann knight", "Ann knight, Bob knave, Cat knight"]),
        (False, ["Ann knight, Cat knave", "Ann is a knight and a knave, Bob is a knave"]),
        (False, ["Ann is hardly a knight, Bob is a knave"]),
    ],
)
def test_an_assignment_is_right_wrong_or_not_stated(same: bool | None, answers: list[str]) -> None:
    found = {answer: same_assignment("Ann knight, Bob knave", answer) for answer in answers}
    assert found == dict.fromkeys(answers, same)
    for answer in answers:
        assignment = parse_assignment(answer)
        assert (assignment is None) == (same is None)
        assert (assignment == {"ann": True, "bob": False}) == bool(same)


# Records


def test_problems_survive_a_file(tmp_path: Path) -> None:
    problems = [
        PROBLEM,
        Problem("b-é", 'a "quoted"\nline\u2028 of \\frac{1}{2} ≤ 1', "½", "math", "", "x", ""),
        *puzzles("kk", [3], per_size=2, seed=1, split="test"),
    ]
    write_problems(problems, tmp_path / "set.jsonl")
    assert read_problems(tmp_path / "set.jsonl") == problems
    assert len((tmp_path / "set.jsonl").read_bytes().splitlines()) == 4


def test_two_problems_of_one_id_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"set\.jsonl: problem_id 'a-0' occurs twice"):
        write_problems([PROBLEM, PROBLEM], tmp_path / "set.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("not JSON", "not a problem"),
        ("", "not a problem"),
        ("[1]", "not a problem"),
        (json.dumps({**vars(PROBLEM), "kind": "maths"}), "kind 'maths', not one of"),
        (json.dumps({**vars(PROBLEM), "answer": " "}), "empty answer"),
        (json.dumps({**vars(PROBLEM), "answer": 2}), "answer 2 is not text"),
        (json.dumps({k: v for k, v in vars(PROBLEM).items() if k != "answer"}), "no answer"),
    ],
)
def test_a_malformed_line_is_named_with_its_file(tmp_path: Path, line: str, fault: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(f"{json.dumps(vars(PROBLEM))}\n{line}\n")
    with pytest.raises(ValueError, match=rf"set\.jsonl, line 2: .*{fault}"):
        read_problems(path)


def test_every_source_of_a_study_can_be_drawn() -> None:
    settings = {**SUMS, "source": "arithmetic", "title": "Sums", "count": 3}
    assert draw_problems("sums", settings) == ArithmeticSet(**settings).problems("sums")
    settings = {"source": "knights", "title": "Puzzles", "people": [3], "per_size": 2, "seed": 1}
    settings |= {"split": "test"}
    assert draw_problems("kk", settings) == KnightsSet(**settings).problems("kk")
    with pytest.raises(ValueError, match="'web'"):
        draw_problems("web", {"source": "web"})
