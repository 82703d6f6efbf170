"""JSON schemas of the files that people write, for editors.

A file names its schema in its first line (`# yaml-language-server: $schema=...`); an editor then
completes keys, explains them and underlines mistakes. What concerns several files, such as the
name of an algorithm that does not exist, is found when the study is read.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter

from sage.exhibits import KINDS, kind_class
from sage.exhibits.phrases import PhraseList
from sage.fields import Name
from sage.problems.entries import Benchmark
from sage.study.algorithms import Algorithm
from sage.study.choices import CHOICES
from sage.study.derived import KEY
from sage.study.types import Settings, Study
from sage.study.written import EXTENDS, OTHERS


@dataclass(frozen=True)
class File:
    """A file of config/: its name, the type of its content, and its schema's name."""

    name: str
    content: Any
    schema: str


FILES = (
    File("config.yaml", Settings, "config"),
    File("studies/{name}.yaml", Study, "study"),
    File("algorithms.yaml", dict[Name, Algorithm], "algorithms"),
    File("benchmarks.yaml", dict[Name, Benchmark], "benchmarks"),
    File("patterns.yaml", dict[Name, PhraseList], "patterns"),
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
        Family(Algorithm, key, {k: choice.family.settings(k) for k in choice.family.classes})
        for key, choice in CHOICES.items()
    ),
    Family(Study, "exhibits", {kind: kind_class(kind) for kind in KINDS}, flat=True),
)

BUILDING = {"Study": EXTENDS, "Model": EXTENDS, "Algorithm": KEY}
"""The key by which a section builds on another, by the type of the section."""

_OWN = {
    "type": "string",
    "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
    "description": "`module:Class` of your own, in a file beside the Snakefile or installed",
}


def schema(file: File) -> dict[str, Any]:
    """The schema of a file; unknown keys are refused on every level."""
    content = TypeAdapter(file.content).json_schema()
    definitions: dict[str, Any] = content.pop("$defs", {})
    for family in FAMILIES:
        if owner := _owner(family, content, definitions):
            _open(owner["properties"][family.field], family, definitions)
    content, definitions = _extensible(content, definitions)
    used = json.dumps([content, definitions])
    definitions = {name: each for name, each in definitions.items() if f'#/$defs/{name}"' in used}
    content = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "written by `make settings`",
        **content,
        "$defs": definitions,
    }
    for part in _schemas(content):
        _explain(part)
        for key in part.get("properties", {}).values():
            if "const" in key:  # what chooses a type is explained by the type
                key.setdefault("description", part.get("description", ""))
        part.pop("discriminator", None)  # of OpenAPI; editors go by the constants
        if "patternProperties" in part:
            part["additionalProperties"] = False
    return content


