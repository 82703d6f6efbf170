"""The ground of every type that people write in YAML: what a field means, numbers, names.

Every field says what it means in the text below it, for the schemas that editors use
(`workflow.settings_docs` writes them) and the pages that the site makes of them:

    steps: Positive
    \"\"\"length of training [optimizer steps; TRL: max_steps]\"\"\"

The meaning is one or two short sentences without a full stop at the end. In the brackets stand the
unit of a number (tokens, nats, "share, 0 to 1"; fields that are none may leave it out) and, after
`TRL:`, the name of the same setting in TRL's configurations, if it has one. A type of many fields
says it once, with `about`. The docstring of a type stands above its table. All are Markdown for
people who write YAML.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from pydantic.config import JsonDict

BASE = "base"
"""The name of the policy before RL among methods: the SFT checkpoint."""

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""What a name can be, so that it can also name a folder."""

REPOSITORY = r"^[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*$"
"""A repository of the hub: owner/name, of which neither leads out of a folder."""

Name = Annotated[str, Field(pattern=NAME)]
Positive = Annotated[int, Field(ge=1, le=10**9)]  # more is a slip: no run ends
NonNegative = Annotated[int, Field(ge=0, le=10**9)]
Size = Annotated[int, Field(ge=1, le=10**5)]  # of what a job holds in memory at once
Share = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what NumPy takes


_SAID = re.compile(
    r"(?P<meaning>.*?)(?: \[(?P<unit>(?!TRL: )[^\[\];]+)?(?:; )?(?:TRL: (?P<trl>\w+))?\])?"
)
"""A meaning and the brackets behind it, which hold a unit, TRL's name or both."""


def about(meaning: str, *, unit: str | None = None, trl: str | None = None) -> Any:
    """What the fields of a type mean, as a part of its annotation."""
    extra: JsonDict = {key: text for key, text in (("unit", unit), ("trl", trl)) if text}
    return Field(description=meaning, json_schema_extra=extra)


class Faults(ValueError):
    """What is wrong inside a section, as found by a validator of the whole section.

    Each message begins with the key within the section: `seeds[1]: 3 occurs twice`, or with a
    colon if it concerns the section itself.
    """

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = list(messages)
        super().__init__("; ".join(message.removeprefix(": ") for message in self.messages))


ALSO_CALLED = {
    "gpu": "cuda",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "huggingface": "hub",
    "hf": "hub",
    "local": "folder",
    "csv": "file",
    "json": "file",
    "k": "primary_k",
    "r": "rank",
    "lr": "learning_rate",
    "readings": "open_choices",
    "free_rivals": "cost_free_baselines",
}
"""What people write for one of our words that is spelt in another way, and words of earlier
versions."""


def nearest(word: str, allowed: Iterable[str], inside: Sequence[str] = ()) -> str:
    """The end of a message about `word`: its nearest match, if any, and all that is allowed.

    `inside` are the places in sections further down that have a setting of this name.
    """
    words = sorted(map(str, allowed))
    meant = ALSO_CALLED.get(word)
    near = [*inside] or difflib.get_close_matches(word, words, 1, cutoff=0.5)
    match = [meant] if meant in words else [word] if word in words else near
    start = f"did you mean {' or '.join(map(repr, match))}? Allowed" if match else "allowed"
    return f"; {start}: {', '.join(words) or 'none'}"


def unknown(name: str, kind: str, info: ValidationInfo) -> Iterator[str]:
    """A message if `name` is none of the names of a `kind` of thing that the context knows.

    The validation context maps kinds, such as `algorithm`, to a phrase and the names that there
    are. Without a context any name will do: what jobs are handed was checked before.
    """
    what, known = (info.context or {}).get(kind, ("", None))
    if known is not None and name not in known:
        yield f"{name!r} is not {what}{nearest(name, known)}"


def known(kind: str) -> Any:
    """The part of an annotation by which a name must be one of a `kind` of thing."""

    def check(name: str, info: ValidationInfo) -> str:
        for message in unknown(name, kind, info):
            raise ValueError(message)
        return name

    return AfterValidator(check)


def _all_different(values: Sequence[Any]) -> Sequence[Any]:
    twice = [i for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise Faults(f"[{index}]: {values[index]!r} occurs twice" for index in twice)
    return values


Distinct = AfterValidator(_all_different)
"""The part of an annotation by which no value of a list may occur twice."""


def _explain(schema: JsonDict, kind: type[BaseModel]) -> None:
    """Have a JSON schema say what the fields of a type mean."""
    properties: Any = schema.get("properties", {})
    for name, field in kind.model_fields.items():
        if name in properties and isinstance(field.json_schema_extra, dict):
            properties[name] |= {"description": field.description, **field.json_schema_extra}


class Strict(BaseModel):
    """Unknown keys, values of another type and numbers that are not finite are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_extra=_explain,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Split the text below each field into its meaning, unit and name in TRL."""
        for field in cls.model_fields.values():
            if field.description and field.json_schema_extra is None:
                said = _SAID.fullmatch(" ".join(field.description.split()))
                parts = said.groupdict() if said else {}
                field.description = parts.pop("meaning", None)
                field.json_schema_extra = {key: text for key, text in parts.items() if text}
