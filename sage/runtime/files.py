"""Files that are either complete or absent.

Every result is written beside its final name, flushed to disk and renamed. So a killed job, a full
disk or a power cut leaves no partial file or folder under a final name; what a kill leaves beside
it is removed when it is written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from sage.runtime.faults import WRITING

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `sage`."""

INSTALLED = PACKAGE / "project"
"""What of the repository comes with an installed package (`workflow/wheel.py`); not in a clone."""

ROOT = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent
"""The folder of the Snakefile, of config/ and of the reports' templates: the repository, or the
copy in an installed package."""

NO_KEPT = "Kept runs (reports/) are in the repository, not in the installed package"


def from_repository(path: str | Path) -> Path:
    """A path that begins in the repository, for this folder: as it is, or with the repository's
    before it where this is another folder."""
    return Path(path) if Path.cwd() == ROOT else ROOT / path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes `path`, on failure it is removed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path), suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        error.add_note(f"{WRITING}{path}")
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary folder; on success it replaces `path`, on failure it is removed.

    An old folder is renamed before it is deleted, so `path` is never a part of it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=_prefix(path)))
    old = temporary.with_name(f"{temporary.name}.old")
    try:
        yield temporary
        os.chmod(temporary, 0o777 & ~_umask())
        for inside in (*temporary.rglob("*"), temporary):
            _flush(inside)
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
    except BaseException as error:
        error.add_note(f"{WRITING}{path}")
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_text_atomic(path: Path, text: str) -> None:
    """Write UTF-8 text so that `path` holds either the old or the new content."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json_atomic(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys."""
    write_text_atomic(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def file_sum(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal text."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sum(text: str | bytes) -> str:
    """The SHA-256 of a text (as UTF-8) or of bytes, as hexadecimal text."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def file_sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in `folder` and below, by its path inside, sorted."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_sum(path) for path in files}


def _prefix(path: Path) -> str:
    """How the names begin of what this process writes for `path`.

    Removes what others left there: their process is gone, and it is older than this one, as such a
    process may also live on another machine.
    """
    pattern, started = re.compile(rf"\.{re.escape(path.name)}\.(\d{{1,9}})-.*"), None
    for beside in path.parent.iterdir():
        match = pattern.fullmatch(beside.name)
        if match and not psutil.pid_exists(int(match[1])):
            started = started or psutil.Process().create_time()
            with suppress(OSError):
                if beside.lstat().st_mtime < started:
                    shutil.rmtree(beside) if beside.is_dir() else beside.unlink()
    return f".{path.name}.{os.getpid()}-"


def _flush(path: Path) -> None:
    """Have a file, or the list of names of a folder, written to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
