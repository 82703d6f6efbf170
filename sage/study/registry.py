"""What a key of an algorithm can name: classes of this project, or one of the user's own.

A choice is a `kind` with its `settings`: a name of a registry, or `module:Class`; the settings are
the parameters of the class, with the types and ranges that it states. A class is looked at before
it is made or called: whatever else can be imported is refused. The modules that registries name
import torch where they compute, so that reading a study stays light.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import create_model

from sage.fields import Faults, Strict, nearest
from sage.runtime.dependencies import WITHOUT_EFFECT, module_files
from sage.study.faults import type_faults

RIVALS = "sage.rivals"


@dataclass(frozen=True)
class Registry:
    """Names for classes that are all asked for the same method.

    `what` is such a class in words, with its article; `method` takes `arguments` by position, and
    `attributes` must be there on the class. `classes` maps names to `module:Class`.
    """

    what: str
    method: str
    arguments: tuple[str, ...]
    classes: dict[str, str] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()

    def find(self, kind: str) -> type[Any]:
        """The class called `kind`, which nothing has made or called yet.

        Raises ValueError for an unknown name, and for what is no class that offers what is asked.
        """
        module, colon, name = self.classes.get(kind, kind).partition(":")
        if not colon:
            raise ValueError(
                f"{kind!r} is not {self.what}, nor module:Class of one{nearest(kind, self.classes)}"
            )
        try:
            named = getattr(importlib.import_module(module), name)
        except Exception as error:  # whatever a module of the user's raises when it is imported
            raise ValueError(
                f"{kind!r} cannot be imported ({type(error).__name__}: {error}); it must be "
                "module:Class, the module a file beside the Snakefile or the study, or installed"
            ) from error
        if lack := self._lack(named):
            signature = f"{self.method}({', '.join(self.arguments)})"
            raise ValueError(f"{kind!r} {lack}; {self.what} is a class with {signature}")
        assert isinstance(named, type)
        return named

    def settings(self, kind: str) -> type[Strict]:
        """What the class called `kind` takes, with types and defaults, as a section of its own.

        Raises ValueError as `find` does.
        """
        make: Any = self.find(kind)
        return _settings(kind.replace(":", "_"), make)

    def build(self, kind: str, settings: Mapping[str, Any]) -> Any:
        """The class called `kind`, made with `settings`.

        Raises ValueError that names what is unknown, of a wrong type or out of range.
        """
        if faults := list(self.faults({"kind": kind, "settings": dict(settings)})):
            raise Faults(faults)
        return self.find(kind)(**settings)

    def faults(self, content: Any) -> Iterator[str]:
        """What is wrong with a choice as it stands in a file, as messages of `Faults`."""
        short = isinstance(content, str)
        whole = {"kind": content} if short else content
        if not isinstance(whole, Mapping) or not isinstance(whole.get("kind"), str):
            return  # of a wrong type, which the type of the section reports
        kind, settings = whole["kind"], whole.get("settings", {})
        try:
            taken = self.settings(kind)
        except ValueError as error:
            yield f"{'' if short else 'kind'}: {error}"
            return
        if not isinstance(settings, Mapping):
            return
        faults = type_faults(taken, settings, "settings")
        yield from faults
        if not faults:
            try:
                self.find(kind)(**settings)
            except (TypeError, ValueError) as error:
                yield f"settings: {error}"

    def files(self, kind: str) -> set[Path]:
        """Source files behind a choice: its module, with what that imports of `sage` and, for a
        class of the user's own, of the user's modules."""
        if kind in self.classes:
            return _files_of(self.classes[kind].partition(":")[0])
        modules = {self.find(kind).__module__, kind.partition(":")[0]}
        return {Path(file) for one in modules for file in module_files(one, WITHOUT_EFFECT)}

    def _lack(self, named: Any) -> str | None:
        """Why `named` cannot serve, or None."""
        if not isinstance(named, type):
            return f"is {type(named).__name__!r}, not a class"
        method = inspect.getattr_static(named, self.method, None)
        if not inspect.isfunction(method) or not _takes(method, len(self.arguments) + 1):
            return f"has no method {self.method} that takes {', '.join(self.arguments)}"
        if inspect.isabstract(named):
            return "is abstract"
        missing = [name for name in self.attributes if not hasattr(named, name)]
        if missing:
            return f"lacks the attribute {', '.join(missing)}"
        try:
            parameters = inspect.signature(named).parameters.values()
        except (TypeError, ValueError):
            return "does not say what settings it takes"
        if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
            return "must name its settings one by one"
        return None


def add_rivals(registries: Mapping[str, Registry]) -> None:
    """Add each public class in the files of `sage/rivals` to the first registry that it serves.

    Its kind is what the class says as `kind`, else the name of its file. Raises ValueError for a
    class that serves none, and for a kind that is taken.
    """
    for file in pkgutil.iter_modules(importlib.import_module(RIVALS).__path__):
        module = importlib.import_module(f"{RIVALS}.{file.name}")
        for name, made in inspect.getmembers(module, inspect.isclass):
            if name.startswith("_") or made.__module__ != module.__name__:
                continue
            named, kind = f"{module.__name__}:{name}", getattr(made, "kind", file.name)
            serves = [each for each in registries.values() if hasattr(made, each.method)]
            if not serves:
                methods = ", ".join(each.method for each in registries.values())
                raise ValueError(f"{named} has no method {methods}; give it one, or a name with _")
            if (other := serves[0].classes.setdefault(kind, named)) != named:
                raise ValueError(f"{named}: {kind!r} is {other} already; give it another `kind`")


@cache
def _files_of(module: str) -> set[Path]:
    return set(map(Path, module_files(module, WITHOUT_EFFECT)))


@cache
def _settings(name: str, make: type) -> type[Strict]:
    """The parameters of a class, and what it says of itself, as a type called `name`."""
    hints = _hints(make)
    settings = inspect.signature(make).parameters
    fields: dict[str, Any] = {
        key: (hints.get(key, Any), ... if each.default is each.empty else each.default)
        for key, each in settings.items()
    }
    return create_model(name, __base__=Strict, __doc__=inspect.getdoc(make), **fields)


def _takes(function: Callable[..., Any], positions: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * positions)
    except TypeError:
        return False
    return True


def _hints(make: type) -> dict[str, Any]:
    """Types of the settings, as far as the class states them and its module can resolve them."""
    hints: dict[str, Any] = {}
    for owner in (make, vars(make).get("__init__")):
        try:
            hints |= get_type_hints(owner, include_extras=True)
        except (NameError, TypeError, AttributeError):
            continue
    return hints
