"""What tests of the theory share: random instances on trees of tokens that are enumerated whole.

All is float64: where two quantities are said to be equal they agree to rounding.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sage.theory.spaces import TokenTree, sequence_log_probs

TREES = [TokenTree(5, 1), TokenTree(2, 3), TokenTree(4, 2), TokenTree(3, 3)]
each_tree = pytest.mark.parametrize("tree", TREES, ids=str)
close = partial(torch.testing.assert_close, rtol=0.0, atol=1e-12)


def logs(*values: float) -> torch.Tensor:
    return torch.log(torch.tensor(values, dtype=torch.float64))


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Instance:
    """A random reference, guide (one factor per token, in [0.6, 1.4]) and verifier on a tree."""

    def __init__(self, tree: TokenTree, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        shape = (tree.n_states, tree.vocabulary)
        normal = partial(torch.randn, generator=draw, dtype=torch.float64)
        self.tree = tree
        self.reference = torch.log_softmax(normal(shape), dim=-1)
        self.guide = torch.log(0.6 + 0.8 * torch.rand(shape, generator=draw).double())
        self.anchor = self.reference + self.guide
        self.state_guide = self.guide[:, :1].expand(shape)
        self.logits = normal(shape)
        self.policy = torch.log_softmax(self.logits, dim=-1)
        self.other = normal(shape)
        self.reward = (torch.rand(tree.n_completions, generator=draw) < 0.4).double()
        self.reward[:2] = numbers(0.0, 1.0)

    def whole(self, table: torch.Tensor) -> torch.Tensor:
        return sequence_log_probs(self.tree, table)


def by_depth(tree: TokenTree, table: torch.Tensor) -> list[torch.Tensor]:
    """Split the rows of a table `[S, ...]` into one block per depth, the root first."""
    return list(table.split([tree.vocabulary**depth for depth in range(tree.length)]))


def visits(tree: TokenTree, log_table: torch.Tensor) -> torch.Tensor:
    """Probability that a completion drawn from the policy `[S, V]` passes each state, `[S]`."""
    tree.check(log_table, "log_table")
    reached = [log_table.new_ones(1)]
    for block in by_depth(tree, log_table)[:-1]:
        reached.append((reached[-1][:, None] * block.exp()).flatten())
    return torch.cat(reached)


def action_values(
    tree: TokenTree,
    log_table: torch.Tensor,
    at_end: torch.Tensor,
    per_step: torch.Tensor | None = None,
) -> torch.Tensor:
    """Q(s, v) = E[at_end(y) + sum of per_step from this token on | s, v], `[S, V]`.

    `log_table` `[S, V]` is the policy, `at_end` `[N]` a value of the completion, `per_step`
    `[S, V]` (0 if left out) a value of each token.
    """
    tree.check(log_table, "log_table")
    steps = torch.zeros_like(log_table) if per_step is None else per_step
    value, blocks = at_end, []
    pairs = zip(by_depth(tree, log_table), by_depth(tree, steps), strict=True)
    for log_policy, step in reversed(list(pairs)):
        blocks.append(value.view(-1, tree.vocabulary) + step)
        value = (log_policy.exp() * blocks[-1]).sum(dim=-1)
    return torch.cat(blocks[::-1])
