"""What the settings of several sources of problems have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sage.fields import Positive, Seed, about
from sage.problems import record

Title = Annotated[str, about("its name in tables and figures")]
Count = Annotated[Positive, about("size of the set", unit="problems")]
GeneratorSeed = Annotated[
    Seed,
    about("seed of the generator; the same seed gives the same problems", unit="integer"),
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
        "whether each problem carries a hint, the first steps of its solution, which "
        "`guided_retry` draws under and nothing else shows"
    ),
]
People = Annotated[list[Annotated[int, Field(ge=2, le=8)]], Field(min_length=1)]
"""Numbers of people in puzzles."""


def check_order(min_terms: int, max_terms: int) -> None:
    """Raise ValueError unless the two are in order."""
    if max_terms < min_terms:
        raise ValueError(f"max_terms {max_terms} is below min_terms {min_terms}")
