"""Grades completions from files, whatever program made them, and prints pass@k.

    sage-rlvr grade completions.jsonl --out graded.parquet
    sage-rlvr grade completions.csv --data problems.csv
    sage-rlvr grade samples_gsm8k_DATE.jsonl --answer-after '####' --answers whole

A row is a completion, or a list of them, with the problem (or its id), the correct answer, and
where there are several, `seed` and `benchmark`: CSV, JSON Lines or Parquet, or a log of Inspect,
lm-eval, lighteval or TRL. Usual names of columns are known, options name others; keys of nested
rows are joined by dots. With --data the correct answers come from a file with a row for each
problem. The graded file has all columns and `correct`: `sage-rlvr compare` compares two such files.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from sage.evaluation.columns import MEANING, column_of, empty_rows, no_column, refuse_repeated
from sage.evaluation.foreign_samples import READ, read_methods
from sage.evaluation.loggers import READERS, NoSamples, read_log
from sage.problems.record import KINDS, DataError
from sage.prompting import SOLUTION_CLOSE, SOLUTION_OPEN, last_boxed, solution_text
from sage.runtime.faults import Fault, require_writable
from sage.runtime.files import atomic_file
from sage.tasks import Grader
from sage.tools import parser_of
from sage.tools.compare_samples import lines, pooled

FORMATS = (".csv", ".jsonl", ".parquet")
"""How the name of the graded file can end."""

COLUMNS = ("problem", "answer", "completion", "benchmark", "seed", "sample", "model")
"""What is read, by the names of `sage.evaluation.columns`."""

ANSWERS: dict[str, Callable[[str], str | None]] = {
    "tags": solution_text,
    "boxed": last_boxed,
    "whole": str,
}
"""Where a completion has its answer: in the last solution block, in \\boxed{}, or it is it."""


def answers_in(completions: pd.Series) -> str:
    """Where completions have their answers, if nobody says: a key of ANSWERS.

    In boxes where no completion has a solution block but some have a box, else in those blocks.
    """
    tags, boxes = (
        completions.str.contains(mark, regex=False).any() for mark in (SOLUTION_OPEN, "\\boxed")
    )
    return "boxed" if boxes and not tags else "tags"


@dataclass(frozen=True)
class Rows:
    """Rows of files, and their columns by what they say (COLUMNS)."""

    table: pd.DataFrame
    columns: Mapping[str, str]
    files: str

    def __getitem__(self, what: str) -> pd.Series:
        return self.table[self.columns[what]]


def graded(
    files: Sequence[Path],
    data: Path | None,
    columns: Mapping[str, Any],
    kind: str,
    answers: str | None = None,
    answer_after: str | None = None,
) -> tuple[pd.DataFrame, Mapping[str, str]]:
    """The rows of the files, a completion each, with `correct`, `status` and `extracted`; and
    their columns by what they say.

    `columns` are those that the user names, `answers` is a key of ANSWERS (default: `answers_in`
    the files). The correct answer stands behind `answer_after`, where that is given. Raises
    DataError for a file that cannot be read or lacks a column, for a problem
    without one correct answer, and for a completion or an answer that is no text.
    """
    rows = _rows(files, columns, ("problem", "completion", *(() if data else ("answer",))))
    if data:
        known = _rows([data], {**columns, "completion": None}, ("problem", "answer"))
        rows = _with_answers(rows, known)
    completion, answer = rows.columns["completion"], rows.columns["answer"]
    rows = _one_each(rows)
    table = rows.table
    where = {"completion": rows.files, "answer": str(data or rows.files)}
    for what, place in where.items():
        _refuse_no_text(rows, what, place)
    table[[answer, completion]] = table[[answer, completion]].astype(str)
    if answer_after:
        table[answer] = _behind(rows["answer"], answer_after, rows["problem"], where["answer"])
    if (empty := rows["answer"].str.strip() == "").any():
        first = str(rows["problem"][empty].iloc[0])[:60]
        raise DataError(f"{where['answer']}: problem {first!r} has an empty {answer}; fill it in")
    _refuse_two_answers(rows, where["answer"])
    asked = zip(rows["completion"], rows["answer"], strict=True)
    grader = Grader(find_answer=ANSWERS[answers or answers_in(rows["completion"])])
    verdicts = grader.grade_many([(text, gold, kind) for text, gold in asked], progress=True)
    return table.assign(
        correct=[verdict.status == "correct" for verdict in verdicts],
        status=[verdict.status for verdict in verdicts],
        extracted=pd.Series([verdict.answer for verdict in verdicts], table.index, dtype=object),
    ), rows.columns


def _one_each(rows: Rows) -> Rows:
    """Rows with a completion each; those that were in one list are numbered in `sample`."""
    name = rows.columns["completion"]
    listed = rows.table[name].map(lambda texts: isinstance(texts, list))
    if not listed.any():
        return rows
    table = rows.table.explode(name)
    place = table.groupby(level=0).cumcount().map(str)
    if "sample" in rows.columns:
        place = table[rows.columns["sample"]].map(str) + "." + place
    table = table.assign(sample=place.str.removeprefix(".")).reset_index(drop=True)
    return Rows(table, {**rows.columns, "sample": "sample"}, rows.files)


def _rows(files: Sequence[Path], columns: Mapping[str, Any], needed: Sequence[str]) -> Rows:
    """The rows of files together. Raises DataError for one without the `needed` columns."""
    tables, names = [], dict[str, str]()
    for file in files:
        table, own = _rows_of(file, columns, needed)
        if names and (differ := sorted({*own} ^ {*names})):
            has, lacks = (file, files[0]) if differ[0] in own else (files[0], file)
            raise DataError(f"{has}: has a column of the {differ[0]}, but {lacks} has none")
        names = names or own
        tables.append(table.rename(columns={own[what]: name for what, name in names.items()}))
    return Rows(pd.concat(tables, ignore_index=True), names, ", ".join(map(str, files)))


def _rows_of(
    file: Path, columns: Mapping[str, Any], needed: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    if not file.is_file():
        folder = f"is a folder; name its files, such as {file}/*.jsonl"
        raise DataError(
            f"{file}: {folder if file.is_dir() else f'does not exist (seen from {Path.cwd()})'}"
        )
    if file.suffix not in READERS:
        raise DataError(f"{file}: must end in {', '.join(READERS)}; convert it, or unpack it")
    try:
        log = read_log(file, as_written=True)
        table = log.table
        if log.variants:  # verdicts on the same completions, which are graded anew
            table = table[table[log.variants].map(str) == str(table[log.variants].iloc[0])]
        table = table.reset_index(drop=True)
        found = {what: column_of(table, what, columns.get(what), log.columns) for what in COLUMNS}
        for what in needed:
            if found[what] is None:
                raise ValueError(
                    f"{no_column(table, what)}. Name one with --{what}; correct answers can be in "
                    "a file of their own, --data FILE"
                )
        names = {what: name for what, name in found.items() if name is not None}
        if log.columns:  # of what a logger writes, that which was read
            table = pd.DataFrame({what: table[name] for what, name in names.items()})
            names = {what: what for what in names}
        for what in ("problem", "benchmark"):
            if what in names:
                if (empty := empty_rows(table[names[what]])).any():
                    row = 1 + int(empty.argmax())
                    raise ValueError(f"{names[what]} is empty in row {row}; fill it in")
                table = table.assign(**{names[what]: table[names[what]].map(str)})
        keys = [names[what] for what in ("benchmark", "seed", "problem") if what in names]
        numbered = "sample" in names and "completion" in needed
        if "completion" in needed:
            own_keys = [*keys, names["sample"]] if numbered else keys
            refuse_repeated(table, table[own_keys].astype(str), numbered)
    except DataError:
        raise
    except (NoSamples, ValueError) as error:
        raise DataError(f"{file}: {error}") from error
    return table, names


def _with_answers(rows: Rows, known: Rows) -> Rows:
    """Rows with the correct answers of `known`, by problem, and by benchmark where both name it.

    Raises DataError for a problem without an answer there, and for one that several benchmarks
    have, if a file does not say of which benchmark it is.
    """
    _refuse_two_answers(known, known.files)
    both = "benchmark" in rows.columns and "benchmark" in known.columns
    if not both:
        for one, other in ((rows, known), (known, rows)):
            _refuse_several_benchmarks(one, other)
    asked, held = (pd.MultiIndex.from_frame(_keys(each, both)) for each in (rows, known))
    if (absent := ~asked.isin(held)).any():
        lacking, first = asked[absent][0], held[0]
        named = " of ".join(repr(str(part)[:60]) for part in lacking[::-1])
        raise DataError(
            f"{known.files}: has no problem {named}; its first is "
            f"{' of '.join(repr(str(part)[:60]) for part in first[::-1])}, and both files must "
            "write it the same way"
        )
    golds = dict(zip(held, known["answer"], strict=True))
    table = rows.table.assign(**{known.columns["answer"]: [golds[key] for key in asked]})
    return Rows(table, {**rows.columns, "answer": known.columns["answer"]}, rows.files)


def _keys(rows: Rows, benchmarks: bool) -> pd.DataFrame:
    names = [*(["benchmark"] if benchmarks else []), "problem"]
    return pd.DataFrame({what: rows[what].to_numpy() for what in names})


def _refuse_several_benchmarks(rows: Rows, other: Rows) -> None:
    """Raise DataError for a problem of several benchmarks, where another file names none."""
    if "benchmark" not in rows.columns:
        return
    pairs = _keys(rows, True).drop_duplicates()
    if (again := pairs["problem"].duplicated(keep=False)).any():
        first = pairs.loc[again, "problem"].iloc[0]
        sets = pairs.loc[pairs["problem"] == first, "benchmark"]
        raise DataError(
            f"{rows.files}: problem {first[:60]!r} is in several benchmarks, "
            f"{', '.join(sets)}; {other.files} has to say which, in a column `benchmark`"
        )


def _refuse_no_text(rows: Rows, what: str, where: str) -> None:
    """Raise DataError for a completion or an answer that is missing, or is no text."""
    name = rows.columns[what]
    for at, (text, problem) in enumerate(zip(rows[what], rows["problem"], strict=True), start=1):
        if isinstance(text, list | dict):
            raise DataError(
                f"{where}: problem {problem[:60]!r} has as {name} a {type(text).__name__}, "
                f"{str(text)[:60]} (completion {at}); write it as text"
            )
        if text is None or text != text:
            how = ' (an empty one is "")' if what == "completion" else ""
            raise DataError(
                f"{where}: problem {problem[:60]!r} has no {name} (completion {at}); fill it in"
                f"{how}, or remove the row"
            )


def _behind(answers: pd.Series, mark: str, problems: pd.Series, where: str) -> list[str]:
    """What stands behind the last `mark` of each answer. Raises DataError for one without it."""
    from sage.problems.benchmarks import gold_answer  # as in studies

    if (lacking := ~answers.str.contains(mark, regex=False)).any():
        raise DataError(
            f"{where}: the answer of problem {problems[lacking].iloc[0][:60]!r} does not hold "
            f"{mark!r}, behind which it should stand; correct it, or --answer-after"
        )
    return [gold_answer(text, mark) for text in answers]


def _refuse_two_answers(rows: Rows, where: str) -> None:
    """Raise DataError for a problem of a benchmark with different correct answers."""
    keys = _keys(rows, "benchmark" in rows.columns)
    pairs = keys.assign(answer=rows["answer"].map(str).to_numpy()).drop_duplicates()
    if (again := pairs.duplicated([*keys])).any():
        first = pairs.loc[again, [*keys]].iloc[0]
        one, two, *_ = pairs.loc[(pairs[[*keys]] == first).all(axis=1), "answer"]
        raise DataError(
            f"{where}: problem {first['problem'][:60]!r} has two correct answers, {one[:40]!r} and "
            f"{two[:40]!r}; correct one, or name the column that tells problems apart with "
            "--problem"
        )


def _storable(column: pd.Series) -> pd.Series:
    """A column that Parquet can hold: one of mixed types, or of very large numbers, is text."""
    try:
        column.to_frame().to_parquet(io.BytesIO())
    except (pa.ArrowException, OverflowError):
        return column.map(str, na_action="ignore")
    return column


def _write(rows: pd.DataFrame, path: Path) -> None:
    rows = rows.assign(**{str(name): _storable(rows[name]) for name in rows})
    if path.suffix == ".csv":
        rows.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)  # else a lone \r ends a row
    elif path.suffix == ".jsonl":
        rows.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        rows.to_parquet(path)


def _hints(
    rows: pd.DataFrame, columns: Mapping[str, str], answers: str, answer_after: str | None
) -> Iterator[str]:
    """Why completions may have been counted as wrong that are not."""
    completion, golds = columns["completion"], rows[columns["answer"]]
    unread = rows["status"] == "gold_unparsed"
    if unread.any():
        yield (
            f"{unread.sum()} counted as wrong, for the correct answer cannot be read "
            "(gold_unparsed)"
        )
    missed = golds[rows["status"] != "correct"]
    if not answer_after and (marked := missed.str.contains("####", regex=False).sum()):
        what = f"{marked} counted as wrong have a correct answer with '####'"
        yield f"{what}: try --answer-after '####'"
    texts = rows.loc[rows["status"] == "unparsed", completion]
    boxed = texts.str.contains(r"\\boxed\b").sum()
    bare = (~texts.str.contains(SOLUTION_OPEN, regex=False)).sum() - boxed
    if answers == "tags" and boxed:
        yield f"unparsed and with \\boxed{{}}: {boxed}; try --answers boxed"
    if answers == "tags" and bare:
        yield (
            f"unparsed and without {SOLUTION_OPEN}…{SOLUTION_CLOSE}: {bare}; if the whole text is "
            "the answer, say --answers whole"
        )


def main(arguments: Sequence[str]) -> int:
    """Grade, write if asked to, and print pass@k; 1 and a message for what cannot be graded."""
    parser = parser_of("grade", __doc__)
    parser.add_argument("files", nargs="+", type=Path, help=", ".join(READERS))
    parser.add_argument("--data", type=Path, help="a file with the correct answers")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("graded.parquet"),
        help="the graded file, .csv, .jsonl or .parquet (default: graded.parquet)",
    )
    parser.add_argument("--kind", default="math", choices=KINDS, help="how answers are compared")
    parser.add_argument(
        "--answers",
        choices=ANSWERS,
        help=f"where a completion has its answer: in {SOLUTION_OPEN}…{SOLUTION_CLOSE} (tags), in "
        "\\boxed{} (boxed), or the whole text (whole); default: tags, or boxed where no completion "
        "has a tag but some have a box",
    )
    parser.add_argument(
        "--answer-after",
        metavar="TEXT",
        help="the correct answer is what follows the last occurrence of this text in its column, "
        "such as '####' in GSM8K",
    )
    for name in COLUMNS:
        told = f"the column of {MEANING[name]}"
        parser.add_argument(f"--{name}", metavar="COLUMN", help=told)
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
        rows, columns = graded(
            given.files, given.data, vars(given), given.kind, given.answers, given.answer_after
        )
        with atomic_file(given.out) as temporary:
            _write(rows, temporary)
    except (DataError, ModuleNotFoundError, OSError) as error:
        print(f"sage-rlvr grade: {error}", file=sys.stderr)
        return 1
    counted = rows["status"].value_counts().items()
    said = ", ".join(f"{count} {status}" for status, count in counted)
    print(f"{len(rows)} completions: {said}. Written: {given.out}")
    answers = given.answers or answers_in(rows[columns["completion"]])
    if answers != (given.answers or "tags"):
        print(f"Answers are those in \\boxed{{}} (--answers boxed): none is in {SOLUTION_OPEN}")
    for line in _hints(rows, columns, answers, given.answer_after):
        print(line)
    own = {what: columns.get(what) for what in READ if what != "model"}
    try:
        methods = read_methods([("graded", given.out)], {**own, "correct": "correct"})
        counts = pd.concat([method.counts for method in methods.values()])
        print("\n".join(lines(methods, pooled(counts))))
    except ValueError as error:  # such as problems with more completions than others
        print(f"No pass@k: {error}")
    return 0
