"""Public data sets as problems: fields are read, wrappers stripped, gold answers put in order.

What differs from one data set to the next stands in `config/benchmarks.yaml` (see `entries`);
the files come from `fetching`. Here are only the rules that hold for all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sage.problems.entries import Benchmark, Wrapper
from sage.problems.fetching import DataError, Row, Rows, fetch
from sage.problems.record import Problem
from sage.prompting import last_boxed
from sage.runtime.files import text_sum

_INTEGER = re.compile(r"([+-]?)0*(\d+)(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_STEP_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CHINESE = re.compile(r"[㐀-鿿豈-﫿]")


@dataclass(frozen=True)
class Solved:
    """A problem with the worked solution its data set gives; empty if it gives none."""

    problem: Problem
    solution: str


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
    if not hints:
        return [row.problem for row in solved]
    if bare := [row.problem.problem_id for row in solved if not row.solution.strip()]:
        raise DataError(
            f"benchmark {benchmark!r}: hints are taken from solutions, but {len(bare)} problems, "
            f"the first {bare[0]!r}, have none; name their field in fields.solution of "
            "config/benchmarks.yaml, or leave hints out"
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
    asked = None if levels is None else [str(level) for level in levels]
    by_file = asked is not None and bool(entry.levels())
    if asked is not None and by_file:
        _refuse_unknown(benchmark, asked, set(entry.levels()))

    def wanted(level: str | None) -> bool:
        return asked is None or level is None or level in asked

    solved: list[Solved] = []
    for rows in fetch(benchmark, entry, mirror, lambda file: wanted(file.level)):
        solved += _solved(benchmark, entry, rows)
    if entry.kept not in (None, len(solved)) and not by_file:
        raise DataError(
            f"benchmark {benchmark!r}: {len(solved)} problems are left after its filters, but "
            f"{entry.kept} are expected; correct the entry in config/benchmarks.yaml"
        )
    if asked is not None:
        _refuse_unknown(benchmark, asked, {row.problem.level for row in solved})
        solved = [row for row in solved if row.problem.level in asked]
    if first is not None and len(solved) < first:
        raise DataError(f"benchmark {benchmark!r}: has {len(solved)} problems, not first: {first}")
    return _distinct(benchmark, entry, solved[:first])


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


def _solved(benchmark: str, entry: Benchmark, rows: Rows) -> Iterator[Solved]:
    fields = entry.fields
    texts = [
        str(_field(benchmark, rows, number, "problem", fields.problem)).strip()
        for number in range(len(rows.rows))
    ]
    kept = [n for n, text in enumerate(texts) if not (entry.english_only and _CHINESE.search(text))]
    texts = _unwrapped(benchmark, rows, [texts[n] for n in kept], entry.wrappers)
    for number, text in zip(kept, texts, strict=True):
        row = rows.rows[number]
        given = _field(benchmark, rows, number, "answer", fields.answer)
        answer = gold_answer(given, entry.answer_after)
        if entry.numbers_only and not _NUMBER.fullmatch(answer):
            continue
        level = _found(row, fields.level or [])
        key = _found(row, fields.id or [])
        yield Solved(
            Problem(
                problem_id=_problem_id(benchmark, rows.file.level, key, text),
                problem=text,
                answer=answer,
                kind=entry.kind,
                level=str(level if level is not None else rows.file.level or ""),
                source=rows.source,
                revision=rows.revision,
                cluster=str(_found(row, fields.cluster or []) or ""),
            ),
            str(_found(row, fields.solution or []) or ""),
        )


def _problem_id(benchmark: str, level: str | None, key: Any, text: str) -> str:
    """The data set's own id where it has one, else a hash of the problem: order plays no part."""
    own = text_sum(text)[:12] if key is None else str(key)
    return re.sub(r"\s+", "_", "-".join(filter(None, (benchmark, level, own))))


def _distinct(benchmark: str, entry: Benchmark, solved: list[Solved]) -> list[Solved]:
    """Problems under different ids: a text that a data set holds twice is numbered."""
    seen: Counter[str] = Counter()
    numbered = []
    for row in solved:
        name = row.problem.problem_id
        seen[name] += 1
        if seen[name] > 1 and entry.fields.id:
            raise DataError(
                f"benchmark {benchmark!r}: two problems have the id {name!r}; correct fields.id in "
                "config/benchmarks.yaml, or leave it out to have ids made from the problems"
            )
        if seen[name] > 1:
            row = replace(row, problem=replace(row.problem, problem_id=f"{name}-{seen[name]}"))
        numbered.append(row)
    return numbered


def _unwrapped(
    benchmark: str, rows: Rows, texts: Sequence[str], wrappers: Sequence[Wrapper]
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
            raise DataError(
                f"benchmark {benchmark!r}, {rows.source}: {wrapped.count(True)} of {len(wrapped)} "
                f"problems stand in the wrapper {wrapper.before[:40]!r}, the others do not; "
                "correct `wrappers` in config/benchmarks.yaml"
            )
    return list(texts)


def _field(benchmark: str, rows: Rows, number: int, name: str, paths: Sequence[str]) -> Any:
    row = rows.rows[number]
    value = _found(row, paths)
    if value is None or not str(value).strip():
        raise DataError(
            f"benchmark {benchmark!r}, {rows.source}, row {number + 1}: no {name} under "
            f"{', '.join(paths)}; the row has {', '.join(sorted(row))}; correct fields.{name} in "
            "config/benchmarks.yaml"
        )
    return value


def _found(row: Row, paths: Sequence[str]) -> Any:
    """The value at the first of the dotted paths that leads somewhere; else None."""
    for path in paths:
        value: Any = row
        for part in path.split("."):
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                value = None
        if isinstance(value, str | int | float):
            return value
    return None


def _refuse_unknown(benchmark: str, asked: Sequence[str], known: set[str]) -> None:
    unknown = sorted(set(asked) - known)
    if unknown:
        raise DataError(
            f"benchmark {benchmark!r}: no level {', '.join(unknown)}; its levels: "
            f"{', '.join(sorted(filter(None, known))) or 'none'}"
        )
