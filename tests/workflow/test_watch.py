"""The progress of a study, from files as jobs leave them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import ROOT

from sage.exhibits import load_study
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.without_effect import WITHOUT_EFFECT
from sage.tools import watch

NOW = 1_000_000_000.0


@pytest.fixture(scope="module")
def study() -> ResolvedStudy:
    return load_study("smoke", ROOT / "config")


def finish(manifest: Path, seconds: float) -> None:
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"wall_seconds": seconds}))


def note(log: Path, text: str, age: float) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    os.utime(log, (NOW - age, NOW - age))


def test_an_empty_folder_has_everything_left(study: ResolvedStudy, tmp_path: Path) -> None:
    found = watch.stages(study, Results(tmp_path), NOW)
    assert [stage.done for stage in found] == [0, 0]
    assert watch.seconds_left(found) is None
    text = watch.rendered(study, found)
    assert text.startswith("smoke: 0 %, training 0 of ")
    assert text.endswith("time left not known yet")


def test_time_left_is_the_mean_time_of_jobs_over_those_side_by_side(
    study: ResolvedStudy, tmp_path: Path
) -> None:
    results = Results(tmp_path)
    runs = [run for model in study.study.models for run in study.trained_runs(model)]
    pairs = [pair for model in study.study.models for pair in study.evaluated_runs(model)]
    finish(results.policy(runs[0]) / "manifest.json", 100.0)
    finish(results.policy(runs[1]) / "manifest.json", 200.0)
    finish(results.sample_manifest(*pairs[0]), 10.0)
    for run in runs[2:4]:
        name = f"models/{run.model}/{run.algorithm}/seed{run.seed}"
        note(results.log(name), " 3/8 [00:01<00:02]", age=5.0)
    found = watch.stages(study, results, NOW)
    assert [len(stage.running) for stage in found] == [2, 0]
    work = (len(runs) - 2) * 150.0 + (len(pairs) - 1) * 10.0
    assert watch.seconds_left(found) == pytest.approx(work / 2)


def test_a_running_job_shows_its_step_and_rewards(study: ResolvedStudy, tmp_path: Path) -> None:
    results = Results(tmp_path)
    first, second, third = study.trained_runs("tiny")[:3]
    rows = "".join(f"{{'reward': '{r}', 'kl': '1'}}\n {n}/8 [0" for n, r in enumerate([0, 0.5, 1]))
    note(results.log(f"models/tiny/{first.algorithm}/seed{first.seed}"), rows, age=1.0)
    # One that ended long ago without a result, and one whose reward is no number.
    old = f"models/tiny/{second.algorithm}/seed{second.seed}"
    note(results.log(old), rows, age=watch.ACTIVE_SECONDS + 1)
    note(
        results.log(f"models/tiny/{third.algorithm}/seed{third.seed}"),
        "'reward': 'nan' 'reward': 'x'",
        age=1.0,
    )
    text = watch.rendered(study, watch.stages(study, results, NOW))
    assert f"  tiny/{first.algorithm}/seed{first.seed}: step 2 of 8  reward ▁▅█ 1.00" in text
    assert f"  tiny/{third.algorithm}/seed{third.seed}: started" in text
    assert f"tiny/{second.algorithm}/seed{second.seed}:" not in text


def test_results_made_with_other_settings_are_stale(study: ResolvedStudy, tmp_path: Path) -> None:
    results, run = Results(tmp_path), study.trained_runs("tiny")[0]
    rl = study.rl("tiny").model_dump(mode="json", exclude=set(WITHOUT_EFFECT["rl"]))
    method = study.algorithms[run.algorithm].model_dump(mode="json") | {"title": ""}
    manifest = results.policy(run) / "manifest.json"
    finish(manifest, 1.0)
    for steps, stale in ((rl["steps"], 0), (rl["steps"] + 1, 1)):
        settings = {"rl": rl | {"steps": steps}, "algorithm": method}
        manifest.write_text(json.dumps({"wall_seconds": 1.0, "settings": settings}))
        (training, _) = found = watch.stages(study, results, NOW)
        assert training.stale == stale
        assert ("(1 of them stale)" in watch.rendered(study, found)) == bool(stale)


def test_a_long_curve_is_drawn_from_means() -> None:
    assert watch.curve_of([0.0, 7.0]) == "▁█"
    assert watch.curve_of([1.0, 1.0]) == "▁▁"
    assert watch.curve_of([0.0] * 40 + [1.0] * 40) == "▁" * 20 + "█" * 20


def test_results_elsewhere_are_watched_there(
    study: ResolvedStudy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    run = study.trained_runs("tiny")[0]
    finish(Results(tmp_path / "smoke").policy(run) / "manifest.json", 10.0)
    given = ["smoke", "--every", "0", "--config", f"results={tmp_path}"]
    assert watch.main(given) == 0
    assert "training 1 of " in capsys.readouterr().out
    assert watch.main([*given, "outputs=x"]) == 1
    assert "outputs" in capsys.readouterr().err
