"""What completions were made with, as digests: of checkpoints, of source code, of any value.

Draws with equal digests are from the same distribution, and give the same completions but for
floating-point ties. What changes speed alone (the batch size, the number of GPUs, how samples
are split into shards) stays out: it can move the last bit of a logit, and so now and then a
token, but not what is sampled from.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

from sage.runtime.dependencies import WITHOUT_EFFECT, module_files
from sage.runtime.files import PACKAGE, file_sum, text_sum

_ABOUT_THE_RUN = {"manifest.json", "history.jsonl", "README.md", "training_args.bin"}


def digest(value: Any) -> str:
    """SHA-256 of a value made of what JSON knows."""
    return text_sum(json.dumps(value, sort_keys=True))


def checkpoint_digest(folder: Path) -> str:
    """SHA-256 of a checkpoint or adapter: names and contents of its files.

    Hidden files, folders in it (snapshots, say) and what only tells of the run (manifest,
    history) do not count. Raises FileNotFoundError if there is nothing else.
    """
    files = {}
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and path.name[0] != "." and path.name not in _ABOUT_THE_RUN:
            files[path.name] = file_sum(path)
    if not files:
        raise FileNotFoundError(f"{folder}: no checkpoint there")
    return digest(files)


def code_digest(module: str) -> str:
    """SHA-256 of what `module` and the `sage` modules it imports do.

    Comments, docstrings and layout do not count, nor does the version of Python.
    """
    files = map(Path, module_files(module, WITHOUT_EFFECT))
    return _digest_of(tuple((file, file.stat().st_mtime_ns) for file in files))


@cache
def _digest_of(files: tuple[tuple[Path, int], ...]) -> str:
    """The digest of what files do, read once until one is changed."""
    trees = {}
    for path, _ in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        trees[path.relative_to(PACKAGE).as_posix()] = _plain(_without_docstrings(tree))
    return digest(trees)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                part
                for part in node.body
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
                or not isinstance(part.value.value, str)
            ]
    return tree


def _plain(node: Any) -> Any:
    """A syntax tree as what JSON knows, without the empty fields that some Pythons add."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {
        name: _plain(value) for name, value in ast.iter_fields(node) if value not in (None, [])
    }
    return [type(node).__name__, fields]
