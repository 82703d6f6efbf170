"""What tests of credit rules share: signals of a micro-batch, in one process and in two."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import torch
from torch.nn.functional import pad

from sage.method.credit import TokenSignals


def signals(
    log_probs: torch.Tensor, groups: list[int], rewards: list[float], **more: Any
) -> TokenSignals:
    """On policy unless said otherwise; centred advantages."""
    ids, earned = torch.tensor(groups), torch.tensor(rewards, dtype=log_probs.dtype)
    sizes = (ids[:, None] == ids[None, :]).sum(1)
    means = torch.stack([earned[ids == each].mean() for each in ids])
    settings = {
        "old_log_probs": log_probs,
        "entropies": torch.zeros_like(log_probs),
        "mask": torch.ones_like(log_probs),
        "advantages": earned - means,
        "rewards": earned,
        "groups": ids,
        "group_sizes": sizes,
        "rows": torch.arange(len(ids)),
    }
    return TokenSignals(log_probs=log_probs, **(settings | more))


class Meeting:
    """Hands each of two processes, here threads, the rows of both, padded to one length."""

    def __init__(self) -> None:
        self._barrier, self._rows = Barrier(2, timeout=20), [torch.empty(0)] * 2

    def everyone(self, process: int, rows: torch.Tensor) -> torch.Tensor:
        self._rows[process] = rows
        self._barrier.wait()
        longest = max(part.shape[-1] for part in self._rows)
        both = torch.cat(
            [pad(part, (0, longest - part.shape[-1])) if part.ndim > 1 else part
             for part in self._rows]
        )  # fmt: skip
        self._barrier.wait()
        return both


def assert_same_in_two_processes(rule: Any) -> None:
    """Completions of one prompt in two processes, padded to different lengths, are as in one."""
    torch.manual_seed(2)
    log_probs, old = -torch.rand(4, 3), -torch.rand(4, 3)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]])
    whole = signals(
        log_probs, [0] * 4, [1.0, 0.0, 0.0, 0.0],
        old_log_probs=old, mask=mask, entropies=torch.rand(4, 3), reference_log_probs=old,
        log_factors=torch.rand(4, 3), kl_coefficient=0.2,
    )  # fmt: skip
    meeting = Meeting()

    def run(process: int) -> torch.Tensor:
        part = {
            name: (value[2 * process :][:2, : 3 - process] if value.ndim > 1
                   else value[2 * process :][:2])
            if isinstance(value, torch.Tensor) else value
            for name, value in vars(whole).items()
        }  # fmt: skip
        part["everyone"] = partial(meeting.everyone, process)
        return rule.token_advantages(TokenSignals(**part))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, (0, 1))
    expected = rule.token_advantages(whole) * mask
    torch.testing.assert_close(first * mask[:2], expected[:2])
    torch.testing.assert_close(second * mask[2:, :2], expected[2:, :2])
