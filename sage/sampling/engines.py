"""The engines by the names that studies use; one is imported only when it is chosen.

An engine is a module `sage.sampling.{name}_engine` with a function `open_sampler(base, policy,
tokenizer, settings, device, longest_prompt)` that returns a `Sampler`, and a function `versions()`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from sage.sampling.interface import Sampler
from sage.study import Draws


def engine_module(name: str) -> str:
    """The module of the engine that studies call `name`."""
    return f"sage.sampling.{name}_engine"


def engine_versions(name: str) -> dict[str, str]:
    """Versions of the packages that decide, beside our own code, what an engine draws.

    Raises ModuleNotFoundError, with what to do, where the engine's package is not installed.
    """
    versions: dict[str, str] = import_module(engine_module(name)).versions()
    return versions


def open_sampler(
    base: Path,
    policy: Path | None,
    tokenizer: PreTrainedTokenizerBase,
    settings: Draws,
    device: str,
    longest_prompt: int | None = None,
) -> Sampler:
    """The engine that `settings` names, holding the policy trained from `base` (None: `base`).

    `longest_prompt` (tokens) bounds the memory of vLLM.
    """
    sampler: Sampler = import_module(engine_module(settings.engine)).open_sampler(
        base, policy, tokenizer, settings, device, longest_prompt
    )
    return sampler
