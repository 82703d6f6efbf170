"""Faults of files, disks and memory, as one message that names the file and the way out.

A job prints the message last in its log, and Snakemake shows it alone (`sage.runtime.job`). Other
errors are bugs: their tracebacks stay.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a disk, a quota or a size limit that is reached."""

_REFUSALS = "EACCES EPERM EROFS EISDIR ENOTDIR EIO ESTALE"
NO_ACCESS = [getattr(errno, name) for name in _REFUSALS.split()]
"""Error numbers of what cannot be read or written where it is."""

WRITING = "while writing "
"""How the note begins that whole files add to an error (`sage.runtime.files`)."""

_LITTLE = 2**20  # bytes: a disk with less is full, whatever a library says of its failure
_TEXTS = ("no space left", "os error 28", "file too large", "os error 27", "disk quota")
_AGAIN = "then run the same command again: what is finished is kept"


class Fault(Exception):
    """An error whose message says all that people need: what is wrong, where, and the way out."""


class Damaged(Fault, ValueError):
    """A file or folder of the results that cannot be used as it is; `line` is counted from 1.

    A run makes a product again of which a file is missing (`records`). `way_out` is for what it
    does not make.
    """

    def __init__(
        self, path: Path | str, what: str, line: int | None = None, way_out: str = ""
    ) -> None:
        place = f"{path}" if line is None else f"{path}, line {line}"
        usual = f"delete {path} and run the study again (sage-rlvr run), which makes it again"
        super().__init__(f"{place}: {what}; {way_out or usual}")


def explained(error: BaseException, folder: Path) -> str | None:
    """The message for people if `error`, or what caused it, is a fault; None for a bug.

    `folder` is where the job writes: a full disk is known by it whatever the error says.
    """
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, Fault):
            return str(one)
        if _is_no_space(one):
            return _no_space(chain, folder)
        if isinstance(one, OSError) and one.errno in NO_ACCESS and one.filename:
            return (
                f"{one.filename}: cannot be read or written ({one.strerror}); give this account "
                "access to it, or set `results` in config/config.yaml to a folder that can be "
                f"written; {_AGAIN}"
            )
        threads = "can't start new thread" in str(one)  # for want of memory or of `ulimit -u`
        if isinstance(one, MemoryError) or type(one).__name__ == "OutOfMemoryError" or threads:
            said = next(iter(str(one).strip().splitlines()), "no more can be had")
            return (
                f"memory is short ({said}); run fewer jobs at once (--cores; SAGE_JOBS_PER_GPU "
                "where jobs share a GPU), or on a cluster raise `memory_gb` in the `job` section "
                f"of the model; {_AGAIN}. If one job alone needs too much, raise `micro_batches` "
                "of training, after which all runs of that model train again, or lower "
                "`batch_size` of sampling, after which its samples are graded again but not drawn "
                "again"
            )
    return _no_space(chain, folder) if _free(folder) < _LITTLE else None


def is_full(error: BaseException, folder: Path) -> bool:
    """Whether the disk or quota is full, so that every other job would fail as well."""
    return any(map(_is_no_space, _chain(error))) or _free(folder) < _LITTLE


def _no_space(chain: list[BaseException], folder: Path) -> str:
    notes = [note for one in chain for note in getattr(one, "__notes__", ())]
    written = [note.removeprefix(WRITING) for note in notes if note.startswith(WRITING)]
    return (
        f"{next(iter(written), folder)}: cannot be written: the disk or quota is full, or the file "
        f"is larger than `ulimit -f` allows ({_free(folder) / 2**20:.0f} MiB are free). Free some "
        f"space, or set `results` in config/config.yaml to another disk; {_AGAIN}"
    )


def require_writable(folder: Path) -> None:
    """Raises Fault if no file can be made in `folder`, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable."):
            pass
    except OSError as error:
        error.filename = str(folder)
        is_known = error.errno in NO_ACCESS or _is_no_space(error)
        raise Fault(
            (explained(error, folder) if is_known else None)
            or f"{folder}: no files can be made there ({error.strerror}); name another folder as "
            "`results`, in config/config.yaml or with --config results=FOLDER"
        ) from error


def _is_no_space(error: BaseException) -> bool:
    """Whether the operating system said so, to Python or to a library that has only the text."""
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return True
    return isinstance(error, Exception) and any(text in str(error).lower() for text in _TEXTS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what caused it, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _free(folder: Path) -> float:
    """Bytes free where `folder` is or will be; infinity if that cannot be asked."""
    for place in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return float("inf")
