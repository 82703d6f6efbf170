"""Files of completions as tables, whatever program wrote them.

Known are CSV, JSON Lines and Parquet with a row for each completion, and the logs of

- Inspect: JSON, and its packed `.eval` files;
- lm-eval (`--log_samples`): `samples_TASK_DATE.jsonl`;
- lighteval (`--save-details`): `details_TASK_DATE.parquet`;
- TRL (`log_completions`): `completions/completions_STEP.parquet`, rollouts of training.

Keys of nested rows are joined by dots. What a logger leaves out of its rows, such as the task, is
taken from where it writes it. What the columns mean is `sage.evaluation.columns`' part.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sage.problems.record import DataError
from sage.problems.rows import rows_in

NO_ROWS = "{path}: has no rows; it needs one for each completion or problem"

_DATED = r"(?P<task>.+?)_\d{4}-\d\d-\d\dT[\d.:+-]+"
"""The end of the names that lm-eval and lighteval give their files: task and time."""

_ZSTD = 93
"""How zip files name their compression by Zstandard, which `zipfile` reads from Python 3.14 on."""


class NoSamples(ValueError):
    """A file that a logger writes beside its samples, such as a summary."""


@dataclass(frozen=True)
class Log:
    """The rows of a file, and what its logger calls what.

    `columns` are its names by those of `sage.evaluation.columns.NAMES`, and as `content` what shows
    that a problem with the id of another is the same; `scores` are the columns that can be the
    verdict. Files of the same `run` belong to one training run. Logs of one
    `evaluation`, by when they were begun, are the same samples: a later one goes on with those of
    an earlier. Rows that differ in the column `variants` are verdicts on the same completions.
    `notes` is what a reader of numbers from these rows must know.
    """

    table: pd.DataFrame
    columns: Mapping[str, str] = field(default_factory=dict)
    scores: tuple[str, ...] = ()
    run: str = ""
    evaluation: tuple[str, str] = ("", "")
    variants: str = ""
    notes: tuple[str, ...] = ()


def read_log(path: Path, as_written: bool = False) -> Log:
    """The rows of a file, by the end of its name and the columns that it has.

    With `as_written` the numbers of a Parquet file are as they print and its lists are lists, which
    takes longer. Raises NoSamples for what a logger writes beside its samples, DataError for a file
    that cannot be read, and ValueError for one of another kind.
    """
    if path.suffix not in READERS:
        raise ValueError(f"not a file {', '.join(READERS)}; convert it, or unpack it")
    read = _plain if as_written and path.suffix == ".parquet" else READERS[path.suffix]
    try:
        log = read(path)
        for shaped in (_of_lm_eval, _of_lighteval, _of_trl):
            if not log.columns:
                log = shaped(log.table, path) or log
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise DataError(f"{path}: is not built as its logger builds it ({error!r})") from error
    return log


def _table(rows: Sequence[Mapping[str, Any]], path: Path) -> pd.DataFrame:
    if not rows:
        raise DataError(NO_ROWS.format(path=path))
    return pd.DataFrame([dict(_flat(row)) for row in rows], dtype=object)


def _flat(row: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", value


def _plain(path: Path) -> Log:
    """The rows of a CSV, JSON Lines or Parquet file, their values as they are written."""
    return Log(_table(rows_in(path), path))


def _parquet(path: Path) -> Log:
    """The rows of a Parquet file, with the fields of nested columns as columns of their own."""
    try:
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read, correct it: {error}") from error
    while any(pa.types.is_struct(column.type) for column in table.columns):
        table = table.flatten()
    if not len(table):
        raise DataError(NO_ROWS.format(path=path))
    return Log(table.to_pandas())


def _json(path: Path) -> Log:
    """A log of Inspect, rows in a list, or what lm-eval returns, written as JSON."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{path}: is not JSON, correct it: {error}") from error
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return Log(_table(content, path))
    samples = content.get("samples") if isinstance(content, dict) else None
    if isinstance(samples, list):
        return _of_inspect(content, path)
    if not isinstance(samples, dict):
        raise NoSamples(
            "has no samples, as a summary of results; name the file with a row for each "
            "completion, which lm-eval writes with --log_samples, lighteval with --save-details"
        )
    rows = [{"benchmark": task, **row} for task, rows in samples.items() for row in rows]
    return Log(_table(rows, path))


