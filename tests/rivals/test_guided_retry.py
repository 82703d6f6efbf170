"""Guided retry: what it draws, keeps and needs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from method_entries import ROWS
from pydantic import ValidationError
from rollout_groups import NAN, drawn
from study_edits import smoke_with

from sage.exhibits import load_study
from sage.method.advantages import GroupNormalised
from sage.rivals.guided_retry import GuidedRetry
from sage.study import Algorithm, StudyError


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


def test_a_guided_retry_needs_a_bound_on_its_weights() -> None:
    with pytest.raises(ValidationError, match="which clip_high must bound"):
        Algorithm.model_validate({**ROWS["guided_retry"], "clip_high": None})


def test_a_study_says_what_a_planner_lacks(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="'guided_retry' draws under hints, but the problems of"):
        load_study(str(smoke_with(tmp_path, "guided_retry")), ROOT / "config")
    load_study(str(smoke_with(tmp_path, "guided_retry", hints=True)), ROOT / "config")
