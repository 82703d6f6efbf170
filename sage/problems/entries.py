"""What an entry of `config/benchmarks.yaml` may say, and a study of it: a public data set as data.

An entry names the files of a data set on the Hugging Face hub and copies of it under other
names, says which fields of a row hold what, and states what is expected of the files.
`fetching` downloads the files, `benchmarks` makes problems of their rows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sage.fields import REPOSITORY, Distinct, Name, Positive, Strict, known
from sage.problems.fields import Hints, Title


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Paths = Annotated[list[str], Field(min_length=1)]
Paths = Annotated[_Paths, BeforeValidator(_listed, json_schema_input_type=str | _Paths)]
"""Dotted paths into a row, such as ``prompt.0.content``; the first that exists is used."""


class DataFile(Strict):
    """A file of rows: JSON Lines or Parquet, by the end of its name."""

    path: Annotated[str, Field(pattern="^[^/\\\\].*\\.(jsonl|parquet)$")]
    """where the file is; ends in `.jsonl` or `.parquet` [path]"""
    rows: Positive | None = None
    """expected size; `null` allows any [rows]"""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """expected checksum; `null` allows any [64 hexadecimal digits]"""
    level: str | None = None
    """level of all its problems"""

    @model_validator(mode="after")
    def _stays_in_its_folder(self) -> DataFile:
        if ".." in self.path.split("/"):
            raise ValueError(f"path must not lead out of its folder, but is {self.path!r}")
        return self


class HubFiles(Strict):
    """Files of one data set repository of the hub, at one commit."""

    repository: Annotated[str, Field(pattern=REPOSITORY)]
    """a data set repository [owner/name]"""
    revision: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None = None
    """its commit; `null` takes the newest [40 hexadecimal digits]"""
    files: Annotated[list[DataFile], Field(min_length=1)]
    """the files to read, in this order"""


class Fields(Strict):
    """Where a row holds its problem and the rest.

    Each is a path with dots, such as `prompt.0.content`, or a list of paths, of which the first
    that a row has is used.
    """

    problem: Paths
    """the problem [path or list of paths]"""
    answer: Paths
    """the correct answer [path or list of paths]"""
    level: Paths | None = None
    """the level; `null` takes that of the file [path or list of paths]"""
    id: Paths | None = None
    """its id; with `null` one is made from the text of the problem [path or list of paths]"""
    cluster: Paths | None = None
    """what several problems were drawn with: a template, a text, a contest. Standard errors are
    then clustered; with `null` each problem stands for itself [path or list of paths]"""
    solution: Paths | None = None
    """a worked solution, for SFT [path or list of paths]"""


class Wrapper(Strict):
    """Text before and after every problem of a file that is not part of the problem."""

    before: str = ""
    """text before the problem"""
    after: str = ""
    """text after the problem"""


class RowRules(Strict):
    r"""How the rows of a data set become problems."""

    kind: Literal["math", "number", "knights"] = "math"
    """how answers are compared; `number`: as `math`, but the sum `5+6` is no answer"""
    fields: Fields
    """which field or column of a row holds what"""
    wrappers: list[Wrapper] = Field(default_factory=list)
    """text around every problem that is not part of it; of several, the one that fits"""
    answer_after: Annotated[str, Field(min_length=1)] | None = None
    """the answer is what follows the last occurrence of this text in its field"""
    english_only: bool = False
    """whether problems with Chinese characters are left out"""
    numbers_only: bool = False
    """whether problems whose answer is not a number are left out"""


class Benchmark(RowRules):
    r"""A public data set: files on the hub, copies of them under other names, or both.

    A file of the mirror is found under `{repository}/{path}`, where
    `hf download --local-dir MIRROR/{repository}` puts it, or under a name listed in `mirror`. If
    the mirror holds none of the files, they are downloaded and cached.

    Answers are brought into one form: the last `\boxed{}` if there is one, `073` as 73, `27.0`
    as 27.
    """

    hub: list[HubFiles] = Field(default_factory=list)
    """the repositories on the Hugging Face hub that hold the files"""
    mirror: list[DataFile] = Field(default_factory=list)
    """copies under other names; they are used if they cover every level"""
    kept: Positive | None = None
    """problems left after these two filters; another number is an error, `null` allows any
    [problems]"""

    @model_validator(mode="after")
    def _has_files(self) -> Benchmark:
        if not self.hub and not self.mirror:
            raise ValueError("names no file: give hub, mirror or both")
        return self

    def levels(self) -> list[str]:
        """The levels that whole files stand for; empty if rows, or nothing, say the level."""
        files = [file for hub in self.hub for file in hub.files] or self.mirror
        return list(dict.fromkeys(f.level for f in files if f.level is not None))


class PartOfData(Strict):
    """Which problems of a data set are taken."""

    levels: Annotated[list[int | str], Field(min_length=1), Distinct] | None = None
    """keeps problems of these levels only: `[5]` for MATH-500, `[2025]` for AIME; `null` keeps all
    [levels]"""
    first: Positive | None = None
    """keeps this many problems from the start, after levels and filters; `null` keeps all
    [problems]"""
    hints: Hints = False

    def size(self) -> int | None:
        """How many problems it has at most; None where only its files say."""
        return self.first


class BenchmarkSet(PartOfData):
    """A public data set of `benchmarks.yaml`, or a part of it."""

    source: Literal["benchmark"]
    """a data set of `benchmarks.yaml`"""
    title: Title
    benchmark: Annotated[Name, known("benchmark")]
    """its entry in `benchmarks.yaml`"""
