"""Shows how far a study is, the time left, and the rewards of its running jobs: `make watch`.

It reads results, manifests and logs only, so it can run beside Snakemake, which keeps its lock, and
on a machine that shares the folder. Time left is that of training and sampling at the mean time of
the jobs done so far, with as many jobs side by side as now; tables and figures are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sage.rendering.numbers import duration
from sage.results import Results, Run
from sage.study import ResolvedStudy
from sage.study.without_effect import WITHOUT_EFFECT

ACTIVE_SECONDS = 600.0
"""A job without its result whose log was written to within this time counts as running."""

_STEPS = re.compile(r"(\d+)/(\d+) \[")
_REWARD = re.compile(r"'reward': '(-?[\d.]+(?:e[+-]?\d+)?)'")
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40


@dataclass
class Stage:
    """One kind of job: how many there are and are done, and the times of those, in seconds.

    `stale` of those done were made with other settings than the study has now, and run again.
    `running` has a line for each running job: its name, optimizer step and rewards so far.
    """

    name: str
    total: int
    done: int = 0
    stale: int = 0
    seconds: list[float] = field(default_factory=list)
    running: list[str] = field(default_factory=list)


def stages(study: ResolvedStudy, results: Results, now: float) -> list[Stage]:
    """Training and sampling of a study; `now` is in seconds since the epoch."""
    models = study.study.models
    runs = [run for model in models for run in study.trained_runs(model)]
    pairs = [pair for model in models for pair in study.evaluated_runs(model)]
    training, sampling = Stage("training", len(runs)), Stage("sampling", len(pairs))
    for run in runs:
        rl = study.rl(run.model).model_dump(mode="json", exclude=set(WITHOUT_EFFECT["rl"]))
        method = study.algorithms[run.algorithm].model_dump(mode="json") | {"title": ""}
        manifest, log = results.policy(run) / "manifest.json", results.log(f"models/{_name(run)}")
        _add(training, _name(run), manifest, {"rl": rl, "algorithm": method}, log, now)
    for run, benchmark in pairs:
        name, drawn = f"{_name(run)}/{benchmark}", study.evaluation(run.model).decisive()
        manifest, log = results.sample_manifest(run, benchmark), results.log(f"samples/{name}")
        _add(sampling, name, manifest, {"evaluation": drawn}, log, now)
    return [training, sampling]


def _name(run: Run) -> str:
    return f"{run.model}/{run.algorithm}/seed{run.seed}"


def _add(
    stage: Stage, job: str, manifest: Path, settings: dict[str, Any], log: Path, now: float
) -> None:
    """Count a job: done if it has a manifest, running if its log is fresh."""
    if not manifest.is_file():
        stage.running += _running(job, log, now)
        return
    stage.done += 1
    try:
        content = dict(json.loads(manifest.read_bytes()))
    except (OSError, ValueError, TypeError):  # being written, or removed
        content = {}
    made, seconds = content.get("settings") or {}, content.get("wall_seconds")
    stage.stale += any(made.get(key, value) != value for key, value in settings.items())
    stage.seconds += [seconds] if seconds is not None else []


def _running(job: str, log: Path, now: float) -> list[str]:
    """A line for a job whose log is fresh: `tiny/grpo/seed1: step 3 of 8  reward ▁▃█ 0.50`."""
    try:
        if now - log.stat().st_mtime > ACTIVE_SECONDS:
            return []
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    steps, rewards = _STEPS.findall(text), [float(reward) for reward in _REWARD.findall(text)]
    said = f"step {steps[-1][0]} of {steps[-1][1]}" if steps else "started"
    curve = f"  reward {curve_of(rewards)} {rewards[-1]:.2f}" if rewards else ""
    return [f"{job}: {said}{curve}"]


def curve_of(values: Sequence[float]) -> str:
    """Values as bars between the lowest and the highest; means where there are too many."""
    parts = np.array_split(np.asarray(values), min(_WIDTH, len(values)))
    means = np.array([part.mean() for part in parts])
    heights = (means - means.min()) / (np.ptp(means) or 1.0)
    return "".join(_BARS[round(height * (len(_BARS) - 1))] for height in heights)


def seconds_left(progress: Iterable[Stage]) -> float | None:
    """Wall time that training and sampling may still take; None where no job has ended yet."""
    work, side_by_side = 0.0, 0
    for stage in progress:
        side_by_side += len(stage.running)
        if left := stage.total - stage.done:
            if not stage.seconds:
                return None
            work += left * sum(stage.seconds) / len(stage.seconds)
    return work / max(1, side_by_side)


def rendered(study: ResolvedStudy, progress: Sequence[Stage]) -> str:
    """One line for the whole study, then one for each running job with its curve of rewards."""
    counts = ", ".join(
        f"{stage.name} {stage.done} of {stage.total}"
        + (f" ({stage.stale} of them stale)" if stage.stale else "")
        for stage in progress
    )
    done, total = sum(stage.done for stage in progress), sum(stage.total for stage in progress)
    stale, left = any(stage.stale for stage in progress), seconds_left(progress)
    remains = "time left not known yet" if left is None else f"about {duration(left)} left"
    if done == total:
        remains = "the stale ones are left" if stale else "only tables and figures can be left"
    lines = [f"{study.name}: {100 * done // max(1, total)} %, {counts}; {remains}"]
    if stale:
        lines.append(
            "  Stale results were made with other settings than the study has now; the next run "
            "makes them again (`sage-rlvr run -n` names the settings)."
        )
    return "\n".join([*lines, *(f"  {line}" for stage in progress for line in stage.running)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the progress every few seconds until training and sampling are done."""
    import yaml

    from sage.exhibits import load_study
    from sage.study import load_settings

    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="sage-rlvr watch", description=about)
    parser.add_argument("study", nargs="?", help="default: the one that config/config.yaml names")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="settings, as given to run"
    )
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="such as results=FOLDER"
    )
    parser.add_argument(
        "--every",
        type=float,
        default=10.0,
        help="seconds between two looks (default: 10); 0 prints once and ends",
    )
    options = parser.parse_args(arguments)
    given = {key: value for key in ("study", "set") if (value := vars(options)[key])}
    given |= dict(each.partition("=")[::2] for each in options.config)
    try:
        if not 0 <= options.every < math.inf:
            raise ValueError(f"--every {options.every:g}: must be 0 or more")
        if lone := [word for word in options.config if "=" not in word]:
            raise ValueError(f"--config {lone[0]}: must be KEY=VALUE, such as results=FOLDER")
        content = yaml.safe_load(Path("config/config.yaml").read_text(encoding="utf-8"))
        settings = load_settings((content or {}) | given)
        study = load_study(settings.study, Path("config"), settings.set)
    except (ValueError, FileNotFoundError) as error:
        print(f"sage-rlvr watch: {error}", file=sys.stderr)
        return 1
    results = Results(Path(settings.results) / study.name)
    while True:
        progress = stages(study, results, time.time())
        print(rendered(study, progress), flush=True)
        if not options.every or all(stage.done == stage.total for stage in progress):
            return 0
        time.sleep(options.every)
