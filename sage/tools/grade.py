"""Grades completions from files, whatever program made them, and prints pass@k.

    sage-rlvr grade completions.jsonl --out graded.parquet
    sage-rlvr grade completions.csv --data problems.csv --answers boxed

A row is a completion, or a list of them: CSV, JSON Lines or Parquet with the columns `problem`,
`answer` (the correct one) and `completion`, and where there are several, `seed` and `benchmark`.
Keys of nested rows are joined by dots.
With --data the correct answers come from a file with a row for each problem. The graded file has
all columns and `correct`: `python -m sage.evaluation.compare` compares two such files.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import pandas as pd
import pyarrow as pa

from sage.evaluation.compare import lines, pooled, read_counts, table_of
from sage.grading import Grader
from sage.problems.own import FORMATS
from sage.problems.record import DataError, Kind
from sage.prompting import SOLUTION_CLOSE, SOLUTION_OPEN, last_boxed, solution_text
from sage.runtime.faults import Fault, require_writable
from sage.runtime.files import atomic_file

ANSWERS: dict[str, Callable[[str], str | None]] = {
    "tags": solution_text,
    "boxed": last_boxed,
    "whole": str,
}
"""Where a completion has its answer: in the last solution block, in \\boxed{}, or it is it."""


def graded(
    files: Sequence[Path], data: Path | None, names: dict[str, str], kind: Kind, answers: str
) -> pd.DataFrame:
    """The rows of the files, a completion each, with `correct`, `status` and `extracted`.

    `names` are the columns `problem`, `answer` and `completion`. Raises DataError for a file that
    cannot be read or lacks a column, for a problem without one correct answer, and for a completion
    or an answer that is no text.
    """
    problem, answer, completion = (names[key] for key in ("problem", "answer", "completion"))
    tables = []
    for file in files:
        needed = [problem, completion] if data else [problem, answer, completion]
        tables.append(_table(file, needed))
    rows = pd.concat(tables, ignore_index=True).explode(completion, ignore_index=True)
    if data:
        known = _table(data, [problem, answer])
        _refuse_two_answers(known, problem, answer, data)
        if (absent := ~rows[problem].isin(known[problem])).any():
            raise DataError(
                f"{data}: has no problem {rows.loc[absent, problem].iloc[0][:60]!r}; its first is "
                f"{known[problem].iloc[0][:60]!r}, and both files must write it the same way"
            )
        rows[answer] = rows[problem].map(known.drop_duplicates(problem).set_index(problem)[answer])
    for name in (answer, completion):
        where = f"{(data if name == answer else None) or ', '.join(map(str, files))}: problem"
        if (unknown := rows[name].isna()).any():
            at, first = int(unknown.argmax()) + 1, rows.loc[unknown, problem].iloc[0]
            how = ' (an empty one is "")' if name == completion else ""
            raise DataError(
                f"{where} {str(first)[:60]!r} has no {name} (completion {at}); fill it in{how}, or "
                "remove the row"
            )
        for at, (text, first) in enumerate(zip(rows[name], rows[problem], strict=True), start=1):
            if isinstance(text, list | dict):
                raise DataError(
                    f"{where} {str(first)[:60]!r} has as {name} a {type(text).__name__}, "
                    f"{str(text)[:60]} (completion {at}); write it as text"
                )
    rows[[answer, completion]] = rows[[answer, completion]].astype(str)
    if (empty := rows[answer].str.strip() == "").any():
        first = str(rows.loc[empty, problem].iloc[0])[:60]
        place = data or ", ".join(map(str, files))
        raise DataError(f"{place}: problem {first!r} has an empty {answer}; fill it in")
    _refuse_two_answers(rows, problem, answer, data or files[0])
    grader = Grader(find_answer=ANSWERS[answers])
    asked = rows[[completion, answer]].itertuples(index=False, name=None)
    verdicts = grader.grade_many([(text, gold, kind) for text, gold in asked], progress=True)
    return rows.assign(
        correct=[verdict.status == "correct" for verdict in verdicts],
        status=[verdict.status for verdict in verdicts],
        extracted=pd.Series([verdict.answer for verdict in verdicts], rows.index, dtype=object),
    )


def _refuse_two_answers(rows: pd.DataFrame, problem: str, answer: str, file: Path) -> None:
    """Raise DataError for a problem of a benchmark with different correct answers."""
    keys = [*(["benchmark"] if "benchmark" in rows else []), problem]
    pairs = rows[[*keys, answer]].astype(str).drop_duplicates()
    if (again := pairs.duplicated(keys)).any():
        first = pairs.loc[again, problem].iloc[0]
        one, two, *_ = pairs.loc[pairs[problem] == first, answer]
        raise DataError(
            f"{file}: problem {first[:60]!r} has two correct answers, {one[:40]!r} and "
            f"{two[:40]!r}; correct one, or name the column that tells problems apart with "
            "--problem"
        )


def _table(file: Path, needed: Sequence[str]) -> pd.DataFrame:
    if not file.is_file():
        folder = f"is a folder; name its files, such as {file}/*.jsonl"
        raise DataError(f"{file}: {folder if file.is_dir() else 'does not exist'}")
    if file.suffix not in FORMATS:
        raise DataError(f"{file}: must end in {', '.join(FORMATS)}; convert it, or unpack it")
    table = table_of(file)
    for name in needed:
        if name not in table:
            raise DataError(
                f"{file}: has no column {name!r}; its columns: {', '.join(map(str, table))}. Name "
                "one with --problem, --answer or --completion; correct answers can be in a file "
                "of their own, --data FILE"
            )
    return table.astype({needed[0]: str})


def _storable(column: pd.Series) -> pd.Series:
    """A column that Parquet can hold: one of mixed types, or of very large numbers, is text."""
    try:
        column.to_frame().to_parquet(io.BytesIO())
    except (pa.ArrowException, OverflowError):
        return column.map(str, na_action="ignore")
    return column


def _write(rows: pd.DataFrame, path: Path) -> None:
    """Write a table in the format that its suffix names."""
    rows = rows.assign(**{str(name): _storable(rows[name]) for name in rows})
    if path.suffix == ".csv":
        rows.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)  # else a lone \r ends a row
    elif path.suffix == ".jsonl":
        rows.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        rows.to_parquet(path)


def _hints(rows: pd.DataFrame, completion: str, answers: str) -> Iterator[str]:
    """Why completions may have been counted as wrong that are not."""
    unread = (rows["status"] == "gold_unparsed").sum()
    if unread:
        yield f"{unread} counted as wrong, for the correct answer cannot be read (gold_unparsed)"
    texts = rows.loc[rows["status"] == "unparsed", completion]
    boxed = texts.str.contains(r"\\boxed\b").sum()
    bare = (~texts.str.contains(SOLUTION_OPEN, regex=False)).sum() - boxed
    if answers == "tags" and boxed:
        yield f"{boxed} unparsed completions hold \\boxed{{}}: try --answers boxed"
    if answers == "tags" and bare:
        yield (
            f"{bare} unparsed completions have no {SOLUTION_OPEN}…{SOLUTION_CLOSE}: where the "
            "whole text is the answer, say --answers whole"
        )


def main(arguments: Sequence[str]) -> int:
    """Grade, write if asked to, and print pass@k; 1 and a message for what cannot be graded."""
    parser = argparse.ArgumentParser(
        prog="sage-rlvr grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, help=".csv, .jsonl or .parquet")
    parser.add_argument("--data", type=Path, help="a file with the correct answers")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("graded.parquet"),
        help="the graded file, .csv, .jsonl or .parquet (default: graded.parquet)",
    )
    parser.add_argument(
        "--kind", default="math", choices=get_args(Kind), help="how answers are compared"
    )
    parser.add_argument(
        "--answers",
        default="tags",
        choices=ANSWERS,
        help=f"where a completion has its answer: in {SOLUTION_OPEN}…{SOLUTION_CLOSE} (tags), in "
        "\\boxed{} (boxed), or the whole text (whole)",
    )
    for name in ("problem", "answer", "completion"):
        told = f"the column of the {name} (default: {name})"
        parser.add_argument(f"--{name}", default=name, metavar="COLUMN", help=told)
    given = parser.parse_args(arguments)
    try:
        if given.out.suffix not in FORMATS:
            raise DataError(f"--out {given.out}: must end in {', '.join(FORMATS)}")
        read = [file.resolve() for file in (*given.files, *([given.data] if given.data else []))]
        if given.out.resolve() in read:
            raise DataError(f"--out {given.out}: is a file that is read; name another")
        try:
            require_writable(given.out.parent)
        except Fault as fault:
            why = fault.__cause__ or fault
            raise DataError(
                f"--out {given.out}: cannot be written there; name another ({why})"
            ) from fault
        rows = graded(given.files, given.data, vars(given), given.kind, given.answers)
        with atomic_file(given.out) as temporary:
            _write(rows, temporary)
    except (DataError, ModuleNotFoundError, OSError) as error:
        print(f"sage-rlvr grade: {error}", file=sys.stderr)
        return 1
    counted = rows["status"].value_counts().items()
    said = ", ".join(f"{count} {status}" for status, count in counted)
    print(f"{len(rows)} completions: {said}. Written: {given.out}")
    for line in _hints(rows, given.completion, given.answers):
        print(line)
    try:
        counts = read_counts("graded", given.out, {"problem": given.problem})
        print("\n".join(lines(pooled(counts), pd.DataFrame(columns=["benchmark", "k"]))))
    except ValueError as error:  # such as problems with more completions than others
        print(f"No pass@k: {error}")
    return 0
