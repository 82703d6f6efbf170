"""The paper's claims as typed tests on measured files, read from `config/claims.yaml`.

Each test says which measurement, which rows, which way. What it finds comes from
`sage.claims.evidence`; what follows from that is decided in `sage.claims.verdicts`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from sage.fields import Name, Positive, PositiveFloat, Strict

Direction = Literal["up", "down", "same", "not up"]


class Comparison(Strict):
    """A difference, `row` minus `other`, that goes one way. `exhibit` lends model and benchmarks.

    `up` and `down` say that the difference is clear. `same` says that it lies within `margin`,
    `not up` that it is below `margin`, in every place: absence of evidence is no evidence of
    absence, and one place that keeps to it says nothing of the others.
    """

    exhibit: Name
    row: Name
    other: Name
    direction: Direction
    margin: PositiveFloat | None = None

    @model_validator(mode="after")
    def _margin_where_needed(self) -> Comparison:
        if (self.direction in ("same", "not up")) != (self.margin is not None):
            raise ValueError(
                f"direction {self.direction!r}: margin belongs to 'same' and 'not up', and only "
                "to them"
            )
        return self


class PassAtK(Comparison):
    """pass@k, problem by problem (metrics/comparisons.parquet)."""

    test: Literal["pass_at_k"]
    k: Positive | Literal["largest"]
    benchmarks: Annotated[list[Name], Field(min_length=1)] | None = None


class PatternShare(Comparison):
    """The share of correct solutions that show a pattern (the exhibit's metrics)."""

    test: Literal["pattern"]
    pattern: Name


class Tail(Comparison):
    """The share of responses above the base's 95th percentile of perplexity."""

    test: Literal["tail"]


class Recorded(Comparison):
    """A quantity of the training histories, over the whole run or a third of it.

    `relative` compares ratios instead of differences.
    """

    test: Literal["history"]
    key: Name
    stage: Literal["early", "mid", "late"] | None = None
    relative: bool = False


class StepTime(Comparison):
    """The time of learning from the same completions, as a ratio (the exhibit's metrics)."""

    test: Literal["step_time"]


AnyTest = Annotated[
    PassAtK | PatternShare | Tail | Recorded | StepTime, Field(discriminator="test")
]


class Claim(Strict):
    """What the paper claims, where, and the tests that all must hold."""

    claim: str
    source: str
    tests: Annotated[list[AnyTest], Field(min_length=1)]


_LEDGER = TypeAdapter(dict[Name, Claim])


def load_claims(path: Path) -> dict[str, Claim]:
    """The ledger by the claims' names. Raises ValueError naming the file, the key and the fault."""
    try:
        return _LEDGER.validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML ({error})") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']} (seen: {fault['input']!r})"
            for fault in error.errors()
        )
        raise ValueError(f"{path}: {faults}") from error
