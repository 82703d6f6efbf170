"""Classes that a study names: a name of ours, or `module:Class` of a user's own.

Guides and all else that a method chooses, tasks and kinds of exhibits are found in this one way. A
class is looked at before it is made or called: whatever else can be imported is refused. Modules
that are named import torch where they compute, so that reading a study stays light.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import create_model

from sage.faults import type_faults
from sage.fields import Strict, nearest
from sage.runtime.dependencies import WITHOUT_EFFECT, module_files


@dataclass(frozen=True)
class Named:
    """Names for classes that serve one purpose.

    `what` is such a class in words, with its article. It must have `methods`, by what each takes by
    position (in brackets what it may leave out), and `attributes`, and be a subclass of `base`.
    `classes` maps names to `module:Class`.
    """

    what: str
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    base: str = ""
    classes: dict[str, str] = field(default_factory=dict)

    def find(self, kind: str) -> type[Any]:
        """The class called `kind`, which nothing has made or called yet.

        Raises ValueError for an unknown name, and for what is no class that offers what is asked.
        """
        module, colon, name = self.classes.get(kind, kind).partition(":")
        if not colon:
            said = f"{kind!r} is not {self.what}, nor module:Class of one" if kind else "missing"
            raise ValueError(said + nearest(kind, self.classes))
        try:
            named = getattr(importlib.import_module(module), name)
        except Exception as error:  # whatever a module of the user's raises when it is imported
            raise ValueError(
                f"{kind!r} cannot be imported ({type(error).__name__}: {error}); it must be "
                "module:Class, the module a file beside the Snakefile or the study, or installed"
            ) from error
        if lack := self._lack(named):
            each = (f"{name}({', '.join(taken)})" for name, taken in self.methods.items())
            form = f"a subclass of {self.base}" if self.base else f"a class with {', '.join(each)}"
            raise ValueError(f"{kind!r} {lack}; {self.what} is {form}")
        assert isinstance(named, type)
        return named

    def settings(self, kind: str) -> type[Strict]:
        """What the class called `kind` takes, with types and defaults, as a section of its own.

        Raises ValueError as `find` does.
        """
        found: Any = self.find(kind)
        return _settings(kind.replace(":", "_"), found)

    def faults(self, kind: str, settings: Any) -> list[str]:
        """What is wrong with a class of that name and its settings, as messages of `Faults`.

        One that begins with a colon is about the name.
        """
        try:
            taken = self.settings(kind)
        except ValueError as error:
            return [f": {error}"]
        if not isinstance(settings, Mapping):
            return []  # which the type of the section reports
        return type_faults(taken, settings, "settings")

    def files(self, kind: str) -> set[Path]:
        """Source files behind a name: its module, with what that imports of `sage` and, for a
        class of the user's own, of the user's modules."""
        if kind in self.classes:
            return _files_of(self.classes[kind].partition(":")[0])
        modules = {self.find(kind).__module__, kind.partition(":")[0]}
        return {Path(file) for one in modules for file in module_files(one, WITHOUT_EFFECT)}

    def _lack(self, named: Any) -> str | None:
        """Why `named` cannot serve, or None."""
        if not isinstance(named, type):
            return f"is {type(named).__name__!r}, not a class"
        if self.base:
            module, _, base = self.base.partition(":")
            fits = issubclass(named, getattr(importlib.import_module(module), base))
            return None if fits else "is no such class"
        for name, arguments in self.methods.items():
            method = inspect.getattr_static(named, name, None)
            needed = [each for each in arguments if not each.startswith("[")]
            counts = {len(needed), len(arguments)}
            if not isinstance(method, staticmethod | types.FunctionType) or not any(
                takes(method, count) for count in counts
            ):
                return f"has no method {name} that takes {', '.join(needed) or 'nothing'}"
        if inspect.isabstract(named):
            return "is abstract"
        if missing := [name for name in self.attributes if not hasattr(named, name)]:
            return f"lacks the attribute {', '.join(missing)}"
        try:
            parameters = inspect.signature(named).parameters.values()
        except (TypeError, ValueError):
            return "does not say what settings it takes"
        if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
            return "must name its settings one by one"
        return None


def takes(method: Any, positions: int) -> bool:
    """Whether a method, as it stands in its class, takes so many arguments by position."""
    static = isinstance(method, staticmethod)
    function = method.__func__ if static else method
    try:
        inspect.signature(function).bind(*[None] * (positions + (not static)))
    except TypeError:
        return False
    return True


def add_classes(package: str, families: Iterable[Named]) -> None:
    """Add each public class in the files of `package` to the first family that it serves.

    A class is called by what it says as `kind`, else by its file. Raises ValueError for a class
    that serves none, and for a name that is taken.
    """
    by_method = {next(iter(family.methods)): family for family in families}
    for file in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{file.name}")
        for name, made in inspect.getmembers(module, inspect.isclass):
            if name.startswith("_") or made.__module__ != module.__name__:
                continue
            named, kind = f"{module.__name__}:{name}", getattr(made, "kind", file.name)
            serves = [each for method, each in by_method.items() if hasattr(made, method)]
            if not serves:
                methods = ", ".join(by_method)
                raise ValueError(f"{named} has no method {methods}; give it one, or a name with _")
            if (other := serves[0].classes.setdefault(kind, named)) != named:
                raise ValueError(f"{named}: {kind!r} is {other} already; give it another `kind`")


@cache
def _files_of(module: str) -> set[Path]:
    return set(map(Path, module_files(module, WITHOUT_EFFECT)))


@cache
def _settings(name: str, make: type) -> type[Strict]:
    """The parameters of a class, and what it says of itself, as a type called `name`."""
    hints: dict[str, Any] = {}
    for owner in (make, vars(make).get("__init__")):
        try:  # as far as the class states them and its module can resolve them
            hints |= get_type_hints(owner, include_extras=True)
        except (NameError, TypeError, AttributeError):
            continue
    settings = inspect.signature(make).parameters
    fields: dict[str, Any] = {
        key: (hints.get(key, Any), ... if each.default is each.empty else each.default)
        for key, each in settings.items()
    }
    return create_model(name, __base__=Strict, __doc__=inspect.getdoc(make), **fields)
