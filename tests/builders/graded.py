"""Graded samples and problems, by their shortest description."""

from __future__ import annotations

import pandas as pd

from sage.problems.record import Problem


def samples(statuses: dict[str, str], texts: dict[str, list[str]] | None = None) -> pd.DataFrame:
    """A graded sample per letter: c correct, w wrong."""
    rows = [
        {
            "problem_id": problem,
            "eval_seed": 0,
            "sample_index": index,
            "completion": texts[problem][index] if texts else f"{problem}/{index}",
            "answer": "1",
            "status": "correct" if letter == "c" else "wrong",
            "n_tokens": 2,
            "finish_reason": "stop",
        }
        for problem, letters in statuses.items()
        for index, letter in enumerate(letters)
    ]
    return pd.DataFrame(rows)


def problem(name: str) -> Problem:
    return Problem(name, f"Calculate {name}.", "1", "math", "", "test", "1")
