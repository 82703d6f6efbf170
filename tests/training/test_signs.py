"""Signs that training goes wrong, in histories made by hand, and what is done about them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from report_frames import a_study

from sage.report.loader import PageContent
from sage.report.warnings import training_notices
from sage.results import Run
from sage.runtime.files import file_sums
from sage.study.watch import Watch
from sage.training.checkpoints import claim, damage
from sage.training.rewards import graded
from sage.training.signs import Finding, current, findings
from sage.training.watching import TrainingStopped, Watching

GOOD = {
    "loss": 0.01,
    "grad_norm": 0.5,
    "reward": 0.4,
    "zero_advantages": 0.5,
    "truncated_share": 0.1,
    "entropy": 0.3,
    "grader_timeouts": 0.0,
}
THREE = Watch(patience=3)


def rows(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """A history with a good row for each step but for what `changes` says."""
    return [{"step": step} | GOOD | change for step, change in enumerate(changes, start=1)]


def signs(history: list[dict[str, Any]], watch: Watch = THREE) -> list[tuple[str, int, int]]:
    return [(one.sign, one.first, one.last) for one in findings(history, watch)]


def test_a_good_history_shows_no_sign() -> None:
    assert findings(rows(*[{}] * 50), THREE) == []


def test_a_loss_or_gradient_that_is_not_finite_is_a_sign_at_once() -> None:
    history = rows({}, {"loss": math.nan}, {}, {"grad_norm": math.inf})
    assert signs(history) == [("not_finite", 2, 2), ("not_finite", 4, 4)]


def test_a_loss_over_the_limit_is_a_sign_in_either_direction() -> None:
    history = rows({"loss": 100.0}, {"loss": 100.5}, {"loss": -101.0}, {"loss": 1.0})
    assert signs(history) == [("large_loss", 2, 3)]


def test_a_sampler_of_another_policy_ends_the_run_by_default(tmp_path: Path) -> None:
    history = rows({"sampler_gap_mean": 0.1}, {"sampler_gap_mean": 0.11}, {})
    assert signs(history) == [("sampler_gap", 2, 2)]
    assert signs(rows({"sampler_gap_mean": math.nan})) == [("sampler_gap", 1, 1)]
    with pytest.raises(TrainingStopped, match=r"0\.1 nats per token.*take sampler_gap out of"):
        logged(Watching(Watch(), tmp_path), history)


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ({"reward": 0.0}, "zero_reward"),
        ({"zero_advantages": 1.0}, "zero_advantages"),
        ({"truncated_share": 1.0}, "truncated"),
        ({"entropy": 0.0005}, "low_entropy"),
        ({"grader_timeouts": 0.11}, "grader_timeouts"),
    ],
)
def test_a_sign_takes_as_many_steps_as_patience(change: dict[str, Any], sign: str) -> None:
    assert signs(rows({}, change, change, {}, change)) == []
    assert signs(rows({}, change, change, change, change, {})) == [(sign, 2, 5)]


def test_timeouts_count_by_their_mean_over_the_window() -> None:
    now_and_then = rows({"grader_timeouts": 0.32}, {}, {}, {}, {})
    assert signs(now_and_then) == [("grader_timeouts", 1, 3)]  # .32 / 3 = .107
    assert signs(rows({"grader_timeouts": 0.29}, {}, {}, {})) == []  # .29 / 3 = .097


def test_what_a_history_does_not_hold_is_no_sign() -> None:
    assert findings([{"step": step} for step in range(1, 9)], Watch(patience=1)) == []
    unscored = [{"reward": None, "truncated_share": None, "log_q": 1.0} for _ in range(6)]
    assert signs(rows(*unscored)) == []  # as where no completion of a step is scored


def test_a_row_for_several_steps_concerns_all_of_them() -> None:
    history = [{"step": 20, "loss": 1.0}, {"step": 40, "loss": math.nan}]
    assert current(history, THREE)[0].first == 21


def logged(watching: Watching, history: list[dict[str, Any]]) -> None:
    """Hand the trainer's log to the callback, step by step."""
    names = {
        "reward": "rewards/correct/mean",
        "truncated_share": "completions/clipped_ratio",
        "sampler_gap_mean": "sampler/gap_mean",
    }
    log = [
        {names.get(key, key): value for key, value in row.items()} | {"learning_rate": 1e-3}
        for row in history
    ]
    for end in range(1, len(log) + 1):
        watching.on_log(None, SimpleNamespace(log_history=log[:end]), None)


def test_a_sign_is_warned_of_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(Watching(THREE, tmp_path), rows(*[{"reward": 0.0}] * 6))
    expected = "WARNING: in steps 1 to 3 no answer is correct (zero_reward)\n"
    assert capsys.readouterr().out == expected


