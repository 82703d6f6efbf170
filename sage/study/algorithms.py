"""Methods as data: loss, rewards, advantage, credit, KL, estimator, guide, filter or planner.

What each of these may name is in `sage.study.choices`; here is what goes with what.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sage.fields import Name, NonNegativeFloat, PositiveFloat, Strict
from sage.study.choices import (
    CHOICES,
    Advantage,
    Choice,
    Credit,
    Estimator,
    Filter,
    Guide,
    Planner,
    Reward,
)


class Algorithm(Strict):
    """A method, under the name that studies use.

    `estimator`, `guide`, `advantage`, `credit`, `rewards`, `filter` and `planner` take a name, or a
    section with a `kind` and its `settings`; the kind can also be a class of your own (below).

    A method with a `base` says only what differs from it: `pkpo_branch: {base: pkpo, guide:
    branch}`. Without a `title` it is called by that, `PKPO + Branch`. A guide or `kl: reverse` that
    is added to a base without a KL term comes with `kl: reverse` and `estimator: k3`.
    """

    base: Annotated[Name | None, Field(exclude=True)] = None
    """another method, of the same file or of `algorithms.yaml`, whose keys this one takes over"""
    title: str
    """its name in tables and figures"""
    fidelity: Literal["paper", "released"] = "paper"
    """`released` computes what the official release does where it differs: the KL term refers to
    the model before SFT, and schedules advance with every loss call"""
    loss: Literal["grpo", "bnpo", "dr_grpo", "dapo"]
    """how token losses are averaged: per completion; over the tokens of the local batch; over
    completions times the longest allowed length; over the tokens of the global batch [TRL:
    loss_type]"""
    rewards: Annotated[list[Reward], Field(min_length=1)] = Field(
        default_factory=lambda: [Reward(kind="correct")]
    )
    """what a completion is rewarded for; several are added up"""
    advantage: Advantage = Advantage(kind="group")
    """how the rewards of a group become advantages [TRL: scale_rewards]"""
    credit: Credit | None = None
    """how the advantage of a completion is shared out over its tokens"""
    kl: Literal["none", "reverse", "forward"]
    """direction of the KL term"""
    estimator: Estimator | None = None
    """how the KL term is estimated at the drawn tokens; none with `none`"""
    kl_coefficient: PositiveFloat | None = None
    """weight of the KL term; `null` takes the model's [per nat; TRL: beta]"""
    guide: Guide | None = None
    """what shapes the anchor of the KL term; needs one. `random`, `token` and `branch` alone mean
    the paper's settings"""
    clip_low: PositiveFloat | None = 0.2
    """probability ratios are clipped below 1 − this; `null` never [ratio; TRL: epsilon]"""
    clip_high: PositiveFloat | None = 0.2
    """probability ratios are clipped above 1 + this; `null` never [ratio; TRL: epsilon_high]"""
    entropy_bonus: NonNegativeFloat = 0.0
    """weight of the policy's entropy in the objective [per nat; TRL: entropy_coef]"""
    filter: Filter | None = None
    """which groups are trained on; the others are drawn again"""
    planner: Planner | None = None
    """which prompts are drawn further and what is trained on; not with a filter"""
    mask_truncated: bool = False
    """whether completions that were cut off carry no loss [TRL: mask_truncated_completions]"""

    def choices(self) -> Iterator[tuple[str, str, Choice]]:
        """Every choice: its place, its key, and the choice."""
        for name in CHOICES:
            value = getattr(self, name)
            if isinstance(value, Choice):
                yield name, name, value
            elif value is not None:
                for index, each in enumerate(value):
                    yield f"{name}[{index}]", name, each

    @model_validator(mode="after")
    def _parts_agree(self) -> Algorithm:
        if conflict := next(self._conflicts(), ""):
            raise ValueError(conflict)
        return self

    def _conflicts(self) -> Iterator[str]:
        """What does not go together in the method."""
        if self.kl == "none":
            if self.guide:
                yield "a guide shapes the anchor of the KL term, but kl is 'none'"
            if self.estimator or self.kl_coefficient:
                yield "estimator and kl_coefficient need a KL term, but kl is 'none'"
            if self.fidelity == "released":
                yield "fidelity 'released' differs in the KL term, but kl is 'none'"
        else:
            if self.estimator is None or self.estimator.made.direction != self.kl:
                known, kind = Estimator.family, self.estimator and self.estimator.kind
                fitting = [k for k in known.classes if known.find(k).direction == self.kl]
                yield (
                    f"estimator {kind!r} does not go with kl {self.kl!r}; "
                    f"allowed: {', '.join(fitting)}"
                )
        if self.filter and self.planner:
            yield (
                f"filter {self.filter.kind!r} and planner {self.planner.kind!r} both choose what "
                "is trained on; choose one"
            )
        for index, reward in enumerate(self.rewards):
            if reward in self.rewards[:index]:
                yield f"rewards[{index}]: {reward} occurs twice"
        yield "; ".join(
            f"{place}: {choice} {conflict}"
            for place, _, choice in self.choices()
            for conflict in self._conflicts_of(choice.made)
        )

    def _conflicts_of(self, made: Any) -> Iterator[str]:
        """Why a choice does not go with the others."""
        if hasattr(made, "conflicts"):
            yield from made.conflicts(self)
        ragged = self.planner is not None and getattr(self.planner.made, "ragged", True)
        if getattr(made, "whole_groups", False) and ragged:
            yield f"needs groups of one size, which planner: {self.planner} may not leave"
        kinds = [reward.kind for reward in self.rewards]
        if (reason := getattr(made, "binary", None)) and kinds != ["correct"]:
            yield f"{reason}, so rewards must be [correct] alone, not [{', '.join(kinds)}]"


def run_conflicts(algorithm: Algorithm, rl: Any) -> Iterator[str]:
    """Why the method does not go with a model's settings of RL, one message each."""
    for place, _, choice in algorithm.choices():
        made = choice.made
        if hasattr(made, "conflicts_with_run"):
            for conflict in made.conflicts_with_run(rl):
                yield f"{place}: {choice} {conflict}"
        if getattr(made, "whole_groups", False) and rl.prompts_per_step % rl.micro_batches:
            yield (
                f"{place}: {choice} needs the whole group of a prompt in a micro-batch, so "
                f"prompts_per_step {rl.prompts_per_step} must be a multiple of micro_batches "
                f"{rl.micro_batches}"
            )


def is_control(algorithm: Algorithm) -> bool:
    """Whether the method is rewarded for no right answer: a control, which no one would adopt.

    A reward that says neither `control` nor `penalty` counts as one for right answers.
    """
    made = [reward.made for reward in algorithm.rewards]
    controls = [getattr(r, "control", False) for r in made if not getattr(r, "penalty", False)]
    return bool(controls) and all(controls)


def needs_hints(algorithm: Algorithm) -> bool:
    """Whether the method draws under the hints of the problems."""
    return any(getattr(one.made, "needs_guidance", False) for *_, one in algorithm.choices())


def needs_strategies(algorithm: Algorithm) -> bool:
    """Whether the method asks which strategy a completion follows."""
    return any(getattr(one.made, "strategies", False) for *_, one in algorithm.choices())


def choice_files(algorithm: Algorithm) -> list[Path]:
    """Source files of the classes that the method names, the user's own among them.

    A method's jobs have them as inputs, for no module of the training imports them by name.
    """
    files = [choice.family.files(choice.kind) for *_, choice in algorithm.choices()]
    return sorted(set().union(*files))
