"""The tasks that there are: those of this project, and those of a user by `module:Class`.

A task's settings, problems and checker stand together; one more task is a module beside this one
and a name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SerializeAsAny, TypeAdapter, WrapValidator

from sage.faults import validated
from sage.fields import Faults
from sage.problems.entries import Benchmark, BenchmarkSet
from sage.problems.record import Problem
from sage.tasks.arithmetic import ArithmeticSet
from sage.tasks.data import FileSet, HubSet, OwnSet
from sage.tasks.knights import Knights, KnightsSet
from sage.tasks.math import Math, Number
from sage.tasks.own import TASKS, OwnTask, own_task
from sage.tasks.routes import RoutesSet
from sage.tasks.sums import SumsSet
from sage.tasks.task import Task

GENERATED: dict[str, type[Task]] = {
    "arithmetic": ArithmeticSet,
    "sums": SumsSet,
    "routes": RoutesSet,
    "knights": KnightsSet,
}
"""Tasks with a generator, by the source of a problem set."""

KNOWN: dict[str, type[Task]] = {
    **{task.kind: task for task in (Math, Number, Knights, RoutesSet)},
    **{f"sage/{source}": task for source, task in GENERATED.items()},
}
"""By the kind and by the source of a problem's record."""


def task_of(kind: str, source: str = "") -> type[Task]:
    """The task of a problem with this kind and source; the source may say more.

    Raises ValueError for a kind that nobody knows, and for a class that is no task.
    """
    return KNOWN.get(source) or KNOWN.get(kind) or own_task(kind)


def stratum_of(problem: Problem) -> str:
    """A problem's level where its task makes so many problems of each level; else empty."""
    return problem.level if task_of(problem.kind, problem.source).stratified else ""


def own_kinds(problems: Iterable[Problem]) -> set[str]:
    """The tasks of a user's own among these problems."""
    return {problem.kind for problem in problems if problem.kind not in KNOWN}


def task_files(kinds: Iterable[str]) -> set[Path]:
    """Source files of tasks of a user's own: no module of this package imports them by name."""
    return set().union(*map(TASKS.files, kinds))


def _own_or_ours(written: Any, validate: Callable[[Any], Any]) -> Any:
    """A section whose source is `module:Class` is of that class."""
    source = written.get("source") if isinstance(written, Mapping) else None
    if isinstance(written, OwnTask) or not isinstance(source, str) or ":" not in source:
        return written if isinstance(written, OwnTask) else validate(written)
    task, faults = validated(OwnTask, written)
    if faults:
        raise Faults(faults)
    return task


_Ours = Annotated[
    ArithmeticSet | SumsSet | RoutesSet | KnightsSet | BenchmarkSet | FileSet | HubSet,
    Field(discriminator="source"),
]
ProblemSet = Annotated[
    SerializeAsAny[_Ours],
    WrapValidator(_own_or_ours, json_schema_input_type=_Ours | OwnTask),
]
"""The settings of a problem set, of one of the sources or of a user's own task."""

_SETS: TypeAdapter[Any] = TypeAdapter(ProblemSet)


def draw_problems(name: str, settings: Mapping[str, Any]) -> list[Problem]:
    """The problems of the set `name`; `settings` are those of the study (`ProblemSet`).

    For a public data set they hold its entry as well (`ResolvedStudy.problem_set`).
    """
    own = {key: value for key, value in settings.items() if key != "entry"}
    chosen = _SETS.validate_python(own)
    if not isinstance(chosen, BenchmarkSet):
        problems: list[Problem] = chosen.problems(name)
        return problems
    from sage.problems.benchmarks import benchmark_problems
    from sage.problems.fetching import mirror_folder

    options = chosen.model_dump(exclude={"source", "title"})
    entry = Benchmark.model_validate(settings["entry"])
    return benchmark_problems(entry=entry, mirror=mirror_folder(), **options)


def set_sums(settings: Any, entry: Benchmark | None) -> list[str]:
    """The SHA-256 of each data file behind a set, as far as they are known; `entry` is that of a
    benchmark.

    As a parameter of the job it makes edited data be read again.
    """
    if isinstance(settings, OwnSet):
        return settings.sums()
    if entry is None:
        return []
    from sage.problems.fetching import data_sums

    return data_sums(entry, settings.levels)
