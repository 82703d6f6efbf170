"""Says what is wrong with a configuration: key, value, what is allowed, the nearest match.

Pydantic finds the faults; its wording is for programmers and is replaced here by that of
someone who edits a YAML file.
"""

from __future__ import annotations

import datetime
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from sage.fields import NAME, REPOSITORY, Faults, nearest

_WANTED = {
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "string_pattern_mismatch": "must match {pattern}",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have {max_length} or fewer entries",
}
_PATTERNS = {
    NAME: "must begin with a letter from A to Z or a digit and go on with these, `_`, `.` and `-`: "
    "it names a folder or a file",
    REPOSITORY: "must be a repository of the Hugging Face hub, owner/name, such as "
    "Qwen/Qwen2.5-3B-Instruct (for files of this machine see the examples in config/README.md)",
    r"^[0-9a-f]{40}$": "must be a commit, 40 hexadecimal digits, so that the files stay the same",
    r"^[0-9a-f]{64}$": "must be a SHA-256, 64 hexadecimal digits, as `sha256sum FILE` prints it",
}
"""What patterns ask for, in words."""

_TAGS = ("source", "kind", "test")  # the keys that tell the members of a union apart
_NUMBER = re.compile(r"([+-]?\d+)(\.\d*)?(?:[eE]([+-]?\d+))?")
_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?) ?(?!e\d)[A-Za-z]+")
_LONGEST_VALUE = 60


def listed(file: str, faults: Sequence[str]) -> str:
    """The faults of one file, one a line."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return "\n  ".join([f"{file}: {count}", *faults])


def as_written(value: Any) -> str:
    """A value as it stands in a YAML file, cut short if long."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat()
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _LONGEST_VALUE:
            return text[:_LONGEST_VALUE] + "..."
    return text


def _pieces(value: Any) -> Iterator[str]:
    """What `repr` says of a value, bit by bit: aliases can make it longer than any memory."""
    if isinstance(value, list | tuple | dict):
        yield "[{"[isinstance(value, dict)]
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(each)
            if isinstance(value, dict):
                yield ": "
                yield from _pieces(value[each])
        yield "]}"[isinstance(value, dict)]
    else:
        yield repr(value)


def validated(
    kind: Any, content: Any, key: str = "", context: Mapping[str, Any] | None = None
) -> tuple[Any, list[str]]:
    """`content` as a `kind`, or None with what keeps it from being one.

    `key` is where it stands in its file; `context` is handed to the validators of the type.
    """
    try:
        return TypeAdapter(kind).validate_python(content, context=context), []
    except ValidationError as error:
        return None, [each for detail in error.errors() for each in _faults(detail, kind, key)]


def type_faults(kind: Any, content: Any, key: str = "") -> list[str]:
    """What keeps `content` from being a `kind`, as `validated` says it."""
    return validated(kind, content, key)[1]


def mapping(value: Any) -> Mapping[Any, Any]:
    """`value` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def _faults(detail: Any, kind: Any, top: str) -> Iterator[str]:
    """The messages of one of Pydantic's errors: one, unless a validator found several faults."""
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, Faults):
        path, _, _ = _locate(detail["loc"], kind)
        start = _key([top, *path] if top else path)
        for message in error.messages:
            joint = "." if start and message[0] not in "[:" else ""
            yield (start + joint + message).removeprefix(": ")
    else:
        yield _fault(detail, kind, top)


def _fault(detail: Any, kind: Any, top: str) -> str:
    path, owner, expected = _locate(detail["loc"], kind)
    reason, value, facts = detail["type"], detail["input"], detail.get("ctx", {})
    key = _key([top, *path] if top else path)
    if reason in ("extra_forbidden", "invalid_key") and owner:
        word = _renamed(str(path[-1]), owner)
        return f"{key}: unknown key{nearest(word, owner.model_fields, inside(word, owner))}"
    if reason.startswith("union_tag"):
        tag = facts["discriminator"].strip("'")
        key, value = f"{key}.{tag}", value.get(tag)
    if reason == "union_tag_not_found":
        return f"{key}: missing{nearest('', _choices(expected))}"
    if reason in ("union_tag_invalid", "literal_error"):
        word = value if isinstance(value, str) else as_written(value)
        return f"{key}: {as_written(value)} is not allowed{nearest(word, _choices(expected))}"
    if reason == "missing":
        return f"{key}: missing"
    if reason == "value_error":
        return f"{key}: {facts['error']}"
    wanted = _WANTED[reason].format(**facts) if reason in _WANTED else detail["msg"]
    wanted = _PATTERNS.get(facts.get("pattern", ""), wanted)
    if _is_key(detail["loc"]):
        return f"{key}: a key {wanted}, not {as_written(value)}".removeprefix(": ")
    return f"{key}: {wanted}, not {as_written(value)}{_rewritten(reason, value)}"


