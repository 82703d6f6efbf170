"""Draws of planners, rows laid out by prompt, and hints of problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_sets import puzzles, sums

from sage.method.planners import Draw
from sage.problems.arithmetic import signed_terms
from sage.problems.benchmarks import first_steps
from sage.problems.record import read_problems, write_problems
from sage.training.planning import filled, laid_out, rows_by_prompt


def test_a_draw_is_of_more_completions_or_of_other_prompts() -> None:
    for wrong in ({}, {"more": torch.ones(2), "prompts": 2}):
        with pytest.raises(ValueError, match="one of the two"):
            Draw(**wrong)


def test_rows_are_laid_out_by_prompt_and_filled_up() -> None:
    table = rows_by_prompt(torch.tensor([0, 0, 1, 1, 1, 0, 2]))
    assert table.tolist() == [[0, 1, 5], [2, 3, 4], [6, -1, -1]]
    values = laid_out(torch.tensor([1.0, 2, 3, 4, 5, 6, 7]), table)
    assert values.nan_to_num(nan=-1).tolist() == [[1, 2, 6], [3, 4, 5], [7, -1, -1]]
    batch = {
        "advantages": torch.tensor([0.5, -0.5]),
        "completion_mask": torch.ones(2, 3, dtype=torch.long),
        "completion_ids": torch.arange(6).view(2, 3),
        "group": torch.tensor([0, 0]),
    }
    more = filled(batch, 4)
    assert more["advantages"].tolist() == [0.5, -0.5, 0, 0]
    assert more["completion_mask"].sum(dim=1).tolist() == [3, 3, 0, 0]
    assert more["completion_ids"][2].tolist() == [0, 1, 2]
    assert more["group"].tolist() == [0, 0, -1, -1]
    assert filled(batch, 2)["advantages"] is batch["advantages"]


def test_hints_change_nothing_else_of_a_problem_set(tmp_path: Path) -> None:
    terms = {
        "count": 20,
        "seed": 1,
        "min_terms": 2,
        "max_terms": 3,
        "max_digits": 1,
        "running_total": "any",
        "split": "train",
    }
    people: dict[str, Any] = {"people": [2, 3], "per_size": 3, "seed": 1, "split": "train"}
    for draw, options in ((sums, terms), (puzzles, people)):
        plain: Any = draw("x", **options)  # type: ignore[operator]
        hinted: Any = draw("x", **options, hints=True)  # type: ignore[operator]
        assert [replace(problem, hint="") for problem in hinted] == plain
        write_problems(hinted, tmp_path / "hinted.jsonl")
        write_problems(plain, tmp_path / "plain.jsonl")
        assert read_problems(tmp_path / "hinted.jsonl") == hinted
        assert "hint" not in (tmp_path / "plain.jsonl").read_text()
        if draw is puzzles:
            assert all(problem.answer.startswith(problem.hint + ", ") for problem in hinted)
        else:
            for problem in hinted:
                left, total = problem.hint.split("=")
                assert signed_terms(left) == signed_terms(problem.problem)[:2]
                assert sum(signed_terms(left)) == int(total)


def test_a_hint_is_the_first_third_of_a_solution() -> None:
    solution = "Let x = 2.5 be it. Then\n2x = 5.\n\nSo 4x = 10! And so on. Why? The answer is 10."
    assert first_steps(solution) == "Let x = 2.5 be it. Then"
    assert first_steps("It is 10.") == "It is 10."
