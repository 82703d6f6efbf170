"""What does not go together in a study whose sections are each in order.

One pass over the typed study, after validation: methods against the settings of RL, exhibits
against what is trained and sampled, training seeds, and sizes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping

from sage.faults import as_written
from sage.fields import BASE, nearest
from sage.problems.entries import BenchmarkSet
from sage.problems.record import DataError
from sage.study.algorithms import Algorithm, needs_hints, needs_strategies, run_conflicts
from sage.study.bases import FolderBase, ScratchBase, SharedBase
from sage.study.exhibit import Surroundings
from sage.study.types import ResolvedStudy, Study
from sage.tasks.data import FileSet
from sage.tasks.known import GENERATED

FLOAT32_ADAPTERS = (
    "vLLM's kernels for adapters on a GPU take 16 bits; set `dtype: bfloat16` in the evaluation "
    "and `precision: bfloat16` in rl of these models, or `engine: transformers`"
)
"""What to do about `float32_adapters`."""


def float32_adapters(study: ResolvedStudy, device: str) -> list[str]:
    """Models with GPU jobs that would hand vLLM an adapter in float32; `device` is the setting."""

    def fails(name: str) -> bool:
        model, evaluation = study.study.models[name], study.evaluation(name)
        if model.rl is None or model.rl.lora is None:
            return False
        has_gpu = device != "cpu" and (model.job.gpus > 0 or device == "cuda")
        rollouts = model.rl.engine == "vllm" and model.rl.precision == "float32"
        samples = evaluation.engine == "vllm" and evaluation.dtype == "float32"
        return has_gpu and (rollouts or samples)

    return [name for name in study.study.models if fails(name)]


def exhibit_conflicts(study: Study, algorithms: Mapping[str, Algorithm]) -> Iterator[str]:
    """What exhibits ask for in vain, each message with its key; before their variants are made.

    `algorithms` are all of `algorithms.yaml` and the study's own.
    """
    made: dict[str, tuple[str, Algorithm]] = {}  # variants, with the exhibit that has them first
    for name, exhibit in study.exhibits.items():
        model = study.models[exhibit.model]
        trained = set(exhibit.named()) - {BASE}
        if not model.rl and (exhibit.of_training or exhibit.needs_rl or trained):
            yield (
                f"exhibits.{name}.model: {exhibit.model!r} has no rl, but {exhibit.kind!r} shows "
                "training; add rl and algorithms to the model, or leave the exhibit out"
            )
            continue
        evaluation = model.evaluation or study.evaluation
        seeds, k = len(evaluation.seeds), evaluation.primary_k
        around = Surroundings(algorithms, evaluation.samples, seeds, k)
        faults = [*exhibit.faults(around)]
        for setting, message in faults:
            yield f"exhibits.{name}.{setting}: {message}"
        for row, variant in ({} if faults else exhibit.variants(algorithms)).items():
            if row in algorithms:
                taken = f"makes the method {row!r}, but a method has that name; rename it"
                yield f"exhibits.{name}: {taken}"
            first, other = made.setdefault(row, (name, variant))
            if variant != other:
                yield (
                    f"exhibits.{name}: makes the method {row!r} with other settings than "
                    f"exhibits.{first}; give both the same, or put one into a study of its own"
                )


def conflicts(study: ResolvedStudy) -> Iterator[str]:
    """All other such faults, each message with its key."""
    sizes, faults = _own_files(study)
    yield from faults
    yield from _own_folders(study)
    yield from _runs(study)
    yield from _problem_sets(study)
    yield from _bases(study)
    yield from _seeds(study)
    yield from _sizes(study, sizes)


def _own_files(study: ResolvedStudy) -> tuple[dict[str, int], list[str]]:
    """How many problems each of the user's own files has, and what is wrong with the others."""
    sizes, faults = {}, []
    for name, problems in study.study.problems.items():
        if isinstance(problems, FileSet):
            try:
                sizes[name] = len(problems.problems(name))
            except DataError as error:
                faults.append(f"problems.{name}.{error.key or 'file'}: {error}")
    return sizes, faults


def _own_folders(study: ResolvedStudy) -> Iterator[str]:
    """The user's own checkpoints that are missing, or not what the study says of them."""
    for name, model in study.study.models.items():
        if isinstance(model.base, FolderBase):
            for key, message in model.base.faults():
                yield f"models.{name}.base.{key}: {message}"


def _runs(study: ResolvedStudy) -> Iterator[str]:
    """Methods that do not go with the settings of a model's RL."""
    for name, model in study.study.models.items():
        if model.rl is None:
            continue
        places = {row: f"exhibits.{e}" for e in study.exhibits(name) for row in study.methods_of(e)}
        places |= {row: f"models.{name}.algorithms[{i}]" for i, row in enumerate(model.algorithms)}
        for row in study.trained(name):
            algorithm, key = study.algorithms[row], f"{places[row]}: {row!r}"
            if algorithm.fidelity == "released" and not model.sft:
                yield f"{key} refers to the model before SFT, but this model has no sft of its own"
            problems = study.study.problems[model.rl.problems]
            if needs_hints(algorithm) and not getattr(problems, "hints", False):
                yield (
                    f"{key} draws under hints, but the problems of {model.rl.problems!r} carry "
                    "none; set hints: true there"
                )
            if needs_strategies(algorithm) and getattr(problems, "strategy", None) is None:
                known = ", ".join(sorted(n for n, task in GENERATED.items() if task.strategy))
                yield (
                    f"{key} compares strategies, which are not known of the problems of "
                    f"{model.rl.problems!r}; they are of the sources {known}"
                )
            for conflict in run_conflicts(algorithm, model.rl):
                yield f"{key}, {conflict}"


