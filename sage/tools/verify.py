"""Whether the results of a study are still what its jobs made: all sums are computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.runtime.faults import Damaged
from sage.runtime.manifest import settings_sum
from sage.runtime.records import jobs_folder, sum_of, sums_folder, sums_of

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
    records = {path: _read(path) for path in sorted(jobs_folder(folder).rglob("*.json"))}
    if not records:
        raise FileNotFoundError(
            f"{folder}: no records of jobs in provenance/; they are made by a run of the study"
        )
    faults: list[str] = []
    known: set[Path] = set()
    now: dict[str, str] = {}
    for file in sorted(sums_folder(folder).rglob("*.json")):
        inside = file.relative_to(sums_folder(folder))
        path = folder / inside.with_name(inside.name.removesuffix(".json"))
        faults += _changed(path, _read(file), known)
    for file, record in records.items():
        faults += _of_record(file, record, folder, now)
        job = file.relative_to(jobs_folder(folder)).with_suffix("").as_posix()
        if data and job in data and record["settings"].get("data") != list(data[job]):
            faults.append(
                f"data of job {job}: its files have changed since they were read; run the study "
                "again, which remakes what depends on them"
            )
    everything = (path for path in folder.rglob("*") if path.is_file())
    unrecorded = [
        path.as_posix()
        for path in sorted(everything)
        if path not in known
        and path.relative_to(folder).parts[0] not in UNRECORDED
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
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
    try:
        now = sums_of(path)
    except FileNotFoundError:
        yield f"{path}: missing"
        return
    for name in sorted(noted.keys() | now.keys()):
        file = path / name if name else path
        known.add(file)
        if name not in now:
            yield f"{file}: missing"
        elif name not in noted:
            yield f"{file}: not made by the job that made {path}"
        elif now[name]["sha256"] != noted[name]["sha256"]:
            yield (
                f"{file}: changed since its job ended (sha256 {noted[name]['sha256'][:12]}… then, "
                f"{now[name]['sha256'][:12]}… now)"
            )


def _of_record(
    file: Path, record: Mapping[str, Any], folder: Path, now: dict[str, str]
) -> Iterator[str]:
    job = file.relative_to(jobs_folder(folder)).with_suffix("")
    if settings_sum(record["settings"]) != record["settings_sha256"]:
        yield f"{file}: its settings were changed: they do not have the sum settings_sha256"
    for path, then in record["inputs"].items():
        if path not in now:
            try:
                now[path] = sum_of(Path(path))
            except OSError:
                now[path] = ""
        if not now[path]:
            yield f"{path}: missing; job {job} read it"
        elif now[path] != then:
            yield f"{path}: changed since job {job} read it"


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Damaged(path, f"not JSON ({error})") from error
