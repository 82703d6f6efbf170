"""Unsolved only (after BBG, arXiv 2606.15455): nothing is learnt from problems solved before.

    loss of a group = 0 if a step before had a right completion of its problem

Other groups have no loss, but count in means over completions; if all problems of a step were
solved before, nothing is learnt from it.

Its authors mask groups with a success among their own rollouts, and learn from the rest with the
advantages 1 and -1 (`unsolved_only_signed`); BBG weighs problems by an estimate of what they can
still add (`sage.rivals.bbg`). Here a problem's first success still counts, without which GRPO's
advantages would be 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sage.method import Tensor
from sage.method.planners import Chosen, Drawn


@dataclass
class UnsolvedOnly:
    """Only problems without a success in earlier steps are trained on."""

    ragged: ClassVar[bool] = False
    _solved: set[str] = field(init=False, default_factory=set, repr=False, compare=False)
    _new: set[str] = field(init=False, default_factory=set, repr=False, compare=False)

    def further(self, drawn: Drawn) -> None:
        """Nothing."""

    def chosen(self, drawn: Drawn) -> Chosen:
        """All prompts, with loss where the problem was not solved before."""
        import torch

        names, right = drawn.problems, (drawn.correct > 0).any(dim=1)
        self._new |= {name for name, solved in zip(names, right.tolist(), strict=True) if solved}
        loss = torch.tensor([name not in self._solved for name in names], device=right.device)
        return Chosen(None, drawn.present, loss)

    def end_step(self, total: Callable[[Tensor], Tensor]) -> None:
        """Remember what was solved; all processes have seen the same groups."""
        self._solved |= self._new
        self._new.clear()

    def state_dict(self) -> dict[str, Any]:
        """The problems solved so far."""
        return {"solved": sorted(self._solved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._solved = set(state["solved"])
