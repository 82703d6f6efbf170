"""Scored rollouts as TRL hands them on, with other advantages and masks.

In several processes each holds a slice of the completions of a draw. What is done here does not
depend on how many there are.
"""

from __future__ import annotations

from typing import Any

import torch

from sage.training.drawing import DrawnRollouts
from sage.training.shaping import Shaping, loss_mask

DRAWN = "drawn_tokens"
"""Key of TRL's log: completion tokens drawn so far, those that are not trained on among them."""


class ScoredRollouts(DrawnRollouts):
    """Rollouts with the advantages and masks of `shaping`."""

    _shaping: Shaping
    _rewards = torch.empty(0)
    _drawn_tokens = 0.0

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._rewards = super()._calculate_rewards(*args, **kwargs)
        return self._rewards

    def _scored(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """A completion of each of this process's `inputs`, whole groups of G, with its scores."""
        batch = self._drawn_batch(inputs)
        rewards, own = self._weighted_rewards(), self._own(len(inputs))
        batch["correct"], batch["reward"] = self._rewards[own, 0], rewards[own]
        if self._shaping.advantage is not None:
            groups = rewards.view(-1, int(self.num_generations or 1))
            batch["advantages"] = self._shaping.advantage.advantages(groups).flatten()[own]
        return batch

    def _scored_rows(self, inputs: list[dict[str, Any]], wanted: int) -> dict[str, Any]:
        """As `_scored`, but of any prompts, and without advantages that mean anything.

        Of the rows of all processes, those behind the first `wanted` only make the number what
        TRL can take: they are not drawn by a drawer, count nowhere and have no mask.
        """
        self._wanted_rows = wanted
        try:
            batch = self._drawn_batch(inputs)
        finally:
            self._wanted_rows = None
        own = self._own(len(inputs))
        batch["correct"], batch["reward"] = self._rewards[own, 0], self._weighted_rewards()[own]
        return batch

    def _drawn_batch(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self._wanted_rows is not None:
            self._discount(batch, max(0, self._wanted_rows - self._first_row(len(inputs))))
        truncated = self._truncated(batch)
        self._drawn_tokens += float(self._tokens_of(batch))
        mode = "train" if self.model_wrapped.training else "eval"
        share = self.accelerator.gather(truncated).float().mean().item()
        self._metrics[mode]["completions/clipped_ratio"][-1] = share
        if self._shaping.mask_truncated:
            batch["completion_mask"] = batch["completion_mask"] * ~truncated[:, None]
            batch["num_items_in_batch"] = self._tokens_of(batch)
        return batch

    def _discount(self, batch: dict[str, Any], wanted: int) -> None:
        """Take the rows behind the first `wanted` out of the mask and of TRL's count of tokens."""
        masks = (batch["prompt_mask"], batch["completion_mask"])
        tokens = torch.stack([mask[wanted:].sum() for mask in masks]).sum()
        self.state.num_input_tokens_seen -= int(self.accelerator.gather(tokens).sum())
        batch["completion_mask"][wanted:] = 0

    def _weighted_rewards(self) -> torch.Tensor:
        """The rewards of all processes' completions, added up."""
        return (self._rewards * self.reward_weights.to(self._rewards)).nansum(dim=1)

    def _own(self, rows: int) -> slice:
        """This process's `rows` rows among those of all processes."""
        first = self._first_row(rows)
        return slice(first, first + rows)

    def _tokens_of(self, batch: dict[str, Any]) -> torch.Tensor:
        """Completion tokens with loss, over all processes."""
        return self.accelerator.gather(loss_mask(batch).sum()).sum()
