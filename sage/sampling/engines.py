"""The engines by the names that studies use; one is imported only when it is chosen."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def engine(name: str) -> Any:
    """The engine that studies call `name`: the module `sage.sampling.{name}_engine`.

    `open_sampler(base, policy, tokenizer, settings, device, longest_prompt=None)` gives a `Sampler`
    of the policy trained from the checkpoint `base` (None: `base` itself) on `device`; `settings`
    are `Draws`, and `longest_prompt` (tokens) bounds the memory of vLLM. `versions()` are those of
    the packages that decide, beside our own code, what is drawn; it raises ModuleNotFoundError,
    with what to do, where the engine's package is not installed.
    """
    return import_module(f"sage.sampling.{name}_engine")
