"""What does not go together in a study whose sections are each in order.

One pass over the typed study, after validation: methods against the settings of RL, exhibits
against what is trained and sampled, training seeds, and sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from sage.fields import nearest
from sage.problems.entries import BenchmarkSet
from sage.study.algorithms import Algorithm, needs_hints, run_conflicts
from sage.study.bases import ScratchBase, SharedBase
from sage.study.exhibit import Surroundings
from sage.study.faults import as_written
from sage.study.types import ResolvedStudy, Study


def exhibit_conflicts(study: Study, algorithms: Mapping[str, Algorithm]) -> Iterator[str]:
    """What exhibits ask for in vain, each message with its key; before their variants are made.

    `algorithms` are all of `algorithms.yaml`.
    """
    for name, exhibit in study.exhibits.items():
        evaluation = study.models[exhibit.model].evaluation or study.evaluation
        around = Surroundings(algorithms, evaluation.samples, len(evaluation.seeds))
        for setting, message in exhibit.faults(around):
            yield f"exhibits.{name}.{setting}: {message}"


def conflicts(study: ResolvedStudy) -> Iterator[str]:
    """All other such faults, each message with its key."""
    yield from _runs(study)
    yield from _problem_sets(study)
    yield from _bases(study)
    yield from _seeds(study)
    yield from _sizes(study)


def _runs(study: ResolvedStudy) -> Iterator[str]:
    """Methods that do not go with the settings of a model's RL."""
    for name, model in study.study.models.items():
        for index, row in enumerate(model.algorithms):
            algorithm = study.algorithms[row]
            key = f"models.{name}.algorithms[{index}]: {row!r}"
            if algorithm.fidelity == "released" and not model.sft:
                yield f"{key} refers to the model before SFT, but this model has no sft of its own"
            problems = study.study.problems[model.rl.problems]
            if needs_hints(algorithm) and not getattr(problems, "hints", False):
                yield (
                    f"{key} draws under hints, but the problems of {model.rl.problems!r} carry "
                    "none; set hints: true there, which all sources but reasoning_gym can have"
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
        for row in model.seeds:
            if row not in trained:
                what = "a method that this model is trained with"
                yield f"{key}: {row!r} is not {what}{nearest(row, trained)}"
        own = {row: set(study.seeds(name, row)) for row in trained}
        apart = [pair for pair in itertools.combinations(own, 2) if not own[pair[0]] & own[pair[1]]]
        for row, other in apart[:1]:
            yield (
                f"{key}: {row} ({as_written(sorted(own[row]))}) and {other} "
                f"({as_written(sorted(own[other]))}) have no training seed in common, so they "
                "cannot be compared; give them one"
            )


def _sizes(study: ResolvedStudy) -> Iterator[str]:
    """Training sets too small for a generation, and completions longer than their model."""
    for name, model in study.study.models.items():
        rl, key = model.rl, f"models.{name}"
        size = study.study.problems[rl.problems].size()
        needed = rl.prompts_per_step * rl.steps_per_generation
        if size is not None and size < needed:
            yield (
                f"{key}.rl.problems: {rl.problems!r} has {size} problems, but a generation takes "
                f"{needed} (prompts_per_step x steps_per_generation); lower these, or make the set "
                "larger"
            )
        base = model.base
        if isinstance(base, SharedBase):
            base = study.model(base.model).base
        if not isinstance(base, ScratchBase):
            continue
        positions = base.architecture.max_positions
        of_evaluation = f"{key}.evaluation" if model.evaluation else "evaluation"
        for section, settings in ((f"{key}.rl", rl), (of_evaluation, study.evaluation(name))):
            if settings.sampling.max_tokens >= positions:
                yield (
                    f"{section}.sampling.max_tokens: {settings.sampling.max_tokens} leaves no room "
                    f"for a prompt in the max_positions {positions} of the base of {name!r}; lower "
                    "it, or raise base.architecture.max_positions"
                )
