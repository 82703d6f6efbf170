"""Training dynamics against numbers worked by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report_frames import EXHIBITS, a_study

from sage.evaluation.histories import history_frame, read_histories, stage_means
from sage.exhibits import measure
from sage.exhibits.training import GradientTable, _smoothed, gradient_norm_table
from sage.exhibits.trajectory import reward_and_accuracy
from sage.results import Results, Run
from sage.runtime.manifest import Manifest


def history(**columns: list[float]) -> list[dict[str, float]]:
    length = len(next(iter(columns.values())))
    return [
        {"step": step + 1, **{name: column[step] for name, column in columns.items()}}
        for step in range(length)
    ]


def test_stages_are_thirds() -> None:
    assert stage_means(np.array([1.0, 3.0, 4.0, 6.0, 7.0, 9.0])).tolist() == [2.0, 5.0, 8.0]
    assert stage_means(np.array([1.0, 3.0, 4.0, 6.0])).tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(ValueError, match="2 steps"):
        stage_means(np.ones(2))


def test_the_gradient_table_ranges_over_seeds() -> None:
    runs = {
        ("grpo", 1): history(grad_norm=[1, 1, 2, 2, 3, 3]),
        ("grpo", 2): history(grad_norm=[2, 2, 2, 2, 1, 1]),
        ("grpo", 3): history(grad_norm=[6, 6, 2, 2, 5, 5]),
        ("base_like", 1): history(grad_norm=[1, 2, 3]),
    }
    table = gradient_norm_table(runs).set_index(["algorithm", "stage"])
    assert table.loc["grpo", "value"].tolist() == pytest.approx([3.0, 2.0, 3.0])
    assert table.loc["grpo", "low"].tolist() == [1.0, 2.0, 1.0]
    assert table.loc["grpo", "high"].tolist() == [6.0, 2.0, 5.0]
    assert table.loc["grpo", "coverage"].tolist() == [0.75] * 3
    assert table.loc["base_like", "low"].isna().all()
    assert table.loc["base_like", "coverage"].tolist() == [0.0] * 3


def test_histories_are_read_from_policies_folders(tmp_path: Path) -> None:
    for name in ("grpo", "grpo_no_kl"):
        folder = tmp_path / name / "seed4"
        folder.mkdir(parents=True)
        rows = history(grad_norm=[3.0, 2.0, 1.0])
        (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = sorted(tmp_path.glob("*/seed4"))
    assert read_histories(folders)["grpo", 4] == history(grad_norm=[3.0, 2.0, 1.0])
    (folders[0] / "history.jsonl").write_text('{"step": 1}\n{"ste')
    with pytest.raises(ValueError, match=r"line 2 of history.jsonl is not JSON .*/seed4 and run"):
        read_histories(folders)


def test_gradient_norms_are_measured_from_the_histories_of_its_methods(tmp_path: Path) -> None:
    results, study = Results(tmp_path), a_study()
    table5 = EXHIBITS["table5"]
    assert isinstance(table5, GradientTable)
    files = table5.inputs(study, results, "table5")
    runs = [Run("tiny", name, 1) for name in ("grpo", "branch")]
    assert files == {"policies": [results.policy(run) for run in runs]}
    for run, norms in zip(runs, ([3.0, 2.0, 1.0], [1.0, 1.0, 4.0]), strict=True):
        results.policy(run).mkdir(parents=True)
        rows = history(grad_norm=norms)
        results.history(run).write_text("".join(json.dumps(row) + "\n" for row in rows))
    measured, manifest = results.measured("table5"), Manifest({}, threads=1, started=0.0)
    measure(table5.model_dump(), {}, files, measured, "cpu", tmp_path / "shards", manifest)
    written = pd.read_parquet(measured / "stages.parquet").set_index("algorithm")
    assert written.loc["grpo", "value"].tolist() == [3.0, 2.0, 1.0]
    assert written.loc["branch", "value"].tolist() == [1.0, 1.0, 4.0]
    results.history(runs[0]).write_text('{"step": 1}\n')
    with pytest.raises(ValueError, match="grpo, seed 1: no grad_norm"):
        measure(table5.model_dump(), {}, files, measured, "cpu", tmp_path / "shards", manifest)
    assert (measured / "stages.parquet").exists()  # all of it or nothing


def test_histories_are_one_frame_with_what_was_recorded() -> None:
    runs = {
        ("grpo", 2): history(reward=[0.5, 0.25]),
        ("branch", 1): history(reward=[0.75], q_mean=[1.125]),
        ("no_kl", 1): [],
    }
    frame = history_frame(runs)
    rows = [["branch", 1, 1, 0.75], ["grpo", 2, 1, 0.5], ["grpo", 2, 2, 0.25]]
    assert frame[["algorithm", "seed", "step", "reward"]].to_numpy().tolist() == rows
    assert frame["q_mean"].isna().tolist() == [False, True, True]
    assert history_frame({}).columns.tolist() == ["algorithm", "seed", "step"]


def test_the_range_covers_the_median_as_often_as_it_says() -> None:
    """Over runs of a skewed law, the range of three holds the median three times in four."""
    draws = np.random.default_rng(0).exponential(size=(20_000, 3))
    held = (draws.min(axis=1) < math.log(2)) & (math.log(2) < draws.max(axis=1))
    assert held.mean() == pytest.approx(1 - 2.0 ** (1 - 3), abs=0.01)


def test_faulty_histories_are_named() -> None:
    with pytest.raises(ValueError, match="grpo, seed 1: no grad_norm"):
        gradient_norm_table({("grpo", 1): history(reward=[1, 2, 3])})
    runs = {("grpo", 1): history(grad_norm=[1] * 3), ("grpo", 2): history(grad_norm=[1] * 4)}
    with pytest.raises(ValueError, match="different lengths"):
        gradient_norm_table(runs)


def test_reward_around_a_checkpoint_is_joined_with_accuracy() -> None:
    """Steps 1 to 6; the policy after 2 updates drew the rollouts of step 3."""
    rewards = [0.0, 0.1, 0.2, 0.6, 0.8, 1.0]
    values = {"step": [6, 0, 2], "value": [0.5, 0.3, 0.4], "low": [0.4, 0.2, 0.3]}
    accuracies = pd.DataFrame({"algorithm": "grpo", "train_seed": 1, **values})
    joined = reward_and_accuracy({("grpo", 1): history(reward=rewards)}, accuracies, window=2)
    assert joined["step"].tolist() == [0, 2, 6]
    assert joined["accuracy"].tolist() == [0.3, 0.4, 0.5]
    assert joined["low"].tolist() == [0.2, 0.3, 0.4]
    assert joined["reward"].tolist() == pytest.approx([0.0, 0.15, 1.0])
    one = reward_and_accuracy({("grpo", 1): history(reward=rewards)}, accuracies, window=1)
    assert one["reward"].tolist() == pytest.approx([0.0, 0.2, 1.0])
    with pytest.raises(ValueError, match="no history"):
        reward_and_accuracy({}, accuracies, window=2)
    with pytest.raises(ValueError, match="a history of 3 steps"):
        reward_and_accuracy({("grpo", 1): history(reward=rewards[:3])}, accuracies, window=2)


def test_a_running_mean_goes_over_steps_in_order() -> None:
    """The first run did not log the steps 3 to 5; the value is the number of the step."""
    rows = [
        {"algorithm": "branch", "seed": seed, "step": step, "guide_dose": float(step)}
        for seed in (1, 2)
        for step in range(1, 101)
        if seed == 2 or not 3 <= step <= 5
    ]
    drawn = _smoothed(pd.DataFrame(rows), "guide_dose")
    inner = drawn[drawn["step"].between(3, 97)]
    assert inner["mean"].tolist() == pytest.approx(inner["step"].tolist())
