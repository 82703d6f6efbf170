"""From a study's problem set to problems: the one place that knows the sources.

A source is imported where it is used: some need large libraries.
"""

from __future__ import annotations

from sage.problems.record import Problem


def draw_problems(name: str, settings: dict) -> list[Problem]:
    """The problems of the set `name`; `settings` are those of the study (`ProblemSet`).

    For a public data set they hold its entry as well (`ResolvedStudy.problem_set`).
    """
    options = {key: value for key, value in settings.items() if key not in ("source", "title")}
    source = settings["source"]
    if source == "arithmetic":
        from sage.problems.arithmetic import arithmetic_problems

        return arithmetic_problems(name, **options)
    if source == "knights":
        from sage.problems.knights import knights_problems

        return knights_problems(name, **options)
    if source == "reasoning_gym":
        from sage.problems.reasoning_gym import reasoning_gym_problems

        return reasoning_gym_problems(name, **options)
    if source == "benchmark":
        from sage.problems.benchmarks import benchmark_problems
        from sage.problems.entries import Benchmark
        from sage.problems.fetching import mirror_folder

        entry = Benchmark.model_validate(options.pop("entry"))
        return benchmark_problems(entry=entry, mirror=mirror_folder(), **options)
    raise ValueError(f"problem set {name!r}: unknown source {source!r}")
