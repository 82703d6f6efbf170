"""Finds what is wrong with a study's exhibits: kinds, settings, and names that lead nowhere.

Kinds come from whoever reads the study; what a kind alone can know is checked by its own class
(`Exhibit.faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sage.fields import BASE
from sage.study.algorithms import Algorithm
from sage.study.exhibit import Exhibit, Surroundings
from sage.study.faults import mapping, repeated, sequence, shown, type_faults, unknown


def exhibit_faults(
    content: Mapping[Any, Any],
    rows: Mapping[Any, Any],
    file: str,
    exhibit_kind: Callable[[str], type[Exhibit]],
    guide_settings: Callable[[Any], Sequence[str]],
) -> Iterator[str]:
    """Faults of the section `exhibits` of a study's `content`; `rows` are the entries of `file`."""
    models, sets = mapping(content.get("models")), mapping(content.get("problems"))
    valid = _valid_rows(rows)
    for name, value in mapping(content.get("exhibits")).items():
        key, exhibit = f"exhibits.{name}", mapping(value)
        if not exhibit:
            continue  # no mapping, which the study's type has said
        named = exhibit.get("kind") or ""
        if not isinstance(named, str):
            yield f"{key}.kind: must be text, not {shown(named)}"
            continue
        try:
            kind = exhibit_kind(named)
        except ValueError as error:
            yield f"{key}.kind: {error}"
            continue
        faulty = type_faults(kind, exhibit, key)
        yield from faulty
        yield from _name_faults(key, exhibit, kind, models, sets, rows, file)
        if not faulty:
            model = mapping(models.get(exhibit["model"]))
            evaluation = mapping(model.get("evaluation")) or mapping(content.get("evaluation"))
            drawn, seeds = evaluation.get("samples"), len(sequence(evaluation.get("seeds")))
            around = Surroundings(
                algorithms=valid,
                guide_settings=lambda row: guide_settings(rows.get(row)),
                drawn=drawn if isinstance(drawn, int) else None,
                eval_seeds=seeds or None,
            )
            for setting, message in kind.model_validate(exhibit).faults(around):
                yield f"{key}.{setting}: {message}"


def _name_faults(
    key: str,
    exhibit: Mapping[Any, Any],
    kind: type[Exhibit],
    models: Mapping[Any, Any],
    sets: Mapping[Any, Any],
    rows: Mapping[Any, Any],
    file: str,
) -> Iterator[str]:
    """Models, rows and benchmarks that are not there, and repetitions."""
    an_algorithm, a_set = f"an algorithm of {file}", "a problem set of this study"
    yield from unknown(f"{key}.model", exhibit.get("model"), "a model of this study", models)
    before_rl = [] if kind.of_training else [BASE]
    for setting, what, known in (
        ("algorithms", an_algorithm, [*rows, *before_rl]),
        ("benchmarks", a_set, sets),
    ):
        names = sequence(exhibit.get(setting))
        for index, entry in enumerate(names):
            yield from unknown(f"{key}.{setting}[{index}]", entry, what, known)
        yield from repeated(f"{key}.{setting}", names)
    yield from unknown(f"{key}.benchmark", exhibit.get("benchmark"), a_set, sets)
    yield from unknown(f"{key}.algorithm", exhibit.get("algorithm"), an_algorithm, rows)


def _valid_rows(rows: Mapping[Any, Any]) -> dict[str, Algorithm]:
    valid = {}
    for name, row in rows.items():
        try:
            valid[name] = Algorithm.model_validate(row)
        except ValidationError:
            continue
    return valid
