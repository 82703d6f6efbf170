"""Early stopping and temperature as rivals: what is drawn, counted, and shown beside mixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from counted import counts_of
from graded import problem, samples
from report_frames import figure_of, table_of

from sage.evaluation.mixtures import equal_accuracy, mixture_line
from sage.evaluation.snapshots import SnapshotSampler, rival_counts
from sage.exhibits import load_study
from sage.report.opening import findings_of
from sage.study import Draws, StudyError

ROOT = Path(__file__).parents[2]
DRAWS = {"samples": 2, "seeds": [0], "sampling": {"temperature": 1.0, "max_tokens": 8}}


class Recorded(SnapshotSampler):
    """Two samples of a problem, right below temperature 2; keeps what it was asked for."""

    def samples(self, policy: Path | None, algorithm: str, seed: int, step: int) -> Path:
        temperature = self.settings.sampling.temperature
        path = self.shards / f"{seed}-{step}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        samples({"p": "cw" if temperature < 2 else "ww"}).to_parquet(path)
        self.manifest.append((policy, algorithm, seed, step, temperature))  # type: ignore[attr-defined]
        return path


def test_each_run_is_sampled_before_its_end_and_hotter_at_its_end(tmp_path: Path) -> None:
    policies = [tmp_path / "grpo" / f"seed{seed}" for seed in (1, 2)]
    for policy in policies:
        for step in (10, 20, 30, 40):
            (policy / "snapshots" / f"step{step}").mkdir(parents=True)
    asked: list[Any] = []
    sampler = Recorded(
        base=tmp_path,
        problems=[problem("p")],
        settings=Draws.model_validate(DRAWS),
        device="cpu",
        model="m",
        benchmark="b",
        shards=tmp_path / "shards",
        manifest=asked,  # type: ignore[arg-type]
    )
    counts, tokens = rival_counts(sampler, policies, 2, [1.5, 2.0])
    snapshot = policies[0] / "snapshots" / "step20"
    assert asked[:3] == [
        (snapshot, "grpo", 1, 20, 1.0),
        (policies[0], "grpo", 1, 0, 1.5),
        (policies[0], "grpo", 1, 0, 2.0),
    ]
    assert tokens == 6 * 2 * 2
    assert counts["algorithm"].unique().tolist() == ["step-20", "temperature-1.5", "temperature-2"]
    right = counts.groupby("algorithm")["correct"].sum().to_dict()
    assert right == {"step-20": 2, "temperature-1.5": 2, "temperature-2": 0}


def test_the_line_of_mixtures_goes_from_the_baseline_to_the_base() -> None:
    counts = counts_of(base=[[4, 0]], grpo=[[8, 0], [8, 4]])
    line = mixture_line(counts, "grpo", 2, points=3)
    assert line["accuracy"].tolist() == pytest.approx([0.625, 0.4375, 0.25])
    ends = [(1 + 0 + 1 + 1 - (4 * 3) / (8 * 7)) / 4, (1 - (4 * 3) / (8 * 7)) / 2]
    assert line["coverage"].iloc[[0, 2]].tolist() == pytest.approx(ends)


def test_the_table_and_the_figure_show_rivals_beside_methods() -> None:
    study = load_study("early_stopping", ROOT / "config")
    methods = ["grpo", "grpo_k1_reward"]
    counts = counts_of(
        base=[[2] * 30],
        grpo=[[8, 0] * 15] * 3,
        grpo_k1_reward=[[4, 2] * 15] * 3,
        **{"step-20": [[3, 2] * 15] * 3, "temperature-2": [[0, 0] * 15] * 3},
    )
    rows = [*methods, "step-20", "temperature-2"]
    frames = {
        "cost_free_baselines": equal_accuracy(counts, "grpo", rows, 4, 100),
        "mixtures": mixture_line(counts, "grpo", 4),
    }
    table = table_of(study, "free_rivals", **frames).table
    shown = {row.title: [cell.text for cell in row.cells] for row in table.groups[0].rows}
    assert [*shown][1:] == ["GRPO, temperature 2"]
    assert shown["GRPO, stopped after 20 steps"][0] == "31.2"
    assert shown["GRPO, temperature 2"] == ["0.0", "0.0", "–"]
    (axes,) = figure_of(study, "free_rivals", **frames).axes
    lines = [line.get_xdata() for line in axes.lines]
    np.testing.assert_allclose(lines[1], [0.3125, 0.5])  # stopped early, then the end
    np.testing.assert_allclose(lines[2], [0.5, 0.0])
    assert isinstance(frames["mixtures"], pd.DataFrame)


def test_lines_go_by_step_and_temperature_to_a_baseline_that_need_not_be_shown() -> None:
    """Temperatures in any order; the finished baseline stands at its own, 1."""
    own = ["temperatures=[2.0, 0.5]", "algorithms=[grpo_k1_reward]"]
    study = load_study(
        "early_stopping", ROOT / "config", [f"exhibits.free_rivals.{each}" for each in own]
    )
    rivals = {"temperature-2": 3, "temperature-0.5": 5, "step-20": 7, "step-10": 6}
    counts = counts_of(
        base=[[0] * 9],
        grpo=[[4] * 9],
        grpo_k1_reward=[[1] * 9],
        **{n: [[c] * 9] for n, c in rivals.items()},
    )
    frames = {
        "cost_free_baselines": equal_accuracy(counts, "grpo", ["grpo_k1_reward", *rivals], 4, 100),
        "mixtures": mixture_line(counts, "grpo", 4),
    }
    (axes,) = figure_of(study, "free_rivals", **frames).axes
    _, stopped, temperatures = [np.multiply(8, line.get_xdata()) for line in axes.lines]
    np.testing.assert_allclose(stopped, [6, 7, 4])
    np.testing.assert_allclose(temperatures, [5, 4, 3])


def test_stops_alone_are_shown_without_a_line_of_temperatures() -> None:
    own = ["exhibits.free_rivals.temperatures=[]"]
    study = load_study("early_stopping", ROOT / "config", own)
    counts = counts_of(base=[[2] * 30], grpo=[[8, 0] * 15] * 3, **{"step-20": [[3, 2] * 15] * 3})
    frames = {
        "cost_free_baselines": equal_accuracy(counts, "grpo", ["grpo", "step-20"], 4, 100),
        "mixtures": mixture_line(counts, "grpo", 4),
    }
    assert "GRPO stopped early. Pass@1" in table_of(study, "free_rivals", **frames).caption
    (axes,) = figure_of(study, "free_rivals", **frames).axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["mixtures with the base", "stopped early"]


def test_rivals_of_nothing_are_refused() -> None:
    nothing = ["exhibits.free_rivals.snapshots=1", "exhibits.free_rivals.temperatures=[]"]
    with pytest.raises(ValueError, match="set snapshots to 2 or more, or give a temperature"):
        load_study("early_stopping", ROOT / "config", nothing)


def test_the_page_opens_with_the_rivals_of_a_kept_run() -> None:
    study = load_study("early_stopping", ROOT / "config")
    frame = pd.read_csv(ROOT / "reports/early_stopping/equal_accuracy/free_rivals.csv")
    (found,) = findings_of(study, {"free_rivals": frame})
    (said,) = found.sentences
    assert said.endswith(
        "(62.2 to 70.5 %, +8.3 points, 95 % interval +0.9 to +15.7, not adjusted)."
    )
    assert "stopped after 10 steps has clearly more" in said
    assert " as accurate where RL trains; " in said
    (alone,) = findings_of(study, {"free_rivals": frame[frame["algorithm"] == "grpo"]})
    assert alone.sentences == ()


def test_a_baseline_that_is_not_trained_is_named_before_the_first_job() -> None:
    study = load_study("mini", ROOT / "config")
    kind = study.study.exhibits["equal_accuracy"].model_copy(update={"baseline": "pkpo"})
    with pytest.raises(StudyError, match="baseline: 'pkpo' is not trained for sums; it can be"):
        kind.settings(study, "equal_accuracy")  # type: ignore[attr-defined]
