"""Token trees: all completions of a fixed length, and tabular policies over them.

A policy is a table of next-token log-probabilities, one row per state (prefix), in float64. A
tree of length 1 is a plain set of completions. Variable length is left out: a completion that
ends early is one whose remaining tokens are certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from sage.method.guides import GuideFunction, Moment, Noise, Signals, guide_log_factors

LARGEST = 2**16
CLAMP = (0.6, 1.4)
"""The least and the largest q_t."""


@dataclass(frozen=True)
class TokenTree:
    """All N = V^T completions of T tokens from a vocabulary of V; S states precede a token.

    Completions are in lexicographic order; states go by depth, then in lexicographic order.
    Raises ValueError if V or T is below 1 or N above 65,536.
    """

    vocabulary: int
    length: int

    def __post_init__(self) -> None:
        if self.vocabulary < 1 or self.length < 1 or self.vocabulary**self.length > LARGEST:
            raise ValueError(
                f"vocabulary {self.vocabulary} and length {self.length} must be at least 1 and "
                f"give at most {LARGEST} completions"
            )

    @property
    def n_completions(self) -> int:
        """N."""
        return self.vocabulary**self.length

    @property
    def n_states(self) -> int:
        """S, the number of prefixes of 0 to T - 1 tokens."""
        return sum(self.vocabulary**depth for depth in range(self.length))

    @cached_property
    def completions(self) -> torch.Tensor:
        """The tokens of every completion, `[N, T]`."""
        index = torch.arange(self.n_completions)[:, None]
        return index // self.vocabulary ** torch.arange(self.length).flip(0) % self.vocabulary

    @cached_property
    def states(self) -> torch.Tensor:
        """The state in which each token of each completion is drawn, `[N, T]`."""
        sizes = self.vocabulary ** torch.arange(self.length)
        index = torch.arange(self.n_completions)[:, None]
        return torch.cumsum(sizes, 0) - sizes + index // (self.n_completions // sizes)

    def check(self, table: torch.Tensor, name: str) -> None:
        """Raise ValueError unless `table` is `[S, V]` and in float64."""
        expected = (self.n_states, self.vocabulary)
        if tuple(table.shape) != expected or table.dtype != torch.float64:
            raise ValueError(
                f"{name} must be float64 of shape {expected}, not {table.dtype} of shape "
                f"{tuple(table.shape)}"
            )


def per_token(tree: TokenTree, table: torch.Tensor) -> torch.Tensor:
    """The entries of a table `[S, V]` met along every completion, `[N, T]`."""
    tree.check(table, "table")
    return table[tree.states, tree.completions]


def sequence_log_probs(tree: TokenTree, log_table: torch.Tensor) -> torch.Tensor:
    """log of the product over tokens, in nats, `[N]`; `log_table` `[S, V]` may be unnormalised."""
    return per_token(tree, log_table).sum(dim=-1)


def first_log_q(guide: GuideFunction, signals: Signals, noise: str = "none") -> torch.Tensor:
    """log q_t at step 0 of training, `[N, T]`, within CLAMP; `noise` names that of the guide."""
    moment = Moment(step=0, total_steps=1, noise=Noise(noise))
    return guide_log_factors(guide, signals, moment, *CLAMP)


def entropies(log_table: torch.Tensor) -> torch.Tensor:
    """H(s) = -sum_v pi(v|s) log pi(v|s) of every state, in nats (Eq. 12); `[S, V]` to `[S]`."""
    return -(log_table.exp() * log_table).sum(dim=-1)
