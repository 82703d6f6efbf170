"""The cost of a study before anything runs: jobs, tokens, hours and disk, per stage and model.

The stages are SFT, RL and sampling. Pretraining and exhibits that need a model are small in
comparison and not counted. Tokens are upper bounds: every completion has the longest allowed
length. Times come from manifests of runs on disk, otherwise from the throughput in the model's
`job` section. If neither is known, the plan says so and does not guess. The plan also shows the
memory that jobs ask for and the memory that runs have used.
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
from sage.results import Results
from sage.study import ResolvedStudy

BYTES_PER_TOKEN = 8.0
"""Bytes on disk per completion token, before compression: its text, and its id as four bytes."""

GENEROUS, TIGHT = 2.0, 1.2
"""Limits of a memory request as a multiple of the measured peak: above the first it is wasteful,
below the second risky."""

FEW_COMPLETIONS = 8
"""A GPU with fewer completions of a step than this reads its weights for little work."""

ROOM = 1.5
"""A good memory request, as a multiple of the measured peak."""


@dataclass(frozen=True)
class Measured:
    """What runs on disk have used: tokens per second over all, and peaks of memory in GB."""

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
            _rl(study, model, results),
            _sampling(study, model, results),
        )
    ]


def render_plan(study: ResolvedStudy, stages: Iterable[Stage]) -> str:
    """The plan as text: a line for each stage, then totals."""
    rows = list(stages)
    names = ("stage", "model", "jobs", "tokens", "tokens/s", "hours", "GPUs", "GB", "used", "GPU")
    widths = ("10", "26", ">5", ">9", ">9", ">8", ">5", ">5", ">6", ">6")
    head = " ".join(f"{name:{width}}" for name, width in zip(names, widths, strict=True))
    lines = [f"Study {study.name}: {study.study.title}", head]
    for row in rows:
        lines.append(
            f"{row.name:10} {row.model:26} {row.jobs:5d} {_large(row.tokens):>9} "
            f"{_large(row.tokens_per_second):>9} {_hours(row.hours):>8} {row.gpus:5d} "
            f"{row.memory_gb:5d} {_gb(row.measured.memory_gb):>6} "
            f"{_gb(row.measured.gpu_memory_gb):>6}"
        )
    lines.append(
        "GB: host memory that a job asks for (`memory_gb`). used: the most that a job has used "
        "so far. GPU: the most device memory used so far, in GB."
    )
    lines.append(f"Total: {total(rows)}.")
    if unknown := [f"{row.name} of {row.model}" for row in rows if row.hours is None]:
        lines.append(
            f"The hours do not include {', '.join(unknown)}: throughput is unknown. Run one job, "
            "or set training and sampling in the model's job section."
        )
    return "\n".join([*lines, *uncounted(study), *memory_hints(rows), *gpu_hints(study)])


def total(stages: Iterable[Stage]) -> str:
    """Jobs, tokens, hours and disk of all stages together, as far as they are known."""
    rows = list(stages)
    hours = sum(row.hours or 0.0 for row in rows)
    gpu_hours = sum((row.hours or 0.0) * row.gpus for row in rows)
    disk = sum(row.disk_bytes or 0.0 for row in rows)
    return (
        f"{sum(row.jobs for row in rows)} jobs, at most "
        f"{_large(sum(row.tokens or 0 for row in rows))} tokens, {_hours(hours)} job hours, "
        f"{_hours(gpu_hours)} GPU hours, {disk / 1e9:.1f} GB of samples"
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
        step, gpus = model.rl.prompts_per_step * model.rl.rollouts, model.job.gpus
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


def _rl(study: ResolvedStudy, model: str, results: Results) -> Stage:
    settings = study.model(model).rl
    jobs = len(study.trained_runs(model))
    completions = settings.steps * settings.prompts_per_step * settings.rollouts
    tokens = jobs * completions * settings.sampling.max_tokens
    measured = _measured(results.policy(run) / "manifest.json" for run in study.trained_runs(model))
    return _stage(study, "rl", model, jobs, tokens, measured, study.model(model).job.training)


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
    asked, speed = study.model(model).job, measured.tokens_per_second or named
    return Stage(name, model, jobs, tokens, speed, asked.gpus, disk, asked.host_memory_gb, measured)


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


def _hours(hours: float | None) -> str:
    return "?" if hours is None else f"{hours:.2f}" if hours < 10 else f"{hours:,.0f}"


def _gb(size: float | None) -> str:
    return "?" if size is None else f"{size:.1f}"
