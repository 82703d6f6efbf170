"""DARS (arXiv 2508.13755): hard prompts get more rollouts, so that they weigh as others do.

The first G rollouts give the success rate p, 0.5 / G where none is right. A prompt with p < 0.5
gets as many more as bring its sum of absolute centred advantages to that of p = 0.5, or with
`hardness` to 2 (1 - p) times that; at most `cap` in all:

    S    = 2 p (1 - p)
    more = ceil((0.5 G - G S) / S)             `equal`
    more = ceil((2 (1 - p) 0.5 G - G S) / S)   `hardness`

Groups that are then all right or all wrong are dropped; if all are, the first G rollouts of each
are kept. G counts rollouts that are scored. So advantages must be 0 where all rollouts of a prompt
are right, or all wrong.

Its authors take batches of 3,072 completions and two epochs, and up to 64 rollouts with `hardness`.
Here it is up to 32 and the batch of the study: compare at equal tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from sage.fields import Positive, about
from sage.method import Tensor
from sage.method.planners import Chosen, Draw, Drawn


@dataclass(frozen=True)
class Dars:
    """Hard prompts get more rollouts, so that they weigh as others do."""

    cap: Annotated[
        Positive,
        Field(ge=2),
        about("rollouts of a prompt at most, the first included", unit="rollouts"),
    ] = 32
    weighting: Annotated[
        Literal["equal", "hardness"],
        about("whether hard prompts weigh as much as others, or more the harder they are"),
    ] = "equal"

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.advantage.kind == "beta":
            yield "may keep a single prompt, but advantage beta needs at least two in each step"
        settings = algorithm.advantage.settings
        if algorithm.advantage.kind == "w_reinforce" or settings.get("signed"):
            yield (
                f"drops prompts without a right rollout, which advantage {algorithm.advantage} "
                "learns from"
            )
        of_right = {"maxrl": settings.get("order") is not None, "pkpo": settings.get("k") == 1}
        if of_right.get(algorithm.advantage.kind, False):
            yield (
                f"drops prompts whose rollouts are all right, which advantage {algorithm.advantage}"
                " learns from"
            )

    def conflicts_with_run(self, rl: Any) -> Iterator[str]:
        if self.cap < rl.rollouts:
            yield f"draws up to cap = {self.cap} rollouts of a prompt, below rollouts {rl.rollouts}"

    def further(self, drawn: Drawn) -> Draw | None:
        """Once: further completions of hard prompts."""
        if drawn.draws > 1:
            return None
        right, scored = (drawn.correct > 0).sum(dim=1), (~drawn.correct.isnan()).sum(dim=1)
        room = max(self.cap - drawn.rollouts, 0)
        return Draw(more=extra_rollouts(right, scored, room, self.weighting))

    def chosen(self, drawn: Drawn) -> Chosen:
        """Prompts with right and wrong completions."""
        mixed = (drawn.correct > 0).any(dim=1) & (drawn.correct <= 0).any(dim=1)
        if bool(mixed.any()):
            return Chosen(mixed.nonzero()[:, 0], drawn.present)
        rows = drawn.present.clone()
        rows[:, drawn.rollouts :] = False
        return Chosen(None, rows)


def extra_rollouts(
    right: Tensor, scored: Tensor, room: int, weighting: Literal["equal", "hardness"]
) -> Tensor:
    """How many more rollouts DARS draws of prompts with `right` of G `scored` ones right, `[N]`.

    At most `room`. In whole numbers: with h = 2 p G the formulas above are G^3 / (h (2 G - h)) - G
    and G^2 / h - G. None from p = 0.5 on.
    """
    size = scored.clamp(min=1)
    half = (2 * right).clamp(min=1).minimum(size)
    if weighting == "equal":
        above, below = size**3, half * (2 * size - half)
    else:
        above, below = size**2, half
    more = -(-above // below) - size
    return (more * (2 * right < size)).clamp(min=0, max=room)
