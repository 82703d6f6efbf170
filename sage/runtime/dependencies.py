"""The source files that a module depends on, so that editing one reruns the right jobs.

Imports are read from the source, not executed. Excluded modules are left out, with everything that
only they need.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

WITHOUT_EFFECT = ("sage.study", "sage.fields", "sage.results", "sage.runtime")
"""Modules that do not change a result: they validate settings (the values themselves count), name
files, or set up a job."""


def module_files(module: str, excluded: Collection[str] = ()) -> list[str]:
    """Source files of `module` and of every `sage` module that it imports, directly or not.

    A package in `excluded` excludes all of its modules but `module` itself. Raises ValueError for
    an unknown module.
    """
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        left_out = any(name == out or name.startswith(f"{out}.") for out in excluded)
        if name in files or (left_out and name != module):
            continue
        file = _file_of(name)
        if file is None:
            raise ValueError(f"no module {name!r} in {PACKAGE}")
        files[name] = file
        waiting += _imported(file, file.stat().st_mtime_ns)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    return sorted(str(file) for file in files.values())


def _file_of(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _imported(file: Path, _changed: int) -> list[str]:
    """The modules of this package that a file imports, read once until the file is changed."""
    names: list[str] = []
    for node in _statements(ast.parse(file.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.split(".")[0] == "sage" and _file_of(name)]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, those of functions and branches among them; expressions hold no imports."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(node, name, ()))