def _of_inspect(log: Mapping[str, Any], path: Path) -> Log:
    """The samples of a log of Inspect; `scores.NAME` are their scores, empty for a failed one."""
    head = log.get("eval") or {}
    rows = []
    for one in log["samples"]:
        scores = one.get("scores") or ({"score": one["score"]} if one.get("score") else {})
        values = {name: (score or {}).get("value") for name, score in scores.items()}
        rows.append(
            {
                "id": one["id"],
                "epoch": one.get("epoch", 1),
                "uuid": one.get("uuid") or "",
                "benchmark": head.get("task") or "",
                "model": head.get("model") or "",
                "target": one.get("target"),
                "input": one.get("input"),
                "completion": _said_in(one.get("output") or {}),
                "scores": values,
            }
        )
    table = _table(rows, path)
    scores = tuple(name for name in map(str, table) if name.startswith("scores."))
    if not scores:
        table, scores = table.assign(**{"scores.score": None}), ("scores.score",)
    status = log.get("status", "success")
    unfinished = (f"{path.name} is not finished (status {status})",) * (status != "success")
    columns = {
        **{"problem": "id", "sample": "epoch", "benchmark": "benchmark", "model": "model"},
        **{"answer": "target", "completion": "completion", "content": "input"},
    }
    evaluation = str(head.get("task_id") or ""), str(head.get("created") or "")
    return Log(table, columns, scores, evaluation=evaluation, notes=unfinished)


def _said_in(output: Mapping[str, Any]) -> Any:
    """The text of an output of Inspect, "" for one that failed."""
    if "completion" in output:
        return output["completion"]
    choices = output.get("choices") or []
    return _text_of(choices[0]["message"]) if choices else ""


def _eval(path: Path) -> Log:
    """A packed log of Inspect, a zip file of JSON. Raises DataError if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as packed:
            members = {info.filename: info for info in packed.infolist()}
            heads = [name for name in ("header.json", "_journal/start.json") if name in members]
            if not heads:
                raise NoSamples("not a packed log of Inspect")
            log = json.loads(_member(packed, members[heads[0]]))
            names = [name for name in members if re.fullmatch(r"samples/.*\.json", name)]
            samples = [json.loads(_member(packed, members[name])) for name in names]
    except (zipfile.BadZipFile, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is no whole log of Inspect ({error})") from error
    if not samples:
        raise NoSamples("a log of Inspect without samples")
    started = {"status": "started"} if heads[0] != "header.json" else {}
    return _of_inspect({**started, **log, "samples": samples}, path)


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A file in a zip file, also one that was compressed with Zstandard."""
    if info.compress_type != _ZSTD:
        return packed.read(info)
    file: Any = packed.fp
    file.seek(info.header_offset)
    name, extra = struct.unpack("<26xHH", file.read(30))
    file.seek(name + extra, 1)
    written = pa.BufferReader(file.read(info.compress_size))
    return bytes(pa.CompressedInputStream(written, "zstd").read())


def _of_lm_eval(table: pd.DataFrame, path: Path) -> Log | None:
    """Samples of lm-eval, a row for each problem and filter; the task is in the file's name."""
    if "doc_id" not in table or not {"filtered_resps", "metrics"} & {*table}:
        return None
    columns = {"problem": "doc_id", "sample": "filter", "answer": "target"}
    columns |= {"content": "doc_hash"} if "doc_hash" in table else {}
    table = table if "filter" in table else table.assign(filter="")
    named = re.fullmatch(f"samples_{_DATED}", path.stem)
    if named and "benchmark" not in table:
        table = table.assign(benchmark=named["task"])
    if "benchmark" in table:
        columns["benchmark"] = "benchmark"
    if named and next(path.parent.glob("results_*.json"), None):
        table, columns["model"] = table.assign(model=path.parent.name), "model"
    notes: tuple[str, ...] = ()
    if "resps" in table:
        texts = [asked[0] if len(asked) == 1 else None for asked in table["resps"]]
        table["completion"], columns["completion"] = texts, "completion"
        if (most := max(len(each or ()) for each in texts)) > 1:
            notes = (_counted_once("lm-eval", most),)
    scores = sorted({name for names in table.get("metrics", []) for name in names})
    return Log(table, columns, tuple(scores), variants="filter", notes=notes)


