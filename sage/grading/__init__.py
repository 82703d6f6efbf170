"""Grading completions: one grader that is both the RL reward and the score.

The last solution block is compared with the gold answer: mathematics, words and choices as a
whole (where a number is asked for, nothing is worked out), puzzles by their own verifier. A
completion can be anything; whatever it holds, the outcome is a status, never an exception, and
the work is bounded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import get_args

from tqdm import tqdm

from sage.grading.assignments import same_assignment
from sage.grading.exact import Settled, settle, settle_number
from sage.grading.walks import settle_route
from sage.problems.record import Kind
from sage.prompting import solution_text, thinks_on

__all__ = ["MAX_ANSWER", "STATUSES", "Grader", "Sample", "Status", "Verdict"]

Status = Settled
STATUSES: tuple[Status, ...] = get_args(Settled)

MAX_ANSWER = 500
"""Longest answer, in characters, that is looked at; a longer one that is not the gold's very text
is `unparsed`."""

_REMEMBERED = 100_000

Sample = tuple[str, str, Kind]
"""A completion, the gold answer and the kind of the problem."""

_Question = tuple[str, str, Kind]  # gold, answer, kind


@dataclass(frozen=True)
class Verdict:
    """What a completion is worth; `answer` is the text of its last solution block."""

    status: Status
    answer: str | None

    @property
    def reward(self) -> float:
        """1 for a correct answer, else 0."""
        return float(self.status == "correct")


class Grader:
    r"""Grades completions, from any thread; remembers the answers it has seen.

    `find_answer` takes the answer from a completion, None if there is none: by default the last
    solution block, `sage.prompting.last_boxed` for answers in `\boxed{}`. A completion that ends
    within its thinking has none.
    """

    def __init__(self, find_answer: Callable[[str], str | None] = solution_text) -> None:
        self._find_answer = find_answer
        self._known: OrderedDict[_Question, Status] = OrderedDict()
        self._lock = threading.Lock()

    def grade(self, completion: str, gold: str, kind: Kind) -> Verdict:
        """The verdict on `completion`; `gold` is the problem's answer as text."""
        return self.grade_many([(completion, gold, kind)])[0]

    def grade_many(self, samples: Iterable[Sample], progress: bool = False) -> list[Verdict]:
        """The verdict on each sample, in order; what is asked twice is worked out once.

        `progress` shows a bar over the different answers that are new.
        """
        asked: list[tuple[str | None, _Question | Status]] = []
        for completion, gold, kind in samples:
            answer = None if thinks_on(completion) else self._find_answer(completion)
            if answer is not None and len(answer) <= MAX_ANSWER:
                asked.append((answer, (gold, answer, kind)))
            else:
                same = answer is not None and answer.strip() == gold.strip()
                asked.append((answer and answer[:MAX_ANSWER], "correct" if same else "unparsed"))
        with self._lock:
            status = self._statuses({q for _, q in asked if isinstance(q, tuple)}, progress)
        return [Verdict(status[q] if isinstance(q, tuple) else q, answer) for answer, q in asked]

    def _statuses(self, questions: set[_Question], progress: bool) -> dict[_Question, Status]:
        status = {question: self._known[question] for question in questions & self._known.keys()}
        new = sorted(questions - status.keys())
        bar = tqdm(new, desc="grading", unit="answer", mininterval=5, disable=not progress)
        status |= {question: _settle(question) for question in bar}
        self._known |= status
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return status


def _settle(question: _Question) -> Status:
    gold, answer, kind = question
    if kind == "route":
        return settle_route(gold, answer)
    if kind == "knights":
        same = same_assignment(gold, answer)
        return "unparsed" if same is None else "correct" if same else "wrong"
    return settle_number(gold, answer) if kind == "number" else settle(gold, answer)
