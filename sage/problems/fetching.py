"""Reads the files of a data set: from a mirror folder if there is one, else from the hub.

huggingface_hub downloads, retries, caches, and never leaves a half-written file under its final
name. This module gives up soon where there is no network, fetches damaged files again, and says
what to do. `benchmarks` makes problems of the rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_session, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from sage.problems.entries import Benchmark, DataFile, HubFiles
from sage.problems.record import DataError
from sage.problems.rows import Row, rows_in
from sage.runtime.files import file_sum

httpx: Any = import_module(HfHubHTTPError.__mro__[1].__module__.partition(".")[0])
"""The client of huggingface_hub, whose errors it raises: httpx, from version 2 on httpx2."""

MIRROR = "SAGE_MIRROR"
"""The environment variable that names the mirror; `mirror` in config/config.yaml sets it."""

PATIENCE = 5.0
"""Seconds within which the hub must take a connection, and a hub that is awake must answer."""

LAST_PATIENCE = 30.0
"""Seconds that a slow hub gets for its answer; one that is silent then counts as out of reach."""

PAUSES = (1.0, 4.0, 16.0)
"""Seconds before each new try of a download that broke off; those to reach the hub at all
huggingface_hub makes itself."""


@dataclass(frozen=True)
class Rows:
    """Rows of one file, and where they came from: a repository with its commit, or a
    file with its checksum. `level` is that of the whole file, if it has one."""

    rows: list[Row]
    source: str
    revision: str
    level: str | None = None


def mirror_folder() -> Path | None:
    """The folder of local copies that the environment names; None without one.

    Raises DataError if it is no folder.
    """
    name = os.environ.get(MIRROR)
    if not name:
        return None
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"the mirror {str(folder)!r} is not a folder; correct `mirror` in config/config.yaml "
            f"(or the environment variable {MIRROR}), or unset it to load from the hub"
        )
    return folder


def fetch(
    name: str, entry: Benchmark, mirror: Path | None, wanted: Callable[[DataFile], bool]
) -> Iterator[Rows]:
    """The rows of every wanted file of the data set `name`, checked against its entry.

    Files come from `mirror` if it holds them all, in the hub's layout (``owner/name/path``)
    or under the names the entry lists. Raises DataError.
    """
    held = copies(name, entry, mirror, wanted) if mirror else []
    for file, path in held:
        rows = read_rows(file, path)
        yield Rows(rows, f"mirror:{file.path}", f"sha256:{checksum(path)}", file.level)
    if held:
        return
    if not entry.hub:
        names = ", ".join(file.path for file in entry.mirror if wanted(file))
        raise DataError(
            f"benchmark {name!r}: its entry names no repository of the hub, and there is no mirror "
            f"with {names}; set `mirror` in config/config.yaml (or the environment variable "
            f"{MIRROR}) to the folder that holds them"
        )
    for of_hub in entry.hub:
        for file in filter(wanted, of_hub.files):
            yield _from_hub(name, of_hub, file, mirror)


def data_sums(entry: Benchmark, levels: Sequence[int | str] | None = None) -> list[str]:
    """The SHA-256 of each file that a job would read for `entry`, as far as it is known now.

    It is that of the copy in the mirror, else the one that the entry expects. As a parameter of the
    job it makes a data set that was edited be read again, and one that moved not.
    """
    asked = None if levels is None else {str(level) for level in levels}

    def wanted(file: DataFile) -> bool:
        return asked is None or file.level is None or file.level in asked

    try:
        mirror = mirror_folder()
        held = copies("", entry, mirror, wanted) if mirror else []
        if held:
            return sorted(checksum(path) for _, path in held)
    except DataError:
        return []  # the job says what is wrong
    files = filter(wanted, (file for hub in entry.hub for file in hub.files))
    return sorted(file.sha256 for file in files if file.sha256)


def read_rows(file: DataFile, path: Path) -> list[Row]:
    """The rows of `path`, with checksum and number held to what `file` expects.

    Raises DataError.
    """
    way_out = "or another version; replace it, or correct the entry in config/benchmarks.yaml"
    if file.sha256 not in (None, actual := checksum(path)):
        what = f"its sha256 is {actual}, but {file.sha256} is expected: the file is damaged"
        raise DataError(f"{path}: {what} {way_out}")
    rows = rows_in(path)
    if file.rows not in (None, len(rows)):
        what = f"has {len(rows)} rows, but {file.rows} are expected: the file is cut short"
        raise DataError(f"{path}: {what} {way_out}")
    return rows


def checksum(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises DataError if it cannot be read."""
    try:
        return file_sum(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def copies(
    name: str, entry: Benchmark, mirror: Path, wanted: Callable[[DataFile], bool]
) -> Sequence[tuple[DataFile, Path]]:
    """The wanted files in the mirror; none if it holds not a single one of them.

    Copies under other names count only if they cover every level that is wanted.
    """
    of_hub = [(hub, file) for hub in entry.hub for file in hub.files if wanted(file)]
    as_on_hub = [(file, mirror / hub.repository / file.path) for hub, file in of_hub]
    named = [(file, mirror / file.path) for file in entry.mirror if wanted(file)]
    covered = {file.level for file, _ in named} >= {file.level for _, file in of_hub}
    layouts = [as_on_hub, named if covered else []]
    missing = [[str(path) for _, path in layout if not path.is_file()] for layout in layouts]
    for layout, absent in zip(layouts, missing, strict=True):
        if layout and not absent:
            return layout
    for layout, absent in zip(layouts, missing, strict=True):
        if len(absent) < len(layout):
            raise DataError(
                f"benchmark {name!r}: the mirror holds a part of its files only; missing: "
                f"{', '.join(absent)}. Add them, or remove the others to load from the hub"
            )
    return []


def _from_hub(name: str, hub: HubFiles, file: DataFile, mirror: Path | None) -> Rows:
    """The rows of a file of the hub; a damaged copy in the cache is fetched once more."""
    path = _download(name, hub, file, mirror, force=False)
    try:
        rows = read_rows(file, path)
    except DataError as fault:
        try:
            path = _download(name, hub, file, mirror, force=True)
        except DataError as error:
            raise DataError(f"{fault}. A fresh copy could not be had: {error}") from error
        rows = read_rows(file, path)
    # The cache keeps a file under snapshots/{commit}/{path}.
    commit = path.parents[file.path.count("/")].name
    return Rows(rows, hub.repository, commit, file.level)


def _download(name: str, hub: HubFiles, file: DataFile, mirror: Path | None, force: bool) -> Path:
    """The file in huggingface_hub's cache; `force` fetches it even if it is there.

    A copy at the commit asked for is used as it is; one of an entry without a commit only where
    the hub cannot be reached to ask for a newer.
    """
    what = f"benchmark {name!r}: {hub.repository}/{file.path}"
    held = cached(hub, file)
    if held and hub.revision and not force:
        return held
    if reason := silence():
        if held and not force:
            return held
        raise DataError(f"{what}: {_advice(hub, mirror)} ({reason})")
    download = partial(hf_hub_download, hub.repository, file.path, repo_type="dataset")
    for pause in (*PAUSES, None):
        try:
            return Path(download(revision=hub.revision, force_download=force))
        except (RepositoryNotFoundError, GatedRepoError) as error:
            why = (
                "the hub has no such data set, or does not show it to you; check the name in "
                "config/benchmarks.yaml, or log in with `hf auth login`"
            )
            raise DataError(f"{what}: {why} {_said(error)}") from error
        except (RevisionNotFoundError, RemoteEntryNotFoundError) as error:
            why = f"not in the data set at revision {hub.revision or 'main'}; correct the entry in"
            raise DataError(f"{what}: {why} config/benchmarks.yaml {_said(error)}") from error
        except (httpx.HTTPError, OSError, ValueError) as error:
            if pause is None or not _passes(error):
                raise DataError(f"{what}: {_advice(hub, mirror)} {_said(error)}") from error
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def cached(hub: HubFiles, file: DataFile) -> Path | None:
    """The file in huggingface_hub's cache, if it is there."""
    held = try_to_load_from_cache(
        hub.repository, file.path, revision=hub.revision, repo_type="dataset"
    )
    return Path(held) if isinstance(held, str) else None


def _passes(error: Exception) -> bool:
    """Whether trying again may help: after a broken transfer, or a server's passing fault."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    # These two come after half a minute or more of huggingface_hub's own tries.
    tried = isinstance(error, LocalEntryNotFoundError | httpx.TimeoutException)
    return not tried and not isinstance(error, ValueError)


def silence(pauses: Sequence[float] | None = None) -> str | None:
    """Why the hub cannot be reached; None if it can. A try comes before each of `pauses`.

    Asked first, because huggingface_hub spends half a minute on a machine without network.
    """
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    reason, patience = "", PATIENCE
    for pause in pauses or (PAUSES[0], 0.0):
        try:
            get_session().head(constants.ENDPOINT, timeout=patience)
            return None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            reason = f"{type(error).__name__}: {error}"
        except httpx.TimeoutException:
            reason = f"it takes connections, but gave no answer in {patience:g} s"
            patience = LAST_PATIENCE
        except httpx.HTTPError:
            return None  # it is there
        time.sleep(pause)
    return reason


def _advice(hub: HubFiles, mirror: Path | None) -> str:
    held = f"is not in the mirror {mirror} and " if mirror else ""
    revision = f"--revision {hub.revision} " if hub.revision else ""
    return (
        f"{held}could not be downloaded. Either run this step where the Hugging Face hub "
        f"({constants.ENDPOINT}) can be reached, which fills the cache for later runs; or "
        f"download it elsewhere with `hf download --repo-type dataset {hub.repository} "
        f"{revision}--local-dir MIRROR/{hub.repository}` and set `mirror: MIRROR` in "
        f"config/config.yaml (or the environment variable {MIRROR})."
    )


def _said(error: BaseException) -> str:
    """What the library said, on one line."""
    cause = error.__cause__ or error
    return f"({type(cause).__name__}: {' '.join(str(cause).split())[:200]})"
