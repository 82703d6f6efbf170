"""Names for readers: methods, benchmarks, intervals.

Tables, figures and the page share them, so that a method has one name everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sage.study import BASE, Algorithm, ResolvedStudy

AVERAGE = "average"
"""The column group of an accuracy table that averages over benchmarks."""


def method_title(study: ResolvedStudy, algorithm: str) -> str:
    """The title of a method, or of the base."""
    return "Base" if algorithm == BASE else study.algorithms[algorithm].title


def is_control(algorithm: Algorithm) -> bool:
    """Whether the method is rewarded for no right answer: a control, which no one would adopt.

    A reward that says neither `control` nor `penalty` counts as one for right answers.
    """
    made = [reward.made for reward in algorithm.rewards]
    controls = [getattr(r, "control", False) for r in made if not getattr(r, "penalty", False)]
    return bool(controls) and all(controls)


def benchmark_titles(study: ResolvedStudy) -> dict[str, str]:
    """Title of every problem set, and of the average."""
    return {AVERAGE: "Average"} | {name: set_.title for name, set_ in study.study.problems.items()}


def exhibit_heading(study: ResolvedStudy, exhibit: str) -> str:
    """The start of a caption: the exhibit's title and the model's title."""
    settings = study.study.exhibits[exhibit]
    return f"{settings.title}. {study.model(settings.model).title}"


def interval_name(runs: Sequence[int]) -> str:
    """The kind of interval of pass@k of methods with these numbers of training runs, ascending."""
    if runs[-1] <= 1:
        return "95 % interval over problems (BCa bootstrap)"
    alone = "; of problems alone where there is one run" if runs[0] == 1 else ""
    return f"95 % interval: the variances of problems and of training runs added{alone}"


def seeds_said(runs: Sequence[int]) -> str:
    """What these numbers of training runs, ascending, mean for intervals, as a sentence.

    It is empty where nothing was trained.
    """
    if runs[-1] == 0:
        return ""
    uncovered = "the intervals do not cover variation between training runs"
    if runs[-1] == 1:
        return f"Each method was trained once, so {uncovered}."
    if len(runs) == 1:
        return f"Methods are pooled over {runs[0]} training seeds."
    return f"Methods are pooled over their training seeds, {runs[0]} to {runs[-1]} of them" + (
        f"; where there is one, {uncovered}." if runs[0] == 1 else "."
    )


def problems_worth(sizes: Mapping[str, int]) -> str:
    """The weight of one problem in points, from the number of problems by benchmark title."""
    if not sizes:
        return ""
    worth = {n: f"{float(f'{100 / n:.2g}'):g} points" for n in sizes.values()}
    counts = {n: f"{n} problem{'s' * (n > 1)}" for n in worth}
    if len(sizes) > 1 and len(worth) == 1:
        (n,) = worth
        return f"One problem is worth {worth[n]} ({counts[n]} per benchmark)."
    each = [f"{worth[n]} on {title} ({counts[n]})" for title, n in sizes.items()]
    return f"One problem is worth {listed(each)}."


def listed(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``. There must be at least one item."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
