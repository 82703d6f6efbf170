"""Reading answers: what a text says, and whether it says the same as a gold answer.

Mathematics, words and choices are read as a whole (`exact`), who is a knight by `assignments`.
Whatever a text holds, the outcome is a status, never an exception, and the work is bounded. Which
reader a problem has, and the grader that asks it, is in `sage.tasks`.
"""

from __future__ import annotations

from typing import get_args

from sage.grading.exact import Settled

Status = Settled
STATUSES: tuple[Status, ...] = get_args(Settled)

MAX_ANSWER = 500
"""Longest answer to a problem of mathematics, in characters, that is looked at; a longer one that
is not the gold's very text is `unparsed`."""
