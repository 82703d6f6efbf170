"""How often the grader may err on a study's own samples.

Every answer is judged twice more: by Math-Verify on the text as it stands, and by equality of
strings. Where these differ from the grader, or the gold stands within an answer that was refused,
the answer is a suspect: the counts bound the grader's errors from above, and a part of the suspects
is kept for reading. What a model wrote is shown escaped, in ASCII and within quotes.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sage.grading import MAX_ANSWER, STATUSES
from sage.grading.workers import Workers
from sage.problems.record import Problem, read_problems, readable_gold
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_table

FALSE_NEGATIVE = "refused, but another method accepts it"
HOLDS_GOLD = "refused, but the gold stands in it"
FALSE_POSITIVE = "accepted by the grader alone"
SUSPICIONS = (FALSE_NEGATIVE, HOLDS_GOLD, FALSE_POSITIVE)

SUSPECTS, EXAMPLES = 20, 5
"""The most of a kind and benchmark that are written to the file, and shown."""

_COLUMNS = ("problem_id", "answer", "status")
_SUSPECT = [
    *("benchmark", "suspicion", "problem_id", "gold", "answer"),
    *("grader", "math_verify", "equal", "completions"),
]


@dataclass(frozen=True)
class Judged:
    """An answer that was given `count` times, and what each method says of it.

    `math_verify` is its outcome, None where it was not asked (a puzzle, no answer).
    """

    benchmark: str
    problem_id: str
    gold: str
    answer: str | None
    status: str
    count: int
    math_verify: str | None
    equal: bool

    @property
    def suspicion(self) -> str | None:
        """Why a person should read it, if at all."""
        others_accept = self.equal or self.math_verify == "correct"
        if self.status == "correct":
            return None if others_accept else FALSE_POSITIVE
        if others_accept:
            return FALSE_NEGATIVE
        return HOLDS_GOLD if self.answer and _stands_in(self.gold, self.answer) else None


def audit(
    samples: Mapping[str, Sequence[Path]],
    problems: Mapping[str, Path],
    limit_seconds: float = 5.0,
    workers: int = 2,
) -> list[Judged]:
    """Judge every different answer in the sample files of each benchmark once more.

    `problems` are the benchmarks' problem files. Raises KeyError if a sample's problem is not
    among them.
    """
    given: Counter[tuple[str, str, str | None, str]] = Counter()
    known: dict[str, dict[str, Problem]] = {}
    for benchmark, files in samples.items():
        known[benchmark] = {p.problem_id: p for p in read_problems(problems[benchmark])}
        for file in files:
            table = read_table(file, _COLUMNS).to_pydict()
            for row in zip(*(table[name] for name in _COLUMNS), strict=True):
                given[benchmark, *row] += 1
    asked = {
        (problem.answer, answer): ""
        for benchmark, name, answer, _ in given
        if (problem := known[benchmark][name]).kind in ("math", "number")
        and answer
        and _is_short(answer)
    }
    pool = Workers(workers, limit_seconds)
    try:
        outcomes = dict(zip(asked, pool.outcomes(list(asked)), strict=True))
    finally:
        pool.close()
    return [
        Judged(
            benchmark,
            name,
            readable_gold(gold := known[benchmark][name].answer, known[benchmark][name].kind),
            answer,
            status,
            count,
            outcomes.get((gold, answer or "")),
            answer is not None and answer.strip() == gold.strip(),
        )
        for (benchmark, name, answer, status), count in given.items()
    ]


def counts(judged: Iterable[Judged]) -> pd.DataFrame:
    """A row per benchmark: completions by status, timeouts of both, and suspects by kind.

    All are numbers of completions. `no_answer` is the part of `unparsed` without a solution block.
    """
    rows: dict[str, Counter[str]] = {}
    for one in judged:
        row = rows.setdefault(one.benchmark, Counter())
        row["completions"] += one.count
        row[one.status] += one.count
        row["no_answer"] += one.count * (one.answer is None)
        row["math_verify_timeout"] += one.count * (one.math_verify == "timeout")
        if one.suspicion:
            row[one.suspicion] += one.count
    names = ["completions", *STATUSES, "no_answer", "math_verify_timeout", *SUSPICIONS]
    table = [{"benchmark": b, **{n: row[n] for n in names}} for b, row in sorted(rows.items())]
    return pd.DataFrame(table, columns=["benchmark", *names])


def suspects(judged: Iterable[Judged]) -> pd.DataFrame:
    """Up to SUSPECTS suspects of every kind and benchmark, drawn at random; texts escaped."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in judged:
        if one.suspicion:
            groups.setdefault((one.benchmark, one.suspicion), []).append(one)
    rows = []
    for key in sorted(groups):
        group = sorted(groups[key], key=lambda one: (one.problem_id, str(one.answer)))
        drawn = random.Random(f"0/{key}").sample(group, min(SUSPECTS, len(group)))
        rows += [
            (
                *(*key, one.problem_id, ascii(one.gold), ascii(one.answer), one.status),
                *(one.math_verify or "not asked", one.equal, one.count),
            )
            for one in drawn
        ]
    return pd.DataFrame(rows, columns=_SUSPECT)


def write_audit(
    samples: Mapping[str, Sequence[Path]],
    problems: Mapping[str, Path],
    counts_file: Path,
    suspects_file: Path,
) -> None:
    """Audit a study's samples; write its counts and suspects as CSV."""
    judged = audit(samples, problems)
    write_text_atomic(counts_file, counts(judged).to_csv(index=False))
    write_text_atomic(suspects_file, suspects(judged).to_csv(index=False))


def render_audit(counts_file: Path, suspects_file: Path) -> str:
    """What `write_audit` wrote, as text: shares of each benchmark and the first suspects."""
    table = pd.read_csv(counts_file)
    lines = ["How often the grader may err, in completions (shares are upper bounds)"]
    for row in table.to_dict("records"):
        total = int(row["completions"])
        lines.append(f"{row['benchmark']}: {total} completions, {row['correct']} correct")
        lines += [f"  {name}: {row[name]} ({row[name] / total:.2%})" for name in SUSPICIONS]
        times = f"{row['timeout']} of the grader, {row['math_verify_timeout']} of Math-Verify alone"
        lines.append(f"  timeouts: {times}; without an answer: {row['no_answer']}")
    lines += _examples(pd.read_csv(suspects_file))
    lines.append(f"All suspects that were kept: {suspects_file}")
    return "\n".join(lines)


def _examples(table: pd.DataFrame) -> Iterator[str]:
    for (benchmark, suspicion), group in table.groupby(["benchmark", "suspicion"]):
        yield f"{benchmark}, {suspicion}:"
        for row in group.head(EXAMPLES).to_dict("records"):
            yield f"  gold {row['gold']}, answer {row['answer']} ({row['completions']} times)"


def _is_short(answer: str) -> bool:
    return len(answer) < MAX_ANSWER  # a longer one was cut, and was not graded either


def _stands_in(gold: str, answer: str) -> bool:
    """Whether the gold occurs in the answer by itself, not as a part of a number or word."""
    return re.search(rf"(?<![\w.]){re.escape(gold.strip())}(?![\w]|\.[0-9])", answer) is not None
