"""Grading completions: one grader that is both the RL reward and the score.

The last solution block is compared with the gold answer as the problem's task says. A completion
can be anything; whatever it holds, the outcome is a status.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tqdm import tqdm

from sage.grading import Status
from sage.prompting import solution_text, thinks_on
from sage.tasks.known import task_of
from sage.tasks.task import ByKey

_REMEMBERED = 100_000

Sample = tuple[str, str, str]
"""A completion, the gold answer and the kind of the problem."""

_Question = tuple[str, str, str]  # gold, answer, kind


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

    def grade(self, completion: str, gold: str, kind: str) -> Verdict:
        """The verdict on `completion`; `gold` is the problem's answer as text."""
        return self.grade_many([(completion, gold, kind)])[0]

    def grade_many(self, samples: Iterable[Sample], progress: bool = False) -> list[Verdict]:
        """The verdict on each sample, in order; what is asked twice is worked out once.

        `progress` shows a bar over the different answers that are new.
        """
        asked: list[tuple[str | None, _Question | Status]] = []
        for completion, gold, kind in samples:
            answer = None if thinks_on(completion) else self._find_answer(completion)
            task = task_of(kind)
            if answer is not None and len(answer) <= task.longest:
                asked.append((answer, (gold, answer, kind)))
            else:
                says_gold = issubclass(task, ByKey) and (answer or "").strip() == gold.strip()
                status: Status = "correct" if says_gold else "unparsed"
                asked.append((answer and answer[: task.longest], status))
        with self._lock:
            found = self._statuses({q for _, q in asked if isinstance(q, tuple)}, progress)
        return [Verdict(found[q] if isinstance(q, tuple) else q, answer) for answer, q in asked]

    def _statuses(self, questions: set[_Question], progress: bool) -> dict[_Question, Status]:
        status = {question: self._known[question] for question in questions & self._known.keys()}
        new = sorted(questions - status.keys())
        bar = tqdm(new, desc="grading", unit="answer", mininterval=5, disable=not progress)
        for question in bar:
            gold, answer, kind = question
            status[question] = task_of(kind).settle(gold, answer)
        self._known |= status
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return status
