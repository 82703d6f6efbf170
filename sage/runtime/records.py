"""Records of jobs: what each made, from what, with sums that `snakemake verify` computes again.

A job that succeeds leaves a record in `provenance/jobs` of the study's results, named after its
log, and the SHA-256 of each file that it made in `provenance/sums`. The sum of an input is taken
from there if size and time of the file are as noted, so large weights are read once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sage.runtime.files import file_sum, write_json_atomic
from sage.runtime.manifest import circumstances, settings_sum

FOLDER = "SAGE_RESULTS"
"""The environment variable with the results folder of the study; without it nothing is recorded."""

CODE = ("code", "choices")
"""Names of a rule's inputs that are source files: they count as one sum."""

Sums = dict[str, dict[str, Any]]
"""By path inside a folder, or "" for the file itself: `sha256`, `size` (bytes), `mtime_ns`."""


def jobs_folder(folder: Path) -> Path:
    """Where the records of a study's jobs are."""
    return folder / "provenance" / "jobs"


def sums_folder(folder: Path) -> Path:
    """Where the sums of a study's files are."""
    return folder / "provenance" / "sums"


@contextmanager
def recorded(snakemake: Any, settings: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Write the record of a job after its body has succeeded; yields the sums of its inputs."""
    place = os.environ.get(FOLDER)
    if not place:
        yield {}
        return
    folder, started = Path(place), time.time()
    named = [(name, str(path)) for name, path in _paths(snakemake.input)]
    inputs = {path: sum_of(Path(path), folder) for name, path in named if name not in CODE}
    code = {path: file_sum(Path(path)) for name, path in named if name in CODE}
    yield inputs
    outputs = {path: _note(Path(path), folder) for _, path in _paths(snakemake.output)}
    log, logs = Path(snakemake.log[0]), folder / "logs"
    name = log.relative_to(logs) if log.is_relative_to(logs) else Path(log.name)
    record = {
        "rule": snakemake.rule,
        "wildcards": dict(snakemake.wildcards.items()),
        "inputs": inputs,
        "code_sha256": settings_sum(code),
        "outputs": outputs,
        **circumstances(settings, started, snakemake.threads),
    }
    write_json_atomic((jobs_folder(folder) / name).with_suffix(".json"), record)


def sum_of(path: Path, folder: Path | None = None) -> str:
    """The sum of a file, or one of all files in a folder; `folder` has the sums known already.

    Hidden files do not count. Raises OSError if it cannot be read.
    """
    noted = _noted(path, folder) if folder else None
    return total(noted if noted is not None else sums_of(path))


def sums_of(path: Path) -> Sums:
    """The sums of a file, or of all files in a folder that are not hidden."""
    return {name: {**_stat(file), "sha256": file_sum(file)} for name, file in _files(path).items()}


def total(sums: Mapping[str, Mapping[str, Any]]) -> str:
    """One sum for all: that of a file, or of the names and sums in a folder."""
    plain = {name: one["sha256"] for name, one in sums.items()}
    return str(plain[""]) if list(plain) == [""] else settings_sum(plain)


def _sums_file(path: Path, folder: Path) -> Path | None:
    """Where the sums of `path` are noted; None for what is not among the results."""
    if not path.is_relative_to(folder):
        return None
    inside = path.relative_to(folder)
    return sums_folder(folder) / inside.with_name(inside.name + ".json")


def _note(path: Path, folder: Path) -> str:
    sums = sums_of(path)
    if file := _sums_file(path, folder):
        write_json_atomic(file, sums)
    return total(sums)


def _noted(path: Path, folder: Path) -> Sums | None:
    """The sums noted for `path` if its files have the noted sizes and times."""
    file = _sums_file(path, folder)
    try:
        noted: Sums = json.loads(file.read_text(encoding="utf-8")) if file else {}
        now = {name: _stat(each) for name, each in _files(path).items()}
        then = {name: {k: one[k] for k in ("size", "mtime_ns")} for name, one in noted.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return noted if noted and now == then else None


def _files(path: Path) -> dict[str, Path]:
    """The files in a folder that are not hidden, by their sorted names; or the file itself."""
    if not path.is_dir():
        return {"": path}
    inside = {file.relative_to(path): file for file in path.rglob("*") if file.is_file()}
    names = sorted(name.as_posix() for name in inside if not is_hidden(name))
    return {name: path / name for name in names}


def is_hidden(inside: Path) -> bool:
    """Whether a path inside a folder, or a folder above it, is hidden: such files do not count."""
    return any(part.startswith(".") for part in inside.parts)


def manifests(results: Path) -> list[Path]:
    """The manifests of a study's training and sampling, sorted, without what a kill left half."""
    found = [*results.glob("models/**/manifest.json"), *results.glob("samples/**/*.json")]
    return sorted(path for path in found if not is_hidden(path.relative_to(results)))


def _stat(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _paths(files: Any) -> Iterator[tuple[str, str]]:
    """The files of a job with the names that its rule gives them."""
    for name, value in files._allitems():
        for path in [value] if isinstance(value, str | Path) else value:
            yield name or "", str(path)
