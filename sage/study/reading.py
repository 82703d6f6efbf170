"""Reads the YAML files of `config/` into a validated study.

Types and ranges are checked by the types, references between sections here. Every
fault of the study and of the algorithms is reported at once, before any job runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from sage.problems.entries import Benchmark
from sage.study.algorithms import Algorithm, run_conflicts
from sage.study.choices import REGISTRIES, in_full
from sage.study.exhibits import OF_TRAINING, RESERVED, AblationTable, Exhibit, PerplexityFigure
from sage.study.faults import listed, nearest, shown, type_faults
from sage.study.models import RL
from sage.study.readings import reading_faults, with_readings
from sage.study.strict import BASE, Name
from sage.study.types import ResolvedStudy, Settings, Study


class StudyError(ValueError):
    """The configuration is not usable; the message lists every fault."""


def load_settings(config: Mapping[str, Any], file: str = "config/config.yaml") -> Settings:
    """Validate what Snakemake read from `config/config.yaml` and `--config`."""
    content = dict(config)
    _refuse({file: type_faults(Settings, content)})
    return Settings.model_validate(content)


def load_study(study: str, config_folder: Path) -> ResolvedStudy:
    """The study called `study` in `config_folder`/studies, or in the YAML file `study`.

    Raises StudyError, listing every fault, if it cannot be run.
    """
    file = _study_file(study, config_folder)
    algorithms_file = str(config_folder / "algorithms.yaml")
    benchmarks_file = str(config_folder / "benchmarks.yaml")
    content, rows, reading_conflicts = with_readings(
        _read_yaml(file), _read_yaml(Path(algorithms_file))
    )
    entries = _read_yaml(Path(benchmarks_file))
    _refuse(
        {
            str(file): [
                *type_faults(Name, file.stem, "the name of the file"),
                *type_faults(Study, content),
                *reading_faults(content),
                *reading_conflicts,
                *_reference_faults(content, rows, algorithms_file),
                *_exhibit_faults(content, rows, algorithms_file),
                *_sample_faults(content),
                *_base_faults(content, entries, benchmarks_file),
                *_run_faults(content, rows),
                *_problem_set_faults(content, entries, benchmarks_file),
            ],
            algorithms_file: [*type_faults(dict[Name, Algorithm], rows), *_row_faults(rows)],
            benchmarks_file: type_faults(dict[Name, Benchmark], entries),
        }
    )
    checked = Study.model_validate(content)
    models, exhibits = checked.models.values(), checked.exhibits.values()
    used = {name for model in models for name in model.algorithms}
    used |= {name for e in exhibits if isinstance(e, Exhibit) for name in e.algorithms or ()}
    used |= {e.algorithm for e in exhibits if isinstance(e, AblationTable)}
    algorithms = {name: Algorithm.model_validate(rows[name]) for name in sorted(used - {BASE})}
    for exhibit in exhibits:
        if isinstance(exhibit, AblationTable):
            algorithms |= _cells(exhibit, algorithms[exhibit.algorithm])
    data_sets = {s.benchmark for s in checked.problems.values() if s.source == "benchmark"}
    data_sets |= {m.sft.data for m in models if m.sft and m.sft.data}
    return ResolvedStudy(
        name=file.stem,
        option=file.stem if file.parent == config_folder / "studies" else study,
        study=checked,
        algorithms=algorithms,
        benchmarks={name: Benchmark.model_validate(entries[name]) for name in sorted(data_sets)},
    )


def _cells(table: AblationTable, parent: Algorithm) -> dict[str, Algorithm]:
    """A row for each cell of an ablation that differs from the algorithm itself."""
    assert parent.guide is not None  # a fault otherwise
    cells = {}
    for cell in table.cells():
        settings = {**parent.guide.settings, **cell}
        if settings != parent.guide.settings:
            guide = parent.guide.model_copy(update={"settings": settings})
            words = ", ".join(f"{key} {value:g}" for key, value in cell.items())
            title = f"{parent.title} ({words})"
            cells[table.row(cell)] = parent.model_copy(update={"guide": guide, "title": title})
    return cells


def _refuse(faults: Mapping[str, Sequence[str]]) -> None:
    """Raise StudyError if any file has faults."""
    found = [listed(file, of_file) for file, of_file in faults.items() if of_file]
    if found:
        raise StudyError("\n".join([*found, "Every key is explained in config/README.md."]))


def _study_file(study: str, config_folder: Path) -> Path:
    named = config_folder / "studies" / f"{study}.yaml"
    for file in (named, Path(study)):
        if file.is_file() and file.suffix in (".yaml", ".yml"):
            return file
    names = [path.stem for path in named.parent.glob("*.yaml")]
    raise StudyError(
        f"config/config.yaml: study: {study!r} is neither a study in {named.parent} nor a YAML "
        f"file{nearest(study, names)}"
    )


def _row_faults(rows: Mapping[Any, Any]) -> Iterator[str]:
    """Faults between the settings of each algorithm; values of wrong type are passed over."""
    for name, value in rows.items():
        row = _mapping(value)
        if name == BASE:
            yield f"{name}: this name is kept for the policy before RL; choose another"
        for key, registry in REGISTRIES.items():
            value = row.get(key)
            if isinstance(value, list):
                for index, each in enumerate(value):
                    yield from registry.faults(f"{name}.{key}[{index}]", each)
            else:
                yield from registry.faults(f"{name}.{key}", value)
        clamp: Any = _mapping(row.get("guide")).get("clamp")
        with suppress(TypeError, ValueError):
            low, high = clamp
            if low > high:
                yield f"{name}.guide.clamp: must be [lowest, highest], not {clamp}"


def _reference_faults(
    content: Mapping[Any, Any], algorithms: Collection[Any], file: str
) -> Iterator[str]:
    """Names that lead nowhere, and repetitions; values of wrong type are passed over."""
    sets = _mapping(content.get("problems"))
    for name, value in _mapping(content.get("models")).items():
        key, model = f"models.{name}", _mapping(value)
        trained_on = _mapping(model.get("rl")).get("problems")
        yield from _unknown(f"{key}.rl.problems", trained_on, "a problem set of this study", sets)
        for field, known, what in (
            ("algorithms", algorithms, f"an algorithm of {file}"),
            ("benchmarks", sets, "a problem set of this study"),
        ):
            names = _sequence(model.get(field))
            for index, entry in enumerate(names):
                yield from _unknown(f"{key}.{field}[{index}]", entry, what, known)
            yield from _repeated(f"{key}.{field}", names)
        if trained_on in _sequence(model.get("benchmarks")):
            yield f"{key}.benchmarks: {trained_on!r} is what RL trains on; name another set"
    yield from _repeated("seeds", _sequence(content.get("seeds")))


def _exhibit_faults(
    content: Mapping[Any, Any], rows: Mapping[Any, Any], file: str
) -> Iterator[str]:
    """Exhibits of models, rows or benchmarks that are not there, and ablations of nothing."""
    models, sets = _mapping(content.get("models")), _mapping(content.get("problems"))
    an_algorithm, a_set = f"an algorithm of {file}", "a problem set of this study"
    for name, value in _mapping(content.get("exhibits")).items():
        key, exhibit = f"exhibits.{name}", _mapping(value)
        if name in RESERVED:
            yield f"{key}: this name is kept for a rule or for what every report has"
        yield from _unknown(f"{key}.model", exhibit.get("model"), "a model of this study", models)
        before_rl = [] if exhibit.get("kind") in _KINDS_OF_TRAINING else [BASE]
        names = _sequence(exhibit.get("algorithms"))
        for index, row in enumerate(names):
            yield from _unknown(
                f"{key}.algorithms[{index}]", row, an_algorithm, [*rows, *before_rl]
            )
        yield from _repeated(f"{key}.algorithms", names)
        if exhibit.get("kind") == "step_times":
            yield from _cost_faults(key, names, rows)
        benchmarks = _sequence(exhibit.get("benchmarks"))
        for index, benchmark in enumerate(benchmarks):
            yield from _unknown(f"{key}.benchmarks[{index}]", benchmark, a_set, sets)
        yield from _repeated(f"{key}.benchmarks", benchmarks)
        yield from _unknown(f"{key}.benchmark", exhibit.get("benchmark"), a_set, sets)
        if exhibit.get("kind") == "ablation":
            row = exhibit.get("algorithm")
            yield from _unknown(f"{key}.algorithm", row, an_algorithm, rows)
            guide = _mapping(in_full(_mapping(rows.get(row)).get("guide")))
            if row in rows and not guide:
                yield f"{key}.algorithm: {row!r} has no guide whose settings could be varied"
            elif guide:
                yield from _grid_faults(f"{key}.grid", guide.get("kind"), exhibit.get("grid"))


def _grid_faults(key: str, kind: Any, grid: Any) -> Iterator[str]:
    """Settings of an ablation that its guide does not have; an unknown guide is passed over."""
    with suppress(ValueError):
        known = REGISTRIES["guide"].settings(str(kind)).model_fields
        for setting in _mapping(grid):
            what = f"a setting of the guide {kind!r}"
            yield from _unknown(f"{key}.{setting}", setting, what, known)


def _cost_faults(key: str, names: Sequence[Any], rows: Mapping[Any, Any]) -> Iterator[str]:
    """Rows whose times would differ for more than their guide; faulty rows are passed over."""
    plain = {}
    for name in names:
        with suppress(ValidationError, TypeError):
            row = Algorithm.model_validate(rows.get(name))
            plain[name] = row.model_dump(exclude={"title", "guide"})
    first = next(iter(plain), None)
    for name, settings in plain.items():
        if differing := [k for k, value in settings.items() if value != plain[first][k]]:
            yield (
                f"{key}.algorithms: {name!r} and {first!r} differ in {', '.join(differing)}; "
                "name rows that differ in their guide alone"
            )


def _sample_faults(content: Mapping[Any, Any]) -> Iterator[str]:
    """Exhibits that ask for more samples of a problem than its model's evaluation draws."""
    models = _mapping(content.get("models"))
    for name, value in _mapping(content.get("exhibits")).items():
        exhibit = _mapping(value)
        model = _mapping(models.get(exhibit.get("model")))
        evaluation = _mapping(model.get("evaluation")) or _mapping(content.get("evaluation"))
        drawn, seeds = evaluation.get("samples"), len(_sequence(evaluation.get("seeds")))
        asked = {
            "patterns": ("samples", exhibit.get("samples"), 1),
            "perplexity": ("responses", exhibit.get("responses", _RESPONSES), seeds),
        }.get(exhibit.get("kind", ""))
        if asked and isinstance(drawn, int) and isinstance(asked[1], int):
            key, wanted, runs = asked
            if wanted > drawn * runs:
                yield (
                    f"exhibits.{name}.{key}: {wanted}, but only {drawn * runs} samples of a "
                    "problem are drawn; lower it, or raise evaluation.samples"
                )


