"""The cost of a study before anything runs: jobs, tokens, hours and disk, per stage and model.

The stages are SFT, RL and sampling. Pretraining and exhibits that need a model are small in
comparison and not counted. Tokens are counted twice: at most, where every completion has the
longest allowed length, and as expected, with the lengths of runs on disk, else of kept runs with
the same model and limit. Speeds come from manifests of runs on disk, else from what was measured on
the GPU (`gpus`), else from the throughput in the model's `job` section, which is an assumption,
else from the run of that study, or of one that it extends, in benchmarks/{study}_time.json, for
models of the same size. If none is there, the plan says so and does not guess. It also shows the
memory that jobs ask for and what runs have used, and on a cluster which partitions take them.
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
from sage.tools.gpus import (
    CARDS,
    PROMPT,
    TOGETHER,
    Work,
    card_of,
    lighter,
    measured_speeds,
    shape_of,
    speed_on,
)
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

    `tokens` are of all jobs at most, `expected` those of completions as long as usual, `largest`
    those of the largest job; `memory_gb` is asked for by each; `used_gb` and `used_gpu_gb` are the
    most that a run has used. `source` and `lengths` say where speed and lengths are from. `work` is
    what a GPU computes, where that is known.
    """

    name: str
    model: str
    jobs: int
    tokens: int | None
    expected: int | None
    largest: int | None
    tokens_per_second: float | None
    gpus: int
    memory_gb: int
    used_gb: float | None
    used_gpu_gb: float | None
    source: str = ""
    lengths: str = ""
    work: Work | None = None

    @property
    def disk_bytes(self) -> float | None:
        """What samples take on disk."""
        counts = self.name == "sample" and self.tokens is not None
        return BYTES_PER_TOKEN * (self.tokens or 0) if counts else None

    @property
    def hours(self) -> float | None:
        """Total hours of all its jobs at most."""
        return self._hours(self.tokens)

    @property
    def expected_hours(self) -> float | None:
        """Total hours of all its jobs with the expected tokens, else at most."""
        return self.hours if self.expected is None else self._hours(self.expected)

    @property
    def longest(self) -> float | None:
        """Hours of its largest job."""
        return self._hours(self.largest)

    def _hours(self, tokens: int | None) -> float | None:
        if tokens is None or self.tokens_per_second is None:
            return None
        return tokens / self.tokens_per_second / 3600


Jobs = list[tuple[Path, int | None]]
"""The manifest of each job of a stage, and its tokens at most."""


@dataclass(frozen=True)
class Seen:
    """A speed in tokens per second, and the share of the greatest number of tokens that was drawn,
    each with words on where it is from; None means unknown."""

    source: str
    speed: float | None = None
    share: float | None = None


def plan(
    study: ResolvedStudy,
    results: Results,
    below: Sequence[ResolvedStudy] = (),
    card: str | None = None,
) -> list[Stage]:
    """The stages of a study in the order in which they run; `results` are its files.

    `below` are the studies that it extends, the nearest first. With a `card` of CARDS only speeds
    of that GPU count.
    """
    stages = []
    for name, model in study.study.models.items():
        jobs: dict[str, Jobs] = {}
        if sft := model.sft:
            tokens = sft.examples and sft.examples * sft.epochs * sft.max_tokens
            jobs["sft"] = [(results.rl_start(name) / "manifest.json", tokens)]
        if rl := model.rl:
            each = rl.steps * rl.prompts_per_step * rl.rollouts * rl.sampling.max_tokens
            runs = study.trained_runs(name)
            jobs["rl"] = [(results.policy(run) / "manifest.json", each) for run in runs]
        drawn = study.evaluation(name)
        each = drawn.samples * len(drawn.seeds) * drawn.sampling.max_tokens
        pairs = [(pair, _problems(study, pair[1], results)) for pair in study.evaluated_runs(name)]
        jobs["sample"] = [
            (results.sample_manifest(*pair), None if size is None else each * size)
            for pair, size in pairs
        ]
        stages += [_stage(study, results, below, card, name, *one) for one in jobs.items()]
    return stages


def _stage(
    study: ResolvedStudy,
    results: Results,
    below: Sequence[ResolvedStudy],
    card: str | None,
    model: str,
    name: str,
    jobs: Jobs,
) -> Stage:
    """A stage with what runs with a manifest have used, and the best known speed and lengths."""
    sizes = [size for _, size in jobs if size is not None]
    tokens = sum(sizes) if len(sizes) == len(jobs) else None
    made = [(path, size) for path, size in jobs if path.is_file()]
    contents = [json.loads(path.read_text(encoding="utf-8")) for path, _ in made]
    seen, work = [_of_runs(made, contents, card)], _work(study, results, model, name)
    entries, asked = measured_speeds(), study.model(model).job
    if work and (card or asked.gpus) and (known := speed_on(work, card, entries)):
        seen.append(Seen(known[1], known[0]))
    assumed = asked.sampling if name == "sample" else asked.training
    nothing = ": nothing of this size was measured with its engine" if asked.gpus else ""
    seen.append(Seen(f"assumed in the study's job sections{nothing}", assumed))
    for other in (study, *below) if card is None else ():
        seen += _kept(other, name, _size(study, model))
    seen += _kept_lengths(study, model, name, entries)
    source, speed = next(((one.source, one.speed) for one in seen if one.speed), ("", None))
    lengths, share = next(((one.source, one.share) for one in seen if one.share), ("", None))

    def most(key: str) -> float | None:
        gib = max((content.get(key) or 0.0 for content in contents), default=0.0)
        return gib * 2**30 / 1e9 or None

    return Stage(
        name,
        model,
        len(jobs),
        tokens,
        round(tokens * share) if tokens and share else None,
        max(sizes, default=None if jobs else 0),
        speed,
        asked.gpus,
        asked.host_memory_gb,
        most("peak_memory_gib"),
        most("peak_gpu_memory_gib"),
        source,
        lengths,
        work,
    )


