"""The cost of a study before anything runs: jobs, tokens, hours and disk, per stage and model.

The stages are SFT, RL and sampling. Pretraining and exhibits that need a model are small in
comparison and not counted. Tokens are counted twice: at most, where every completion has the
longest allowed length, and as expected, with the lengths of runs on disk, else of kept runs with
the same model and limit. Speeds come from manifests of runs on disk, else from what was measured on
GPUs (`gpus`), else from the throughput in the model's `job` section, which is an assumption,
else from the run of that study, or of one that it extends, in benchmarks/{study}_time.json, for
models of the same size. If none is there, the plan does not guess. `plan_text` puts it into words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.exhibits import kind_of
from sage.problems.record import read_problems
from sage.results import Results
from sage.study import ResolvedStudy
from sage.study.bases import ScratchBase, SharedBase
from sage.study.written import name_of_study
from sage.tools.gpus import Work, measured_speeds, shape_of, speed_of

BYTES_PER_TOKEN = 8.0
"""Bytes on disk per completion token, before compression: its text, and its id as four bytes."""

MANIFEST = "manifest.json"

TIMES = Path("benchmarks")
"""The folder with measured runs of studies, beside the Snakefile."""


@dataclass(frozen=True)
class Stage:
    """One kind of job for one model; `None` means unknown.

    `sizes` are the tokens of each job at most, by its manifest, `tokens` of all, `expected` those
    of completions as long as usual, `largest` those of the largest job; `memory_gb` is asked for by
    each; `used_gb` and `used_gpu_gb` are the most that a run has used. `source` and `lengths` say
    where speed and lengths are from.
    """

    name: str
    model: str
    sizes: Mapping[Path, int | None]
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

    @property
    def jobs(self) -> int:
        """How many jobs it has: each writes its manifests into a folder of its own."""
        return len({manifest.parent for manifest in self.sizes})

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

    def hours_of(self, job: Path) -> float | None:
        """Hours of one job with the expected tokens."""
        whole = self._hours(self.sizes[job])
        if whole and self.expected and self.tokens:
            return whole * self.expected / self.tokens
        return whole

    def _hours(self, tokens: int | None) -> float | None:
        if tokens is None or self.tokens_per_second is None:
            return None
        return tokens / self.tokens_per_second / 3600


Jobs = Mapping[Path, int | None]
"""Tokens of a stage at most by its manifests: a sampling job has one for each benchmark."""


@dataclass(frozen=True)
class Cost:
    """Hours of jobs with the expected tokens: of those that only one exhibit needs, so that leaving
    it out saves them, and of `all` that it needs. None means unknown. Samples that an exhibit draws
    itself are not counted."""

    exhibit: str
    alone: float | None
    all: float | None


@dataclass(frozen=True)
class Seen:
    """A speed in tokens per second, and the share of the greatest number of tokens that was drawn,
    each with words on where it is from; None means unknown."""

    source: str
    speed: float | None = None
    share: float | None = None


def plan(
    study: ResolvedStudy, results: Results, below: Sequence[ResolvedStudy] = ()
) -> list[Stage]:
    """The stages of a study in the order in which they run; `results` are its files.

    `below` are the studies that it extends, the nearest first.
    """
    stages = []
    for name, model in study.study.models.items():
        jobs: dict[str, Jobs] = {}
        if sft := model.sft:
            tokens = sft.examples and sft.examples * sft.epochs * sft.max_tokens
            jobs["sft"] = {results.rl_start(name) / MANIFEST: tokens}
        if rl := model.rl:
            each = rl.steps * rl.prompts_per_step * rl.rollouts * rl.sampling.max_tokens
            jobs["rl"] = {results.policy(run) / MANIFEST: each for run in study.trained_runs(name)}
        drawn = study.evaluation(name)
        each = drawn.samples * len(drawn.seeds) * drawn.sampling.max_tokens
        pairs = [(pair, _problems(study, pair[1], results)) for pair in study.evaluated_runs(name)]
        jobs["sample"] = {
            results.sample_manifest(*pair): None if size is None else each * size
            for pair, size in pairs
        }
        stages += [_stage(study, results, below, name, *one) for one in jobs.items()]
    return stages


def costs(study: ResolvedStudy, stages: Sequence[Stage], results: Results) -> list[Cost]:
    """What each exhibit of the study costs, in its order."""
    hours = {job: stage.hours_of(job) for stage in stages for job in stage.sizes}

    def total(jobs: set[Path]) -> float | None:
        known = [each for job in jobs if (each := hours.get(job)) is not None]
        return sum(known) if len(known) == len(jobs) else None

    made, shown, found = _made_by(study, results), study.study.exhibits, []
    for name in shown:
        rest = study.study.model_copy(
            update={"exhibits": {other: one for other, one in shown.items() if other != name}}
        )
        without = _made_by(study.model_copy(update={"study": rest}), results)
        alone = set().union(*made.values()) - set().union(*without.values())
        kind = kind_of(study, name)
        files = [results.evaluated(*pair) for pair in kind.evaluated(study)]
        for group in kind.inputs(study, results, name).values() if kind.measures else ():
            files += group
        needed = set[Path]().union(*(made.get(file, ()) for file in files))
        found.append(Cost(name, total(alone), total(needed)))
    return found


def _made_by(study: ResolvedStudy, results: Results) -> dict[Path, set[Path]]:
    """The jobs, by their manifests, behind each file that a measurement can read."""
    made: dict[Path, set[Path]] = {}
    for name, model in study.study.models.items():
        start = results.rl_start(name)
        above = results.rl_start(model.base.model) if isinstance(model.base, SharedBase) else None
        made[start] = {start / MANIFEST} if model.sft else set(made.get(above or start, ()))
        for run in study.trained_runs(name):
            made[results.policy(run)] = made[start] | {results.policy(run) / MANIFEST}
        for run, benchmark in study.evaluated_runs(name):
            jobs = made.get(results.policy(run), made[start])
            jobs = made[results.samples(run, benchmark)] = jobs | {
                results.sample_manifest(run, benchmark)
            }
            made.setdefault(results.evaluated(name, benchmark), set()).update(jobs)
    return made


def _stage(
    study: ResolvedStudy,
    results: Results,
    below: Sequence[ResolvedStudy],
    model: str,
    name: str,
    jobs: Jobs,
) -> Stage:
    """A stage with what runs with a manifest have used, and the best known speed and lengths."""
    made = {path: content for path in jobs if (content := _manifest(path)) is not None}
    seen, work = [_of_runs(jobs, made)], _work(study, results, model, name)
    entries, asked = measured_speeds(), study.model(model).job
    if work and asked.gpus and (known := speed_of(work, entries)):
        seen.append(Seen(known[1], known[0]))
    assumed = asked.sampling if name == "sample" else asked.training
    nothing = ": nothing of this size was measured with its engine" if asked.gpus else ""
    seen.append(Seen(f"assumed in the study's job sections{nothing}", assumed))
    for other in (study, *below):
        seen += _kept(other, name, _size(study, model))
    seen += _kept_lengths(study, model, name, entries)
    source, speed = next(((one.source, one.speed) for one in seen if one.speed), ("", None))
    lengths, share = next(((one.source, one.share) for one in seen if one.share), ("", None))

    def most(key: str) -> float | None:
        gib = max((content.get(key) or 0.0 for content in made.values()), default=0.0)
        return gib * 2**30 / 1e9 or None

    counted: Counter[Path] = Counter()
    for manifest, size in jobs.items():
        counted[manifest.parent] += size or 0
    tokens = counted.total() if None not in jobs.values() else None
    expected = round(tokens * share) if tokens and share else None
    asks = speed, asked.gpus, asked.host_memory_gb
    used = most("peak_memory_gib"), most("peak_gpu_memory_gib")
    largest = max(counted.values(), default=0) or (None if jobs else 0)
    sizes = jobs, tokens, expected, largest
    return Stage(name, model, *sizes, *asks, *used, source, lengths)


def _manifest(path: Path) -> dict[str, Any] | None:
    """A job's manifest; None where there is none, or none that can be read."""
    with suppress(OSError, ValueError, TypeError):
        return dict(json.loads(path.read_bytes()))
    return None


def _of_runs(jobs: Jobs, made: Mapping[Path, dict[str, Any]]) -> Seen:
    """What runs on disk tell."""
    runs = [
        (_drawn(path, content), jobs[path], content.get("wall_seconds") or 0.0)
        for path, content in made.items()
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
        return Work(stage, rl.engine, rl.precision, weights)
    if stage == "sft" and sft:
        return Work(stage, "transformers", sft.precision, weights)
    return Work(stage, drawn.engine, drawn.dtype, weights)


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
