"""Whether the results of a study are still what its jobs made: all sums are computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.runtime.faults import Damaged
from sage.runtime.manifest import settings_sum
from sage.runtime.records import is_hidden, jobs_folder, sum_of, sums_folder, sums_of

UNRECORDED = ("provenance", "logs", "scratch", "shards", "partial", "archive", "registered.json")
"""Parts of the results without records: what may be deleted, or describes the rest."""


@dataclass(frozen=True)
class Verification:
    """What no longer matches, a line each, and how much was compared."""

    faults: list[str]
    files: int
    jobs: int
    unrecorded: list[str]


def verify(folder: Path, data: Mapping[str, Sequence[str]] | None = None) -> Verification:
    """Compare the results in `folder` with the records of its jobs.

    `data` are the sums of the data sets' files as they are now, by job (`data_sums`). A fault is a
    file that is missing, changed or added since its job ended, settings that do not have their sum,
    and a result made from an input or a data set that has changed since. Raises FileNotFoundError
    if there are no records.
    """
    jobs = jobs_folder(folder)
    records = {
        path.relative_to(jobs).with_suffix("").as_posix(): _read(path)
        for path in sorted(jobs.rglob("[!.]*.json"))
    }
    if not records:
        raise FileNotFoundError(
            f"{folder}: no records of jobs in provenance/; run the study here first, "
            f"sage-rlvr run {folder.name}"
        )
    faults: list[str] = []
    known: set[Path] = set()
    for file in sorted(sums_folder(folder).rglob("[!.]*.json")):
        path = folder / file.relative_to(sums_folder(folder)).with_suffix("")
        faults += _changed(path, _read(file), known)
    now = {path: _sum_now(path) for record in records.values() for path in record["inputs"]}
    for job, record in records.items():
        if settings_sum(record["settings"]) != record["settings_sha256"]:
            file = jobs / f"{job}.json"
            faults.append(
                f"{file}: its settings were changed: they do not have the sum settings_sha256"
            )
        for path, then in record["inputs"].items():
            if not now[path]:
                faults.append(f"{path}: missing; job {job} read it")
            elif now[path] != then:
                faults.append(f"{path}: changed since job {job} read it")
        if data and job in data and record["settings"].get("data") != list(data[job]):
            faults.append(
                f"data of job {job}: its files have changed since they were read; run the study "
                "again, which remakes what depends on them"
            )
    inside = {path: path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    unrecorded = [
        path.as_posix()
        for path, name in sorted(inside.items())
        if path not in known and name.parts[0] not in UNRECORDED and not is_hidden(name)
    ]
    return Verification(faults, len(known), len(records), unrecorded)


def render(folder: Path, checked: Verification) -> str:
    """The outcome as text."""
    lines = [*checked.faults]
    if checked.unrecorded:
        lines.append(
            f"{len(checked.unrecorded)} files have no record, such as {checked.unrecorded[0]}"
        )
    verdict = f"{len(checked.faults)} do not match" if checked.faults else "all match"
    lines.append(f"{folder}: {checked.files} files of {checked.jobs} jobs compared: {verdict}")
    return "\n".join(lines)


def _changed(path: Path, noted: Mapping[str, Any], known: set[Path]) -> Iterator[str]:
    """What differs in an output from the sums that were noted; its files are added to `known`."""
    try:
        now = sums_of(path)
    except FileNotFoundError:
        yield f"{path}: missing"
        return
    for name in sorted(noted.keys() | now.keys()):
        file = path / name if name else path
        known.add(file)
        then, here = (sums[name]["sha256"] if name in sums else "" for sums in (noted, now))
        if not here:
            yield f"{file}: missing"
        elif not then:
            yield f"{file}: not made by the job that made {path}"
        elif here != then:
            yield (
                f"{file}: changed since its job ended (sha256 {then[:12]}… then, {here[:12]}… now)"
            )


def _sum_now(path: str) -> str:
    """The sum of an input as it is now; empty for one that is gone."""
    try:
        return sum_of(Path(path))
    except OSError:
        return ""


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Damaged(path, f"not JSON ({error})") from error
