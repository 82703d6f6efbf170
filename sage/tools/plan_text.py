"""A study's plan in words: a line for each stage and exhibit, and hints on settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sage.exhibits import kind_of
from sage.rendering.labels import listed
from sage.rendering.numbers import duration
from sage.report.browser import expected_note
from sage.results import Results
from sage.study import ResolvedStudy
from sage.tools.gpus import PROMPT, lighter, shape_of
from sage.tools.plan import Cost, Stage
from sage.tools.slurm import partitions, places

GENEROUS, TIGHT, ROOM = 2.0, 1.2, 1.5
"""Memory requests as a multiple of the measured peak: wasteful above the first, risky below the
second, good at the third."""

FEW_COMPLETIONS = 8
"""A GPU with fewer completions of a step than this reads its weights for little work."""

LONG_HOURS, MANY_TOKENS = 24 * 365.0, 1e13
"""Job hours and tokens of a stage above which the plan asks whether they are meant."""


def render_plan(study: ResolvedStudy, stages: Sequence[Stage], gpu_limit: int = 0) -> str:
    """The plan as text: a line for each stage, then totals; jobs use up to `gpu_limit` GPUs."""
    head = (
        *("stage", "model", "jobs", "tokens", "expected", "tokens/s", "at most", "expected"),
        *("GPUs", "GB", "used", "GPU"),
    )
    cells = [
        (
            row.name,
            row.model,
            row.jobs,
            _large(row.tokens),
            _large(row.tokens if row.expected is None else row.expected),
            _large(row.tokens_per_second),
            _time(row.hours),
            _time(row.expected_hours),
            row.gpus,
            row.memory_gb,
            *("?" if size is None else f"{size:.1f}" for size in (row.used_gb, row.used_gpu_gb)),
        )
        for row in stages
    ]
    form = "{:7} {:24} {:>5} {:>7} {:>8} {:>8} {:>11} {:>11} {:>4} {:>4} {:>5} {:>5}"
    lines = [
        f"Study {study.name}: {study.study.title}",
        *(form.format(*row) for row in (head, *cells)),
        "GB: host memory that a job asks for (`memory_gb`). used: the most that a job has used "
        "so far. GPU: the most device memory used so far, in GB.",
        f"Total: {total(stages)}.",
    ]
    if sources := sorted({row.source for row in stages if row.source}):
        lines.append(f"Speeds: {'; '.join(sources)}.")
    lines.append(_lengths(stages))
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


def exhibit_lines(costs: Sequence[Cost]) -> list[str]:
    """A line for each exhibit: what leaving it out saves, and all that it needs."""
    form = "{:24} {:>11} {:>11}"
    return [
        "Job hours for each exhibit, at expected lengths. alone: saved if the study leaves it out. "
        "all: of the jobs that it needs, shared ones too.",
        form.format("exhibit", "alone", "all"),
        *(form.format(cost.exhibit, _time(cost.alone), _time(cost.all)) for cost in costs),
    ]


def total(stages: Sequence[Stage]) -> str:
    """Jobs, tokens, hours and disk of all stages together, as far as they are known."""
    known = [(row.hours, row.gpus) for row in stages if row.hours is not None]
    time = f"{_time(sum(hours for hours, _ in known))} of jobs one after another"
    on_gpus = f"{_time(sum(hours * gpus for hours, gpus in known))} on GPUs, "
    jobs = sum(row.jobs for row in stages)
    tokens = [row.tokens for row in stages if row.tokens is not None]
    usual = _time(sum(row.expected_hours or 0.0 for row in stages))
    expected = any(row.expected is not None for row in stages) and known
    return (
        f"{jobs} {'job' if jobs == 1 else 'jobs'}, "
        f"{f'at most {_large(sum(tokens))} tokens' if tokens else 'tokens unknown'}, "
        f"{time if known else 'time unknown'}, "
        f"{on_gpus if any(row.gpus for row in stages) else ''}"
        f"{sum(row.disk_bytes or 0.0 for row in stages) / 1e9:.1f} GB of samples"
        + (f"; {usual} of jobs with the expected lengths" if expected else "")
    )


def _lengths(stages: Sequence[Stage]) -> str:
    """A line on where expected lengths are from, and for which stages the greatest are taken."""
    sources = sorted({row.lengths for row in stages if row.lengths})
    said = [f"Expected lengths: {'; '.join(sources)}."] if sources else []
    if without := [f"{row.name} of {row.model}" for row in stages if not row.lengths]:
        of = f" of {listed(without)}" if sources else ""
        said.append(f"No kept run tells the lengths{of}: the greatest are taken as expected.")
    return " ".join(said)


def gpu_memory_lines(study: ResolvedStudy, results: Results) -> list[str]:
    """A line for each model that RL trains on a GPU: its memory as set and with other settings."""
    lines = []
    for name, model in study.study.models.items():
        shape = shape_of(results, name, model)
        if not (shape and model.rl and model.job.gpus):
            continue
        (_, own), *others = lighter(shape[0], model.rl, model.job.gpus)
        changed = [f"{size / 1e9:.0f} with {words}" for words, size in others]
        like = f" (the shape of {shape[1]})" if shape[1] else ""
        said = ", ".join([f"{own / 1e9:.0f} GB at its peak as set", *changed])
        what = f"GPU memory of RL, {name}{like}, estimated with prompts of {PROMPT} tokens"
        lines.append(f"{what}: {said}.")
    return lines


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
    used = sorted((each for each in stages if each.used_gb), key=lambda each: each.used_gb or 0.0)
    highest = {each.model: each for each in used}
    hints = []
    for model, stage in highest.items():
        asked, each, peak = stage.memory_gb, max(1, stage.gpus), stage.used_gb or 0.0
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
