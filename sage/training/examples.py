"""Worked solutions for SFT, from a corpus or a data set: which are trained on, and their tokens.

Prompt and completion are tokenised apart from each other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sage import prompting
from sage.problems.benchmarks import solved_problems
from sage.problems.corpora import read_corpus
from sage.problems.entries import Benchmark
from sage.problems.fetching import mirror_folder
from sage.runtime.faults import Damaged
from sage.runtime.files import write_text_atomic
from sage.study import SFT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Solution:
    """A problem, the working that leads to an answer, and the answer."""

    problem: str
    working: str
    answer: str


def find_solutions(
    data: str | None, examples: int | None, seed: int, source: Mapping[str, Any]
) -> list[Solution]:
    """The first `examples` of the data set `data`, or all; without one, of the corpus `source`.

    With `data`, `source` is its entry.
    """
    if data is None:
        stream = itertools.islice(read_corpus(source).worked(seed), examples)
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


class Examples(NamedTuple):
    """Tokenised conversations (`input_ids`, `completion_mask`) and what was left out or cut."""

    rows: list[dict[str, list[int]]]
    counts: dict[str, int]
    """Numbers of conversations: trained on, and among or beside them by their length."""


def tokenised(
    solutions: Sequence[Solution], tokenizer: PreTrainedTokenizerBase, settings: SFT
) -> Examples:
    """The conversations to train on: those that `settings` does not find too long.

    Raises ValueError if none is left.
    """
    rows: list[dict[str, list[int]]] = []
    too_long = over_maximum = cut = 0
    for solution in solutions:
        written = prompting.completion(solution.working, solution.answer)
        prompt, completion = prompting.conversation_ids(tokenizer, solution.problem, written)
        length = len(prompt) + len(completion)
        if (len(prompt) if settings.length == "prompt" else length) > settings.max_tokens // 2:
            too_long += 1
            continue
        if length > settings.max_tokens and settings.too_long == "leave_out":
            over_maximum += 1
            continue
        cut += length > settings.max_tokens
        ids, mask = [*prompt, *completion], [0] * len(prompt) + [1] * len(completion)
        longest = settings.max_tokens
        rows.append({"input_ids": ids[:longest], "completion_mask": mask[:longest]})
    if not rows:
        raise ValueError(
            f"of {len(solutions)} examples none is short enough: in {too_long} the "
            f"{settings.length} takes more than sft.max_tokens / 2 = {settings.max_tokens // 2} "
            f"tokens, {over_maximum} take more than sft.max_tokens; raise it, or see sft.length"
        )
    counts = {
        "trained_on": len(rows),
        "left_out_over_half_of_max_tokens": too_long,
        "left_out_over_max_tokens": over_maximum,
        "cut_at_max_tokens": cut,
    }
    return Examples(rows, counts)
