"""How far a study is, how long it may take, and what its running jobs train: `make watch`.

It reads results, manifests and logs only, so it can run beside Snakemake, which keeps its lock, and
on a machine that shares the folder. Time left is that of training and sampling at the mean time of
the jobs done so far, with as many jobs side by side as now; tables and figures are not counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.rendering.numbers import duration
from sage.results import Results, Run
from sage.study import ResolvedStudy

ACTIVE_SECONDS = 600.0
"""A job without its result whose log was written to within this time counts as running."""

_STEPS = re.compile(r"(\d+)/(\d+) \[")
_REWARD = re.compile(r"'reward': '([^']+)'")
_BARS = "▁▂▃▄▅▆▇█"
_Made = tuple[Path, dict[str, Any]]  # a manifest, and the settings that it must have
_WIDTH = 40


@dataclass(frozen=True)
class Running:
    """A running job: its name, optimizer steps (0 if its log has none), and rewards so far."""

    name: str
    step: int
    steps: int
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class Stage:
    """One kind of job: how many there are and are done, and the mean time of those, in seconds.

    `stale` of those done were made with other settings than the study has now, and run again.
    """

    name: str
    done: int
    total: int
    seconds: float | None
    running: tuple[Running, ...]
    stale: int = 0


def stages(study: ResolvedStudy, results: Results, now: float) -> list[Stage]:
    """Training and sampling of a study; `now` is in seconds since the epoch."""
    models = study.study.models
    runs = [run for model in models for run in study.trained_runs(model)]
    pairs = [pair for model in models for pair in study.evaluated_runs(model)]
    trained, sampled = dict[str, _Made](), dict[str, _Made]()
    for run in runs:
        asked = study.model(run.model).rl
        assert asked is not None  # of a run that is trained
        rl = asked.model_dump(mode="json", exclude={"watch"})
        method = study.algorithms[run.algorithm].model_dump(mode="json") | {"title": ""}
        trained[_name(run)] = results.policy(run) / "manifest.json", {"rl": rl, "algorithm": method}
    for run, benchmark in pairs:
        settings = {"evaluation": study.evaluation(run.model).decisive()}
        manifest = results.sample_manifest(run, benchmark)
        sampled[f"{_name(run)}/{benchmark}"] = manifest, settings
    return [
        _stage("training", trained, results, "models", now),
        _stage("sampling", sampled, results, "samples", now),
    ]


def seconds_left(progress: Iterable[Stage]) -> float | None:
    """Wall time that training and sampling may still take; None where no job has ended yet."""
    work, side_by_side = 0.0, 0
    for stage in progress:
        side_by_side += len(stage.running)
        left = stage.total - stage.done
        if left and stage.seconds is None:
            return None
        work += left * (stage.seconds or 0.0)
    return work / max(1, side_by_side)


def rendered(study: ResolvedStudy, progress: Sequence[Stage]) -> str:
    """One line for the whole study, then one for each running job with its curve of rewards."""
    counts = ", ".join(
        f"{stage.name} {stage.done} of {stage.total}"
        + (f" ({stage.stale} of them stale)" if stage.stale else "")
        for stage in progress
    )
    done, total = (sum(getattr(stage, name) for stage in progress) for name in ("done", "total"))
    left = seconds_left(progress)
    if done == total:
        stale = any(stage.stale for stage in progress)
        remains = "the stale ones are left" if stale else "only tables and figures can be left"
    else:
        remains = "time left not known yet" if left is None else f"about {duration(left)} left"
    lines = [f"{study.name}: {100 * done // max(1, total)} %, {counts}; {remains}"]
    if any(stage.stale for stage in progress):
        lines.append(
            "  Stale results were made with other settings than the study has now; the next run "
            "makes them again (`sage-rlvr run -n` names the settings)."
        )
    for job in (job for stage in progress for job in stage.running):
        said = f"step {job.step} of {job.steps}" if job.steps else "started"
        curve = f"  reward {curve_of(job.rewards)} {job.rewards[-1]:.2f}" if job.rewards else ""
        lines.append(f"  {job.name}: {said}{curve}")
    return "\n".join(lines)


def curve_of(values: Sequence[float]) -> str:
    """Values as bars between the lowest and the highest; means where there are too many."""
    parts = min(_WIDTH, len(values))
    edges = [index * len(values) // parts for index in range(parts + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    top = len(_BARS) - 1
    return "".join(_BARS[round(top * (mean - low) / span) if span else 0] for mean in means)


def _name(run: Run) -> str:
    return f"{run.model}/{run.algorithm}/seed{run.seed}"


def _stage(name: str, jobs: dict[str, _Made], results: Results, logs: str, now: float) -> Stage:
    times, running, done, stale = list[float | None](), [], 0, 0
    for job, (manifest, settings) in jobs.items():
        if manifest.is_file():
            done += 1
            content = _content(manifest)
            times.append(content.get("wall_seconds"))
            made = content.get("settings") or {}
            stale += any(made.get(key, value) != value for key, value in settings.items())
        elif progress := _running(job, results.log(f"{logs}/{job}"), now):
            running.append(progress)
    known = [seconds for seconds in times if seconds is not None]
    mean = sum(known) / len(known) if known else None
    return Stage(name, done, len(jobs), mean, tuple(running), stale)


def _content(manifest: Path) -> dict[str, Any]:
    """A manifest; empty for one that is being written, or removed."""
    try:
        return dict(json.loads(manifest.read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _running(job: str, log: Path, now: float) -> Running | None:
    try:
        if now - log.stat().st_mtime > ACTIVE_SECONDS:
            return None
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    steps = _STEPS.findall(text)
    step, total = (int(number) for number in steps[-1]) if steps else (0, 0)
    return Running(job, step, total, tuple(_numbers(_REWARD.findall(text))))


def _numbers(texts: Iterable[str]) -> Iterable[float]:
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            continue
        if number == number:
            yield number


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the progress every few seconds until training and sampling are done."""
    import yaml

    from sage.exhibits import load_study
    from sage.study import StudyError, load_settings

    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="sage-rlvr watch", description=about)
    parser.add_argument("study", nargs="?", help="default: the one that config/config.yaml names")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in run")
    parser.add_argument("--every", type=float, default=10.0, help="seconds; 0 prints once")
    options = parser.parse_args(arguments)
    given = {key: value for key, value in vars(options).items() if key != "every" and value}
    try:
        content = yaml.safe_load(Path("config/config.yaml").read_text(encoding="utf-8"))
        settings = load_settings(content | given)
        study = load_study(settings.study, Path("config"), settings.set)
    except (StudyError, FileNotFoundError) as error:
        print(f"sage-rlvr watch: {error}", file=sys.stderr)
        return 1
    results = Results(Path(settings.results) / study.name)
    while True:
        progress = stages(study, results, time.time())
        print(rendered(study, progress), flush=True)
        if not options.every or all(stage.done == stage.total for stage in progress):
            return 0
        time.sleep(options.every)
