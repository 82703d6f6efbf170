"""A call of a function as JSON, to be made in another process: data alone, nothing that can run.

Arguments are plain values, paths, lists, tuples, mappings with text keys, and sections and
dataclasses that other modules define; the latter two are made again by their own classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

Call = tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]


def dumped(function: Callable[..., object], arguments: tuple[Any, ...], named: Any) -> str:
    """The call as JSON. Raises TypeError for an argument of another type."""
    return json.dumps([_name(function), _plain(tuple(arguments)), _plain(dict(named))])


def loaded(text: str) -> Call:
    """The call that `dumped` wrote."""
    function, arguments, named = json.loads(text)
    return _find(function), _made(arguments), _made(named)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, BaseModel):
        return {"section": _name(type(value)), "of": value.model_dump(mode="json")}
    if is_dataclass(value) and not isinstance(value, type):
        content = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"data": _name(type(value)), "of": content}
    if isinstance(value, tuple):
        return {"tuple": [_plain(one) for one in value]}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _plain(one) for key, one in value.items()}}
    raise TypeError(f"{type(value).__name__} {value!r} cannot be handed to another process")


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "path" in value:
        return Path(value["path"])
    if "section" in value:
        return _find(value["section"]).model_validate(value["of"])
    if "data" in value:
        return _find(value["data"])(**{key: _made(one) for key, one in value["of"].items()})
    if "tuple" in value:
        return tuple(_made(one) for one in value["tuple"])
    return {key: _made(one) for key, one in value["mapping"].items()}


def _name(named: Any) -> str:
    return f"{named.__module__}:{named.__qualname__}"


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    return reduce(getattr, path.split("."), import_module(module))