def _renamed(word: str, owner: type[BaseModel]) -> str:
    """Our name of a setting that is written under TRL's; other words as they are."""
    extras = {name: field.json_schema_extra for name, field in owner.model_fields.items()}
    ours = (name for name, extra in extras.items() if mapping(extra).get("trl") == word)
    return next(ours, word)


def inside(word: str, *owners: type[BaseModel]) -> list[str]:
    """Where sections inside the `owners` have a setting `word`, such as `sampling.max_tokens`; the
    nearest to the top first."""
    places = [
        f"{name}.{place}"
        for owner in owners
        for name, field in owner.model_fields.items()
        for section in filter(is_model, members(field.annotation))
        for place in ([word] if word in section.model_fields else inside(word, section))
    ]
    return sorted(dict.fromkeys(places), key=lambda place: place.count("."))


def _rewritten(reason: str, value: Any) -> str:
    """How to write what YAML reads in another way: ``1e-3`` wants a point, a date quotes."""
    if reason == "list_type" and isinstance(value, str | int | float):
        return f"; write [{value}]"
    if reason == "string_type" and value is not None and not isinstance(value, list | dict):
        kind = "a date" if isinstance(value, datetime.date) else "a number, or true or false"
        return f", which YAML reads as {kind}; put it in quotes: '{as_written(value)}'"
    if not isinstance(value, str) or reason not in ("int_type", "float_type"):
        return ""
    if with_unit := _WITH_UNIT.fullmatch(value):
        return f"; write the number alone, {with_unit[1]}: config/schemas has the unit"
    match = _NUMBER.fullmatch(value)
    if match is None:
        return ""
    whole, decimals, exponent = match.groups()
    if reason == "int_type":
        number = f"{float(value):.0f}"
    elif exponent:
        number = f"{whole}{decimals or '.0'}e{int(exponent):+d}"
    else:
        number = whole + (decimals or "")
    return f", which YAML reads as text; write {number}"


def _locate(
    location: tuple[int | str, ...], kind: Any
) -> tuple[list[int | str], type[BaseModel] | None, Any]:
    """The path of a fault in its file, the type that owns its last key, and the type wanted.

    Pydantic's location also holds a label for the member of each union on the way; a faulty
    key of a mapping is followed by ``[key]`` and counts as a fault of the mapping.
    """
    path: list[int | str] = []
    owner: type[BaseModel] | None = None
    current = kind
    for part in location[:-2] if _is_key(location) else location:
        first, *others = members(current)
        if others:
            current = next((m for m in (first, *others) if _has_label(m, part)), None)
            continue
        path.append(part)
        if is_model(first):
            owner = first
            field = first.model_fields.get(str(part))
            current = field.annotation if field else None
        else:
            current = (typing.get_args(first) or (None,))[-1]
    return path, owner, typing.get_args(current)[0] if _is_key(location) else current


def _is_key(location: tuple[int | str, ...]) -> bool:
    return location[-1:] == ("[key]",)


def members(annotation: Any) -> list[Any]:
    """What a union is made of besides None; a lone type is its own member."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return members(parts[0])
    if origin in (typing.Union, types.UnionType):
        return [inner for part in parts if part is not types.NoneType for inner in members(part)]
    return [annotation]


def _has_label(member: Any, label: int | str) -> bool:
    """Whether `label` is Pydantic's for this member of a union."""
    if is_model(member):
        return label in _tags(member)
    if typing.get_origin(member) is dict:
        return label == "dict"
    return typing.get_origin(member) is typing.Literal and str(label).startswith("literal[")


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _choices(annotation: Any) -> list[str]:
    """The values of a literal, or the tags of a union of types."""
    return [
        choice
        for member in members(annotation)
        for choice in (_tags(member) if is_model(member) else typing.get_args(member))
    ]


def _tags(kind: type[BaseModel]) -> tuple[str, ...]:
    fields = [kind.model_fields[tag] for tag in _TAGS if tag in kind.model_fields]
    return typing.get_args(fields[0].annotation) if fields else ()


def _key(path: Sequence[int | str]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
