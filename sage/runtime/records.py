"""Records of jobs: what each made, from which settings, code and inputs, with sums.

A job that succeeds leaves a record in `provenance/jobs` of the study's results, named after its
log, and the SHA-256 of each file that it made in `provenance/sums`. `compare` holds jobs of today
against their records, whatever the dates of files say: at the start of a run, at its end and in
`snakemake verify`. The sum of a file is taken from the notes if its size and times are as noted, so
large weights are read once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sage.runtime.faults import Damaged
from sage.runtime.files import file_sum, write_json_atomic
from sage.runtime.manifest import circumstances, settings_sum

FOLDER = "SAGE_RESULTS"
"""The environment variable with the results folder of the study; without it nothing is recorded."""

CODE = ("code", "choices")
"""Names of a rule's inputs that are source files: they count as one sum."""

CHECKED = "SAGE_CHECKED_GB"
"""The environment variable with the largest file of weights, in GB, that a job reads twice to hold
it against its sum: 20 unless set. A core sums 1.5 GB a second: 0.3 s for 0.5 GB, 3.5 s for 5 GB."""

FEW = 20
"""More products than that are not named in a command."""

Sums = dict[str, dict[str, Any]]
"""By path inside a folder, or "" for the file itself: `sha256`, and `size` (bytes), `mtime_ns` and
`ctime_ns` of the file that has it. An edit changes the last also where dates are put back."""


@dataclass(frozen=True)
class Comparison:
    """What differs between jobs of today, as Snakemake has them, and their records.

    `reasons` says of each job, in words, why its products are not what today's settings, code and
    inputs make; nothing where they are. `unrecorded` has a product of each job without a record.
    """

    reasons: dict[Any, list[str]] = field(default_factory=dict)
    unrecorded: list[str] = field(default_factory=list)

    @property
    def changed(self) -> list[Any]:
        """The jobs whose products are not what today's settings, code and inputs make."""
        return [job for job, reasons in self.reasons.items() if reasons]

    def lines(self, way: str, again: str) -> Iterator[str]:
        """What people are told; `way` makes changed products again, `again` is a run's command."""
        if changed := self.changed:
            first = min(changed, key=lambda job: len(self.reasons[job][0]))
            others = f" and {len(changed) - 1} more" if changed[1:] else ""
            yield (
                f"Not what today's settings, code and files make: {first.output[0]} "
                f"({self.reasons[first][0]}){others}. {way}"
            )
        if self.unrecorded:
            yield without_record(self.unrecorded, again)


def without_record(products: Sequence[str], again: str) -> str:
    """What people are told of products without a record; `again` is the command of a run."""
    others = f" and {len(products) - 1} more were" if products[1:] else " was"
    force = f"--forcerun {' '.join(products)}" if len(products) <= FEW else "--forceall"
    return f"No record says what {products[0]}{others} made from. `{again} {force}` makes it again"


LAST: list[Comparison] = []
"""The comparison at the start of the run of this process, for its line of progress."""


def jobs_folder(folder: Path) -> Path:
    """Where the records of a study's jobs are."""
    return folder / "provenance" / "jobs"