def _counted_once(logger: str, most: int) -> str:
    return (
        f"{logger} gave one verdict for {most} completions of a problem; sage-rlvr grade counts all"
    )


def _of_lighteval(table: pd.DataFrame, path: Path) -> Log | None:
    """Details of lighteval, a row for each problem; of versions before 0.10 as well."""
    old = {"example", "predictions", "gold"} <= {*table}
    if not old and not {"doc.query", "model_response.text"} <= {*table}:
        return None
    scores = [name for name in map(str, table) if re.match(r"metrics?\.", name)]
    rows = table.to_dict("records")
    if old:
        answers = [list(row["gold"]) for row in rows]
        columns = {"problem": "example", "completion": "predictions"}
    else:
        answers = [_golds(row["doc.choices"], row["doc.gold_index"]) for row in rows]
        known = "doc.id" in table and table["doc.id"].map(bool).all()
        columns = {
            "problem": "doc.id" if known else "doc.query",
            "completion": "model_response.text",
        }
    gold = [answer[0] if len(answer) == 1 else answer for answer in answers]
    table = table.assign(gold_answer=pd.Series(gold, table.index, dtype=object), details="")
    table[columns["completion"]] = table[columns["completion"]].map(list)
    columns |= {"answer": "gold_answer", "sample": "details", "content": "gold_answer"}
    named = re.fullmatch(f"details_{_DATED}", path.stem)
    if "doc.task_name" in table:
        columns["benchmark"] = "doc.task_name"
    elif named:
        table, columns["benchmark"] = table.assign(benchmark=named["task"]), "benchmark"
    folders = path.parts[:-2]
    if named and "details" in folders:
        model = "/".join(folders[len(folders) - folders[::-1].index("details") :])
        table, columns["model"] = table.assign(model=model), "model"
    most = max(map(len, table[columns["completion"]]))
    notes = (_counted_once("lighteval", most),) * (most > 1)
    return Log(table, columns, tuple(scores), notes=notes)


def _golds(choices: Any, index: Any) -> list[Any]:
    """The correct ones of a problem's choices, of which `index` gives one or several."""
    places = [index] if isinstance(index, int | float) or not hasattr(index, "__len__") else index
    return [choices[int(place)] for place in places]


def _of_trl(table: pd.DataFrame, path: Path) -> Log | None:
    """A table of completions of TRL: rollouts of one step of training."""
    needed = {"step", "prompt", "completion", "advantage"}
    if not needed <= {*table}:
        return None
    texts = {name: table[name].map(_text_of) for name in ("prompt", "completion")}
    numbers = table.select_dtypes(["number", "bool"])
    scores = tuple(str(name) for name in numbers if name not in needed)
    note = "rollouts of training, during which the policy changed"
    columns = {"problem": "prompt", "completion": "completion"}
    return Log(table.assign(**texts), columns, scores, run=str(path.parent), notes=(note,))


def _text_of(message: Any) -> Any:
    """The text of a message, or of a conversation; a text is itself."""
    if isinstance(message, str) or message is None:
        return message
    if isinstance(message, dict):
        return _text_of(message.get("content") or message.get("text") or "")
    return "\n\n".join(filter(None, (_text_of(part) for part in message)))


READERS: dict[str, Callable[[Path], Log]] = {
    ".csv": _plain,
    ".jsonl": _plain,
    ".parquet": _parquet,
    ".json": _json,
    ".eval": _eval,
}
"""How files are read, by the end of their names."""
