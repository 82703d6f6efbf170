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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from sage.grading import MAX_ANSWER, STATUSES
from sage.grading.second_opinion import second_opinions
from sage.problems.record import Problem, read_problems
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_table
from sage.tasks import task_of

FALSE_NEGATIVE = "refused, but another method accepts it"
HOLDS_GOLD = "refused, but the gold stands in it"
FALSE_POSITIVE = "accepted by the grader alone"
SUSPICIONS = (FALSE_NEGATIVE, HOLDS_GOLD, FALSE_POSITIVE)

SUSPECTS, EXAMPLES = 20, 5
"""The most of a kind and benchmark that are written to the file, and shown."""

_COLUMNS = ("problem_id", "answer", "status")
_JUDGED = [
    *("benchmark", "suspicion", "problem_id", "gold", "answer"),
    *("grader", "math_verify", "equal", "completions"),
]


def audit(
    samples: Mapping[str, Sequence[Path]],
    problems: Mapping[str, Path],
    limit_seconds: float = 5.0,
) -> pd.DataFrame:
    """Judge every different answer in the sample files of each benchmark once more.

    `problems` are the benchmarks' problem files. A row per answer, given in `completions` samples:
    `grader` is its status, `math_verify` that method's outcome ("not asked" of a puzzle or without
    an answer), `equal` whether it is the gold's text, `suspicion` why a person should read it (""
    for no reason). Raises KeyError if a sample's problem is not among them.
    """
    given: Counter[tuple[str, str, str | None, str]] = Counter()
    known: dict[tuple[str, str], Problem] = {}
    for benchmark, files in samples.items():
        known |= {(benchmark, p.problem_id): p for p in read_problems(problems[benchmark])}
        for file in files:
            table = read_table(file, _COLUMNS).to_pydict()
            given.update((benchmark, *row) for row in zip(*map(table.get, _COLUMNS), strict=True))
    asked = {
        (problem.answer, answer): None
        for benchmark, name, answer, _ in given
        if task_of((problem := known[benchmark, name]).kind).is_mathematics
        if answer and len(answer) < MAX_ANSWER  # a longer one was cut, and was not graded either
    }
    outcomes = dict(zip(asked, second_opinions(list(asked), limit_seconds), strict=True))
    rows = []
    for (benchmark, name, answer, status), count in given.items():
        problem = known[benchmark, name]
        outcome = outcomes.get((problem.answer, answer or ""), "not asked")
        equal = answer is not None and answer.strip() == problem.answer.strip()
        gold = task_of(problem.kind).readable(problem.answer)
        reason = _suspicion(gold, answer, status, equal or outcome == "correct")
        rows.append((benchmark, reason, name, gold, answer, status, outcome, equal, count))
    return pd.DataFrame(rows, columns=_JUDGED)


def _suspicion(gold: str, answer: str | None, status: str, others_accept: bool) -> str:
    if status == "correct":
        return "" if others_accept else FALSE_POSITIVE
    if others_accept:
        return FALSE_NEGATIVE
    # By itself, not as a part of a number or word.
    alone = rf"(?<![\w.]){re.escape(gold.strip())}(?![\w]|\.[0-9])"
    return HOLDS_GOLD if answer and re.search(alone, answer) else ""


def counts(judged: pd.DataFrame) -> pd.DataFrame:
    """A row per benchmark: completions by status, timeouts of both, and suspects by kind.

    All are numbers of completions. `no_answer` is the part of `unparsed` without a solution block.
    """
    is_counted = {
        "completions": judged["grader"].notna(),
        **{status: judged["grader"] == status for status in STATUSES},
        "no_answer": judged["answer"].isna(),
        "math_verify_timeout": judged["math_verify"] == "timeout",
        **{reason: judged["suspicion"] == reason for reason in SUSPICIONS},
    }
    columns = {name: judged["completions"].where(rows, 0) for name, rows in is_counted.items()}
    return pd.DataFrame(columns).groupby(judged["benchmark"]).sum().reset_index()


def suspects(judged: pd.DataFrame) -> pd.DataFrame:
    """Up to SUSPECTS suspects of every kind and benchmark, drawn at random; texts escaped."""
    kept = []
    for key, group in judged[judged["suspicion"] != ""].groupby(["benchmark", "suspicion"]):
        order = sorted(group.index, key=lambda i: (group["problem_id"][i], str(group["answer"][i])))
        kept += random.Random(f"0/{key}").sample(order, min(SUSPECTS, len(order)))
    drawn = judged.loc[kept]
    return drawn.assign(gold=drawn["gold"].map(ascii), answer=drawn["answer"].map(ascii))


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