def _of_runs(made: Jobs, contents: Sequence[dict[str, Any]], card: str | None) -> Seen:
    """What runs on disk tell, with `card` those on that GPU alone."""
    runs = [
        (_drawn(path, content), size, content.get("wall_seconds") or 0.0)
        for (path, size), content in zip(made, contents, strict=True)
        if card in (None, card_of((content.get("hardware") or {}).get("gpu")))
    ]
    seconds = sum(time for drawn, _, time in runs if drawn)
    greatest = sum(size for drawn, size, _ in runs if drawn and size)
    return Seen(
        "of runs on disk",
        sum(drawn for drawn, _, time in runs if time) / seconds if seconds else None,
        sum(drawn for drawn, size, _ in runs if size) / greatest if greatest else None,
    )


def _work(study: ResolvedStudy, results: Results, name: str, stage: str) -> Work | None:
    """What a GPU computes in a stage of a model; None where the model's shape is not known."""
    model, drawn = study.model(name), study.evaluation(name)
    if (shape := shape_of(results, name, model)) is None:
        return None
    rl, sft, weights = model.rl, model.sft, shape[0].parameters
    if stage == "rl" and rl:
        rows = rl.prompts_per_step * rl.rollouts * rl.steps_per_generation
        return Work(stage, rl.engine, rl.precision, weights, rows)
    if stage == "sft" and sft:
        return Work(stage, "transformers", sft.precision, weights, sft.batch_size)
    return Work(stage, drawn.engine, drawn.dtype, weights, drawn.batch_size or TOGETHER)


def _drawn(manifest: Path, content: dict[str, Any]) -> int:
    """Tokens of a run's completions: RL's manifest counts prompts too, its history does not."""
    history = manifest.with_name("history.jsonl")
    last = history.read_text(encoding="utf-8").splitlines()[-1:] if history.is_file() else []
    return int(json.loads(last[0]).get("drawn_tokens") or 0) if last else content.get("tokens") or 0


def _kept(study: ResolvedStudy, stage: str, size: Any) -> list[Seen]:
    """Tokens per second of a stage in the kept run of this study, and the share that was drawn of
    the greatest number; nothing if no model there was of this size."""
    file = TIMES / f"{name_of_study(Path(study.option.split()[0]))}_time.json"
    run = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if size not in run.get("sizes", ()):
        return []
    greatest, seconds = run["planned_tokens"].get(stage), sum(run["job_seconds"].get(stage, ()))
    share = run.get("drawn_share", {}).get(stage)
    machine = f"measured on {run['hardware']['cores']} cores of an {run['hardware']['cpu']}"
    if not (greatest and seconds):
        return []
    return [Seen(f"{machine} ({file})", (share or 1.0) * greatest / seconds, share)]


def _kept_lengths(
    study: ResolvedStudy, name: str, stage: str, entries: Sequence[dict[str, Any]]
) -> list[Seen]:
    """What kept runs on a GPU with the same model and limit tell of lengths."""
    model, size = study.model(name), _size(study, name)
    parts = {"sft": model.sft, "rl": model.rl and model.rl.sampling}
    limited: Any = parts.get(stage) or study.evaluation(name).sampling
    return [
        Seen(f"as in {entry['of']}", share=entry["share"])
        for entry in entries
        if (entry["stage"], entry.get("longest"), entry.get("base"))
        == (stage, limited.max_tokens, size)
    ]


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


def render_plan(
    study: ResolvedStudy, stages: Sequence[Stage], gpu_limit: int = 0, card: str | None = None
) -> str:
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
    if card:
        lines += _published(stages, card)
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


def _published(stages: Sequence[Stage], card: str) -> list[str]:
    """Lines on what the published figures of a card allow, and on speeds assumed above that."""
    there, known = CARDS[card], [row for row in stages if row.work]
    bounds = [(row, max(1, row.gpus) / row.work.seconds(there)) for row in known if row.work]
    said = [f"{_large(bound)} for {row.name} of {row.model}" for row, bound in bounds]
    lines = [
        f"By its published bandwidth and FLOPs an {there.title} makes at most so many tokens a "
        f"second, which no program reaches: {listed(said)}."
    ]
    above = [row for row, bound in bounds if (row.tokens_per_second or 0.0) > bound]
    return lines + [
        f"{row.name} of {row.model}: {_large(row.tokens_per_second)} tokens/s is above that."
        for row in above
    ]


def gpu_memory_lines(study: ResolvedStudy, results: Results, card: str | None) -> list[str]:
    """A line for each model that RL trains on a GPU: its memory as set and with other settings."""
    lines = []
    there = f"; an {CARDS[card].title} has {CARDS[card].memory / 1e9:.0f}" if card else ""
    for name, model in study.study.models.items():
        shape = shape_of(results, name, model)
        if not (shape and model.rl and (model.job.gpus or card)):
            continue
        (_, own), *others = lighter(shape[0], model.rl, model.job.gpus)
        changed = [f"{size / 1e9:.0f} with {words}" for words, size in others]
        like = f" (the shape of {shape[1]})" if shape[1] else ""
        said = ", ".join([f"{own / 1e9:.0f} GB at its peak as set", *changed])
        what = f"GPU memory of RL, {name}{like}, estimated with prompts of {PROMPT} tokens"
        lines.append(f"{what}: {said}{there}.")
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
