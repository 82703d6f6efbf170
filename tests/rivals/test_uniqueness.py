"""Uniqueness by hand, and the strategies that it compares."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from method_entries import ROWS
from study_edits import smoke_with
from token_signals import signals
from trainers import SMALL, odd_sum, trainer_of

from sage.exhibits import load_study
from sage.method.credit import TokenSignals
from sage.problems.sums import STRATEGIES, Sheet
from sage.prompting import completion, messages
from sage.rivals.uniqueness import Uniqueness
from sage.study import Algorithm, StudyError
from sage.tasks.routes import RoutesSet
from sage.tasks.sums import SumsSet
from sage.training.rewards import SOURCE, strategies_of
from sage.training.shaping import Shaping


def test_uniqueness_divides_by_the_size_of_the_cluster_by_hand() -> None:
    """Right ones follow the strategies 7, 7, 9; a wrong one follows 9 as well."""
    log_probs = torch.zeros(4, 2)
    rewards, strategies = [1.0, 1.0, 1.0, 0.0], torch.tensor([7, 7, 9, 9])
    of = signals(log_probs, [0] * 4, rewards, strategies=strategies)  # A = 1/4 and -3/4
    right_only = Uniqueness(alpha=1.0).token_advantages(of)[:, 0]
    torch.testing.assert_close(right_only, torch.tensor([0.125, 0.125, 0.25, -0.75]))
    of_all = Uniqueness(alpha=0.5, right_only=False).token_advantages(of)[:, 0]
    root = math.sqrt(0.5)
    torch.testing.assert_close(of_all, root * torch.tensor([0.25, 0.25, 0.25, -0.75]))
    plain = of.advantages[:, None].expand(4, 2)
    torch.testing.assert_close(Uniqueness(alpha=0.0).token_advantages(of), plain)
    with pytest.raises(ValueError, match="strategy of each completion"):
        Uniqueness().token_advantages(signals(log_probs, [0] * 4, rewards))


@pytest.mark.parametrize("right_only", [True, False])
def test_uniqueness_leaves_out_completions_whose_loss_is_masked(right_only: bool) -> None:
    """Two follow one strategy, but only one of them is learned from."""
    mask = torch.tensor([[1], [0], [1]])
    strategies = torch.tensor([7, 7, 9])
    of = signals(torch.zeros(3, 1), [0] * 3, [1.0] * 3, mask=mask, strategies=strategies)
    of = replace(of, advantages=torch.ones(3))
    got = Uniqueness(alpha=1.0, right_only=right_only).token_advantages(of)[:, 0]
    torch.testing.assert_close(got, torch.ones(3))


def test_strategies_are_those_that_the_checkers_know() -> None:
    sheet = Sheet(((5, 2), (6, 2)))
    example = {"prompt": messages(sheet.text), SOURCE: "sage/sums"}
    texts = [
        completion(f"{mark} a5+2=3+4=7 b6+2=4+4=8", "78") for mark in ("P", "P", "R", "nothing")
    ]
    asked = [[{"role": "assistant", "content": text}] for text in texts]
    first, again, named, none = strategies_of([example] * 4, asked)
    assert first == again != named  # R is named but not followed: no strategy, as in the last
    assert named == none
    assert STRATEGIES["plain"].mark == "P"
    assert RoutesSet.strategy("", completion("ab bc", " ab  bc ")) == "ab bc"
    with pytest.raises(ValueError, match="not of source 'sage/knights'"):
        strategies_of([{**example, SOURCE: "sage/knights"}], asked[:1])


def test_training_hands_the_strategies_of_sheets_to_the_rule(parent: Path, tmp_path: Path) -> None:
    made = {"source": "sums", "title": "Sheets", "count": 8, "seed": 1, "parts": 3}
    sheets = SumsSet.model_validate(made | {"split": "train"}).problems("sheets")
    algorithm = Algorithm.model_validate(ROWS["uniqueness"])
    heard: list[TokenSignals] = []

    class Noting(Uniqueness):
        def token_advantages(self, told: TokenSignals) -> torch.Tensor:
            heard.append(told)
            return super().token_advantages(told)

    trainer = trainer_of(
        parent, sheets, SMALL, algorithm, tmp_path, reward=odd_sum, shaping=Shaping(credit=Noting())
    )
    trainer.train()
    assert len(heard) == 4
    for told in heard:  # a random model follows no strategy, so all follow the same
        assert len(set(told.strategies.tolist())) == 1
        assert told.strategies.shape == told.rewards.shape


def test_a_study_says_of_which_problems_strategies_are_known(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"'uniqueness' compares strategies.* routes, sums"):
        load_study(str(smoke_with(tmp_path, "uniqueness")), ROOT / "config")
