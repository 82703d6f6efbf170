"""Reads the YAML files of `config/` into a validated study.

Types and ranges are checked by the types, references between sections here. Every
fault of the study and of the algorithms is reported at once, before any job runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sage.fields import BASE, Name
from sage.problems.entries import Benchmark
from sage.study.algorithms import Algorithm, needs_hints, run_conflicts
from sage.study.bases import ScratchBase, SharedBase
from sage.study.choices import REGISTRIES, in_full
from sage.study.exhibit import KINDS, Exhibit
from sage.study.exhibit_faults import exhibit_faults
from sage.study.faults import (
    entry,
    listed,
    mapping,
    repeated,
    sequence,
    shown,
    type_faults,
    unknown,
)
from sage.study.models import RL
from sage.study.readings import reading_faults, with_readings
from sage.study.types import ResolvedStudy, Settings, Study
from sage.study.written import StudyError, read, read_study

Content = TypeVar("Content")


def load_settings(config: Mapping[str, Any], file: str = "config/config.yaml") -> Settings:
    """Validate what Snakemake read from `config/config.yaml` and `--config`."""
    content = dict(config)
    if faults := type_faults(Settings, content):
        _refuse(listed(file, faults))
    return Settings.model_validate(content)


def load_study(
    study: str, config_folder: Path, exhibit_kind: Callable[[str], type[Exhibit]]
) -> ResolvedStudy:
    """The study called `study` in `config_folder`/studies, or in the YAML file `study`.

    `exhibit_kind` maps the name of a kind of exhibit to its class, or raises ValueError. Raises
    StudyError, listing every fault, if the study cannot be run.
    """
    written = read_study(study, config_folder)
    row_file, entry_file = config_folder / "algorithms.yaml", config_folder / "benchmarks.yaml"
    written_rows, written_entries = read(row_file), read(entry_file)
    content, rows, reading_conflicts = with_readings(written.content, written_rows.content)
    entries = written_entries.content
    _refuse(
        *written.faults(
            [
                *type_faults(Name, written.file.stem, "the name of the file"),
                *type_faults(Study, content, context={KINDS: _unread}),
                *reading_faults(content),
                *reading_conflicts,
                *_reference_faults(content, rows, str(row_file)),
                *exhibit_faults(content, rows, str(row_file), exhibit_kind, _guide_settings),
                *_base_faults(content, entries, str(entry_file)),
                *_run_faults(content, rows),
                *_problem_set_faults(content, entries, str(entry_file)),
            ]
        ),
        *written_rows.faults([*type_faults(dict[Name, Algorithm], rows), *_row_faults(rows)]),
        *written_entries.faults(type_faults(dict[Name, Benchmark], entries)),
    )
    checked = Study.model_validate(content, context=context_of(exhibit_kind))
    models, exhibits = checked.models.values(), checked.exhibits.values()
    used = {name for model in models for name in model.algorithms}
    used |= {name for exhibit in exhibits for name in exhibit.named()}
    algorithms = {name: Algorithm.model_validate(rows[name]) for name in sorted(used - {BASE})}
    variants: dict[str, Algorithm] = {}
    for exhibit in exhibits:
        variants |= exhibit.variants(algorithms)
    data_sets = {s.benchmark for s in checked.problems.values() if s.source == "benchmark"}
    data_sets |= {m.sft.data for m in models if m.sft and m.sft.data}
    resolved = ResolvedStudy(
        name=written.file.stem,
        option=written.file.stem if written.file.parent == config_folder / "studies" else study,
        study=checked,
        algorithms=algorithms | variants,
        variants=list(variants),
        benchmarks={name: Benchmark.model_validate(entries[name]) for name in sorted(data_sets)},
    )
    _refuse(*written.faults([*_seed_faults(resolved), *_size_faults(resolved)]))
    return resolved


def _unread(entry: Any) -> Exhibit:
    """Stands for an exhibit, whose faults are found apart from those of the rest."""
    return Exhibit.model_construct(kind="", title="", model="")


def context_of(exhibit_kind: Callable[[str], type[Exhibit]]) -> dict[str, Any]:
    """The validation context of a study, whose exhibits are of the kinds `exhibit_kind` finds."""
    return {KINDS: lambda entry: exhibit_kind(entry["kind"]).model_validate(entry)}


def _refuse(*messages: str) -> None:
    """Raise StudyError with the faults of each file, if there are any."""
    if messages:
        raise StudyError("\n".join([*messages, "Every key is explained in config/README.md."]))


def _row_faults(rows: Mapping[Any, Any]) -> Iterator[str]:
    """Faults between the settings of each algorithm; values of wrong type are passed over."""
    for name, value in rows.items():
        row = mapping(value)
        if name == BASE:
            yield f"{name}: this name is kept for the policy before RL; choose another"
        for key, registry in REGISTRIES.items():
            value = row.get(key)
            if isinstance(value, list):
                for index, each in enumerate(value):
                    yield from registry.faults(f"{name}.{key}[{index}]", each)
            else:
                yield from registry.faults(f"{name}.{key}", value)
        clamp: Any = mapping(row.get("guide")).get("clamp")
        with suppress(TypeError, ValueError):
            low, high = clamp
            if low > high:
                yield f"{name}.guide.clamp: must be [lowest, highest], not {clamp}"


def _guide_settings(row: Any) -> list[str]:
    """Names of the settings of a row's guide; none where it has no guide or a faulty one."""
    guide = mapping(in_full(mapping(row).get("guide")))
    try:
        return list(REGISTRIES["guide"].settings(str(guide.get("kind"))).model_fields)
    except ValueError:
        return []


