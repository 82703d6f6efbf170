"""Batches of rollouts as TRL hands them on: gathering, joining, laying out by prompt, filling up.

A planner (`sage.method.planners`) makes a generation of several batches, in which prompts may have
unequal numbers of rollouts.
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


def rows_by_prompt(prompts: torch.Tensor) -> torch.Tensor:
    """Where the rows of each prompt are, `[N, M]`, in their order, -1 behind the last.

    `prompts` `[R]` names the prompt of each row, from 0 to N - 1.
    """
    counts = torch.bincount(prompts)
    order = prompts.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    places = torch.arange(len(prompts), device=prompts.device) - starts[prompts[order]]
    table = prompts.new_full((len(counts), int(counts.max())), -1)
    table[prompts[order], places] = order
    return table


def laid_out(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """`values` `[R]` of rows in the shape of `table` (`rows_by_prompt`), NaN where it has none."""
    return values[table.clamp(min=0)].masked_fill(table < 0, torch.nan)


def take_rows(batch: Mapping[str, Any], rows: torch.Tensor | slice) -> Rollouts:
    """Those rows, in that order; what belongs to the batch is dropped."""
    return {key: value[rows] for key, value in batch.items() if key not in _OF_THE_BATCH}


def filled(batch: Mapping[str, Any], rows: int) -> Rollouts:
    """The batch with rows at its end that carry no loss, up to `rows`.

    They repeat the first row, without a token of its completion and with advantage 0, and belong to
    no group.
    """
    missing = rows - len(batch["advantages"])
    if not missing:
        return dict(batch)
    result = {
        key: torch.cat([value, value[:1].expand(missing, *value.shape[1:])])
        for key, value in batch.items()
    }
    for key, value in (("completion_mask", 0), ("advantages", 0.0), ("group", -1)):
        result[key][-missing:] = value
    return result


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
