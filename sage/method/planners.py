"""Planners of rollouts: which prompts are drawn again, how often, and which completions count.

A generation begins with G completions of each prompt. A planner is a class that holds its settings,
looks at what was drawn, and asks for further completions of these prompts or for other prompts,
until it has enough; then it chooses what is trained on. Groups may so become ragged. What a planner
remembers of earlier generations is its `state_dict`, which every checkpoint holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from sage.method import Tensor


@dataclass(frozen=True)
class Drawn:
    """What a generation has drawn so far: N prompts with at most M completions each.

    `[N, M]`, completions in the order drawn: `present`, whether there is one; `correct`, the first
    reward function's value, and `rewards`, all of them weighted and added up, both NaN where there
    is none and where it is not scored; `guided`, whether it was drawn under the prompt with
    guidance. `prompts` is how many prompts a generation takes, `rollouts` how many completions each
    had at first (G), `draws` how many draws there were, the first one included. `problems` names
    the problem of each prompt, the same whenever it is drawn.
    """

    present: Tensor
    correct: Tensor
    rewards: Tensor
    guided: Tensor
    prompts: int
    rollouts: int
    draws: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draw:
    """The next draw: `more[n]` further completions of prompt n, or `prompts` other prompts.

    `more` is `[N]`, integers; with `guided` they are drawn under the prompt with guidance. Other
    prompts get G completions each. Raises ValueError unless it is the one or the other.
    """

    more: Tensor | None = None
    prompts: int = 0
    guided: bool = False

    def __post_init__(self) -> None:
        if (self.more is None) == (self.prompts == 0):
            raise ValueError("a draw takes more completions, or other prompts: give one of the two")


@dataclass(frozen=True)
class Chosen:
    """What is trained on: the prompts `[K]`, in this order, with their completions in `rows`.

    Without `prompts` it is all of them. `rows` is bool `[N, M]`; advantages are those of the chosen
    completions of a prompt. `loss` is bool `[N]`: completions of the other prompts carry no loss,
    but count in means over completions.
    """

    prompts: Tensor | None
    rows: Tensor
    loss: Tensor | None = None


class Planner(Protocol):
    """A planner; without an attribute `ragged` that is False it may leave groups of any size."""

    def further(self, drawn: Drawn) -> Draw | None:
        """What to draw next; None if it is enough."""
        ...

    def chosen(self, drawn: Drawn) -> Chosen:
        """What of it to train on, at least one completion."""
        ...


class Filter(Protocol):
    """A filter of groups, such as `sage.rivals.dapo.Mixed`.

    With `drops = True` a group that it does not keep, and that is not replaced, has no loss.
    """

    def keep(self, correct: Tensor, rewards: Tensor) -> Tensor:
        """Which groups to train on, bool `[N]`; `correct` is the first reward function's value
        and `rewards` all of them, weighted and added up, both `[N, G]`."""
        ...


@dataclass(frozen=True)
class DynamicSampling:
    """DAPO (arXiv 2503.14476): groups that `filter` does not keep give way to other prompts.

    What is missing after `max_refills` draws is filled with groups that were not to be kept.
    """

    filter: Filter
    max_refills: int
    ragged: ClassVar[bool] = False

    def further(self, drawn: Drawn) -> Draw | None:
        """As many other prompts as a generation takes, while kept groups are missing."""
        kept = self.filter.keep(drawn.correct, drawn.rewards)
        if int(kept.sum()) >= drawn.prompts or drawn.draws > self.max_refills:
            return None
        return Draw(prompts=drawn.prompts)

    def chosen(self, drawn: Drawn) -> Chosen:
        """Groups that are kept, in the order drawn, then others."""
        kept = self.filter.keep(drawn.correct, drawn.rewards)
        order = (~kept).int().argsort(stable=True)
        with_loss = kept if getattr(self.filter, "drops", False) else None
        return Chosen(order[: drawn.prompts], drawn.present, with_loss)