_RESPONSES = PerplexityFigure.model_fields["responses"].default
_KINDS_OF_TRAINING = [get_args(kind.model_fields["kind"].annotation)[0] for kind in OF_TRAINING]


def _base_faults(
    content: Mapping[Any, Any], entries: Mapping[Any, Any], file: str
) -> Iterator[str]:
    """Bases taken from models that are not there or have none of their own; unknown SFT data."""
    models = _mapping(content.get("models"))
    for name, value in models.items():
        model, key = _mapping(value), f"models.{name}"
        base = _mapping(model.get("base"))
        if base.get("source") == "model":
            donors = [
                other
                for other, settings in models.items()
                if _mapping(_mapping(settings).get("base")).get("source") != "model"
            ]
            what = "a model of this study with a base of its own"
            yield from _unknown(f"{key}.base.model", base.get("model"), what, donors)
            if model.get("sft") is not None:
                yield f"{key}.sft: a base taken from another model is tuned there; leave sft out"
        data = _mapping(model.get("sft")).get("data")
        yield from _unknown(f"{key}.sft.data", data, f"a data set of {file}", entries)


def _run_faults(content: Mapping[Any, Any], rows: Mapping[Any, Any]) -> Iterator[str]:
    """Algorithms that do not go with the settings of a model's RL."""
    for name, value in _mapping(content.get("models")).items():
        try:
            settings = RL.model_validate(_mapping(value).get("rl"))
        except ValidationError:
            continue
        for index, row in enumerate(_sequence(_mapping(value).get("algorithms"))):
            try:
                algorithm = Algorithm.model_validate(rows.get(row))
            except ValidationError:
                continue
            key = f"models.{name}.algorithms[{index}]: {row!r}"
            if algorithm.fidelity == "released" and not _mapping(value).get("sft"):
                yield f"{key} refers to the model before SFT, but this model has no sft of its own"
            for conflict in run_conflicts(algorithm, settings):
                yield f"{key}, {conflict}"


