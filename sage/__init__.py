"""Reinforcement learning from verifiable rewards with a shaped KL anchor.

    from sage import Grader, SageTrainer, Shaping

For a script of your own: `sage.training` (SageTrainer in place of TRL's GRPOTrainer), `sage.method`
(guides, anchors, advantages, credit, rewards and planners: what a method can choose),
`sage.grading` (the grader), `sage.sampling` (completions of prompts) and `sage.evaluation` (pass@k
with intervals). The other packages are the workflow's: they read the repository's `config` and
`reports`.
"""

import sys
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036 - an older one can read up to here
    here = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(f"Python 3.11 or newer is needed; this is {here} ({sys.executable})")

_PUBLIC = {
    "Grader": "sage.tasks",
    "SageTrainer": "sage.training.trainer",
    "Shaping": "sage.training.shaping",
}
"""What `from sage import` gives, each imported when it is asked for: SageTrainer needs torch."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from sage.runtime.extras import lacking

    if name not in _PUBLIC:
        raise AttributeError(f"module 'sage' has no attribute {name!r}")
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(lacking(error, f"sage.{name}")) from error