def test_a_stop_names_the_reason_and_the_last_good_checkpoint(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        (tmp_path / f"checkpoint-{step}").mkdir()
    watch = Watch(patience=3, stop=["zero_reward"])
    history = rows({}, {}, {}, {}, *[{"reward": 0.0}] * 3)
    with pytest.raises(TrainingStopped) as error:
        logged(Watching(watch, tmp_path), history)
    assert "in steps 5 to 7 no answer is correct" in str(error.value)
    assert f"the last checkpoint before it is {tmp_path}/checkpoint-4." in str(error.value)
    assert "take zero_reward out of rl.watch.stop" in str(error.value)


def test_a_loss_that_is_not_finite_stops_by_default(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped, match="there is no checkpoint from before it"):
        logged(Watching(Watch(), tmp_path), rows({"loss": math.nan}))
    watch = Watch(stop=[])
    logged(Watching(watch, tmp_path), rows({"loss": math.nan}))


def test_the_page_names_runs_and_steps() -> None:
    found = [
        Finding("zero_reward", 3, 22, "no answer is correct"),
        Finding("zero_reward", 40, 59, "no answer is correct"),
    ]
    manifest = {"signs": [one.plain() for one in found]}
    content = PageContent(policies={Run("tiny", "grpo", 1): manifest, Run("tiny", "branch", 1): {}})
    (notice,) = training_notices(a_study(), content)
    assert notice.lines == ["tiny/grpo/seed1: no answer is correct (steps 3–22, 40–59)"]


def test_answers_without_a_verdict_are_counted() -> None:
    class Slow:
        def grade_many(self, samples: Any) -> list[Any]:
            statuses = ("correct", "timeout", "wrong", "wrong")
            return [SimpleNamespace(status=s, reward=float(s == "correct")) for s in statuses]

    logged: dict[str, float] = {}
    (correct,) = graded(Slow(), [], longest=8)  # type: ignore[arg-type]
    texts = [[{"content": "x"}]] * 4
    rewards = correct(
        completions=texts,
        completion_ids=[[1]] * 4,
        answer=["1"] * 4,
        kind=["number"] * 4,
        log_metric=logged.__setitem__,
    )
    assert (rewards, logged) == ([1.0, 0.0, 0.0, 0.0], {"grader_timeouts": 0.25})


def seal(folder: Path) -> None:
    (folder / "sums.json").unlink(missing_ok=True)
    (folder / "sums.json").write_text(json.dumps(file_sums(folder)))


def sealed(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"weights")
    seal(folder)
    return folder


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(tmp_path, {"steps": 4})
    before, newest = sealed(tmp_path / "checkpoint-2"), sealed(tmp_path / "checkpoint-10")
    assert (damage(before), damage(newest)) == ("", "")
    (newest / "weights").write_bytes(b"weighty")  # of the same length
    claim(tmp_path, {"steps": 4})
    assert before.is_dir()
    assert not newest.exists()
    assert f"{newest} is removed: weights is not as it was written" in capsys.readouterr().out


class Payload:
    """Unpickling this makes the folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state_0.pth", "x.bin"])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_that_would_run_code_gives_way_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, zipped: bool
) -> None:
    scratch, canary = tmp_path / "scratch", tmp_path / "canary"
    claim(scratch, {"steps": 4})
    before, newest = sealed(scratch / "checkpoint-2"), sealed(scratch / "checkpoint-4")
    state = {"step": torch.ones(3), "numbers": np.random.get_state(), "names": ("a", 1)}
    for folder, content in ((before, state), (newest, state | {"hook": Payload(canary)})):
        torch.save(
            content, folder / name, _use_new_zipfile_serialization=zipped or folder == before
        )
        seal(folder)  # as whoever wrote it does
    claim(scratch, {"steps": 4})
    assert before.is_dir()
    assert not newest.exists()
    told = f"{newest} is removed: {name} holds more than tensors and plain values; training"
    assert told in capsys.readouterr().out
    assert not canary.exists()
    torch.load(before / name, weights_only=False)
    torch.save(Payload(canary), before / name)
    torch.load(before / name, weights_only=False)
    assert canary.is_dir()  # so the payload is one that runs


def test_a_guide_that_feeds_itself_is_a_sign() -> None:
    watch = Watch(patience=2)
    calm, wild = {"log_q": 1.0, "reward": 0.4}, {"log_q": 1.6, "reward": 0.3}
    assert signs(rows(calm, calm, wild, wild), watch) == [("runaway", 1, 4)]
    long = {"log_q": 1.0, "reward": 0.3, "truncated_share": 0.2}
    assert signs(rows(calm, calm, long, long), watch) == [("runaway", 1, 4)]
    learning = wild | {"reward": 0.5}
    assert signs(rows(calm, calm, learning, learning), watch) == []
    without = [{"reward": 0.4}, {"reward": 0.4}, *[{"reward": 0.3, "truncated_share": 0.2}] * 2]
    assert signs(rows(*without), watch) == []
    assert "log_q" not in GOOD
