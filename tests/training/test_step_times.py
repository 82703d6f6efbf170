"""What a guide costs: measured on the same completions, in turn, and without learning."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import torch

from sage.exhibits.step_times import time_ratio
from sage.method.guides import Moment, Signals
from sage.problems.record import read_problems
from sage.study import Guide, ResolvedStudy
from sage.tasks import Grader
from sage.training.rl import build_trainer, grpo_config, shaping_of
from sage.training.stopwatch import COLUMNS, Stopwatch, one_micro_batch, step_times
from sage.training.trainer import SageTrainer

pytestmark = [pytest.mark.timeout(4000)]

PROBLEMS = "problems/arithmetic_train.jsonl"


@dataclass(frozen=True)
class Slow:
    """A guide of one that keeps a processor busy for `seconds`."""

    seconds: float = 0.2

    def factors(self, signals: Signals, moment: Moment) -> torch.Tensor:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        return torch.ones_like(signals.log_probs)


def times_of(**columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (name, i, value, 4, 32)
            for name, values in columns.items()
            for i, value in enumerate(values)
        ],
        columns=COLUMNS,
    )


def test_a_ratio_is_that_of_the_median_round() -> None:
    """Ten rounds: the sign test's 95 % interval runs from the second smallest to the second
    largest, which holds the median with probability 1 - 2 * 11 / 1024."""
    other = [float(2**i) for i in range(10)]  # a machine that gets slower and slower
    excess = [0.10, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 90.0]
    ours = [value * (1 + more) for value, more in zip(other, excess, strict=True)]
    cost = time_ratio(times_of(ours=ours, other=other), "ours", "other")
    assert cost.excess == pytest.approx(0.055)
    assert (cost.low, cost.high) == pytest.approx((0.02, 0.10))
    assert cost.p == pytest.approx(2 / 1024)
    assert cost.rounds == 10
    back = time_ratio(times_of(ours=ours, other=other), "other", "ours")
    assert back.high == pytest.approx(1 / 1.02 - 1)


def test_few_rounds_have_no_interval_and_an_unknown_row_is_named() -> None:
    times = times_of(ours=[1.0] * 5, other=[1.0, 1.1, 1.2, 0.9, 1.0])
    assert math.isnan(time_ratio(times, "ours", "other").low)
    with pytest.raises(ValueError, match="third not timed; there are other, ours"):
        time_ratio(times, "third", "other")


@pytest.mark.parametrize(
    ("prompts", "rollouts", "parts", "expected"),
    [(8, 8, 1, (8, 1)), (8, 8, 4, (2, 1)), (8, 8, 16, (1, 2)), (3, 4, 2, (1, 1))],
)
def test_a_micro_batch_is_as_large_as_in_training(
    smoke_study: ResolvedStudy, prompts: int, rollouts: int, parts: int, expected: tuple[int, int]
) -> None:
    """Where groups are larger than it, a whole group is drawn and the first part of it timed."""
    changes = {"prompts_per_step": prompts, "rollouts": rollouts, "micro_batches": parts}
    one = one_micro_batch(smoke_study.model("tiny").rl.model_copy(update=changes))
    assert (one.prompts_per_step, one.micro_batches) == expected
    assert (one.steps, one.steps_per_generation) == (1, 1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine spend processor time as well."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_guide_that_takes_time_is_caught(smoke: Path, smoke_study: ResolvedStudy) -> None:
    """Its fifth of a second is found, and the guide that costs nothing is not blamed for it."""
    grpo, branch = (smoke_study.algorithms[name] for name in ("grpo", "grpo_branch"))
    slow = grpo.model_copy(update={"guide": Guide(kind="test_step_times:Slow")})
    rows = {"grpo": grpo, "slow": slow, "grpo_branch": branch}
    settings = smoke_study.model("tiny").rl
    times = step_times(smoke / "models/tiny/base", smoke / PROBLEMS, settings, rows, 6, "cpu")
    assert list(times.columns) == COLUMNS
    assert times.groupby("algorithm").size().to_dict() == dict.fromkeys(rows, 6)
    assert times["tokens"].nunique() == 1  # the same completions throughout
    firsts = times.groupby("round")["algorithm"].first()
    assert set(firsts) == set(rows)  # each goes first in its turn
    seconds = times.groupby("algorithm")["seconds"].median()
    assert seconds["slow"] - seconds["grpo"] == pytest.approx(0.2, abs=0.1)
    assert time_ratio(times, "slow", "grpo").low > 0.05
    assert abs(seconds["grpo_branch"] - seconds["grpo"]) < 0.1


def test_nothing_is_learnt_while_timing(
    smoke: Path, smoke_study: ResolvedStudy, tmp_path: Path
) -> None:
    small = one_micro_batch(smoke_study.model("tiny").rl)
    row = smoke_study.algorithms["grpo_branch"]
    trainer = build_trainer(
        SageTrainer,
        smoke / "models/tiny/base",
        read_problems(smoke / PROBLEMS),
        small,
        row,
        grpo_config(small, row, 1, "cpu", tmp_path),
        Grader(),
    )
    watch = Stopwatch(trainer, {"grpo_branch": shaping_of(row)}, rounds=6)
    trainer.add_callback(watch)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert len(watch.times) == 6
    assert trainer.state.global_step == 0
    after = trainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
