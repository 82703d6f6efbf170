"""The cost of a study before anything runs: jobs, tokens, hours and disk, per stage and model.

The stages are SFT, RL and sampling. Pretraining and exhibits that need a model are small in
comparison and not counted. Tokens are upper bounds: every completion has the longest allowed
length. Times come from manifests of runs on disk, else from the throughput in the model's `job`
section, else from the run of that study in benchmarks/{study}_time.json. If none is there, the plan
says so and does not guess. It also shows the memory that jobs ask for and what runs have used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sage.exhibits import kind_of
from sage.problems.record import read_problems
from sage.rendering.labels import listed
from sage.rendering.numbers import duration
from sage.results import Results
from sage.study import ResolvedStudy

BYTES_PER_TOKEN = 8.0
"""Bytes on disk per completion token, before compression: its text, and its id as four bytes."""

GENEROUS, TIGHT = 2.0, 1.2
"""Limits of a memory request as a multiple of the measured peak: above the first it is wasteful,
below the second risky."""

FEW_COMPLETIONS = 8
"""A GPU with fewer completions of a step than this reads its weights for little work."""

LONG_HOURS, MANY_TOKENS = 24 * 365.0, 1e13
"""Job hours and tokens of a stage above which the plan asks whether they are meant."""

TIMES = Path("benchmarks")
"""The folder with measured runs of studies, beside the Snakefile."""

ROOM = 1.5
"""A good memory request, as a multiple of the measured peak."""


@dataclass(frozen=True)
class Measured:
    """What runs have used: tokens per second over all, and peaks of memory in GB."""

    tokens_per_second: float | None = None
    memory_gb: float | None = None
    gpu_memory_gb: float | None = None


@dataclass(frozen=True)
class Stage:
    """One kind of job for one model; `None` means unknown."""

    name: str
    model: str
    jobs: int
    tokens: int | None
    tokens_per_second: float | None
    gpus: int
    disk_bytes: float | None
    memory_gb: int
    measured: Measured
    source: str = ""

    @property
    def hours(self) -> float | None:
        """Total hours of all its jobs."""
        if self.tokens is None or self.tokens_per_second is None:
            return None
        return self.tokens / self.tokens_per_second / 3600


def plan(study: ResolvedStudy, results: Results) -> list[Stage]:
    """The stages of a study in the order in which they run; `results` are its files."""
    return [
        stage
        for model in study.study.models
        for stage in (
            *_sft(study, model, results),
            *_rl(study, model, results),
            _sampling(study, model, results),
        )
    ]


def render_plan(study: ResolvedStudy, stages: Iterable[Stage], gpu_limit: int = 0) -> str:
    """The plan as text: a line for each stage, then totals; jobs use up to `gpu_limit` GPUs."""
    rows = list(stages)
    names = ("stage", "model", "jobs", "tokens", "tokens/s", "time", "GPUs", "GB", "used", "GPU")
    widths = ("10", "26", ">5", ">9", ">9", ">10", ">5", ">5", ">6", ">6")
    head = " ".join(f"{name:{width}}" for name, width in zip(names, widths, strict=True))
    lines = [f"Study {study.name}: {study.study.title}", head]
    for row in rows:
        lines.append(
            f"{row.name:10} {row.model:26} {row.jobs:5d} {_large(row.tokens):>9} "
            f"{_large(row.tokens_per_second):>9} {_time(row.hours):>10} {row.gpus:5d} "
            f"{row.memory_gb:5d} {_gb(row.measured.memory_gb):>6} "
            f"{_gb(row.measured.gpu_memory_gb):>6}"
        )
    lines.append(
        "GB: host memory that a job asks for (`memory_gb`). used: the most that a job has used "
        "so far. GPU: the most device memory used so far, in GB."
    )
    lines.append(f"Total: {total(rows)}.")
    if sources := sorted({row.source for row in rows if row.source}):
        lines.append(f"Speeds: {'; '.join(sources)}.")
    gpu_hours = sum((row.hours or 0.0) * row.gpus for row in rows)
    if gpu_limit > 1 and gpu_hours:
        lines.append(
            f"With {gpu_limit} GPUs at a time (`--resources gpu=N` for N) these take at least "
            f"{_time(gpu_hours / gpu_limit)}."
        )
    if unknown := [f"{row.name} of {row.model}" for row in rows if row.hours is None]:
        lines.append(
            f"The time does not include {', '.join(unknown)}: speed unknown. Run one job, or set "
            "training and sampling in the model's job section."
        )
    return "\n".join(
        [*lines, *uncounted(study), *questions(rows), *memory_hints(rows), *gpu_hints(study)]
    )


def questions(stages: Iterable[Stage]) -> list[str]:
    """A line for each stage so large that a setting may have too many digits."""
    return [
        f"Is this meant? {row.name} of {row.model} asks for {_large(row.tokens)} tokens"
        + (f", {_time(row.hours)} of jobs" if row.hours is not None else "")
        + (": check evaluation.samples" if row.name == "sample" else ": check steps and rollouts")
        for row in stages
        if (row.tokens or 0) > MANY_TOKENS or (row.hours or 0.0) > LONG_HOURS
    ]


def total(stages: Iterable[Stage]) -> str:
    """Jobs, tokens, hours and disk of all stages together, as far as they are known."""
    rows = list(stages)
    known = [row for row in rows if row.hours is not None]
    hours = sum(row.hours or 0.0 for row in known) if known else None
    gpu_hours = sum((row.hours or 0.0) * row.gpus for row in known)
    on_gpus = f"{_time(gpu_hours)} on GPUs, " if any(row.gpus for row in rows) else ""
    disk = sum(row.disk_bytes or 0.0 for row in rows)
    return (
        f"{sum(row.jobs for row in rows)} jobs, at most "
        f"{_large(sum(row.tokens or 0 for row in rows))} tokens, "
        f"{'time unknown' if hours is None else f'{_time(hours)} of jobs one after another'}, "
        f"{on_gpus}{disk / 1e9:.1f} GB of samples"
    )


def uncounted(study: ResolvedStudy) -> list[str]:
    """Lines that say which tokens the plan does not know."""
    rows = {
        row: study.algorithms[row] for name in study.study.models for row in study.trained(name)
    }
    again = [row for row, settings in rows.items() if settings.filter or settings.planner]
    drawing = [name for name in study.study.exhibits if kind_of(study, name).draws]
    parts = (
        [f"completions that the filters and planners of {listed(again)} may draw again"]
        if again
        else []
    )
    parts += [f"samples drawn for {listed(drawing)} alone"] if drawing else []
    return [f"Not counted: {listed(parts)}."] if parts else []


def gpu_hints(study: ResolvedStudy) -> list[str]:
    """A line for each model whose RL shares out fewer completions than keep a GPU busy."""
    hints = []
    for name, model in study.study.models.items():
        if not (rl := model.rl):
            continue
        step, gpus = rl.prompts_per_step * rl.rollouts, model.job.gpus
        if gpus > 1 and step < FEW_COMPLETIONS * gpus:
            runs = len(study.trained_runs(name))
            hints.append(
                f"{name}: a step's {step} completions are {step // gpus or 'less than 1'} for each "
                f"of {gpus} GPUs, which will mostly wait: set gpus: 1, and {min(gpus, runs)} of "
                f"its {runs} runs train side by side."
            )
    return hints


def memory_hints(stages: Iterable[Stage]) -> list[str]:
    """A line for each model with a `memory_gb` far from the most that its jobs used."""
    highest: dict[str, Stage] = {}
    for stage in stages:
        held = highest.get(stage.model)
        if _peak(stage) > (_peak(held) if held else 0.0):
            highest[stage.model] = stage
    hints = []
    for model, stage in highest.items():
        peak, asked, each = _peak(stage), stage.memory_gb, max(1, stage.gpus)
        better = math.ceil(ROOM * peak / each)
        usage = (
            f"{model}: its jobs ask for {asked} GB; {stage.name} has used at most {peak:.1f} GB "
            "so far"
        )
        if asked < TIGHT * peak:
            hints.append(f"{usage}, which is close to the limit: set memory_gb to {better}.")
        elif asked > GENEROUS * peak and better * each < asked:
            hints.append(f"{usage}: memory_gb {better} is enough.")
    return hints


def _peak(stage: Stage) -> float:
    return stage.measured.memory_gb or 0.0


def _sft(study: ResolvedStudy, model: str, results: Results) -> list[Stage]:
    settings = study.model(model).sft
    if settings is None:
        return []
    tokens = settings.examples and settings.examples * settings.epochs * settings.max_tokens
    measured = _measured([results.parent(model) / "manifest.json"])
    return [_stage(study, "sft", model, 1, tokens, measured, study.model(model).job.training)]


def _rl(study: ResolvedStudy, model: str, results: Results) -> list[Stage]:
    settings = study.model(model).rl
    if settings is None:
        return []
    jobs = len(study.trained_runs(model))
    completions = settings.steps * settings.prompts_per_step * settings.rollouts
    tokens = jobs * completions * settings.sampling.max_tokens
    measured = _measured(results.policy(run) / "manifest.json" for run in study.trained_runs(model))
    return [_stage(study, "rl", model, jobs, tokens, measured, study.model(model).job.training)]


def _sampling(study: ResolvedStudy, model: str, results: Results) -> Stage:
    settings = study.evaluation(model)
    jobs, completions, known = 0, 0, True
    for row, benchmark in study.evaluated(model):
        runs = len(study.runs_of(model, row))
        problems = _problems(study, benchmark, results)
        jobs += runs
        completions += runs * (problems or 0) * settings.samples * len(settings.seeds)
        known = known and problems is not None
    tokens = completions * settings.sampling.max_tokens if known else None
    measured = _measured(results.sample_manifest(*pair) for pair in study.evaluated_runs(model))
    return _stage(study, "sample", model, jobs, tokens, measured, study.model(model).job.sampling)


def _stage(
    study: ResolvedStudy,
    name: str,
    model: str,
    jobs: int,
    tokens: int | None,
    measured: Measured,
    named: float | None,
) -> Stage:
    disk = BYTES_PER_TOKEN * tokens if name == "sample" and tokens is not None else None
    asked = study.model(model).job
    speeds = {
        "of runs on disk": measured.tokens_per_second,
        "from the study's job sections": named,
        **_kept(study, name),
    }
    source, speed = next(((s, v) for s, v in speeds.items() if v), ("", None))
    size = tokens, speed, asked.gpus, disk, asked.host_memory_gb
    return Stage(name, model, jobs, *size, measured, source)


def _kept(study: ResolvedStudy, stage: str) -> dict[str, float | None]:
    """Planned tokens per second of a stage in the kept run of this study, by where that is said.

    A study with values set on the command line has the speed of the study as it is written.
    """
    file = TIMES / f"{Path(study.option.split()[0]).stem}_time.json"
    if not file.is_file():
        return {}
    run = json.loads(file.read_text(encoding="utf-8"))
    tokens, seconds = run["planned_tokens"].get(stage), sum(run["job_seconds"].get(stage, ()))
    machine = f"measured on {run['hardware']['cores']} cores of an {run['hardware']['cpu']}"
    return {f"{machine} ({file})": tokens / seconds if tokens and seconds else None}


def _measured(manifests: Iterable[Path]) -> Measured:
    """What all runs with a manifest have used."""
    contents = [json.loads(p.read_text(encoding="utf-8")) for p in manifests if p.is_file()]
    timed = [c for c in contents if c.get("tokens") and c.get("wall_seconds")]
    seconds = sum(content["wall_seconds"] for content in timed)

    def peak(key: str) -> float | None:
        gib = max((content.get(key) or 0.0 for content in contents), default=0.0)
        return gib * 2**30 / 1e9 or None

    return Measured(
        sum(content["tokens"] for content in timed) / seconds if seconds else None,
        peak("peak_memory_gib"),
        peak("peak_gpu_memory_gib"),
    )


def _problems(study: ResolvedStudy, name: str, results: Results) -> int | None:
    """Size of a problem set: of its file if it is there, else the most that the study names."""
    file = results.problems(name)
    if file.is_file():
        return len(read_problems(file))
    settings = study.study.problems[name]
    whole = study.benchmarks[settings.benchmark].kept if settings.source == "benchmark" else None
    return min(filter(None, (settings.size(), whole)), default=None)


def _large(number: float | None) -> str:
    if number is None:
        return "?"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _time(hours: float | None) -> str:
    if hours is None:
        return "unknown"
    return f"{hours:,.0f} h" if hours >= 100 else duration(3600 * hours)


def _gb(size: float | None) -> str:
    return "?" if size is None else f"{size:.1f}"
