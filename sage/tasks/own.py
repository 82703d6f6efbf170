"""A task of the user's own: one class in a file beside the study, named `module:Class`.

The class yields problems, and settles answers. Its settings are typed and checked like those of a
guide; its file is an input of the rules that use it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sage.fields import Faults, Strict
from sage.named import Named
from sage.problems.fields import Title
from sage.problems.record import DataError, Problem

TASKS = Named(what="a task", methods={"problems": (), "settle": ("gold", "answer")})
"""Tasks of a user's own: this project's are in `sage.tasks.known`."""

_ROW = {"problem", "answer", "problem_id", "level", "hint", "cluster"}


class OwnTask(Strict):
    """Problems of a class of your own, which also says when they are solved."""

    source: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """the class, in a file beside the study or the Snakefile, or installed [`module:Class`]"""
    title: Title
    settings: dict[str, Any] = Field(default_factory=dict)
    """the settings of the class [values by name]"""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if faults := TASKS.faults(self.source, self.settings):
            raise Faults("source" + each if each.startswith(":") else each for each in faults)
        try:
            assert self.made is not None
        except (TypeError, ValueError) as error:
            raise Faults([f"settings: {error}"]) from error
        return self

    @cached_property
    def made(self) -> Any:
        """The object, to be asked for its problems."""
        return TASKS.find(self.source)(**self.settings)

    @property
    def hints(self) -> bool:
        """Whether the class says that its problems carry hints."""
        return bool(getattr(self.made, "hints", False))

    @property
    def strategy(self) -> Any:
        """How strategies are told apart; None where they are not."""
        return getattr(self.made, "strategy", None)

    def size(self) -> int | None:
        """How many problems it has; None where the class has no `count`."""
        count = getattr(self.made, "count", None)
        return count if isinstance(count, int) else None

    def problems(self, name: str) -> list[Problem]:
        """The set, called `name`. Raises DataError for rows that are no problems."""
        problems = []
        for number, row in enumerate(self.made.problems()):
            if not isinstance(row, Mapping) or not {"problem", "answer"} <= row.keys() <= _ROW:
                raise DataError(
                    f"{self.source}: problem {number} is {str(row)[:80]!r}; it must be a mapping "
                    f"with problem and answer, and may have {', '.join(sorted(_ROW)[1:])}",
                    "source",
                )
            texts = {"problem_id": f"{name}-{number:04d}", "level": ""} | dict(row)
            revision = json.dumps(self.settings, sort_keys=True)
            origin = {"kind": self.source, "source": self.source, "revision": revision}
            try:
                problems.append(
                    Problem(**{key: str(text) for key, text in texts.items()}, **origin)
                )
            except ValueError as error:
                raise DataError(f"{self.source}: {error}", "source") from error
        return problems
