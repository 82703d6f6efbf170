"""What things are called where people read them.

Shared by tables, figures and the page, so that a row has one name everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sage.study import BASE, ResolvedStudy

AVERAGE = "average"
"""The column group of an accuracy table that averages over benchmarks."""


def row_title(study: ResolvedStudy, algorithm: str) -> str:
    """What a row is called where people read it."""
    return "Base" if algorithm == BASE else study.algorithms[algorithm].title


def benchmark_titles(study: ResolvedStudy) -> dict[str, str]:
    """Title of every problem set, and of the average."""
    return {AVERAGE: "Average"} | {name: set_.title for name, set_ in study.study.problems.items()}


def exhibit_heading(study: ResolvedStudy, exhibit: str) -> str:
    """How a caption begins: the exhibit's title and that of its model."""
    shown = study.study.exhibits[exhibit]
    return f"{shown.title}. {study.model(shown.model).title}"


def interval_name(study: ResolvedStudy) -> str:
    """What the intervals of pass@k are."""
    if len(study.study.seeds) > 1:
        return "95 % interval: the variances of problems and of training runs added"
    return "95 % interval over problems (BCa bootstrap)"


def seeds_said(study: ResolvedStudy) -> str:
    """What the study's training seeds allow its intervals to say, as a sentence."""
    seeds = study.study.seeds
    if len(seeds) == 1:
        return "There is one training seed, so they say nothing about how training runs differ."
    return f"Rows are pooled over {len(seeds)} training seeds."


def problems_worth(sizes: Mapping[str, int]) -> str:
    """What one problem is worth in points, from the number of problems by benchmark title."""
    if not sizes:
        return ""
    if len(sizes) > 1 and len(set(sizes.values())) == 1:
        count = next(iter(sizes.values()))
        return f"One problem is worth {100 / count:.2g} points ({count} problems per benchmark)."
    each = [f"{100 / n:.2g} points on {title} ({n} problems)" for title, n in sizes.items()]
    return f"One problem is worth {listed(each)}."


def listed(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; there must be at least one item."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
