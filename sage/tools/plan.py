"""The cost of a study before anything runs: jobs, tokens, hours and disk, per stage and model.

The stages are SFT, RL and sampling. Pretraining and exhibits that need a model are small in
comparison and not counted. Tokens are upper bounds: every completion has the longest allowed
length. Times come from manifests of runs on disk, else from the throughput in the model's `job`
section, else from the run of that study, or of one that it extends, in
benchmarks/{study}_time.json, for models of the same size. If none is there, the plan says so and
does not guess. It also shows the memory that jobs ask for and what runs have used, and on a cluster
which partitions take them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.exhibits import kind_of
from sage.problems.record import read_problems
from sage.rendering.labels import listed
from sage.rendering.numbers import duration
from sage.report.browser import expected_note
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.bases import ScratchBase, SharedBase
from sage.study.written import name_of_study
from sage.tools.slurm import partitions, places

BYTES_PER_TOKEN = 8.0
"""Bytes on disk per completion token, before compression: its text, and its id as four bytes."""

GENEROUS, TIGHT = 2.0, 1.2
"""Limits of a memory request as a multiple of the measured peak: above the first it is wasteful,
below the second risky."""

ROOM = 1.5
"""A good memory request, as a multiple of the measured peak."""

FEW_COMPLETIONS = 8
"""A GPU with fewer completions of a step than this reads its weights for little work."""

LONG_HOURS, MANY_TOKENS = 24 * 365.0, 1e13
"""Job hours and tokens of a stage above which the plan asks whether they are meant."""

TIMES = Path("benchmarks")
"""The folder with measured runs of studies, beside the Snakefile."""


@dataclass(frozen=True)
class Stage:
    """One kind of job for one model; `None` means unknown.

    `tokens` are of all jobs, `largest` those of the largest; `memory_gb` is asked for by each;
    `used_gb` and `used_gpu_gb` are the most that a run has used. `source` says where the speed is
    from.
    """

    name: str
    model: str
    jobs: int
    tokens: int | None
    largest: int | None
    tokens_per_second: float | None
    gpus: int
    memory_gb: int
    used_gb: float | None
    used_gpu_gb: float | None
    source: str = ""

    @property
    def disk_bytes(self) -> float | None:
        """What samples take on disk."""
        counts = self.name == "sample" and self.tokens is not None
        return BYTES_PER_TOKEN * (self.tokens or 0) if counts else None

    @property
    def hours(self) -> float | None:
        """Total hours of all its jobs."""
        return self._hours(self.tokens)

    @property
    def longest(self) -> float | None:
        """Hours of its largest job."""
        return self._hours(self.largest)

    def _hours(self, tokens: int | None) -> float | None:
        if tokens is None or self.tokens_per_second is None:
            return None
        return tokens / self.tokens_per_second / 3600


def plan(
    study: ResolvedStudy, results: Results, below: Sequence[ResolvedStudy] = ()
) -> list[Stage]:
    """The stages of a study in the order in which they run; `results` are its files.

    `below` are the studies that it extends, the nearest first.
    """
    stages = []
    for name, model in study.study.models.items():
        if sft := model.sft:
            tokens = sft.examples and sft.examples * sft.epochs * sft.max_tokens
            manifests = [results.rl_start(name) / "manifest.json"]
            stages.append(_stage(study, below, "sft", name, 1, tokens, tokens, manifests))
        if rl := model.rl:
            runs = study.trained_runs(name)
            each = rl.steps * rl.prompts_per_step * rl.rollouts * rl.sampling.max_tokens
            tokens = len(runs) * each
            manifests = [results.policy(run) / "manifest.json" for run in runs]
            stages.append(_stage(study, below, "rl", name, len(runs), tokens, each, manifests))
        drawn, pairs = study.evaluation(name), study.evaluated_runs(name)
        sizes = [_problems(study, benchmark, results) for _, benchmark in pairs]
        each = drawn.samples * len(drawn.seeds) * drawn.sampling.max_tokens
        known = [size for size in sizes if size is not None]
        tokens = each * sum(known) if len(known) == len(sizes) else None
        largest = each * max(known, default=0)
        manifests = [results.sample_manifest(*pair) for pair in pairs]
        stages.append(_stage(study, below, "sample", name, len(pairs), tokens, largest, manifests))
    return stages


def _stage(
    study: ResolvedStudy,
    below: Sequence[ResolvedStudy],
    name: str,
    model: str,
    jobs: int,
    tokens: int | None,
    largest: int | None,
    manifests: Iterable[Path],
) -> Stage:
    """A stage with what runs with a manifest have used, and the best known speed."""
    made = [path for path in manifests if path.is_file()]
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in made]
    drawn = [_drawn(*each) for each in zip(made, contents, strict=True)]
    timed = [(n, c["wall_seconds"]) for n, c in zip(drawn, contents, strict=True) if n]
    seconds = sum(time for _, time in timed if time)

    def peak(key: str) -> float | None:
        gib = max((content.get(key) or 0.0 for content in contents), default=0.0)
        return gib * 2**30 / 1e9 or None

    asked = study.model(model).job
    speeds = {
        "of runs on disk": sum(n for n, time in timed if time) / seconds if seconds else None,
        "from the study's job sections": asked.sampling if name == "sample" else asked.training,
    }
    for other in (study, *below):
        speeds |= _kept_speed(other, name, _size(study, model))
    source, speed = next(((s, v) for s, v in speeds.items() if v), ("", None))
    used = peak("peak_memory_gib"), peak("peak_gpu_memory_gib")
    sizes = jobs, tokens, largest
    return Stage(name, model, *sizes, speed, asked.gpus, asked.host_memory_gb, *used, source)


def _drawn(manifest: Path, content: dict[str, Any]) -> int:
    """Tokens of a run's completions: RL's manifest counts prompts too, its history does not."""
    history = manifest.with_name("history.jsonl")
    last = history.read_text(encoding="utf-8").splitlines()[-1:] if history.is_file() else []
    return int(json.loads(last[0]).get("drawn_tokens") or 0) if last else content.get("tokens") or 0


def _kept_speed(study: ResolvedStudy, stage: str, size: Any) -> dict[str, float | None]:
    """Planned tokens per second of a stage in the kept run of this study, by where that is said;
    nothing if no model there was of this size."""
    file = TIMES / f"{name_of_study(Path(study.option.split()[0]))}_time.json"
    run = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if size not in run.get("sizes", ()):
        return {}
    tokens, seconds = run["planned_tokens"].get(stage), sum(run["job_seconds"].get(stage, ()))
    machine = f"measured on {run['hardware']['cores']} cores of an {run['hardware']['cpu']}"
    return {f"{machine} ({file})": tokens / seconds if tokens and seconds else None}


def _size(study: ResolvedStudy, model: str) -> Any:
    """What tells how large a model is, as plain data: its architecture, or where it is from."""
    base = study.model(model).base
    if isinstance(base, SharedBase):
        return _size(study, base.model)
    if isinstance(base, ScratchBase):
        return base.architecture.model_dump(mode="json")
    return base.model_dump(mode="json")


def _problems(study: ResolvedStudy, name: str, results: Results) -> int | None:
    """Size of a problem set: of its file if it is there, else the most that the study names."""
    file = results.problems(name)
    if file.is_file():
        return len(read_problems(file))
    settings = study.study.problems[name]
    whole = study.benchmarks[settings.benchmark].kept if settings.source == "benchmark" else None
    return min(filter(None, (settings.size(), whole)), default=None)


def render_plan(study: ResolvedStudy, stages: Sequence[Stage], gpu_limit: int = 0) -> str:
    """The plan as text: a line for each stage, then totals; jobs use up to `gpu_limit` GPUs."""
    head = ("stage", "model", "jobs", "tokens", "tokens/s", "time", "GPUs", "GB", "used", "GPU")
    cells = [
        (
            row.name,
            row.model,
            row.jobs,
            _large(row.tokens),
            _large(row.tokens_per_second),
            _time(row.hours),
            row.gpus,
            row.memory_gb,
            *("?" if size is None else f"{size:.1f}" for size in (row.used_gb, row.used_gpu_gb)),
        )
        for row in stages
    ]
    form = "{:10} {:26} {:>5} {:>9} {:>9} {:>10} {:>5} {:>5} {:>6} {:>6}"
    lines = [
        f"Study {study.name}: {study.study.title}",
        *(form.format(*row) for row in (head, *cells)),
        "GB: host memory that a job asks for (`memory_gb`). used: the most that a job has used "
        "so far. GPU: the most device memory used so far, in GB.",
        f"Total: {total(stages)}.",
    ]
    if sources := sorted({row.source for row in stages if row.source}):
        lines.append(f"Speeds: {'; '.join(sources)}.")
    gpu_hours = sum((row.hours or 0.0) * row.gpus for row in stages)
    if gpu_limit > 1 and gpu_hours:
        lines.append(
            f"With {gpu_limit} GPUs at a time (`--resources gpu=N` for N) these take at least "
            f"{_time(gpu_hours / gpu_limit)}."
        )
    slow = "speed unknown. Run one job, or set training and sampling in the model's job section"
    for why, rows in (
        ("their tokens are not known yet", [row for row in stages if row.tokens is None]),
        (slow, [row for row in stages if row.tokens is not None and row.hours is None]),
    ):
        if rows:
            names = listed([*dict.fromkeys(row.name for row in rows)])
            models = listed([*dict.fromkeys(row.model for row in rows)])
            lines.append(f"The time does not include {names} of {models}: {why}.")
    asked = {name: model.job for name, model in study.study.models.items()}
    jobs = {name: (job.gpus, job.host_memory_gb, job.hours) for name, job in asked.items()}
    lines += [*uncounted(study), *questions(stages), *memory_hints(stages), *_gpu_hints(study)]
    lines += [*time_hints(study, stages), *filter(None, [expected_note(study)])]
    return "\n".join([*lines, *(places(jobs, offered) if (offered := partitions()) else ())])


def total(stages: Sequence[Stage]) -> str:
    """Jobs, tokens, hours and disk of all stages together, as far as they are known."""
    known = [(row.hours, row.gpus) for row in stages if row.hours is not None]
    time = f"{_time(sum(hours for hours, _ in known))} of jobs one after another"
    on_gpus = f"{_time(sum(hours * gpus for hours, gpus in known))} on GPUs, "
    jobs = sum(row.jobs for row in stages)
    tokens = [row.tokens for row in stages if row.tokens is not None]
    return (
        f"{jobs} {'job' if jobs == 1 else 'jobs'}, "
        f"{f'at most {_large(sum(tokens))} tokens' if tokens else 'tokens unknown'}, "
        f"{time if known else 'time unknown'}, "
        f"{on_gpus if any(row.gpus for row in stages) else ''}"
        f"{sum(row.disk_bytes or 0.0 for row in stages) / 1e9:.1f} GB of samples"
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


def uncounted(study: ResolvedStudy) -> list[str]:
    """A line that says which tokens the plan does not know, if there are any."""
    methods = dict.fromkeys(one for model in study.study.models for one in study.trained(model))
    again = [
        name for name in methods if study.algorithms[name].filter or study.algorithms[name].planner
    ]
    drawing = [name for name in study.study.exhibits if kind_of(study, name).draws]
    parts = []
    if again:
        parts.append(f"completions that the filters and planners of {listed(again)} may draw again")
    if drawing:
        parts.append(f"samples drawn for {listed(drawing)} alone")
    return [f"Not counted: {listed(parts)}."] if parts else []


def memory_hints(stages: Iterable[Stage]) -> list[str]:
    """A line for each model with a `memory_gb` far from the most that its jobs used."""
    highest: dict[str, tuple[float, Stage]] = {}
    for stage in stages:
        peak = stage.used_gb or 0.0
        if peak > highest.get(stage.model, (0.0, stage))[0]:
            highest[stage.model] = peak, stage
    hints = []
    for model, (peak, stage) in highest.items():
        asked, each = stage.memory_gb, max(1, stage.gpus)
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


def time_hints(study: ResolvedStudy, stages: Iterable[Stage]) -> list[str]:
    """A line for each stage whose largest job may take longer than it asks for."""
    hints = []
    for stage in stages:
        hours = study.model(stage.model).job.hours
        if (longest := stage.longest or 0.0) > hours:
            hints.append(
                f"{stage.model}: its largest job of {stage.name} takes up to {_time(longest)} at "
                f"this speed and asks for {hours} h. SLURM stops it then; tried again, it goes on "
                "from what is there. Or raise hours in its job section."
            )
    return hints


def _gpu_hints(study: ResolvedStudy) -> list[str]:
    """A line for each model whose RL shares out fewer completions than keep a GPU busy."""
    hints = []
    for name, model in study.study.models.items():
        gpus, runs = model.job.gpus, len(study.trained_runs(name))
        step = model.rl.prompts_per_step * model.rl.rollouts if model.rl else 0
        if gpus > 1 and 0 < step < FEW_COMPLETIONS * gpus:
            hints.append(
                f"{name}: a step's {step} completions are {step // gpus or 'less than 1'} for each "
                f"of {gpus} GPUs, which will mostly wait: set gpus: 1, and {min(gpus, runs)} of "
                f"its {runs} runs train side by side."
            )
    return hints


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
