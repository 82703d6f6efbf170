"""Names that a package offers and imports when they are first used.

Importing torch and TRL takes seconds. A package says where its names live, and a job that needs one
of its light modules does not pay for the heavy ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` for the names of `homes`, by the modules that define them.

    The function raises AttributeError for other names.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
