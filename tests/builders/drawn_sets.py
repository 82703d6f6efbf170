"""Problem sets drawn from settings alone, for tests of sources and of what problems go through."""

from __future__ import annotations

from typing import Any

from sage.problems.record import Problem
from sage.tasks import draw_problems


def sums(name: str = "sums", **settings: Any) -> list[Problem]:
    """Sums and differences."""
    return draw_problems(name, {"source": "arithmetic", "title": "", **settings})


def puzzles(
    name: str, people: list[int], per_size: int, seed: int, split: str, **settings: Any
) -> list[Problem]:
    """Knights and Knaves."""
    asked = {"people": people, "per_size": per_size, "seed": seed, "split": split}
    return draw_problems(name, {"source": "knights", "title": "", **asked, **settings})