def _reference_faults(
    content: Mapping[Any, Any], algorithms: Collection[Any], file: str
) -> Iterator[str]:
    """Names that lead nowhere, and repetitions; values of wrong type are passed over."""
    sets = mapping(content.get("problems"))
    for name, value in mapping(content.get("models")).items():
        key, model = f"models.{name}", mapping(value)
        trained_on = mapping(model.get("rl")).get("problems")
        yield from unknown(f"{key}.rl.problems", trained_on, "a problem set of this study", sets)
        for field, known, what in (
            ("algorithms", algorithms, f"an algorithm of {file}"),
            ("benchmarks", sets, "a problem set of this study"),
        ):
            names = sequence(model.get(field))
            for index, each in enumerate(names):
                yield from unknown(f"{key}.{field}[{index}]", each, what, known)
            yield from repeated(f"{key}.{field}", names)
        if trained_on in sequence(model.get("benchmarks")):
            yield f"{key}.benchmarks: {trained_on!r} is what RL trains on; name another set"
    yield from repeated("seeds", sequence(content.get("seeds")))


def _base_faults(
    content: Mapping[Any, Any], entries: Mapping[Any, Any], file: str
) -> Iterator[str]:
    """Bases taken from models that are not there or have none of their own; unknown SFT data."""
    models = mapping(content.get("models"))
    for name, value in models.items():
        model, key = mapping(value), f"models.{name}"
        base = mapping(model.get("base"))
        if base.get("source") == "model":
            donors = [
                other
                for other, settings in models.items()
                if mapping(mapping(settings).get("base")).get("source") != "model"
            ]
            what = "a model of this study with a base of its own"
            yield from unknown(f"{key}.base.model", base.get("model"), what, donors)
            if model.get("sft") is not None:
                yield f"{key}.sft: a base taken from another model is tuned there; leave sft out"
        data = mapping(model.get("sft")).get("data")
        yield from unknown(f"{key}.sft.data", data, f"a data set of {file}", entries)


def _run_faults(content: Mapping[Any, Any], rows: Mapping[Any, Any]) -> Iterator[str]:
    """Algorithms that do not go with the settings of a model's RL."""
    for name, value in mapping(content.get("models")).items():
        try:
            settings = RL.model_validate(mapping(value).get("rl"))
        except ValidationError:
            continue
        for index, row in enumerate(sequence(mapping(value).get("algorithms"))):
            try:
                algorithm = Algorithm.model_validate(entry(rows, row))
            except ValidationError:
                continue
            key = f"models.{name}.algorithms[{index}]: {row!r}"
            if algorithm.fidelity == "released" and not mapping(value).get("sft"):
                yield f"{key} refers to the model before SFT, but this model has no sft of its own"
            problems = mapping(mapping(content.get("problems")).get(settings.problems))
            if needs_hints(algorithm) and problems.get("hints") is not True:
                yield (
                    f"{key} draws under hints, but the problems of {settings.problems!r} carry "
                    "none; set hints: true there, which all sources but reasoning_gym can have"
                )
            for conflict in run_conflicts(algorithm, settings):
                yield f"{key}, {conflict}"


def _problem_set_faults(
    content: Mapping[Any, Any], entries: Mapping[Any, Any], file: str
) -> Iterator[str]:
    """Repetitions in problem sets, and data sets or levels that are not in `file`."""
    for name, value in mapping(content.get("problems")).items():
        key, settings = f"problems.{name}", mapping(value)
        for field in ("people", "forms", "levels"):
            yield from repeated(f"{key}.{field}", sequence(settings.get(field)))
        if settings.get("source") != "benchmark":
            continue
        chosen = settings.get("benchmark")
        yield from unknown(f"{key}.benchmark", chosen, f"a benchmark of {file}", entries)
        try:
            data = Benchmark.model_validate(entry(entries, chosen))
        except ValidationError:
            continue
        if settings.get("hints") is True and data.fields.solution is None:
            yield (
                f"{key}.hints: they are taken from solutions, but {chosen!r} names no "
                f"fields.solution in {file}; add it, or leave hints out"
            )
        known = data.levels()
        for index, level in enumerate(sequence(settings.get("levels"))):
            if known:
                what = f"a level of {chosen!r}"
                yield from unknown(f"{key}.levels[{index}]", str(level), what, known)


def _seed_faults(study: ResolvedStudy) -> Iterator[str]:
    """Seeds of algorithms that the model is not trained with, repeated ones, and rows apart."""
    for name, model in study.study.models.items():
        for row, seeds in model.seeds.items():
            key, trained = f"models.{name}.seeds", study.trained(name)
            yield from unknown(key, row, "an algorithm that this model is trained with", trained)
            yield from repeated(f"{key}.{row}", seeds)
        own = {row: set(study.seeds(name, row)) for row in study.trained(name)}
        apart = [pair for pair in itertools.combinations(own, 2) if not own[pair[0]] & own[pair[1]]]
        for row, other in apart[:1]:
            yield (
                f"models.{name}.seeds: {row} ({shown(sorted(own[row]))}) and {other} "
                f"({shown(sorted(own[other]))}) have no training seed in common, so they cannot be "
                "compared; give them one"
            )


def _size_faults(study: ResolvedStudy) -> Iterator[str]:
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


def read_as(kind: type[Content], file: Path) -> Content:
    """The YAML file `file` as a `kind`. Raises StudyError, which lists every fault."""
    written = read(file)
    if faults := type_faults(kind, written.content):
        raise StudyError("\n".join(written.faults(faults)))
    return TypeAdapter(kind).validate_python(written.content)
