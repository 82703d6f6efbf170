"""The sections of the files that people write: where each type stands, and what its keys are.

`FILES` names the files with their types. Most sections follow from the types; where a key `kind`
chooses among classes by name, `FAMILIES` says which they are.
"""

from __future__ import annotations

import types
import typing
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from sage.analysis.phrases import PhraseList
from sage.exhibits import KINDS, kind_class
from sage.fields import Name
from sage.problems.entries import Benchmark
from sage.study.algorithms import Algorithm
from sage.study.choices import REGISTRIES
from sage.study.faults import is_model
from sage.study.reading import OWN
from sage.study.types import Settings, Study

UNIONS = (typing.Union, types.UnionType)
"""The two ways in which an annotation can be a union."""


@dataclass(frozen=True)
class File:
    """A file of config/: its name, the type of its content, and its schema's name.

    `entry` is the placeholder for the names of its entries, if it holds one section for each.
    """

    name: str
    kind: type[BaseModel]
    schema: str
    entry: str = ""

    @property
    def content(self) -> Any:
        """The type of the whole file."""
        return dict[Name, self.kind] if self.entry else self.kind  # type: ignore[name-defined]


FILES = (
    File("config.yaml", Settings, "config"),
    File("studies/{name}.yaml", Study, "study"),
    File("algorithms.yaml", Algorithm, "algorithms", entry="{algorithm}"),
    File("benchmarks.yaml", Benchmark, "benchmarks", entry="{benchmark}"),
    File("patterns.yaml", PhraseList, "patterns", entry="{pattern}"),
)


@dataclass(frozen=True)
class Family:
    """Classes that the key `kind` of a section names; it can also name `module:Class`.

    The section is that of `field` in `owner`. `kinds` maps names to types. Their fields are
    those of the section itself if `flat`, else those of its key `settings`; the
    name alone can then stand in place of a section that needs no other key.
    """

    owner: type[BaseModel]
    field: str
    kinds: Mapping[str, type[BaseModel]]
    flat: bool = False


FAMILIES = (
    *(
        Family(Algorithm, key, {kind: registry.settings(kind) for kind in registry.classes})
        for key, registry in REGISTRIES.items()
    ),
    Family(Study, "exhibits", {kind: kind_class(kind) for kind in KINDS}, flat=True),
)


@dataclass(frozen=True)
class Key:
    """A key of a section: a row of its table. `default` is None for a key that must be there."""

    name: str
    field: FieldInfo

    @property
    def meaning(self) -> str:
        """What it means, as its type says."""
        return self.field.description or ""

    @property
    def trl(self) -> str | None:
        """TRL's name for it."""
        return self._said("trl")

    @property
    def unit(self) -> str | None:
        """Its unit, if its type names one."""
        return self._said("unit")

    def default(self) -> Any:
        """Its default as plain data; a section says only what differs from its own defaults."""
        value = self.field.get_default(call_default_factory=True)
        return TypeAdapter(Any).dump_python(value, exclude_defaults=True)

    def _said(self, what: str) -> str | None:
        extra = self.field.json_schema_extra
        return str(extra[what]) if isinstance(extra, dict) and what in extra else None


def keys(kind: type[BaseModel]) -> list[Key]:
    """The keys of a section, in the order of its type."""
    return [Key(name, field) for name, field in kind.model_fields.items()]


@dataclass(frozen=True)
class Section:
    """A section of a file: its type, and every place where it can stand, the outermost first.

    Where one place can hold sections of several types, `tag` is the key that tells them apart
    with its value, such as ("kind", "accuracy").
    """

    kind: type[BaseModel]
    places: tuple[str, ...]
    tag: tuple[str, str] | None = None


def sections(file: File) -> list[Section]:
    """The sections of a file: each type once, after the section whose key it is."""
    by_kind: dict[type[BaseModel], Section] = {}
    waiting = deque([Section(file.kind, (file.entry,))])
    while waiting:  # breadth first, so that the outermost place is met first
        section = waiting.popleft()
        if before := by_kind.get(section.kind):
            places = dict.fromkeys(before.places + section.places)
            by_kind[section.kind] = replace(before, places=tuple(places))
        else:
            by_kind[section.kind] = section
            waiting.extend(_inside(section))

    def nested(section: Section) -> Iterator[Section]:
        yield section
        for inner in _inside(section):
            if by_kind[inner.kind].places[0] == inner.places[0]:
                yield from nested(by_kind[inner.kind])

    return list(dict.fromkeys(nested(by_kind[file.kind])))


def members(owner: type[BaseModel], field: str) -> dict[type[BaseModel], tuple[str, str] | None]:
    """The types that a section can have, each with the key and value that tell it apart."""
    for family in FAMILIES:
        if family.owner is owner and family.field == field and family.flat:
            return {kind: ("kind", name) for name, kind in family.kinds.items()}
    models = [leaf for leaf in leaves(owner.model_fields[field].annotation) if is_model(leaf)]
    return {model: _tag(model) if len(models) > 1 else None for model in models}


def _inside(section: Section) -> Iterator[Section]:
    """The sections directly in a section."""
    for name, field in section.kind.model_fields.items():
        if name == OWN:
            continue  # they are explained with algorithms.yaml
        place = ".".join(filter(None, (section.places[0], name)))
        if any(typing.get_origin(part) is dict for part in alternatives(field.annotation)):
            place += ".{name}"
        for kind, tag in members(section.kind, name).items():
            yield Section(kind, (place,), tag)
        for family in FAMILIES:
            if family.owner is section.kind and family.field == name and not family.flat:
                for choice, settings in family.kinds.items():
                    inner = f"{place}.settings" if settings.model_fields else place
                    yield Section(settings, (inner,), ("kind", choice))


def leaves(annotation: Any) -> list[Any]:
    """The plain types in an annotation: of a list or a mapping, those of its values."""
    members = alternatives(annotation)
    if members != [annotation]:
        return [leaf for member in members for leaf in leaves(member)]
    inner = typing.get_args(annotation)
    if inner and typing.get_origin(annotation) is not Literal:
        return leaves(inner[-1])
    return [annotation]


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, without what annotations add to them."""
    if typing.get_origin(annotation) is Annotated:
        return alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in UNIONS:
        return [part for member in typing.get_args(annotation) for part in alternatives(member)]
    return [annotation]


def _tag(model: type[BaseModel]) -> tuple[str, str] | None:
    """The first key of a type that has a single allowed value, with that value."""
    for name, field in model.model_fields.items():
        if typing.get_origin(field.annotation) is Literal:
            values = typing.get_args(field.annotation)
            if len(values) == 1:
                return name, str(values[0])
    return None
