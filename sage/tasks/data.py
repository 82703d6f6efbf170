"""Problems of one's own: a file on this machine, or any data set of the Hugging Face hub.

Columns are named in the study. A public data set that several studies use stands better in
`config/benchmarks.yaml`, with its commit and checksums.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from sage.fields import REPOSITORY
from sage.problems.entries import Fields, PartOfData, Paths, RowRules
from sage.problems.fields import Title
from sage.problems.record import DataError, Problem
from sage.runtime.files import file_sum, file_sums

if TYPE_CHECKING:
    from sage.problems.fetching import Rows

FORMATS = (".csv", ".jsonl", ".parquet")
"""How the name of a file of problems can end."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def repeats(problems: Sequence[Problem]) -> str:
    """What is said of problems that a set has more than once; empty where it has none."""
    counts = Counter(problem.problem for problem in problems)
    again = {text: number for text, number in counts.items() if number > 1}
    if not again:
        return ""
    more = sum(again.values()) - len(again)
    return (
        f"{more} of {len(problems)} problems repeat another, such as {next(iter(again))[:60]!r}; "
        "each counts as a problem of its own, so intervals are too narrow: remove the copies"
    )


class OwnFields(Fields):
    """Which column holds the problem and the rest.

    Each is a name, or a path with dots into a nested row, or a list of these, of which the first
    that a row has is used.
    """

    problem: Paths = Field(default_factory=lambda: ["problem"])
    """the problem [name or list of names]"""
    answer: Paths = Field(default_factory=lambda: ["answer"])
    """the correct answer [name or list of names]"""


class OwnSet(RowRules, PartOfData, ABC):
    """What a file and a data set of the hub have in common."""

    title: Title
    fields: OwnFields = OwnFields()
    """which column of a row holds what"""

    @abstractmethod
    def rows(self) -> Rows:
        """All rows. Raises DataError, whose `key` is the setting at fault."""

    @abstractmethod
    def sums(self) -> list[str]:
        """What each file that `rows` would read is known by, as far as that is known now."""

    def problems(self, name: str) -> list[Problem]:
        """The set, called `name`. Raises DataError, whose `key` is the setting at fault."""
        from sage.problems.benchmarks import Named, problems_of_rows

        read = self.rows()
        if not read.rows:
            raise DataError(f"{read.source}: has no rows; it needs one for each problem")
        columns = dict.fromkeys(name for row in read.rows for name in row)
        for key, paths in self.fields:
            if paths and not any(
                path in columns or path.split(".")[0] in columns for path in paths
            ):
                raise DataError(
                    f"{read.source}: has no column {' or '.join(map(repr, paths))}; its columns: "
                    f"{', '.join(columns)}. Name one of them, as in `fields: "
                    f"{{{key}: {next(iter(columns))}}}`",
                    f"fields.{key}",
                )
        agreeing = isinstance(self, FileSet)  # which can be corrected, unlike the hub's
        part = self.levels, self.first, self.hints
        return problems_of_rows(Named(name), self, read, *part, agreeing)


class FileSet(OwnSet):
    """Problems in a file of your own: CSV with a line of column names, JSON Lines or Parquet.

    After an edit of the file, what depends on it is made again.
    """

    source: Literal["file"]
    """a file on this machine"""
    file: str
    """where it is, from the folder of the study's file on; ends in `.csv`, `.jsonl` or `.parquet`
    [path]"""

    def rows(self) -> Rows:
        from sage.problems.fetching import Rows
        from sage.problems.rows import rows_in

        path = Path(self.file)
        if not self.file.endswith(FORMATS):
            raise DataError(f"{path}: must end in {', '.join(FORMATS)}; convert it", "file")
        if not path.is_file():
            raise DataError(
                f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; give its path "
                "from the folder of the study's file, or from /",
                "file",
            )
        try:
            return Rows(rows_in(path), str(path), f"sha256:{file_sum(path)}")
        except (DataError, OSError) as error:
            raise DataError(str(error), "file") from error

    def problems(self, name: str) -> list[Problem]:
        from sage.problems.rows import separator_of

        found, path = super().problems(name), Path(self.file)
        if path.suffix != ".csv":
            return found
        with open(path, encoding="utf-8-sig") as file:
            if separator_of(file.readline()) == ",":
                return found
        for problem in found:
            if _DECIMAL_COMMA.fullmatch(problem.answer):
                one, two = problem.answer.replace(",", "."), problem.answer.replace(",", ", ")
                raise DataError(
                    f"{path}: the answer {problem.answer!r} can be one number or two; write {one!r}"
                    f" or {two!r}",
                    "file",
                )
        return found

    def sums(self) -> list[str]:
        path = Path(self.file)
        return [file_sum(path)] if path.is_file() else []


class HubSet(OwnSet):
    """A split of any data set of the Hugging Face hub. Code of the repository is never run.

    A folder `OWNER/NAME` in the mirror is used in place of the hub.
    """

    source: Literal["hub"]
    """a data set of the Hugging Face hub"""
    repository: Annotated[str, Field(pattern=REPOSITORY)]
    """the repository on the hub [owner/name]"""
    split: str = "test"
    """which split, such as `train` [name]"""
    subset: str | None = None
    """which configuration, of a data set that has several [name]"""
    revision: str = "main"
    """which version; name a commit to pin it [commit or branch]"""

    def copy_in_mirror(self) -> Path | None:
        """Its folder in the mirror, if it is there."""
        from sage.problems.fetching import mirror_folder

        mirror = mirror_folder()
        folder = mirror / self.repository if mirror else None
        return folder if folder and folder.is_dir() else None

    def rows(self) -> Rows:
        from sage.problems.fetching import Rows, silence

        if copy := self.copy_in_mirror():
            return Rows(self._load(str(copy), None), f"mirror:{self.repository}", "a copy")
        if reason := silence():
            raise DataError(
                f"{self.repository}: not in a mirror, and the hub cannot be reached ({reason}). "
                "Run this step where it can be, or download it elsewhere with `hf download "
                f"--repo-type dataset {self.repository} --local-dir MIRROR/{self.repository}` and "
                "set `mirror: MIRROR` in config/config.yaml",
                "repository",
            )
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        try:
            commit = HfApi().dataset_info(self.repository, revision=self.revision).sha
        except HfHubHTTPError as error:
            raise DataError(
                f"{self.repository}, revision {self.revision}: the hub has no such data set, or "
                f"does not show it to you; correct the name, or log in with `hf auth login` "
                f"({error})",
                "repository",
            ) from error
        return Rows(self._load(self.repository, commit), self.repository, commit or self.revision)

    def _load(self, place: str, commit: str | None) -> list[dict[str, object]]:
        import datasets

        try:
            split = datasets.load_dataset(place, self.subset, split=self.split, revision=commit)
        except Exception as error:  # of readers of a dozen formats, none of which runs code
            raise DataError(
                f"{self.repository}: split {self.split!r}"
                + (f" of {self.subset!r}" if self.subset else "")
                + f" cannot be read; correct split or subset ({' '.join(str(error).split())})",
                "split",
            ) from error
        return list(split.to_list())

    def sums(self) -> list[str]:
        try:
            copy = self.copy_in_mirror()
        except DataError:
            return []  # the job says what is wrong
        if copy is None:
            return []
        named = file_sums(copy).items()  # downloads keep their times in files with a dot
        shown = [pair for pair in named if not any(p.startswith(".") for p in Path(pair[0]).parts)]
        return sorted(f"{name} {total}" for name, total in shown)
