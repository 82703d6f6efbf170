"""What tests of the grader share: real files, answers in a block, their statuses."""

from __future__ import annotations

import os

import pytest

from sage.tasks import Grader

MIRROR = os.environ.get("SAGE_MIRROR")
needs_mirror = pytest.mark.skipif(
    MIRROR is None, reason="SAGE_MIRROR names no folder of benchmark files"
)


def block(answer: str) -> str:
    return f"so it is<end_working_out><SOLUTION>{answer}</SOLUTION>"


def statuses(grader: Grader, pairs: list[tuple[str, str]], **options: bool) -> list[str]:
    """The status of each (gold, answer)."""
    samples = [(block(answer), gold, "math") for gold, answer in pairs]
    return [verdict.status for verdict in grader.grade_many(samples, **options)]  # type: ignore[arg-type]
