"""Planners: what they draw further and choose, by hand and against formulas; hints of problems."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from accelerate import Accelerator
from conftest import ROOT
from drawn_sets import puzzles, sums
from method_entries import ROWS
from pydantic import ValidationError

from sage.exhibits import load_study
from sage.method.advantages import BetaNormalised, Centred, GroupNormalised
from sage.method.planners import (
    Chosen,
    Dars,
    Draw,
    Drawn,
    DynamicSampling,
    GuidedRetry,
    extra_rollouts,
)
from sage.method.rewards import Mixed
from sage.problems.arithmetic import signed_terms
from sage.problems.benchmarks import first_steps
from sage.problems.record import read_problems, write_problems
from sage.study import Algorithm, StudyError
from sage.training.drawing import Shares
from sage.training.planning import Generation, chosen_rows, filled, laid_out, rows_by_prompt
from sage.training.shaping import Shaping

NAN = math.nan


def drawn(correct: list[list[float]], rollouts: int = 4, draws: int = 1, guided: Any = None) -> Any:
    """What was drawn of prompts with these results; NaN where there is no completion."""
    table = torch.tensor(correct)
    under = torch.zeros_like(table, dtype=torch.bool)
    if guided is not None:
        under = torch.tensor(guided)
    return Drawn(~table.isnan(), table, table, under, len(correct), rollouts, draws)


def test_dars_draws_what_the_formula_says() -> None:
    right = torch.arange(9)
    # 1 of 8: S = 2/8 x 7/8 = 0.21875; (4 - 1.75) / S = 10.29, and (7 - 1.75) / S = 24 exactly.
    # None of 8 counts as 1/16: S = 0.1171875; (4 - 0.9375) / S = 26.13, and 56 exactly.
    assert extra_rollouts(right, 8, 64, "equal").tolist() == [27, 11, 3, 1, 0, 0, 0, 0, 0]
    assert extra_rollouts(right, 8, 64, "hardness").tolist() == [56, 24, 8, 3, 0, 0, 0, 0, 0]
    assert extra_rollouts(right, 8, 32, "equal").tolist() == [24, 11, 3, 1, 0, 0, 0, 0, 0]
    assert extra_rollouts(right, 8, 8, "hardness").tolist() == [0] * 9


@pytest.mark.parametrize("weighting", ["equal", "hardness"])
def test_dars_evens_out_the_sum_of_absolute_advantages(weighting: Any) -> None:
    """With p kept, the least number of rollouts whose sum of |A| reaches the target."""
    rng = random.Random(5)
    for _ in range(200):
        size, cap = rng.randint(2, 20), rng.randint(20, 90)
        right = rng.randint(0, size)
        more = int(extra_rollouts(torch.tensor([right]), size, cap, weighting))
        p = Fraction(right, size) if right else Fraction(1, 2 * size)
        target = Fraction(size, 2) * (2 * (1 - p) if weighting == "hardness" else 1)
        per_rollout = 2 * p * (1 - p)
        if p >= Fraction(1, 2):
            assert more == 0
            continue
        assert more <= cap - size
        assert more == cap - size or (size + more) * per_rollout >= target
        assert more == 0 or (size + more - 1) * per_rollout < target


def test_dars_trains_on_mixed_groups_alone() -> None:
    first = drawn([[0.0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
    draw = Dars(cap=8).further(first)
    assert draw is not None
    assert draw.more is not None
    # 1 of 4: 64 / (2 x 6) - 4 = 1.33; none: 64 / 7 - 4 = 5.14, of which the cap leaves 4.
    assert draw.more.tolist() == [4, 2, 0, 0]
    assert not draw.guided
    after = drawn(
        [
            [0, 0, 0, 0, 0, 1, 0, 0],
            [1, 0, 0, 0, 0, 0, NAN, NAN],
            [1, 1, 1, 0, NAN, NAN, NAN, NAN],
            [1, 1, 1, 1, NAN, NAN, NAN, NAN],
        ],
        draws=2,
    )
    assert Dars(cap=8).further(after) is None
    chosen = Dars(cap=8).chosen(after)
    assert chosen.prompts.tolist() == [0, 1, 2]
    assert torch.equal(chosen.rows, after.present)
    table = after.rewards[chosen.prompts]
    advantages = Centred().advantages(table)
    assert advantages[0].tolist() == [-0.125] * 5 + [0.875] + [-0.125] * 2
    torch.testing.assert_close(advantages[1], torch.tensor([5.0, -1, -1, -1, -1, -1, 0, 0]) / 6)
    assert advantages[2].tolist() == [0.25, 0.25, 0.25, -0.75, 0, 0, 0, 0]


def test_dars_without_a_mixed_group_keeps_first_rollouts() -> None:
    after = drawn([[0.0] * 8, [1.0] * 4 + [NAN] * 4], draws=2)
    chosen = Dars(cap=8).chosen(after)
    assert chosen.prompts is None
    assert chosen.rows.sum(dim=1).tolist() == [4, 4]
    assert Centred().advantages(after.rewards.where(chosen.rows, NAN)).abs().sum() == 0


def test_a_guided_retry_adds_right_completions_to_failed_groups() -> None:
    first = drawn([[0.0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    draw = GuidedRetry().further(first)
    assert draw is not None
    assert draw.more is not None
    assert draw.guided
    assert draw.more.tolist() == [4, 0, 0]
    rest = [NAN] * 4
    after = drawn(
        [[0, 0, 0, 0, 1, 0, 1, 0], [1, 0, 0, 0, *rest], [1, 1, 1, 1, *rest]],
        draws=2,
        guided=[[False] * 4 + [True] * 4, [False] * 8, [False] * 8],
    )
    assert GuidedRetry().further(after) is None
    chosen = GuidedRetry().chosen(after)
    assert chosen.prompts is None
    assert chosen.rows[0].tolist() == [True] * 5 + [False, True, False]
    table = after.rewards.where(chosen.rows, NAN)
    # Of 6, two are right: mean 1/3, unbiased deviation sqrt(4/15).
    spread = math.sqrt(4 / 15) + 1e-4
    expected = torch.tensor([-1 / 3] * 4 + [2 / 3, 0, 2 / 3, 0]) / spread
    torch.testing.assert_close(GroupNormalised().advantages(table)[0], expected)


class Dropping(Mixed):
    """A filter that takes the loss from groups that it does not keep."""

    drops = True


def test_dynamic_sampling_puts_kept_groups_first() -> None:
    planner = DynamicSampling(Mixed(), max_refills=2)
    first = drawn([[1.0, 1], [0, 1], [0, 0]], rollouts=2)
    draw = planner.further(first)
    assert draw is not None
    assert (draw.more, draw.prompts) == (None, 3)
    second = replace(drawn([[1.0, 1], [0, 1], [0, 0], [1, 0], [0, 0], [1, 1]], 2, 2), prompts=3)
    assert planner.further(second) is not None
    assert planner.further(replace(second, draws=3)) is None
    assert planner.chosen(second).prompts.tolist() == [1, 3, 0]
    assert planner.chosen(second).loss is None
    dropping = DynamicSampling(Dropping(), max_refills=0)
    assert dropping.further(first) is None
    loss = dropping.chosen(first).loss
    assert loss is not None
    assert loss.tolist() == [False, True, False]
    enough = replace(second, prompts=2)
    assert planner.further(enough) is None
    assert planner.chosen(enough).prompts.tolist() == [1, 3]


def test_groups_of_several_draws_share_one_beta_density() -> None:
    rewards = torch.tensor([[[1.0, 1, 1, 1], [1, 0, 0, 0]], [[0, 1, 0, 0], [1, 1, 0, 1]]])
    beta = BetaNormalised()
    parts = [
        {"reward": draw.flatten(), "advantages": beta.advantages(draw).flatten()}
        | {"completion_ids": torch.zeros(8, 1, dtype=torch.long)}
        for draw in rewards
    ]
    generation = Generation([{}, {}], parts[0], rollouts=4)
    generation.add(parts[1], torch.arange(2, 4).repeat_interleave(4), Draw(prompts=2))
    kept = Chosen(torch.tensor([1, 2]), torch.ones(4, 4, dtype=torch.bool))
    rows = chosen_rows(generation, kept, beta, True, Shares(Accelerator(cpu=True), 4, 0))
    right = rows["advantages"][rows["reward"] == 1]
    assert right[0] == right[1]  # both groups have one right completion of four
    of_both = beta.advantages(torch.stack([rewards[0, 1], rewards[1, 0]]))
    torch.testing.assert_close(rows["advantages"], of_both.flatten(), rtol=0, atol=0)


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


def test_choices_that_do_not_go_with_a_planner_are_refused() -> None:
    row = {**ROWS["dars"]}
    with pytest.raises(ValidationError, match="filter 'mixed' and planner 'dars' both choose"):
        Algorithm.model_validate({**row, "filter": {"kind": "mixed", "max_refills": 1}})
    with pytest.raises(ValueError, match="filter Mixed and planner Dars both choose"):
        Shaping(filter=Mixed(), planner=Dars())
    with pytest.raises(ValidationError, match="needs groups of one size, which planner: dars"):
        Algorithm.model_validate({**ROWS["pacs"], "planner": "dars"})
    with pytest.raises(ValidationError, match="planner: dars may keep a single prompt"):
        Algorithm.model_validate({**row, "advantage": "beta"})
    for kind, settings in (("maxrl", {"order": 2}), ("pkpo", {"k": 1})):
        with pytest.raises(ValidationError, match="drops prompts whose rollouts are all right"):
            Algorithm.model_validate({**row, "advantage": {"kind": kind, "settings": settings}})
    Algorithm.model_validate({**row, "advantage": "maxrl"})
    with pytest.raises(ValidationError, match="which clip_high must bound"):
        Algorithm.model_validate({**ROWS["guided_retry"], "clip_high": None})


def smoke_with(tmp_path: Path, algorithm: str, **problems: Any) -> Path:
    """The smoke study with another algorithm for its model, and changes to the set it trains on."""
    study = yaml.safe_load((ROOT / "config/studies/smoke.yaml").read_text())
    study["models"]["tiny"]["algorithms"].append(algorithm)
    study["problems"]["arithmetic_train"] |= problems
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(study))
    return file


def test_a_study_says_of_which_problems_strategies_are_known(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"'uniqueness' compares strategies.* routes, sums"):
        load_study(str(smoke_with(tmp_path, "uniqueness")), ROOT / "config")


def test_a_study_says_what_a_planner_lacks(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="'guided_retry' draws under hints, but the problems of"):
        load_study(str(smoke_with(tmp_path, "guided_retry")), ROOT / "config")
    load_study(str(smoke_with(tmp_path, "guided_retry", hints=True)), ROOT / "config")
