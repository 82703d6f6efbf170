"""What a setting means: the part of a field's annotation that people read.

It stands below everything that has settings, so that a guide or an advantage can say what its own
mean in the same form as the sections of a study.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field


def about(meaning: str, *, unit: str | None = None, trl: str | None = None) -> Any:
    """What a field means, for its annotation.

    `meaning` is one or two short sentences without a full stop at the end. `unit` is that of a
    number (tokens, nats, "share, 0 to 1"); other fields may leave it out, and the reference
    then says what the type allows (true or false, one of several words, a section). `trl` is
    the name of the same setting in TRL's configurations, if it has one. The default stays with
    the field: `rollouts: Annotated[int, about(...)] = 8`.
    """
    extra: dict[str, Any] = {
        key: text for key, text in (("unit", unit), ("trl", trl)) if text is not None
    }
    return Field(description=meaning, json_schema_extra=extra or None)
