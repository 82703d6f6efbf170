"""Whether results are what today's study makes, and still what jobs wrote: all are read again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sage.runtime.records import (
    checked,
    is_hidden,
    jobs_folder,
    products,
    read_record,
    unlike,
    without_record,
)

_FILES = ("registered.json", "study.yaml", "compared.html")
UNRECORDED = ("provenance", "logs", "scratch", "shards", "partial", "archive", *_FILES)
"""Parts of the results without records: what may be deleted, or describes the rest."""


@dataclass(frozen=True)
class Verification:
    """What no longer matches, a line each, how many of the lines a run makes right, and how much
    was compared. `strange` are files without a record, `unrecorded` has a product of each job
    without one."""

    faults: list[str]
    made_again: int
    files: int
    jobs: int
    strange: list[str]
    unrecorded: Sequence[str]


def verify(
    folder: Path, today: Mapping[str, Sequence[str]], unrecorded: Sequence[str] = ()
) -> Verification:
    """Compare the results in `folder` with the records of its jobs.

    `today` has the jobs of the study's report by the names of their records, each with what differs
    from its record, and `unrecorded` a product of each without one (`compare`). Raises
    FileNotFoundError if there are no records.
    """
    jobs = jobs_folder(folder)
    files = sorted(jobs.rglob("[!.]*.json"))
    if not files:
        raise FileNotFoundError(
            f"{folder}: no records of jobs in provenance/; run the study here first, "
            f"sage-rlvr run {folder.name}"
        )
    faults: list[str] = []
    beside: list[str] = []
    known: set[Path] = set()
    made_again = 0
    for file in files:
        read, name = read_record(file), file.relative_to(jobs).with_suffix("").as_posix()
        record, reasons = read or {"outputs": {}}, [] if read else [f"{file} is damaged"]
        for path in products(record, folder):
            sums = checked(path, record, folder, read=True)
            reasons += unlike(sums)
            there = {each for each in path.rglob("*") if each.is_file()}
            if str(path) not in sums:
                more = sorted(str(each) for each in there if not is_hidden(each.relative_to(path)))
                beside += [
                    f"{each}: not made by the job that made {path}; delete it"
                    for each in more
                    if each not in sums
                ]
            known |= {Path(each) for each in sums} | there
        reasons = [*dict.fromkeys([*reasons, *today.get(name, ())])]
        here = "" if name in today else "; the report does not need it, so it can be deleted"
        made_again += len(reasons) * (name in today)
        faults += [f"job {name}: {reason}{here}" for reason in reasons]
    inside = {path: path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    strange = [
        path.as_posix()
        for path, name in sorted(inside.items())
        if path not in known and name.parts[0] not in UNRECORDED and not is_hidden(name)
    ]
    return Verification(faults + beside, made_again, len(known), len(files), strange, unrecorded)


def changed(folder: Path, parts: Collection[str]) -> Iterator[str]:
    """What in these `parts` of the results in `folder` is not as its job wrote it, in words."""
    for file in sorted(jobs_folder(folder).rglob("[!.]*.json")):
        record = read_record(file) or {"outputs": {}}
        for path in products(record, folder):
            if path.is_relative_to(folder) and path.relative_to(folder).parts[0] in parts:
                yield from unlike(checked(path, record, folder))


def render(folder: Path, compared: Verification, again: str) -> str:
    """The outcome as text; `again` is the command that runs the study."""
    lines = [*compared.faults]
    if compared.made_again:
        lines.append(f"`{again}` makes again what does not match, and what depends on it")
    if compared.unrecorded:
        lines.append(without_record(compared.unrecorded, again))
    if compared.strange:
        lines.append(f"{len(compared.strange)} files have no record, such as {compared.strange[0]}")
    wrong = len(compared.faults) + len(compared.unrecorded)
    verdict = f"{wrong} do not match" if wrong else "all match"
    lines.append(f"{folder}: {compared.files} files of {compared.jobs} jobs compared: {verdict}")
    return "\n".join(lines)
