"""What tests of advantages and planners share: groups of rollouts."""

from __future__ import annotations

import math
from typing import Any

import torch

from sage.method.planners import Drawn

NAN = math.nan
REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
RAGGED = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, math.nan, math.nan]])


def assert_missing_rollouts_do_not_count(advantage: Any) -> None:
    """The others have the advantages of a smaller group, the missing ones 0.

    The same holds for those that no reward function scored, wherever they stand.
    """
    got = advantage.advantages(RAGGED)
    torch.testing.assert_close(got[:1], advantage.advantages(RAGGED[:1]))
    torch.testing.assert_close(got[1:, :3], advantage.advantages(RAGGED[1:, :3]))
    assert got[1, 3:].tolist() == [0.0, 0.0]
    order = [3, 0, 4, 2, 1]
    torch.testing.assert_close(advantage.advantages(RAGGED[:, order]), got[:, order])
    nothing = torch.full((1, 5), NAN)
    with_nothing = advantage.advantages(torch.cat([RAGGED, nothing]))
    torch.testing.assert_close(with_nothing, torch.cat([got, torch.zeros(1, 5)]))


def drawn(correct: list[list[float]], rollouts: int = 4, draws: int = 1, guided: Any = None) -> Any:
    """What was drawn of prompts with these results; NaN where there is no completion."""
    table = torch.tensor(correct)
    under = torch.zeros_like(table, dtype=torch.bool)
    if guided is not None:
        under = torch.tensor(guided)
    return Drawn(~table.isnan(), table, table, under, len(correct), rollouts, draws)
