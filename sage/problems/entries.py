"""What an entry of `config/benchmarks.yaml` may say, and a study of it: a public data set as data.

An entry names the files of a data set on the Hugging Face hub and copies of it under other
names, says which fields of a row hold what, and states what is expected of the files.
`fetching` downloads the files, `benchmarks` makes problems of their rows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sage.fields import REPOSITORY, Distinct, Name, Positive, Strict, about, known
from sage.problems.fields import Hints, Title


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Paths = Annotated[list[str], Field(min_length=1)]
Paths = Annotated[_Paths, BeforeValidator(_listed, json_schema_input_type=str | _Paths)]
"""Dotted paths into a row, such as ``prompt.0.content``; the first that exists is used."""


class DataFile(Strict):
    """A file of rows: JSON Lines or Parquet, by the end of its name."""

    path: Annotated[
        str,
        Field(pattern=r"^[^/\\].*\.(jsonl|parquet)$"),
        about("where the file is; ends in `.jsonl` or `.parquet`", unit="path"),
    ]
    rows: Annotated[Positive | None, about("expected size; `null` allows any", unit="rows")] = None
    sha256: Annotated[
        Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None,
        about("expected checksum; `null` allows any", unit="64 hexadecimal digits"),
    ] = None
    level: Annotated[str | None, about("level of all its problems")] = None

    @model_validator(mode="after")
    def _stays_in_its_folder(self) -> DataFile:
        if ".." in self.path.split("/"):
            raise ValueError(f"path must not lead out of its folder, but is {self.path!r}")
        return self


class HubFiles(Strict):
    """Files of one data set repository of the hub, at one commit."""

    repository: Annotated[
        str,
        Field(pattern=REPOSITORY),
        about("a data set repository", unit="owner/name"),
    ]
    revision: Annotated[
        Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None,
        about("its commit; `null` takes the newest", unit="40 hexadecimal digits"),
    ] = None
    files: Annotated[list[DataFile], Field(min_length=1), about("the files to read, in this order")]


class Fields(Strict):
    """Where a row holds its problem and the rest.

    Each is a path with dots, such as `prompt.0.content`, or a list of paths, of which the first
    that a row has is used.
    """

    problem: Annotated[Paths, about("the problem", unit="path or list of paths")]
    answer: Annotated[Paths, about("the correct answer", unit="path or list of paths")]
    level: Annotated[
        Paths | None,
        about("the level; `null` takes that of the file", unit="path or list of paths"),
    ] = None
    id: Annotated[
        Paths | None,
        about(
            "its id; with `null` one is made from the text of the problem",
            unit="path or list of paths",
        ),
    ] = None
    cluster: Annotated[
        Paths | None,
        about(
            "what several problems were drawn with: a template, a text, a contest. Standard errors "
            "are then clustered; with `null` each problem stands for itself",
            unit="path or list of paths",
        ),
    ] = None
    solution: Annotated[
        Paths | None, about("a worked solution, for SFT", unit="path or list of paths")
    ] = None


class Wrapper(Strict):
    """Text before and after every problem of a file that is not part of the problem."""

    before: Annotated[str, about("text before the problem")] = ""
    after: Annotated[str, about("text after the problem")] = ""


class RowRules(Strict):
    r"""How the rows of a data set become problems."""

    kind: Annotated[
        Literal["math", "number", "knights"],
        about("how answers are compared; `number`: as `math`, but the sum `5+6` is no answer"),
    ] = "math"
    fields: Annotated[Fields, about("which field or column of a row holds what")]
    wrappers: Annotated[
        list[Wrapper],
        about("text around every problem that is not part of it; of several, the one that fits"),
    ] = Field(default_factory=list)
    answer_after: Annotated[
        Annotated[str, Field(min_length=1)] | None,
        about("the answer is what follows the last occurrence of this text in its field"),
    ] = None
    english_only: Annotated[
        bool, about("whether problems with Chinese characters are left out")
    ] = False
    numbers_only: Annotated[
        bool, about("whether problems whose answer is not a number are left out")
    ] = False


class Benchmark(RowRules):
    r"""A public data set: files on the hub, copies of them under other names, or both.

    A file of the mirror is found under `{repository}/{path}`, where
    `hf download --local-dir MIRROR/{repository}` puts it, or under a name listed in `mirror`. If
    the mirror holds none of the files, they are downloaded and cached.

    Answers are brought into one form: the last `\boxed{}` if there is one, `073` as 73, `27.0`
    as 27.
    """

    hub: Annotated[
        list[HubFiles], about("the repositories on the Hugging Face hub that hold the files")
    ] = Field(default_factory=list)
    mirror: Annotated[
        list[DataFile],
        about("copies under other names; they are used if they cover every level"),
    ] = Field(default_factory=list)
    kept: Annotated[
        Positive | None,
        about(
            "problems left after these two filters; another number is an error, `null` allows any",
            unit="problems",
        ),
    ] = None

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

    levels: Annotated[
        Annotated[list[int | str], Field(min_length=1), Distinct] | None,
        about(
            "keeps problems of these levels only: `[5]` for MATH-500, `[2025]` for AIME; `null` "
            "keeps all",
            unit="levels",
        ),
    ] = None
    first: Annotated[
        Positive | None,
        about(
            "keeps this many problems from the start, after levels and filters; `null` keeps all",
            unit="problems",
        ),
    ] = None
    hints: Hints = False

    def size(self) -> int | None:
        """How many problems it has at most; None where only its files say."""
        return self.first


class BenchmarkSet(PartOfData):
    """A public data set of `benchmarks.yaml`, or a part of it."""

    source: Annotated[Literal["benchmark"], about("a data set of `benchmarks.yaml`")]
    title: Title
    benchmark: Annotated[Name, known("benchmark"), about("its entry in `benchmarks.yaml`")]