def _problem_sets(study: ResolvedStudy) -> Iterator[str]:
    """Hints and levels that a public data set does not have."""
    for name, settings in study.study.problems.items():
        if not isinstance(settings, BenchmarkSet):
            continue
        key, chosen = f"problems.{name}", settings.benchmark
        data = study.benchmarks[chosen]
        if settings.hints and data.fields.solution is None:
            yield (
                f"{key}.hints: they are taken from solutions, but {chosen!r} names no "
                "fields.solution in config/benchmarks.yaml; add it, or leave hints out"
            )
        if settings.first and data.kept and settings.first > data.kept and not settings.levels:
            yield (
                f"{key}.first: {settings.first}, but {chosen!r} has {data.kept} problems; lower "
                "it, or leave it out"
            )
        known = data.levels()
        for index, level in enumerate(map(str, settings.levels or ())):
            if known and level not in known:
                what = f"{level!r} is not a level of {chosen!r}{nearest(level, known)}"
                yield f"{key}.levels[{index}]: {what}"


def _bases(study: ResolvedStudy) -> Iterator[str]:
    """Groups whose models differ in more than their base, or do not differ in it."""
    grouped: set[str] = set()
    for name, group in study.study.bases.items():
        key, models = f"bases.{name}", [study.model(one) for one in group]
        if name in study.study.models:
            yield f"{key}: {name!r} is the name of a model; choose another"
        if again := sorted(grouped & set(group)):
            yield f"{key}: {again[0]!r} is in another group too; a model can be in one"
        grouped |= set(group)
        rest = [model.model_dump(exclude={"title", "base", "job"}) for model in models]
        for one, settings in zip(group, rest, strict=True):
            if differ := [field for field in settings if settings[field] != rest[0][field]]:
                yield f"{key}: {one!r} and {group[0]!r} differ in {differ[0]}, not in base alone"
        if any(one.base == other.base for one, other in itertools.combinations(models, 2)) or any(
            isinstance(model.base, SharedBase) for model in models
        ):
            yield f"{key}: each model needs a base of its own, such as another pretraining.seed"


def _seeds(study: ResolvedStudy) -> Iterator[str]:
    """Seeds of methods that the model is not trained with, and methods without a common seed."""
    for name, model in study.study.models.items():
        key, trained = f"models.{name}.seeds", study.trained(name)
        if without := [row for row in trained if not study.seeds(name, row)]:
            yield f"seeds: missing; give the training seeds of {without[0]}, such as seeds: [1]"
            return
        for own_key in ("seeds", "learning_rates"):
            for row in getattr(model, own_key):
                if row not in trained:
                    what = "a method that this model is trained with"
                    yield f"models.{name}.{own_key}: {row!r} is not {what}{nearest(row, trained)}"
        own = {row: set(study.seeds(name, row)) for row in trained}
        apart = [pair for pair in itertools.combinations(own, 2) if not own[pair[0]] & own[pair[1]]]
        for row, other in apart[:1]:
            yield (
                f"{key}: {row} ({as_written(sorted(own[row]))}) and {other} "
                f"({as_written(sorted(own[other]))}) have no training seed in common, so they "
                "cannot be compared; give them one"
            )


def _sizes(study: ResolvedStudy, of_files: Mapping[str, int]) -> Iterator[str]:
    """Training sets too small for a generation, and completions longer than their model.

    `of_files` are the sizes of sets that are in files.
    """
    for name, model in study.study.models.items():
        rl, key = model.rl, f"models.{name}"
        needed = rl.prompts_per_step * rl.steps_per_generation if rl else 0
        size = of_files.get(rl.problems) or study.study.problems[rl.problems].size() if rl else 0
        if rl and size is not None and size < needed:
            yield (
                f"{key}.rl.problems: {rl.problems!r} has {size} problems, but a generation takes "
                f"{needed} (prompts_per_step x steps_per_generation); lower these, or make the set "
                "larger"
            )
        base = model.base
        if isinstance(base, SharedBase):
            base = study.model(base.model).base
        if isinstance(base, ScratchBase):
            positions, setting = base.architecture.max_positions, "max_positions"
            more = ", or raise base.architecture.max_positions"
        elif isinstance(base, FolderBase) and not any(base.faults()):
            positions, setting, more = base.room() or sys.maxsize, "max_position_embeddings", ""
        else:
            continue
        of_evaluation = f"{key}.evaluation" if model.evaluation else "evaluation"
        for section, settings in ((f"{key}.rl", rl), (of_evaluation, study.evaluation(name))):
            if settings and settings.sampling.max_tokens >= positions:
                yield (
                    f"{section}.sampling.max_tokens: {settings.sampling.max_tokens} leaves no room "
                    f"for a prompt in the {setting} {positions} of the base of {name!r}; lower "
                    f"it{more}"
                )
