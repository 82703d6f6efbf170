"""Random models of two small layers, and their checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sage.policies import build_tiny, save_checkpoint, train_tokenizer
from sage.study import Architecture


def tiny(**changes: int) -> Architecture:
    """Some 0.03 M weights."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "layers": 2, "heads": 2}
    sizes |= {"key_value_heads": 1, "max_positions": 128, "vocab_size": 300}
    return Architecture(**(sizes | changes))


def write_tiny(
    folder: Path, texts: Iterable[str], seed: int = 0, spread: float = 1.0, **changes: int
) -> Path:
    """A checkpoint in `folder`, its tokens made from `texts`.

    A `spread` above 1 makes tokens differ in probability.
    """
    architecture = tiny(**changes)
    tokenizer = train_tokenizer(texts, architecture.vocab_size)
    model: Any = build_tiny(architecture, tokenizer, seed)
    model.model.norm.weight.data *= spread
    save_checkpoint(model, tokenizer, folder)
    return folder
