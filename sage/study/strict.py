"""The ground of every type of a study: strict records and the numbers and names they hold.

Every field says what it means in its annotation, so that one text serves the tables of
config/README.md and the schemas that editors use (`sage.study.reference` writes both):

    steps: Annotated[Positive, about("length of training", unit="optimizer steps")]

The docstring of a type stands above its table. Both are Markdown for people who write YAML.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from sage.fields import about

__all__ = [
    "BASE",
    "Name",
    "NonNegativeFloat",
    "Positive",
    "PositiveFloat",
    "Seed",
    "Share",
    "Strict",
    "about",
]

BASE = "base"
"""The row of the policy before RL: the SFT checkpoint."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what NumPy takes


class Strict(BaseModel):
    """Unknown keys, values of another type and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
