"""Unsolved only: what it remembers, in training and when resumed."""

from __future__ import annotations

from pathlib import Path

import torch
from method_entries import ROWS
from trainers import assert_same_run, logged, small_trainer, unbroken_and_resumed

from sage.method.planners import Drawn
from sage.rivals.unsolved_only import UnsolvedOnly


def drawn(problems: list[str], correct: list[list[float]]) -> Drawn:
    table = torch.tensor(correct)
    present = torch.ones_like(table, dtype=torch.bool)
    return Drawn(present, table, table, ~present, len(problems), 2, 1, tuple(problems))


def test_a_problem_weighs_until_the_step_after_its_first_success() -> None:
    planner = UnsolvedOnly()
    first = drawn(["a", "b"], [[1.0, 0.0], [0.0, 0.0]])
    assert planner.further(first) is None
    for _ in range(2):  # asked again in the same step it says the same
        assert planner.chosen(first).loss.tolist() == [True, True]
    planner.end_step(lambda sums: sums)
    second = drawn(["b", "a"], [[0.0, 1.0], [0.0, 0.0]])
    assert planner.chosen(second).loss.tolist() == [True, False]
    resumed = UnsolvedOnly()
    resumed.load_state_dict(planner.state_dict())
    assert resumed.chosen(first).loss.tolist() == [False, True]
    assert resumed.chosen(first).prompts is None


def test_where_no_problem_comes_twice_unsolved_only_is_grpo(parent: Path, tmp_path: Path) -> None:
    """Four steps of four problems each, of 25; the rows of a batch stand in another order."""
    plain, unsolved = (
        small_trainer(parent, ROWS[name], tmp_path / name)
        for name in ("grpo_no_kl", "unsolved_only")
    )
    kept = ("reward", "entropy", "grad_norm")
    logs = [[[e[key] for key in kept] for e in logged(one)] for one in (plain, unsolved)]
    torch.testing.assert_close(torch.tensor(logs[0]), torch.tensor(logs[1]), rtol=1e-3, atol=1e-5)


def test_solved_problems_are_not_learnt_from_again(parent: Path, tmp_path: Path) -> None:
    """All problems are solved in the first pass of 16 problems, so the second learns nothing."""
    trainer = small_trainer(
        parent, ROWS["unsolved_only"], tmp_path, steps=3, prompts_per_step=24, schedule="constant"
    )
    norms = [entry["grad_norm"] for entry in logged(trainer)]
    assert norms[0] > 0.0
    assert norms[1] < norms[0]
    assert len(trainer.shaping.planner.state_dict()["solved"]) > 20


def test_a_resumed_run_remembers_what_was_solved(parent: Path, tmp_path: Path) -> None:
    whole, resumed = unbroken_and_resumed(
        parent, ROWS["unsolved_only_signed"], tmp_path, prompts_per_step=12
    )
    assert_same_run(whole, resumed)
    assert whole.shaping.planner.state_dict()["solved"]
