"""Batches of rollouts as TRL hands them on: choosing groups and joining batches.

For dynamic sampling (DAPO, arXiv 2503.14476): groups that a filter does not keep are replaced by
groups of other prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch.nn.functional import pad

_LEFT_PADDED = ("prompt_ids", "prompt_mask")
_OF_THE_BATCH = ("num_items_in_batch",)

Rollouts = dict[str, Any]


def take_groups(batch: Mapping[str, Any], groups: torch.Tensor, rollouts: int) -> Rollouts:
    """The rows of the given groups `[M]`, in that order; what belongs to the batch is dropped."""
    offsets = torch.arange(rollouts, device=groups.device)
    rows = (groups[:, None] * rollouts + offsets).flatten()
    return {key: value[rows] for key, value in batch.items() if key not in _OF_THE_BATCH}


def gathered(
    batch: Mapping[str, Any], accelerator: Accelerator, padding: Mapping[str, float]
) -> Rollouts:
    """The rows of all processes in their order, padded as by `join`, on each of them."""
    rows = {}
    for key, value in batch.items():
        if key not in _OF_THE_BATCH:
            padded = value
            if value.ndim > 1:
                padded = accelerator.pad_across_processes(
                    value, dim=1, pad_index=padding.get(key, 0), pad_first=key in _LEFT_PADDED
                )
            rows[key] = accelerator.gather(padded)
    return rows


def join(parts: Sequence[Mapping[str, Any]], padding: Mapping[str, float]) -> Rollouts:
    """Rows of several batches in one, padded to a common length.

    Prompts are padded on the left, the rest on the right, with `padding[key]` or 0. Raises
    ValueError if the parts differ in their keys.
    """
    keys = set(parts[0])
    if any(set(part) != keys for part in parts):
        raise ValueError(f"batches with different keys: {[sorted(part) for part in parts]}")
    return {key: _joined(key, [part[key] for part in parts], padding.get(key, 0)) for key in keys}


def _joined(key: str, values: Sequence[torch.Tensor], fill: float) -> torch.Tensor:
    if values[0].ndim == 1:
        return torch.cat(list(values))
    longest = max(value.shape[1] for value in values)
    widths = [longest - value.shape[1] for value in values]
    sides = [(width, 0) if key in _LEFT_PADDED else (0, width) for width in widths]
    return torch.cat([pad(v, side, value=fill) for v, side in zip(values, sides, strict=True)])