@contextmanager
def recorded(snakemake: Any, settings: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Write the record of a job that makes files after its body has succeeded; yields the sums of
    its inputs.

    Raises Damaged where weights among them are not as they were written.
    """
    place = os.environ.get(FOLDER)
    if not place or not snakemake.output:
        yield {}
        return
    folder, started = Path(place), time.time()
    inputs, code = _made_from(snakemake, lambda path: sum_of(path, folder))
    for read in map(Path, inputs):
        _require_weights(read, _noted(read, folder) or {})
    yield inputs
    made = {path: sums_of(Path(path)) for _, path in _paths(snakemake.output)}
    for path, sums in made.items():
        note(Path(path), folder, sums)
    record = {
        "rule": snakemake.rule,
        "folder": place,
        "wildcards": dict(snakemake.wildcards.items()),
        "inputs": inputs,
        "code_sha256": code,
        "outputs": {path: total(sums) for path, sums in made.items()},
        **circumstances(settings, started, snakemake.threads),
    }
    write_json_atomic(record_file(snakemake, folder), record)


def _require_weights(path: Path, noted: Sums) -> None:
    """Raises Damaged where safetensors in the product `path` have not the noted sums.

    Size and times tell of no bytes that changed on the disk. The job reads the file anyway.
    """
    most = 1e9 * float(os.environ.get(CHECKED, 20))
    for name, one in noted.items():
        checks = name.endswith(".safetensors") and one.get("size", 0) <= most
        if checks and _fresh(path / name, one, read=True)["sha256"] != one["sha256"]:
            raise Damaged(path, f"{name} is not as it was written (SHA-256)")


def settings_of(job: Any) -> dict[str, Any]:
    """The parameters of a job as plain data."""
    return {name: _plain(value) for name, value in job.params.items()}


def compare(jobs: Iterable[Any], folder: Path) -> Comparison:
    """Hold jobs of Snakemake against their records in the results `folder`.

    A job without a record that has not made all of its products is left out: Snakemake knows.
    """
    found = Comparison()

    @cache
    def now(path: Path) -> str:
        with suppress(OSError):
            return sum_of(path, folder)
        return ""

    for job in jobs:
        outputs = [Path(path) for _, path in _paths(job.output)]
        if outputs and record_file(job, folder).exists():
            found.reasons[job] = [*_differences(job, outputs, now, folder)]
        elif outputs and all(path.exists() for path in outputs):
            found.unrecorded.append(str(outputs[0]))
    return found


def _differences(
    job: Any, outputs: Iterable[Path], now: Callable[[Path], str], folder: Path
) -> Iterator[str]:
    record = read_record(record_file(job, folder))
    if record is None:
        yield "its record is damaged"
        return
    yield from differences(job, record, now, folder)
    for path in outputs:
        yield from unlike(checked(path, record, folder))


def differences(
    job: Any, record: Mapping[str, Any], now: Callable[[Path], str], folder: Path
) -> Iterator[str]:
    """In what the settings, code and inputs of a job differ from those in a `record`, in words.

    `now` gives the sum of a file. The record may be of results in another folder than `folder`.
    """
    old = record.get("folder", str(folder))
    then, today = within(record["settings"], old, str(folder)), settings_of(job)
    if then.pop("data", None) != today.pop("data", None):  # sums, which say nothing to people
        yield "data files changed"
    if settings_sum(then) != settings_sum(today):
        yield f"settings changed: {', '.join(differ(then, today))}"
    inputs, code = _made_from(job, now)
    if code != record["code_sha256"]:
        yield "code changed"
    then = within(record["inputs"], old, str(folder))
    yield from (f"{path} is read now" for path in sorted(inputs.keys() - then.keys()))
    yield from (f"{path} is read no more" for path in sorted(then.keys() - inputs.keys()))
    yield from unlike({path: (then[path], inputs[path]) for path in then.keys() & inputs.keys()})


def unlike(sums: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """The paths whose sums then and now differ, in words; the sum of what is missing is empty."""
    for path, (then, now) in sorted(sums.items()):
        if then != now:
            yield f"{path} {'changed' if now else 'is missing'}"


def read_record(file: Path) -> dict[str, Any] | None:
    """A record; None for one that is not as a job wrote it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads(file.read_text(encoding="utf-8"))
        whole = isinstance(record["inputs"], dict) and isinstance(record["outputs"], dict)
        if whole and settings_sum(record["settings"]) == record["settings_sha256"]:
            return {"code_sha256": "", **record}
    return None


def products(record: Mapping[str, Any], folder: Path) -> dict[Path, str]:
    """What a job made, with the sum of each, where the results are in `folder` now."""
    made = within(record["outputs"], record.get("folder", str(folder)), str(folder))
    return {Path(path): str(made[path]) for path in made}


def checked(
    path: Path, record: Mapping[str, Any], folder: Path, read: bool = False
) -> dict[str, tuple[str, str]]:
    """For each file of a product, its sum when it was made and its sum now.

    A file with noted size and times has the noted sum, unless all are `read`. What is found is
    noted, so that the next look knows without reading. Files beside those made do not count.
    """
    made = products(record, folder).get(path, "")
    noted = _noted(path, folder)
    if noted is None or total(noted) != made:  # of single files nothing is known
        now = ""
        with suppress(OSError):
            now = total(sums := sums_of(path))
            if now == made:
                note(path, folder, sums)
        return {str(path): (made, now)}
    found = {name: _fresh(path / name if name else path, one, read) for name, one in noted.items()}
    then_now = {name: (one["sha256"], found[name]["sha256"]) for name, one in noted.items()}
    if found != noted:
        fresh = {
            name: found[name] if then == now else {**noted[name], "size": -1}
            for name, (then, now) in then_now.items()
        }
        with suppress(OSError):  # of results that cannot be written
            note(path, folder, fresh)
    return {str(path / name): each for name, each in then_now.items()}


def sum_of(path: Path, folder: Path | None = None) -> str:
    """The sum of a file, or one of all files in a folder; `folder` has the sums known already.

    Hidden files do not count, nor do files beside those that a job noted. Raises OSError if it
    cannot be read.
    """
    noted = _noted(path, folder) if folder else None
    if noted is None:
        return total(sums_of(path))
    return total({n: _fresh(path / n if n else path, one) for n, one in noted.items()})


def sums_of(path: Path) -> Sums:
    """The sums of a file, or of all files in a folder that are not hidden."""
    return {name: {**_stat(file), "sha256": file_sum(file)} for name, file in _files(path).items()}


def total(sums: Mapping[str, Mapping[str, Any]]) -> str:
    """One sum for all: that of a file, or of the names and sums in a folder."""
    plain = {name: one["sha256"] for name, one in sums.items()}
    return str(plain[""]) if list(plain) == [""] else settings_sum(plain)


def is_hidden(inside: Path) -> bool:
    """Whether a path inside a folder, or a folder above it, is hidden: such files do not count."""
    return any(part.startswith(".") for part in inside.parts)


def _made_from(job: Any, sum_now: Callable[[Path], str]) -> tuple[dict[str, str], str]:
    """The sums of a job's inputs, and that of its code."""
    named = [(name, str(path)) for name, path in _paths(job.input)]
    inputs = {path: sum_now(Path(path)) for name, path in named if name not in CODE}
    code = {path: sum_now(Path(path)) for name, path in named if name in CODE}
    return inputs, settings_sum(code)


def record_file(job: Any, folder: Path) -> Path:
    """Where the record of a job is; its products are in the results `folder`."""
    log, logs = Path(job.log[0]), folder / "logs"
    name = log.relative_to(logs) if log.is_relative_to(logs) else Path(log.name)
    return (jobs_folder(folder) / name).with_suffix(".json")


def _sums_file(path: Path, folder: Path) -> Path | None:
    """Where the sums of `path` are noted; None for what is not among the results."""
    if not path.is_relative_to(folder):
        return None
    inside = path.relative_to(folder)
    return folder / "provenance" / "sums" / inside.with_name(inside.name + ".json")


def note(path: Path, folder: Path, sums: Sums) -> None:
    """Note the sums of a product, so that the next look at it needs not read it."""
    if file := _sums_file(path, folder):
        write_json_atomic(file, sums)


def _noted(path: Path, folder: Path) -> Sums | None:
    file = _sums_file(path, folder)
    with suppress(OSError, ValueError, AttributeError, TypeError, KeyError):
        noted: Sums = json.loads(file.read_text(encoding="utf-8")) if file else {}
        if noted and all(isinstance(one["sha256"], str) for one in noted.values()):
            return noted
    return None


def _fresh(file: Path, noted: Mapping[str, Any], read: bool = False) -> dict[str, Any]:
    """The sum of a file as it is now, in the form of a note; empty for one that is missing."""
    try:
        stat = _stat(file)
        same = all(noted.get(key) == value for key, value in stat.items()) and not read
        return dict(noted) if same else {**stat, "sha256": file_sum(file)}
    except OSError:
        return {"size": -1, "sha256": ""}


def _files(path: Path) -> dict[str, Path]:
    """The files in a folder that are not hidden, by their sorted names; or the file itself."""
    if not path.is_dir():
        return {"": path}
    inside = {file.relative_to(path): file for file in path.rglob("*") if file.is_file()}
    names = sorted(name.as_posix() for name in inside if not is_hidden(name))
    return {name: path / name for name in names}


def _stat(path: Path) -> dict[str, int]:
    stat = path.stat()
    times = {"mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
    return {"size": stat.st_size, **times}


def _paths(files: Any) -> Iterator[tuple[str, str]]:
    """The files of a job with the names that its rule gives them."""
    for name, value in files._allitems():
        for path in [value] if isinstance(value, str | Path) else value:
            yield name or "", str(path)


def within(value: Any, old: str, folder: str) -> Any:
    """A value of a record from the results `old` with paths in `folder`, for studies are copied."""
    if isinstance(value, dict):
        return {within(k, old, folder): within(each, old, folder) for k, each in value.items()}
    if isinstance(value, list):
        return [within(each, old, folder) for each in value]
    inside = isinstance(value, str) and (value == old or value.startswith(f"{old}/"))
    return f"{folder}{value.removeprefix(old)}" if inside else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def differ(before: Any, now: Any, place: str = "", without: Collection[str] = ()) -> list[str]:
    """Where two values differ: `sampling.temperature 1.0 → 0.7`; of lists what is in one alone.
    Keys in `without` do not count."""
    if isinstance(before, list) and isinstance(now, list):
        left, new = ([x for x in a if x not in b] for a, b in ((before, now), (now, before)))
        before, now = (left, new) if left or new else (before, now)
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return [] if before == now else [f"{place} {_short(before)} → {_short(now)}".strip()]
    return [
        each
        for key in dict.fromkeys([*before, *now])
        if key not in without
        for each in differ(before.get(key), now.get(key), f"{place}.{key}".lstrip("."), without)
    ]


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) < 60 else f"{text[:57]}…"
