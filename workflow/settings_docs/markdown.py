"""The tables of config/README.md, between marks that name a file.

For each section of the file there stand its heading, what its type says of itself, and a table
of its keys. What stands outside the marks is written by hand and left alone.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import yaml
from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sage.exhibits.kind import Kind
from sage.fields import NAME
from sage.study.faults import is_model
from workflow.settings_docs.sections import (
    FAMILIES,
    FILES,
    UNIONS,
    File,
    Key,
    Section,
    alternatives,
    keys,
    leaves,
    sections,
)

REQUIRED = "–"
"""The default of a key that must be there."""

_END = "<!-- end generated -->"
_BLOCK = re.compile(rf"<!-- begin generated: (\S+) -->\n.*?{_END}", re.S)


_WORDS = {
    bool: "`true`, `false`",
    int: "integer",
    float: "number",
    str: "text",
    Any: "any value",
}

Links = Mapping[type[BaseModel], str]
"""Anchors of the sections of a file."""


def filled(text: str) -> str:
    """`text` with what stands between its marks written anew.

    Raises ValueError unless each file that people write has a mark, and no other.
    """
    files = {file.name: file for file in FILES}
    marks = _BLOCK.findall(text)
    if sorted(marks) != sorted(files):
        raise ValueError(
            f"the text is marked for {', '.join(marks) or 'no file'}; there must be one pair of "
            f"marks, <!-- begin generated: FILE --> and {_END}, for each of {', '.join(files)}"
        )
    return _BLOCK.sub(lambda match: _block(files[match[1]]), text)


def _block(file: File) -> str:
    described = sections(file)
    links = {each.kind: _anchor(_heading(each, Section(each.kind, ()))) for each in FILES}
    links |= {section.kind: _anchor(_heading(file, section)) for section in described}
    for family in FAMILIES:
        if family.flat:  # the place of any of its kinds begins at that of the first
            (base,) = filter(is_model, leaves(family.owner.model_fields[family.field].annotation))
            links[base] = links.get(next(iter(family.kinds.values())), "")
    parts = [f"<!-- begin generated: {file.name} -->"]
    for section in described:
        level = "##" if section.kind is file.kind else "###"
        parts.append(f"{level} {_heading(file, section)}")
        about = inspect.getdoc(section.kind) or ""
        # what files of an exhibit contain is their caption
        parts.append(about.partition("\n\n")[0] if issubclass(section.kind, Kind) else about)
        parts.append(table(section, links) if section.kind.model_fields else "")
    return "\n\n".join([*filter(None, parts), _END])


def _heading(file: File, section: Section) -> str:
    """Where the section stands, and its type."""
    places = file.name if section.kind is file.kind else ", ".join(section.places)
    if not section.tag:
        return f"{places} (`{section.kind.__name__}`)"
    key, value = section.tag
    name = section.kind.__name__
    return f"{places}, {key} {value}" + (f" (`{name}`)" if name != value else "")


def table(section: Section, links: Links) -> str:
    rows = keys(section.kind)
    with_trl = any(key.trl for key in rows)
    head = ["key", "unit", "default", *(["TRL"] if with_trl else []), "meaning"]
    lines = [head, ["---"] * len(head)]
    for key in rows:
        trl = [f"`{key.trl}`" if key.trl else ""] if with_trl else []
        unit, meaning = _unit(key, links) + _kinds(section, key), key.meaning
        if section.tag and section.tag[0] == key.name:
            unit, meaning = f"`{section.tag[1]}`", meaning or "selects this kind"
        lines.append([f"`{key.name}`", unit, _default(key), *trl, meaning.replace("|", "\\|")])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _kinds(section: Section, key: Key) -> str:
    """The kinds that a key can name, if their settings stand apart from it."""
    for family in FAMILIES:
        if (family.owner, family.field, family.flat) == (section.kind, key.name, False):
            return ": " + ", ".join(f"`{kind}`" for kind in [*family.kinds, "module:Class"])
    return ""


def _default(key: Key) -> str:
    if key.field.is_required():
        return REQUIRED
    text = yaml.safe_dump(key.default(), default_flow_style=True, width=1000).splitlines()[0]
    return f"`{text}`"


def _unit(key: Key, links: Links) -> str:
    """The unit of a key with the range of its numbers, or what its type allows."""
    annotation, field = key.field.annotation, key.field
    form = _form(annotation, field.metadata, links)
    if key.unit:
        lists = any(typing.get_origin(each) is list for each in alternatives(annotation))
        start = "list of " if lists and "list" not in key.unit else ""
        by = f" by {form.partition(' by ')[2]}" if " by " in form and " by " not in key.unit else ""
        bounds = _bounds(annotation, field.metadata)
        form = start + ", ".join(filter(None, (key.unit, bounds))) + by
    takes_null = type(None) in typing.get_args(annotation)
    return f"{form} or `null`" if takes_null and (field.is_required() or field.default) else form


def _form(annotation: Any, metadata: Sequence[Any], links: Links) -> str:
    """What a value looks like, in words; `metadata` is what stands beside it in its type."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _form(inner[0], [*metadata, *_metadata(inner[1:])], links)
    members = [each for each in alternatives(annotation) if each is not type(None)]
    if all(map(is_model, members)):
        of_kind = [link for kind, link in links.items() if issubclass(kind, members[0])]
        return f"[section](#{of_kind[0]})"
    if origin in UNIONS:
        forms = [_form(each, metadata, links) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(forms))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is list:
        return f"list of {_plural(_form(inner[0], [], links))}"
    if origin is dict:
        by = _form(inner[0], [], links)
        return f"{_plural(_form(inner[1], [], links))} by {by}"
    if annotation is str and any(getattr(each, "pattern", None) == NAME for each in metadata):
        return "name"
    return _WORDS[annotation]


def _plural(words: str) -> str:
    return re.sub(r"\b(number|integer|section|text|name)\b", r"\1s", words, count=1)


def _bounds(annotation: Any, metadata: Any) -> str:
    """The range of whole numbers, where it is narrower than all from 0 or 1."""
    bounds = list(metadata)
    for leaf in _annotated(annotation):
        bounds += leaf
    low = next((each.ge for each in bounds if isinstance(each, Ge)), None)
    high = next((each.le for each in bounds if isinstance(each, Le)), None)
    if int not in leaves(annotation) or low in (None, 0, 1):
        return ""
    return f"{low} to {high}" if high is not None else f"at least {low}"


def _annotated(annotation: Any) -> list[list[Any]]:
    """What annotations inside an annotation add to it."""
    metadata = []
    if typing.get_origin(annotation) is Annotated:
        metadata.append(_metadata(typing.get_args(annotation)[1:]))
    if typing.get_origin(annotation) is not Literal:
        metadata += [each for part in typing.get_args(annotation) for each in _annotated(part)]
    return metadata


def _metadata(extra: Any) -> list[Any]:
    return [each for part in extra if isinstance(part, FieldInfo) for each in part.metadata]


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
