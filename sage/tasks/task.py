"""What a task is: problems, and when an answer is right.

A task is one class. `settle` compares an answer with the gold answer; all else has a default, and a
task says what it knows more: how its working is checked, what strategies it has, what a gold answer
is to a reader. What is asked of an answer is asked of the class, for a record of a problem holds
the name of its task alone. What decides must therefore stand in the gold answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from sage.grading import MAX_ANSWER, Status
from sage.problems.record import Problem


class Task:
    """The defaults of a task; a user's class without this base gets them as well."""

    kind: ClassVar[str]
    """The name by which records of problems say how their answers are compared."""

    longest: ClassVar[int] = MAX_ANSWER
    """Longest answer, in characters, that is looked at; a longer one is `unparsed`."""

    is_mathematics: ClassVar[bool] = False
    """Whether other graders of mathematics can judge its answers as well."""

    stratified: ClassVar[bool] = False
    """Whether the levels of its problems are strata, each with a number of problems by design."""

    has_chance: ClassVar[bool] = True
    """Whether answers are held against the gold answers of other problems: the chance level."""

    working: ClassVar[Any] = None
    """From a problem's text, the working and the answer: whether every step is right and leads to
    the answer. None where nobody can say."""

    strategy: ClassVar[Any] = None
    """From a problem's text and the completion: what its strategy is called, "" for none. None
    where strategies are not known."""

    @staticmethod
    def settle(gold: str, answer: str) -> Status:
        """The verdict on any text; never an exception, in bounded time."""
        raise NotImplementedError

    @classmethod
    def readable(cls, gold: str) -> str:
        """A gold answer for people to read."""
        return gold

    @classmethod
    def peers(cls, problem: Problem) -> str:
        """A name for all problems whose answers can be held against each other."""
        return ""

    @classmethod
    def gold_key(cls, gold: str) -> Hashable:
        """What equal gold answers share."""
        return gold

    @classmethod
    def counts_right(cls, answers: Mapping[str, int], golds: Sequence[Any]) -> list[int]:
        """How many of `answers`, each with its count, are right for each of `golds`; `[J]`.

        `golds` are keys of gold answers.
        """
        return [
            sum(count for answer, count in answers.items() if cls.settle(gold, answer) == "correct")
            for gold in golds
        ]


class ByKey(Task):
    """A task whose equal answers share a key, which is that of a gold answer."""

    @classmethod
    def counts_right(cls, answers: Mapping[str, int], golds: Sequence[Any]) -> list[int]:
        counts: Counter[Hashable] = Counter()
        for answer, count in answers.items():
            counts[cls.gold_key(answer)] += count
        return [counts[gold] for gold in golds]
