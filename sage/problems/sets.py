"""The problem sets that a study can have: one type of settings for each source of problems.

A source's settings stand beside its generator; one more source is one more name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from sage.problems.arithmetic import ArithmeticSet
from sage.problems.entries import Benchmark, BenchmarkSet
from sage.problems.knights import KnightsSet
from sage.problems.own import FileSet, HubSet, OwnSet
from sage.problems.record import Problem
from sage.problems.route_sets import RoutesSet
from sage.problems.sum_sets import SumsSet

ProblemSet = Annotated[
    ArithmeticSet | SumsSet | RoutesSet | KnightsSet | BenchmarkSet | FileSet | HubSet,
    Field(discriminator="source"),
]
_SETS: TypeAdapter[Any] = TypeAdapter(ProblemSet)


def draw_problems(name: str, settings: Mapping[str, Any]) -> list[Problem]:
    """The problems of the set `name`; `settings` are those of the study (`ProblemSet`).

    For a public data set they hold its entry as well (`ResolvedStudy.problem_set`).
    """
    own = {key: value for key, value in settings.items() if key != "entry"}
    chosen = _SETS.validate_python(own)
    if not isinstance(chosen, BenchmarkSet):
        return chosen.problems(name)
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
