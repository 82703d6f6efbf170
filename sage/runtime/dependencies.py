"""The source files that a module depends on, so that editing one reruns the right jobs.

Imports are read from the source, not executed. Excluded modules are left out, with everything that
only they need.
"""

from __future__ import annotations

import ast
import importlib
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

WITHOUT_EFFECT = (
    *("sage.study", "sage.faults", "sage.fields", "sage.named", "sage.results", "sage.runtime"),
)
"""Modules that do not change a result: they validate settings (the values themselves count), name
files, or set up a job."""


def module_files(module: str, excluded: Collection[str] = ()) -> list[str]:
    """Source files of `module` and of every module that it imports, directly or not, of `sage` or
    of a user's own.

    What a user's module imports is its own where it lies in the folder in which Python finds that
    module, such as that of the Snakefile; for a module of an installed package, in the package.
    A package in `excluded` excludes all of its modules but `module` itself. Raises ValueError for
    an unknown module.
    """
    root, first = _root(module), module.partition(".")[0]
    installed = str(root) in sysconfig.get_paths().values()
    files: dict[str, Path] = {}
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in seen or (installed and top not in (PACKAGE.name, first)):
            continue
        seen.add(name)
        left_out = any(name == out or name.startswith(f"{out}.") for out in excluded)
        if left_out and name != module:
            continue
        if file := _file_of(name, PACKAGE.parent if top == PACKAGE.name else root):
            files[name] = file
            waiting += _imported(name, file, file.stat().st_mtime_ns)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    if module not in files and module.split(".")[0] not in excluded:
        raise ValueError(f"no module {module!r} in {root}")
    return sorted(str(file) for file in files.values())


def _root(module: str) -> Path:
    """The folder in which Python finds a module, or the package that it is in."""
    if module.partition(".")[0] == PACKAGE.name:
        return PACKAGE.parent
    file = Path(getattr(importlib.import_module(module), "__file__", None) or "").absolute()
    return file.parents[module.count(".") + (file.name == "__init__.py")]


def _file_of(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _imported(module: str, file: Path, _changed: int) -> list[str]:
    """The modules that a file may import, read once until the file is changed: of this package
    alone for a file of it."""
    inside = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    names: list[str] = []
    for node in _statements(ast.parse(file.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) + 1 - node.level] if node.level else []
            name = ".".join([*above, *([node.module] if node.module else [])])
            names += [name, *(f"{name}.{alias.name}" for alias in node.names)]
    own = PACKAGE.name if file.is_relative_to(PACKAGE) else ""
    return [name for name in names if name and own in ("", name.split(".")[0])]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, those of functions and branches among them; expressions hold no imports."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(node, name, ()))
