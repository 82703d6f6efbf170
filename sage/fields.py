"""The ground of every type that people write in YAML: what a field means, numbers, names.

Every field says what it means in its annotation, so that one text serves the tables of
config/README.md and the schemas that editors use (`sage.tools.settings_reference` writes both):

    steps: Annotated[Positive, about("length of training", unit="optimizer steps")]

The docstring of a type stands above its table. Both are Markdown for people who write YAML.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

BASE = "base"
"""The row of the policy before RL: the SFT checkpoint."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""What a name can be, so that it can also name a folder."""

REPOSITORY = r"^[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*$"
"""A repository of the hub: owner/name, of which neither leads out of a folder."""

Name = Annotated[str, Field(pattern=NAME)]
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what NumPy takes


def about(meaning: str, *, unit: str | None = None, trl: str | None = None) -> Any:
    """What a field means: the part of its annotation that people read.

    `meaning` is one or two short sentences without a full stop at the end. `unit` is that of a
    number (tokens, nats, "share, 0 to 1"); other fields may leave it out, and the reference
    then says what the type allows (true or false, one of several words, a section). `trl` is
    the name of the same setting in TRL's configurations, if it has one. The default stays with
    the field: `rollouts: Annotated[int, about(...)] = 8`.
    """
    extra: JsonDict = {key: text for key, text in (("unit", unit), ("trl", trl)) if text}
    return Field(description=meaning, json_schema_extra=extra or None)


class Strict(BaseModel):
    """Unknown keys, values of another type and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
