"""Problem sets of a study: generated ones, and parts of public data sets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sage.fields import Name, Positive, Seed, Strict, about
from sage.problems.knights import FORMS, Form
from sage.problems.reasoning_gym_tasks import Task

People = Annotated[list[Annotated[int, Field(ge=2, le=8)]], Field(min_length=1)]
"""Numbers of people in puzzles."""

Title = Annotated[str, about("its name in tables and figures")]
Split = Annotated[
    Literal["train", "test"],
    about(
        "half of all problems, by a hash of their text: `train` and `test` never share a problem"
    ),
]


def check_order(min_terms: int, max_terms: int) -> None:
    """Raise ValueError unless the two are in order."""
    if max_terms < min_terms:
        raise ValueError(f"max_terms {max_terms} is below min_terms {min_terms}")


Hints = Annotated[
    bool,
    about(
        "whether each problem carries a hint, the first steps of its solution, which "
        "`guided_retry` draws under and nothing else shows"
    ),
]


class ArithmeticSet(Strict):
    """Sums and differences from this project's generator."""

    source: Annotated[Literal["arithmetic"], about("generated sums and differences")]
    title: Title
    count: Annotated[Positive, about("size of the set", unit="problems")]
    seed: Annotated[
        Seed,
        about("seed of the generator; the same seed gives the same problems", unit="integer"),
    ]
    min_terms: Annotated[int, Field(ge=2), about("fewest terms of a sum", unit="terms")]
    max_terms: Annotated[int, Field(ge=2), about("most terms of a sum", unit="terms")]
    max_digits: Annotated[Positive, about("terms go from 0 to 10^max_digits", unit="digits")] = 1
    running_total: Annotated[
        Literal["any", "nonnegative", "negative"],
        about(
            "whether the partial sums from left to right never (`nonnegative`) or at some point "
            "(`negative`) fall below zero"
        ),
    ] = "any"
    split: Split
    hints: Hints = False

    @model_validator(mode="after")
    def _ordered(self) -> ArithmeticSet:
        check_order(self.min_terms, self.max_terms)
        return self

    def size(self) -> int:
        """How many problems it has."""
        return self.count


class KnightsSet(Strict):
    """Knights and Knaves puzzles with exactly one solution, from this project's generator."""

    source: Annotated[Literal["knights"], about("generated Knights and Knaves puzzles")]
    title: Title
    people: Annotated[
        People,
        about("numbers of people; each number is a level of difficulty", unit="people"),
    ]
    per_size: Annotated[Positive, about("puzzles of each number of people", unit="puzzles")]
    seed: Annotated[Seed, about("seed of the generator", unit="integer")]
    split: Split
    forms: Annotated[
        list[Form],
        about("what statements may be besides plain ones; at least one besides `not`"),
    ] = Field(default_factory=lambda: list(FORMS))
    hints: Hints = False

    @model_validator(mode="after")
    def _solvable(self) -> KnightsSet:
        if not set(self.forms) & set(FORMS):
            raise ValueError(
                f"forms must hold at least one of {', '.join(FORMS)}: a puzzle of plain statements "
                "never has a single solution"
            )
        return self

    def size(self) -> int:
        """How many problems it has."""
        return self.per_size * len(self.people)


class ReasoningGymSet(Strict):
    """Problems that a task of reasoning-gym generates, graded by the task's own scorer.

    It needs a C compiler and the extra of that name,
    `python3 workflow/install.py .venv --extra reasoning-gym`. The scorer runs in a process with
    bounded time and memory. Where it evaluates the answer, one that holds more than a list or a
    formula counts as `unparsed`.
    """

    source: Annotated[Literal["reasoning_gym"], about("a task of reasoning-gym")]
    title: Title
    task: Annotated[Task, about("which of them")]
    settings: Annotated[
        dict[str, Any],
        about("settings of the task, such as `{min_terms: 3}`"),
    ] = Field(default_factory=dict)
    count: Annotated[Positive, about("size of the set", unit="problems")]
    seed: Annotated[
        Seed,
        about("seed of the generator; the same seed gives the same problems", unit="integer"),
    ]
    split: Split
    correct_from: Annotated[
        float,
        Field(gt=0.0, le=1.0),
        about(
            "an answer is correct from this score on; scorers give less than 1 for answers that "
            "are right in part or badly formatted",
            unit="score",
        ),
    ] = 1.0

    @model_validator(mode="after")
    def _settings_of_its_own(self) -> ReasoningGymSet:
        if taken := {"seed", "size"} & set(self.settings):
            raise ValueError(
                f"settings hold {', '.join(sorted(taken))}; the set's own seed and count decide"
            )
        return self

    def size(self) -> int:
        """How many problems it has."""
        return self.count


class BenchmarkSet(Strict):
    """A public data set of `benchmarks.yaml`, or a part of it."""

    source: Annotated[Literal["benchmark"], about("a data set of `benchmarks.yaml`")]
    title: Title
    benchmark: Annotated[Name, about("its entry in `benchmarks.yaml`")]
    levels: Annotated[
        Annotated[list[int | str], Field(min_length=1)] | None,
        about(
            "keeps problems of these levels only: `[5]` for MATH-500, `[2025]` for AIME; `null` "
            "keeps all",
            unit="levels",
        ),
    ] = None
    first: Annotated[
        Positive | None,
        about(
            "keeps this many problems from the start, after levels and filters; `null` keeps all",
            unit="problems",
        ),
    ] = None
    hints: Hints = False

    def size(self) -> int | None:
        """How many problems it has at most; None where only its files say."""
        return self.first


ProblemSet = Annotated[
    ArithmeticSet | KnightsSet | ReasoningGymSet | BenchmarkSet, Field(discriminator="source")
]


class Contamination(Strict):
    """When a training problem counts as a copy of a benchmark's problem.

    Every set that RL trains on is compared with every benchmark of the study;
    `metrics/contamination/pairs.csv` lists the overlaps. Texts are compared without layout and
    punctuation. A problem shorter than `ngram` words overlaps only with an equal one.
    """

    ngram: Annotated[
        Positive, about("length of the word sequences that are compared", unit="words")
    ] = 13
    share: Annotated[
        float,
        Field(gt=0.0, le=1.0),
        about(
            "two problems overlap if the training problem contains at least this share of the "
            "benchmark problem's word sequences",
            unit="share, 0 to 1",
        ),
    ] = 0.5
    drop: Annotated[
        bool, about("whether RL leaves out training problems that overlap; the paper keeps them")
    ] = False
