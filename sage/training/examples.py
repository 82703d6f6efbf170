"""Worked solutions for SFT: drawn from the corpus of a tiny base, or read from a data set."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sage.problems.benchmarks import solved_problems
from sage.problems.corpus import Slips, Worked, worked_solutions
from sage.problems.entries import Benchmark
from sage.problems.fetching import mirror_folder
from sage.runtime.faults import Damaged
from sage.runtime.files import write_text_atomic
from sage.study import Corpus


@dataclass(frozen=True)
class Solution:
    """A problem, the working that leads to an answer, and the answer."""

    problem: str
    working: str
    answer: str


def find_solutions(
    data: str | None, examples: int | None, seed: int, source: Mapping[str, Any]
) -> list[Solution]:
    """The first `examples` of the data set `data`, or all of them; without one, of a corpus.

    `source` is the entry of the data set, or the corpus.
    """
    if data is None:
        corpus = Corpus.model_validate(dict(source))
        stream = itertools.islice(corpus_solutions(corpus, seed), examples)
        return [Solution(worked.problem, worked.working, worked.answer) for worked in stream]
    solved = solved_problems(data, Benchmark.model_validate(dict(source)), mirror_folder())
    return [
        Solution(one.problem.problem, without_think_tags(one.solution), one.problem.answer)
        for one in solved[:examples]
    ]


def without_think_tags(solution: str) -> str:
    """A reasoning model's solution in plain text: both tags go, what stands in them stays."""
    return solution.replace("<think>", "").replace("</think>", "").strip()


def write_solutions(solutions: Iterable[Solution], path: Path) -> None:
    """Write one JSON line per solution."""
    lines = [json.dumps(asdict(solution), ensure_ascii=False) + "\n" for solution in solutions]
    write_text_atomic(path, "".join(lines))


def read_solutions(path: Path) -> list[Solution]:
    """Read what `write_solutions` wrote; raises Damaged for a line that is no example."""
    solutions = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                solutions.append(Solution(**json.loads(line.decode("utf-8"))))
            except (TypeError, ValueError) as error:
                raise Damaged(path, f"not an example ({error})", number) from error
    return solutions


def corpus_solutions(corpus: Corpus, seed: int) -> Iterator[Worked]:
    """Worked solutions of the corpus, without end."""
    return worked_solutions(
        seed=seed,
        styles=corpus.styles,
        slips=Slips(**corpus.slips.model_dump()),
        min_terms=corpus.min_terms,
        max_terms=corpus.max_terms,
        max_value=corpus.max_value,
        knights_share=corpus.knights_share,
        wordings=corpus.wordings,
        knights_people=corpus.knights_people,
    )