def _problem_set_faults(
    content: Mapping[Any, Any], entries: Mapping[Any, Any], file: str
) -> Iterator[str]:
    """Repetitions in problem sets, and data sets or levels that are not in `file`."""
    for name, value in _mapping(content.get("problems")).items():
        key, settings = f"problems.{name}", _mapping(value)
        for field in ("people", "forms", "levels"):
            yield from _repeated(f"{key}.{field}", _sequence(settings.get(field)))
        if settings.get("source") != "benchmark":
            continue
        chosen = settings.get("benchmark")
        yield from _unknown(f"{key}.benchmark", chosen, f"a benchmark of {file}", entries)
        try:
            known = Benchmark.model_validate(entries.get(chosen)).levels()
        except ValidationError:
            continue
        for index, level in enumerate(_sequence(settings.get("levels"))):
            if known:
                what = f"a level of {chosen!r}"
                yield from _unknown(f"{key}.levels[{index}]", str(level), what, known)


def _unknown(key: str, name: Any, what: str, known: Collection[Any]) -> Iterator[str]:
    if isinstance(name, str) and name not in known:
        yield f"{key}: {name!r} is not {what}{nearest(name, known)}"


def _repeated(key: str, values: Sequence[Any]) -> Iterator[str]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield f"{key}[{index}]: {value!r} occurs twice"


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


class _Loader(yaml.SafeLoader):
    """Refuses a key that occurs twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} occurs twice", problem_mark=key.start_mark
                )
            seen.append(key.value)
        return super().construct_mapping(node, deep)


def _read_yaml(file: Path) -> dict[Any, Any]:
    try:
        content = yaml.load(file.read_bytes(), _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise StudyError(f"{file}{place}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise StudyError(f"{file}: not valid YAML: {error}") from error
    except OSError as error:
        raise StudyError(f"{file}: cannot be read: {error.strerror}") from error
    if not isinstance(content, dict):
        raise StudyError(f"{file}: must be a mapping of keys to values, not {shown(content)}")
    return content
