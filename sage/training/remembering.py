"""Choices of an algorithm that learn or keep running means: when they do, and their checkpoints.

A choice (guide, credit rule, filter and so on) may have `end_step(total)`, called after the
gradients of an optimizer step are complete; `total` adds a tensor up over all processes. It may
have `state_dict()` and `load_state_dict(state)`, of tensors and plain values: these go into every
checkpoint, so that a resumed run equals an unbroken one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from sage.training.shaping import Shaping

STATE = "choices.pt"
"""The file of a checkpoint that holds what the choices remember."""


class RememberedChoices(GRPOTrainer):
    """GRPOTrainer that lets the choices of `_shaping` learn, and keeps what they remember."""

    _shaping: Shaping

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As TRL's; the last micro-batch of an optimizer step ends the step of the choices."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        if self.accelerator.sync_gradients:
            self._end_step()
        return loss

    def _end_step(self) -> None:
        for part in self._shaping.parts().values():
            if hasattr(part, "end_step"):
                part.end_step(self._total)

    def _total(self, values: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.accelerator.reduce(values, reduction="sum")
        return total

    def _remembering(self) -> dict[str, Any]:
        parts = self._shaping.parts().items()
        return {name: part for name, part in parts if hasattr(part, "state_dict")}

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        states = {name: part.state_dict() for name, part in self._remembering().items()}
        if states and self.args.should_save:
            torch.save(states, Path(output_dir) / STATE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        parts = self._remembering()
        if checkpoint is None or not parts:
            return
        states = torch.load(Path(checkpoint) / STATE, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(states[name])
