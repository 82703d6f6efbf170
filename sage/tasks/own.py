"""A task of the user's own: one class in a file beside the study, named `module:Class`.

The class yields problems, and settles answers. Its settings are typed and checked like those of a
guide; its file is an input of the rules that use it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from inspect import getattr_static
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sage.fields import Faults, Strict
from sage.grading import STATUSES, Status
from sage.named import Named
from sage.problems.fields import Title
from sage.problems.record import DataError, Problem
from sage.tasks.task import Task

TASKS = Named(what="a task", methods={"problems": (), "settle": ("gold", "answer")})
"""Tasks of a user's own: this project's are in `sage.tasks.known`."""

_ROW = {"problem", "answer", "problem_id", "level", "hint", "cluster"}


def own_task(kind: str) -> type[Task]:
    """The class `kind` with the defaults of a task, and a `settle` that gives statuses alone.

    Raises ValueError for what is no task.
    """
    found: Any = TASKS.find(kind)
    return _with_defaults(found, kind)


@cache
def _with_defaults(made: type[Any], kind: str) -> type[Task]:
    if not isinstance(getattr_static(made, "settle"), staticmethod):
        raise ValueError(
            f"{kind!r}: settle must be a @staticmethod that takes the gold answer and the answer; "
            "it does not see the settings, so put what decides into the gold answer"
        )
    parts = {"kind": kind, "settle": staticmethod(partial(_settled, made.settle, kind))}
    return type(made.__name__, (made,) if issubclass(made, Task) else (made, Task), parts)


def _settled(settle: Callable[[str, str], Any], kind: str, gold: str, answer: str) -> Status:
    """What a user's checker says, which may also be True or False. Raises ValueError for all else,
    and where it fails: a verdict in its place would be made up."""
    try:
        said = settle(gold, answer)
    except Exception as error:
        raise ValueError(
            f"{kind}.settle fails on the gold answer {gold[:80]!r} and the answer {answer[:80]!r} "
            f"({type(error).__name__}: {error}); it must take any text, and say 'unparsed' of what "
            "it cannot read"
        ) from error
    status = ("wrong", "correct")[said] if isinstance(said, bool) else said
    if status not in STATUSES:
        raise ValueError(f"{kind}.settle says {said!r}; it must be a bool or one of {STATUSES}")
    return status


class OwnTask(Strict):
    """Problems of a class of your own, which also says when they are solved."""

    source: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """the class, in a file beside the study or the Snakefile, or installed [`module:Class`]"""
    title: Title
    settings: dict[str, Any] = Field(default_factory=dict)
    """the settings of the class [values by name]"""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            own_task(self.source)
        except ValueError as error:
            raise Faults([f"source: {error}"]) from error
        if faults := TASKS.faults(self.source, self.settings):
            raise Faults(faults)
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
