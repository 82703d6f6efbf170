"""The choices of a method: a name of ours or a class of the user's own, with its settings.

A choice is written `{kind: k3, settings: {}}`, or `k3` for short. It is checked and made once, when
the study is read. What belongs to the paper's own method is named here; classes of `sage/rivals`
are found by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from sage.fields import Faults, PositiveFloat, Strict
from sage.named import Named, add_classes

RIVALS = "sage.rivals"


class Choice(Strict):
    """One choice of a method: a kind and its settings, or the kind alone for short."""

    kind: str
    """one of the kinds below, or a class of your own [name or `module:Class`]"""
    settings: dict[str, Any] = Field(default_factory=dict)
    """the settings of that kind [values by name]"""

    family: ClassVar[Named]
    """What it can name."""

    alone: ClassVar[Mapping[str, dict[str, Any]]] = {}
    """The settings of a kind that is written alone, where they are not its defaults."""

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, written: Any) -> Any:
        short = isinstance(written, str)
        whole = {"kind": written, "settings": {**cls.alone.get(written, {})}} if short else written
        if not isinstance(whole, Mapping) or not isinstance(whole.get("kind"), str):
            return whole  # of a wrong type, which the fields report
        if faults := cls.family.faults(whole["kind"], whole.get("settings", {})):
            of_kind = "" if short else "kind"
            raise Faults(of_kind + each if each.startswith(":") else each for each in faults)
        return whole

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        try:
            assert self.made is not None
        except (TypeError, ValueError) as error:
            raise Faults([f"settings: {error}"]) from error
        return self

    @cached_property
    def made(self) -> Any:
        """The object, to be asked and not to be changed."""
        return self.family.find(self.kind)(**self.settings)

    def fresh(self) -> Any:
        """A copy of the object for one run, which may learn and remember."""
        return deepcopy(self.made)

    def varied(self, **changes: Any) -> Self:
        """The choice with other values of some of its keys."""
        written = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(written | changes)

    def __str__(self) -> str:
        return self.kind


class Guide(Choice):
    """A guide function by name, with its settings and the clamp of its values."""

    clamp: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.6, 1.4]
    )
    """the factor of each token is kept between these two [factors]"""

    family = Named(
        what="a guide",
        methods={"factors": ("signals", "moment")},
        classes={
            "random": "sage.method.guides:RandomGuide",
            "token": "sage.method.guides:TokenGuide",
            "branch": "sage.method.guides:BranchGuide",
            "learned": "sage.method.learned_guide:LearnedGuide",
        },
    )
    # The paper's settings (Eq. 9 to 12), as a study that names the guide alone is summed with them.
    alone: ClassVar[Mapping[str, dict[str, Any]]] = {
        "random": {
            **{"epsilon_high": 0.1, "epsilon_low": 0.0},
            **{"sigma_high": 0.15, "sigma_low": 0.05, "periods": 8},
        },
        "token": {
            **{"alpha_high": 0.3, "alpha_low": 0.1},
            **{"sigma_high": 0.25, "sigma_low": 0.1, "periods": 8},
        },
        "branch": {"ratio": 0.3, "threshold": 1.2},
    }

    @model_validator(mode="after")
    def _clamp_in_order(self) -> Guide:
        if self.clamp[0] > self.clamp[1]:
            raise Faults([f"clamp: must be [lowest, highest], not {self.clamp}"])
        return self


class Estimator(Choice):
    """An estimator of the KL term: a kind and its settings, or the kind alone for short."""

    family = Named(
        what="an estimator",
        methods={"values": ("log_probs",)},
        attributes=("direction",),
        classes={
            "k2": "sage.method.anchors:K2",
            "k3": "sage.method.anchors:K3",
            "k3_corrected": "sage.method.anchors:K3Corrected",
            "sampled": "sage.method.anchors:SampledForwardKL",
            "exact": "sage.method.anchors:ExactForwardKL",
            "k1_reward": "sage.method.credit:K1InReward",
        },
    )


class Advantage(Choice):
    """An advantage of rollouts: a kind and its settings, or the kind alone for short."""

    family = Named(
        what="an advantage",
        methods={"advantages": ("rewards", "[groups]")},
        classes={
            "group": "sage.method.advantages:GroupNormalised",
            "centred": "sage.method.advantages:Centred",
        },
    )


class Credit(Choice):
    """A rule of credit for tokens: a kind and its settings, or the kind alone for short."""

    family = Named(what="a credit rule", methods={"token_advantages": ("signals",)})


class Reward(Choice):
    """A reward: a kind and its settings, or the kind alone for short."""

    family = Named(
        what="a reward",
        methods={"score": ("completion",)},
        classes={
            "correct": "sage.method.rewards:Correct",
            "random": "sage.method.rewards:Random",
            "tagged": "sage.method.rewards:Tagged",
            "incorrect": "sage.method.rewards:Incorrect",
        },
    )


class Filter(Choice):
    """Which groups of rollouts are trained on; other prompts take the place of the rest."""

    max_refills: Annotated[int, Field(ge=0)]
    """how often groups are replaced at most; with 0 never [times per step]"""

    family = Named(what="a filter", methods={"keep": ("correct", "rewards")})


class Planner(Choice):
    """A planner of rollouts: a kind and its settings, or the kind alone for short."""

    family = Named(what="a planner", methods={"further": ("drawn",)}, attributes=("chosen",))


CHOICES: dict[str, type[Choice]] = {
    "guide": Guide,
    "estimator": Estimator,
    "advantage": Advantage,
    "credit": Credit,
    "rewards": Reward,
    "filter": Filter,
    "planner": Planner,
}
"""By the key of a method."""

add_classes(RIVALS, [choice.family for choice in CHOICES.values()])
