"""Rows of data sets as problems: fields are read, wrappers stripped, gold answers put in order.

What differs from one data set to the next stands in `config/benchmarks.yaml`, or in a study for
data of one's own (`own`); the files come from `fetching`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sage.problems.entries import Benchmark, RowRules, Wrapper
from sage.problems.fetching import Rows, fetch
from sage.problems.record import DataError, Problem
from sage.problems.rows import Row
from sage.prompting import last_boxed
from sage.runtime.files import text_sum

_INTEGER = re.compile(r"([+-]?)0*(\d+)(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_STEP_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CHINESE = re.compile(r"[㐀-鿿豈-﫿]")


@dataclass(frozen=True)
class Named:
    """A data set: its name, what messages about it begin with, and where its settings stand."""

    name: str
    what: str = ""
    place: str = ""

    def fault(
        self, key: str, message: str, source: str = "", place: str | None = None
    ) -> DataError:
        """The error that the setting `key` does not go with the data, which are from `source`."""
        start = ", ".join(filter(None, (self.what, source)))
        end = self.place if place is None else place
        return DataError(f"{start and f'{start}: '}{message}{end}", key)


@dataclass(frozen=True)
class Solved:
    """A problem with the worked solution its data set gives; empty if it gives none."""

    problem: Problem
    solution: str
    row: int


def benchmark_problems(
    benchmark: str,
    entry: Benchmark,
    mirror: Path | None = None,
    levels: Sequence[int | str] | None = None,
    first: int | None = None,
    hints: bool = False,
) -> list[Problem]:
    """The problems of `benchmark`, in the order of its files.

    `levels` keeps only these levels, `first` only that many. With `hints` each carries the first
    steps of its solution. Raises DataError if the data set cannot be had or is not what its entry
    says, or if a problem has no solution to take a hint from.
    """
    solved = solved_problems(benchmark, entry, mirror, levels, first)
    return _hinted(_of_entry(benchmark), solved, hints)


def problems_of_rows(
    named: Named,
    rules: RowRules,
    rows: Rows,
    levels: Sequence[int | str] | None,
    first: int | None,
    hints: bool,
    agreeing: bool,
) -> list[Problem]:
    """The problems of `rows`, made as `benchmark_problems` makes those of a data set.

    `agreeing` refuses rows of one problem with different answers.
    """
    solved = list(_solved(named, rules, rows))
    if agreeing:
        _refuse_two_answers(named, solved)
    solved = _part(named, solved, levels, first)
    return _hinted(named, _distinct(named, rules, solved), hints)


def _hinted(named: Named, solved: list[Solved], hints: bool) -> list[Problem]:
    if not hints:
        return [row.problem for row in solved]
    if bare := [row.problem.problem_id for row in solved if not row.solution.strip()]:
        raise named.fault(
            "hints",
            f"hints are taken from solutions, but {len(bare)} problems, the first {bare[0]!r}, "
            "have none; leave hints out, or name their field in fields.solution",
        )
    return [replace(row.problem, hint=first_steps(row.solution)) for row in solved]


def first_steps(solution: str) -> str:
    """The first third of a solution's sentences and lines, at least one."""
    steps = [step.strip() for step in _STEP_END.split(solution) if step.strip()]
    return " ".join(steps[: max(1, len(steps) // 3)])


def solved_problems(
    benchmark: str,
    entry: Benchmark,
    mirror: Path | None = None,
    levels: Sequence[int | str] | None = None,
    first: int | None = None,
) -> list[Solved]:
    """The same with the data set's own solutions, as supervised fine-tuning needs them."""
    named, by_file = _of_entry(benchmark), levels is not None and bool(entry.levels())
    asked = set(map(str, levels)) if levels is not None and by_file else None
    if asked:
        _refuse_unknown(named, asked, set(entry.levels()))

    def wanted(level: str | None) -> bool:
        return asked is None or level is None or level in asked

    solved: list[Solved] = []
    for rows in fetch(benchmark, entry, mirror, lambda file: wanted(file.level)):
        solved += _solved(named, entry, rows)
    if entry.kept not in (None, len(solved)) and not by_file:
        raise named.fault(
            "kept",
            f"{len(solved)} problems are left after its filters, but {entry.kept} are expected; "
            "correct the entry",
        )
    return _distinct(named, entry, _part(named, solved, levels, first))


def _of_entry(benchmark: str) -> Named:
    return Named(benchmark, f"benchmark {benchmark!r}", " in config/benchmarks.yaml")


def _part(
    named: Named, solved: list[Solved], levels: Sequence[int | str] | None, first: int | None
) -> list[Solved]:
    """The problems of some levels, and the `first` of these."""
    if levels is not None:
        asked = set(map(str, levels))
        _refuse_unknown(named, asked, {row.problem.level for row in solved})
        solved = [row for row in solved if row.problem.level in asked]
    if first is not None and len(solved) < first:
        raise named.fault("first", f"has {len(solved)} problems, not first: {first}", place="")
    return solved[:first]


def gold_answer(value: Any, after: str | None = None) -> str:
    """A gold answer as text: the last boxed expression if any, and integers in their plain form.

    ``073`` becomes ``73``, ``27.0`` becomes ``27``; any other expression is left as it is.
    `after` is a text behind which the answer stands.
    """
    text = repr(value) if isinstance(value, float) else str(value)
    text = text.rpartition(after)[2] if after else text
    text = (last_boxed(text) or text).strip()
    match = _INTEGER.fullmatch(text)
    if match is None:
        return text
    sign = "-" if match[1] == "-" and match[2] != "0" else ""
    return sign + match[2]


def _solved(named: Named, rules: RowRules, rows: Rows) -> Iterator[Solved]:
    fields = rules.fields
    texts = {
        number: str(_field(named, rows, number, "problem", fields.problem)).strip()
        for number in range(len(rows.rows))
    }
    if rules.english_only:
        texts = {number: text for number, text in texts.items() if not _CHINESE.search(text)}
    unwrapped = _unwrapped(named, rows, list(texts.values()), rules.wrappers)
    for number, text in zip(texts, unwrapped, strict=True):
        given = _field(named, rows, number, "answer", fields.answer)
        if rules.answer_after and rules.answer_after not in str(given):
            raise named.fault(
                "answer_after",
                f"row {number + 1}: the answer does not hold {rules.answer_after!r}, behind which "
                "it should stand; correct the row, or what marks the answer",
                rows.source,
            )
        answer = gold_answer(given, rules.answer_after)
        if rules.numbers_only and not _NUMBER.fullmatch(answer):
            continue
        level, key, cluster, solution = (
            _value_at(rows.rows[number], paths or [])
            for paths in (fields.level, fields.id, fields.cluster, fields.solution)
        )
        problem = Problem(
            problem_id=_problem_id(named.name, rows.level, key, text),
            problem=text,
            answer=answer,
            kind=rules.kind,
            level=str(level if level is not None else rows.level or ""),
            source=rows.source,
            revision=rows.revision,
            cluster="" if cluster is None else str(cluster),
        )
        yield Solved(problem, "" if solution is None else str(solution), number + 1)


def _problem_id(benchmark: str, level: str | None, key: Any, text: str) -> str:
    """The data set's own id where it has one, else a hash of the problem: order plays no part."""
    own = text_sum(text)[:12] if key is None else str(key)
    return re.sub(r"\s+", "_", "-".join(filter(None, (benchmark, level, own))))


def _distinct(named: Named, rules: RowRules, solved: list[Solved]) -> list[Solved]:
    """Problems under different ids: a text that a data set holds twice is numbered."""
    seen: dict[str, list[int]] = {}
    numbered = []
    for row in solved:
        name = row.problem.problem_id
        rows = seen.setdefault(name, [])
        rows.append(row.row)
        if len(rows) > 1:
            if rules.fields.id:
                raise named.fault(
                    "fields.id",
                    f"two problems have the id {name!r}, in rows {rows[0]} and {rows[1]}; leave "
                    "fields.id out to have ids made from the problems, or correct it",
                    row.problem.source,
                )
            row = replace(row, problem=replace(row.problem, problem_id=f"{name}-{len(rows)}"))
        numbered.append(row)
    return numbered


def _refuse_two_answers(named: Named, solved: list[Solved]) -> None:
    seen: dict[str, Solved] = {}
    for row in solved:
        before = seen.setdefault(row.problem.problem, row)
        if row.problem.answer != before.problem.answer:
            raise named.fault(
                "fields.answer",
                f"rows {before.row} and {row.row} are one problem with different answers, "
                f"{before.problem.answer[:40]!r} and {row.problem.answer[:40]!r}; correct one, or "
                "take it out",
                row.problem.source,
            )


def _unwrapped(
    named: Named, rows: Rows, texts: Sequence[str], wrappers: Sequence[Wrapper]
) -> list[str]:
    """The problems without the text around them: all of a file's rows carry it, or none do."""
    for wrapper in wrappers:
        wrapped = [
            text.startswith(wrapper.before) and text.endswith(wrapper.after) for text in texts
        ]
        if all(wrapped):
            return [
                text[len(wrapper.before) : len(text) - len(wrapper.after)].strip() for text in texts
            ]
        if any(wrapped):
            raise named.fault(
                "wrappers",
                f"{wrapped.count(True)} of {len(wrapped)} problems stand in the wrapper "
                f"{wrapper.before[:40]!r}, the others do not; correct `wrappers`",
                rows.source,
            )
    return list(texts)


def _field(named: Named, rows: Rows, number: int, name: str, paths: Sequence[str]) -> Any:
    row = rows.rows[number]
    value = _value_at(row, paths)
    if value is None or not str(value).strip():
        what = f"no {name} under {', '.join(paths)}"
        mend = f"; the row has {', '.join(sorted(row))}; correct fields.{name}"
        held = next((row[path] for path in paths if path in row), None)
        if isinstance(held, list | dict) and held:
            inner = "0" if isinstance(held, list) else next(iter(held))
            mend = (
                f", which holds {type(held).__name__} {str(held)[:60]}; name what is in it, as in "
                f"`fields: {{{name}: {paths[0]}.{inner}}}`, or write it as text"
            )
        elif any(path in row for path in paths):
            mend = ", which is empty; fill it in, or remove the row"
        where = f"{rows.source}, row {number + 1}"
        raise named.fault(f"fields.{name}", what + mend, where)
    return value


def _value_at(row: Row, paths: Sequence[str]) -> Any:
    """The value at the first of the dotted paths that leads somewhere; else None.

    A float that is not finite is how libraries write a value that is missing.
    """
    for path in paths:
        value: Any = row
        for part in [path] if path in row else path.split("."):
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                value = None
        if isinstance(value, Decimal):  # of Parquet
            return str(value)
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
    return None


def _refuse_unknown(named: Named, asked: set[str], known: set[str]) -> None:
    if unknown := sorted(asked - known):
        levels = ", ".join(sorted(filter(None, known))) or "none"
        raise named.fault(
            "levels", f"no level {', '.join(unknown)}; its levels: {levels}", place=""
        )
