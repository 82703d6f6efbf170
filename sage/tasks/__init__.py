"""Tasks: what is asked, and when it is answered; one class each, with the grader that asks them."""

from sage.tasks.grader import Grader, Sample, Verdict
from sage.tasks.known import (
    ProblemSet,
    draw_problems,
    own_kinds,
    set_sums,
    stratum_of,
    task_files,
    task_of,
)
from sage.tasks.task import Task

__all__ = [
    "Grader",
    "ProblemSet",
    "Sample",
    "Task",
    "Verdict",
    "draw_problems",
    "own_kinds",
    "set_sums",
    "stratum_of",
    "task_files",
    "task_of",
]
