"""reasoning-gym's scorers in a process of its own: `python -m sage.grading.reasoning_gym_worker`.

Some scorers evaluate the answer as Python or hand it to sympy, which does. Such an answer is looked
at first and must hold nothing but what an answer of its task needs: no call of anything but
mathematical functions, no attribute, no text. Whatever a scorer does, this process refuses to write
files, to start others and to open connections.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from sage.grading.serving import Judge, Outcome, serve_standard_streams
from sage.problems.reasoning_gym import Gold, dataset_of

_LIST = re.compile(r"[\w\s,'\"\[\].-]*")
"""A list in Python's form: without parentheses nothing is called."""

_FORMULA = re.compile(r"[A-Za-z0-9\s+*/^(),.-]*")
_NAME = re.compile(r"[A-Za-z]+")
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z]")
_FUNCTIONS = {
    *("sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "pi", "Abs"),
}


def is_list(answer: str) -> bool:
    """Whether evaluating `answer` calls nothing."""
    return _LIST.fullmatch(answer) is not None


def is_formula(answer: str) -> bool:
    """Whether `answer` holds only numbers, operators, single letters and known functions.

    `Integral(...)`, with which sympy's own solution of a few integrals ends, solves nothing, and is
    not among them.
    """
    return (
        _FORMULA.fullmatch(answer) is not None
        and _ATTRIBUTE.search(answer) is None
        and all(len(name) == 1 or name in _FUNCTIONS for name in _NAME.findall(answer))
    )


EVALUATING: dict[str, Callable[[str], bool]] = {
    "binary_matrix": is_list,
    "n_queens": is_list,
    "spiral_matrix": is_list,
    "string_insertion": is_list,
    "countdown": is_formula,
    "intermediate_integration": is_formula,
    "polynomial_multiplication": is_formula,
    "puzzle24": is_formula,
    "simple_integration": is_formula,
}
"""Tasks whose scorers evaluate the answer, with what it must be."""

_FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "ctypes.dlopen", "shutil.rmtree"),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.symlink", "os.link"),
    "os.truncate",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's audit hook of this process; raises PermissionError."""
    writes = event == "open" and bool(arguments[2] & _WRITING)
    if event in _FORBIDDEN or writes:
        raise PermissionError(f"a scorer may not do this: {event}")


@lru_cache(maxsize=1024)
def _entry(gold: str) -> tuple[Gold, dict[str, Any]]:
    parsed = Gold.parse(gold)
    return parsed, parsed.entry()


def prepare(gold: str) -> Judge:
    """The judge of answers to the problem of that gold answer."""
    try:
        parsed, entry = _entry(gold)
    except Exception:  # whatever a generator raises
        return lambda answer: "gold_unparsed"
    return partial(judge, parsed, copy.deepcopy(entry))


def judge(gold: Gold, entry: dict[str, Any], answer: str) -> Outcome:
    """What the task's scorer makes of `answer`; never an exception."""
    if not EVALUATING.get(gold.task, lambda _: True)(answer):
        return "unparsed"
    try:
        dataset = dataset_of(gold.task, gold.settings, gold.seed, gold.size)
        score = float(dataset.score_answer(answer, entry))
    except MemoryError:
        return "timeout"
    except Exception:
        return "unparsed"
    return "correct" if score >= gold.correct_from - 1e-9 else "wrong"


def _warm_up() -> None:
    import reasoning_gym
    import sympy.parsing.sympy_parser

    assert reasoning_gym.create_dataset
    sympy.parsing.sympy_parser.parse_expr("x + 1")
    sys.addaudithook(refuse)


if __name__ == "__main__":
    serve_standard_streams(_warm_up, prepare)
