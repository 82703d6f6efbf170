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

    if name not in _PUBLIC:
        raise AttributeError(f"module 'sage' has no attribute {name!r}")
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(lacking(error, f"sage.{name}")) from error


def lacking(error: ModuleNotFoundError, asker: str) -> str:
    """What to install where `asker` finds a package missing that an extra of this one has."""
    from importlib import metadata

    package = (error.name or "").partition(".")[0].replace("_", "-")
    try:
        asked = [one.replace("'", '"') for one in metadata.requires("sage-rlvr") or ()]
    except metadata.PackageNotFoundError:
        asked = []
    extras = [one.partition('extra == "')[2].rstrip('"') for one in asked if _names(one) == package]
    if not any(extras):
        return str(error)
    wanted = "train,workflow" if extras[0] in ("train", "workflow") else extras[0]
    return (
        f"{asker} needs the package {package}, which is not installed in {sys.prefix}: "
        f"pip install 'sage-rlvr[{wanted}]', or `make` in a clone of the repository"
    )


def _names(requirement: str) -> str:
    """The package that a requirement is of."""
    end = next((at for at, sign in enumerate(requirement) if sign in "[<>=!~; "), None)
    return requirement[:end].lower()