def _extensible(
    content: dict[str, Any], definitions: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schemas, in which a section that builds on another need not have any key.

    Such a section may also take keys out with `null`. Each type has a second definition for it.
    """
    title = content.get("title", "")
    whole = {**definitions, title: content}
    extending = {name: key for name, key in BUILDING.items() if name in whole}
    if not extending:
        return content, definitions
    parts = {f"part of {name}": _part_of(each) for name, each in whole.items()}
    for name, key in extending.items():
        chosen = {
            "if": {"type": "object", "required": [key]},
            "then": {"$ref": f"#/$defs/part of {name}"},
            "else": {"$ref": f"#/$defs/whole {name}"},
        }
        whole[f"whole {name}"], whole[name] = whole[name], chosen
    return whole.pop(title), {**whole, **parts}


def _part_of(definition: dict[str, Any]) -> dict[str, Any]:
    """A definition of which no key is required, and each may be `null`."""
    part = copy.deepcopy(definition)
    for each in reversed(list(_schemas(part))):  # those inside first
        if each.get("additionalProperties") is False:  # a section whose keys are known
            each.pop("required", None)
        if "$ref" in each:
            each["$ref"] = each["$ref"].replace("#/$defs/", "#/$defs/part of ")
        if "oneOf" in each:  # a part may be one of several kinds
            each["anyOf"] = each.pop("oneOf")
        for keys in ("properties", "patternProperties"):
            if keys in each:
                each[keys] = {name: _or_null(value) for name, value in each[keys].items()}
        if each.get("additionalProperties") is False and "properties" in each:
            each["properties"][OTHERS] = {"type": "null"}
        if isinstance(each.get("additionalProperties"), dict):
            each["additionalProperties"] = _or_null(each["additionalProperties"])
    return part


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    """A schema that `null` satisfies too."""
    null = {"type": "null"}
    if "anyOf" in value:
        return value if null in value["anyOf"] else {**value, "anyOf": [*value["anyOf"], null]}
    if isinstance(value.get("type"), str) and not {"const", "enum"} & set(value):
        return {**value, "type": [value["type"], "null"]}
    said = ("description", "unit", "trl", "default")
    outer = {key: each for key, each in value.items() if key in said}
    inner = {key: each for key, each in value.items() if key not in said}
    return {**outer, "anyOf": [inner, null]}


def text(file: File) -> str:
    """The schema as it stands in its file."""
    return _laid_out(schema(file)) + "\n"


def _laid_out(value: Any, indent: str = "") -> str:
    """JSON with what fits into a line on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 120 or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        parts = [_laid_out(part, deeper) for part in value]
        return "[\n" + ",\n".join(deeper + part for part in parts) + f"\n{indent}]"
    parts = [f"{json.dumps(key)}: {_laid_out(part, deeper)}" for key, part in value.items()]
    return "{\n" + ",\n".join(deeper + part for part in parts) + f"\n{indent}}}"


def _owner(family: Family, content: Any, definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the type that has the family's key, if it is part of this file."""
    name = family.owner.__name__
    return content if content.get("title") == name else definitions.get(name)


def _open(key: dict[str, Any], family: Family, definitions: dict[str, Any]) -> None:
    """Let the sections of a key be of every kind of the family, and of kinds of one's own."""
    (base,) = {part["$ref"].rpartition("/")[2] for part in _schemas(key) if "$ref" in part}
    names = {name: f"{family.field} {name}" for name in family.kinds}
    for name, kind in family.kinds.items():
        definition = TypeAdapter(kind).json_schema()
        definitions |= definition.pop("$defs", {})
        definitions[names[name]] = definition
        if family.flat:
            definition["properties"]["kind"] = {"const": name}
    choice = _flat(names) if family.flat else _nested(names, base, definitions)
    if not family.flat and definitions[base]["required"] == ["kind"]:
        choice = {"anyOf": [_names(names, definitions), _OWN, choice]}
    for part in list(_schemas(key)):
        if part.get("$ref") == f"#/$defs/{base}":
            del part["$ref"]
            part |= copy.deepcopy(choice)
    for part in _schemas(key):  # an editor's messages are better without one choice in another
        if "anyOf" in part:
            inner = [each.get("anyOf", [each]) for each in part["anyOf"]]
            part["anyOf"] = [each for members in inner for each in members]


def _flat(names: dict[str, str]) -> dict[str, Any]:
    own = {"type": "object", "properties": {"kind": _OWN}, "required": ["kind"]}
    return {"oneOf": [*({"$ref": f"#/$defs/{name}"} for name in names.values()), own]}


def _nested(names: dict[str, str], base: str, definitions: dict[str, Any]) -> dict[str, Any]:
    section = copy.deepcopy(definitions[base])
    kind = section["properties"]["kind"]
    section["properties"]["kind"] = {
        **{key: value for key, value in kind.items() if key != "type"},
        "anyOf": [_names(names, definitions), _OWN],
    }
    section["allOf"] = [
        {
            "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
            "then": {"properties": {"settings": {"$ref": f"#/$defs/{settings}"}}},
        }
        for name, settings in names.items()
    ]
    return section


def _names(names: dict[str, str], definitions: dict[str, Any]) -> dict[str, Any]:
    said = [_unwrapped(definitions[each].get("description", "")) for each in names.values()]
    return {"enum": list(names), "enumDescriptions": [text.partition("\n")[0] for text in said]}


def _explain(part: dict[str, Any]) -> None:
    """Put unit, default and TRL's name into the text that an editor shows."""
    part.pop("title", None)
    notes = {
        "Unit": part.pop("unit", None),
        "Default": _shown(part["default"]) if "default" in part else None,
        "TRL": part.pop("trl", None),
    }
    meaning = _unwrapped(part.get("description", ""))
    lines = [meaning, "; ".join(f"{name}: {value}" for name, value in notes.items() if value)]
    if any(lines):
        part["description"] = "\n\n".join(filter(None, lines))


def _unwrapped(text: str) -> str:
    """Text with one line for each paragraph: editors break the lines themselves."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))


def _shown(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).splitlines()[0]


def _schemas(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and every schema inside it."""
    yield part
    for name in ("properties", "patternProperties", "$defs"):
        for inner in part.get(name, {}).values():
            yield from _schemas(inner)
    for name in ("anyOf", "oneOf", "allOf"):
        for inner in part.get(name, ()):
            yield from _schemas(inner)
    for name in ("items", "additionalProperties", "propertyNames", "if", "then"):
        if isinstance(part.get(name), dict):
            yield from _schemas(part[name])
