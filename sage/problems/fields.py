"""What the settings of several sources of problems have in common."""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import Annotated, ClassVar

from pydantic import Field

from sage.fields import Positive, Seed, Strict, about
from sage.problems import record
from sage.problems.record import Draft, Problem, draw_different

Title = Annotated[str, about("its name in tables and figures")]
Count = Annotated[Positive, about("size of the set", unit="problems")]
GeneratorSeed = Annotated[
    Seed, about("seed of the generator; the same seed gives the same problems", unit="integer")
]
Split = Annotated[
    record.Split,
    about(
        "half of all problems, by a hash of their text: `train` and `test` never share a problem"
    ),
]
Hints = Annotated[
    bool,
    about(
        "whether each problem has a hint, the first steps of its solution; only "
        "`guided_retry` shows it to the policy"
    ),
]
People = Annotated[list[Annotated[int, Field(ge=2, le=8)]], Field(min_length=1)]
"""Numbers of people in puzzles."""


class Generated(Strict):
    """A set of problems from a generator of this project."""

    source: str
    title: Title
    count: Count
    seed: GeneratorSeed
    split: Split

    kind: ClassVar[str]

    @abstractmethod
    def draft(self, rng: random.Random, made: int) -> Draft | None:
        """A problem, or none, of any split; `made` are in the set so far."""

    def size(self) -> int:
        """How many problems it has."""
        return self.count

    def problems(self, name: str) -> list[Problem]:
        """The set, called `name`: different problems of one split.

        Raises ValueError if the settings do not admit that many.
        """
        rng = random.Random(f"{self.source}/{self.seed}")
        return draw_different(
            name,
            lambda made: self.draft(rng, made),
            self.count,
            self.split,
            kind=self.kind,
            source=f"sage/{self.source}",
            revision=f"seed {self.seed}",
        )


def check_order(min_terms: int, max_terms: int) -> None:
    """Raise ValueError unless the two are in order."""
    if max_terms < min_terms:
        raise ValueError(f"max_terms {max_terms} is below min_terms {min_terms}")
