"""Planners of rollouts: which prompts are drawn again, how often, and which completions count.

A generation begins with G completions of each prompt. A planner is a class that holds its settings,
looks at what was drawn, and asks for further completions of these prompts or for other prompts,
until it has enough; then it chooses what is trained on. Groups may so become ragged. What a planner
remembers of earlier generations is its `state_dict`, which every checkpoint holds. Torch is
not imported here: a study is read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from sage.fields import about

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Drawn:
    """What a generation has drawn so far: N prompts with at most M completions each.

    `[N, M]`, completions in the order drawn: `present`, whether there is one; `correct`, the first
    reward function's value, and `rewards`, all of them weighted and added up, both NaN where there
    is none; `guided`, whether it was drawn under the prompt with guidance. `prompts` is how many
    prompts a generation takes, `rollouts` how many completions each had at first (G), `draws` how
    many draws there were, the first one included. `problems` names the problem of each prompt, the
    same whenever it is drawn.
    """

    present: torch.Tensor
    correct: torch.Tensor
    rewards: torch.Tensor
    guided: torch.Tensor
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

    more: torch.Tensor | None = None
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

    prompts: torch.Tensor | None
    rows: torch.Tensor
    loss: torch.Tensor | None = None


class Planner(Protocol):
    """A planner; without an attribute `ragged` that is False it may leave groups of any size."""

    def further(self, drawn: Drawn) -> Draw | None:
        """What to draw next; None if it is enough."""
        ...

    def chosen(self, drawn: Drawn) -> Chosen:
        """What of it to train on, at least one completion."""
        ...


class Filter(Protocol):
    """A filter of groups, such as `sage.method.rewards.Mixed`.

    With `drops = True` a group that it does not keep, and that is not replaced, has no loss.
    """

    def keep(self, correct: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
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


@dataclass(frozen=True)
class Dars:
    """DARS (arXiv 2508.13755): hard prompts get more rollouts, so that they weigh as others do.

    The first G rollouts give the success rate p, 0.5 / G where none is right. Below 0.5 a prompt
    gets as many more (`extra_rollouts`) as bring its sum of absolute centred advantages to that of
    p = 0.5, or with `hardness` to 2 (1 - p) times that; at most `cap` in all. Groups that are then
    all right or all wrong are dropped; if all are, the first G rollouts of each are kept. So
    advantages must be 0 where all rollouts of a prompt are right, or all wrong.
    """

    cap: Annotated[
        int, Field(ge=2), about("rollouts of a prompt at most, the first included", unit="rollouts")
    ] = 32
    weighting: Annotated[
        Literal["equal", "hardness"],
        about("whether hard prompts weigh as much as others, or more the harder they are"),
    ] = "equal"

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.advantage.kind == "beta":
            yield "may keep a single prompt, but advantage beta needs at least two in each step"
        if algorithm.advantage.kind == "w_reinforce":
            yield "drops prompts without a right rollout, which advantage w_reinforce learns from"
        settings = algorithm.advantage.settings
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
        right = (drawn.correct > 0).sum(dim=1)
        return Draw(more=extra_rollouts(right, drawn.rollouts, self.cap, self.weighting))

    def chosen(self, drawn: Drawn) -> Chosen:
        """Prompts with right and wrong completions."""
        right = ((drawn.correct > 0) & drawn.present).sum(dim=1)
        mixed = (right > 0) & (right < drawn.present.sum(dim=1))
        if bool(mixed.any()):
            return Chosen(mixed.nonzero()[:, 0], drawn.present)
        rows = drawn.present.clone()
        rows[:, drawn.rollouts :] = False
        return Chosen(None, rows)


@dataclass(frozen=True)
class GuidedRetry:
    """A second try with guidance (after Agent-RLVR, arXiv 2506.11425), for single-turn problems.

    Prompts on which all G completions fail are drawn G times more under the prompt with the
    problem's hint. Of these the right ones join the group, under the prompt without the hint: their
    old log-probs are those under the hint, so that the loss weights each token by
    pi(y | x) / pi_old(y | x, hint), within the clip of the method where the advantage is positive.
    The KL term of their tokens is taken under the prompt without the hint; `k3_corrected` and
    `k1_reward` weight it in the same way, others do not.
    """

    needs_guidance: ClassVar[bool] = True

    def conflicts(self, algorithm: Any) -> Iterator[str]:
        if algorithm.clip_high is None:
            yield "weights completions by their probability ratio, which clip_high must bound"

    def further(self, drawn: Drawn) -> Draw | None:
        """Once: as many completions again, under guidance, of prompts that failed."""
        if drawn.draws > 1:
            return None
        failed = (drawn.correct > 0).sum(dim=1) == 0
        return Draw(more=failed.long() * drawn.rollouts, guided=True)

    def chosen(self, drawn: Drawn) -> Chosen:
        """All but wrong completions under guidance."""
        return Chosen(None, drawn.present & (~drawn.guided | (drawn.correct > 0)))


@dataclass
class UnsolvedOnly:
    """Only problems without a success in earlier steps are trained on (after arXiv 2606.15455).

    Other groups have no loss, but count in means over completions; if all problems of a step were
    solved before, nothing is learnt from it. The paper masks the groups with a success among their
    own rollouts and learns from the rest with the advantages 1 and -1; here a problem's first
    success still counts, without which GRPO's advantages would be 0 everywhere.
    """

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

    def end_step(self, total: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Remember what was solved; all processes have seen the same groups."""
        self._solved |= self._new
        self._new.clear()

    def state_dict(self) -> dict[str, Any]:
        """The problems solved so far."""
        return {"solved": sorted(self._solved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._solved = set(state["solved"])


def extra_rollouts(
    right: torch.Tensor, rollouts: int, cap: int, weighting: Literal["equal", "hardness"]
) -> torch.Tensor:
    """How many more rollouts DARS draws of prompts with `right` of G `rollouts` right, `[N]`.

    With p = right / G (0.5 / G for 0), S = 2 p (1 - p): for p < 0.5 the ceiling of
    (0.5 G - G S) / S, or of (2 (1 - p) 0.5 G - G S) / S with `hardness`, at most cap - G. In whole
    numbers: with h = 2 p G these are G^3 / (h (2 G - h)) - G and G^2 / h - G. None from p = 0.5 on.
    """
    size, half = rollouts, (2 * right).clamp(min=1, max=rollouts)
    if weighting == "equal":
        above, below = size**3, half * (2 * size - half)
    else:
        above, below = size**2, half
    more = -(-above // below) - size
    return (more * (2 * right < size)).clamp(min=0, max=max(cap - size, 0))
