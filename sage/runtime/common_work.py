"""Work that another study has done already: products are taken over where records are alike.

A study that extends another, or sets other values for a stage, shares what comes before. A job's
products are taken from the results of the other study if its record there has today's settings,
code and inputs, whatever the study is called. Files are copied.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from sage.runtime.files import atomic_directory, atomic_file, write_json_atomic
from sage.runtime.manifest import settings_sum
from sage.runtime.records import (
    Sums,
    checked,
    differences,
    is_hidden,
    jobs_folder,
    note,
    read_record,
    record_file,
    settings_of,
    sum_of,
    sums_of,
    within,
)

TAKEN = "taken_from"
"""The key of a record with the results folder that products were taken from."""


def take_over(
    jobs: Iterable[Any], folder: Path, others: Sequence[Path], only_look: bool = False
) -> dict[Any, str]:
    """Take what `jobs` of Snakemake make from the results `others`, or `only_look` for it.

    Returns the jobs of which it was taken, each with the folder that made it. A job comes after
    those that make its inputs. One with a record in `folder`, or with products there, is left.
    """
    taken: dict[str, str] = {}  # the sum of each product that was, or would be, taken

    @cache
    def now(path: Path) -> str:
        with suppress(OSError):
            return taken.get(str(path)) or sum_of(path, folder)
        return ""

    found: dict[Any, str] = {}
    for job in jobs:
        outputs = [Path(path) for path in job.output]
        missing = any(path not in taken and not Path(path).exists() for path in job.input)
        if not outputs or missing or record_file(job, folder).exists():
            continue
        if any(path.exists() for path in outputs):
            continue
        for other in others:
            if record := _alike(job, outputs, now, folder, other):
                taken.update({path: record["outputs"][path] for path in map(str, outputs)})
                found[job] = record[TAKEN]
                if not only_look:
                    _take(outputs, record, folder, other)
                    write_json_atomic(record_file(job, folder), record)
                break
    return found


def _alike(
    job: Any, outputs: Sequence[Path], now: Callable[[Path], str], folder: Path, other: Path
) -> dict[str, Any] | None:
    """The record of the same work in the results `other`, as one of `folder`; None without."""
    name = record_file(job, folder).relative_to(jobs_folder(folder))
    record = read_record(jobs_folder(other) / name)
    if record is None or any(differences(job, record, now, folder)):
        return None
    for path in outputs:
        sums = checked(_at(path, folder, other), record, other)
        if any(then != today for then, today in sums.values()):
            return None
    settings = settings_of(job)
    own = {"folder": str(folder), "settings": settings, "settings_sha256": settings_sum(settings)}
    made = within(dict(record), str(record.get("folder", other)), str(folder))
    return {**made, **own, TAKEN: record.get(TAKEN, str(other))}


def _at(path: Path, folder: Path, other: Path) -> Path:
    return Path(within(str(path), str(folder), str(other)))


def _take(outputs: Sequence[Path], record: Mapping[str, Any], folder: Path, other: Path) -> None:
    for path in outputs:
        note(path, folder, _copied(_at(path, folder, other), path))


def _copied(source: Path, path: Path) -> Sums:
    """Put a copy of a product at `path`; its sums. No links: who edits one must not edit both."""
    if not source.is_dir():
        with atomic_file(path) as temporary:
            shutil.copyfile(source, temporary)
    else:
        with atomic_directory(path) as temporary:
            shutil.copytree(
                source,
                temporary,
                ignore=lambda _, names: [name for name in names if is_hidden(Path(name))],
                dirs_exist_ok=True,
            )
    return sums_of(path)


def taken_over(folder: Path) -> list[tuple[str, int]]:
    """The folders from which products of the results `folder` were taken, with numbers of jobs."""
    records = map(read_record, sorted(jobs_folder(folder).rglob("[!.]*.json")))
    return sorted(Counter(str(one[TAKEN]) for one in records if one and TAKEN in one).items())
