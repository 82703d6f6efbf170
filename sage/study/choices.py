"""The registries: everything that a method can choose by name or as a class of its user's own.

A choice is written `{kind: k3, settings: {}}`, or `k3` for short. What belongs to the paper's own
method is named here; classes of `sage/rivals` are found by themselves.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from sage.fields import Faults, PositiveFloat, Strict
from sage.study.registry import Registry, add_rivals

REGISTRIES = {
    "guide": Registry(
        what="a guide",
        method="factors",
        arguments=("signals", "moment"),
        classes={
            "random": "sage.method.guides:RandomGuide",
            "token": "sage.method.guides:TokenGuide",
            "branch": "sage.method.guides:BranchGuide",
            "learned": "sage.method.learned_guide:LearnedGuide",
        },
    ),
    "estimator": Registry(
        what="an estimator",
        method="values",
        arguments=("log_probs",),
        attributes=("direction",),
        classes={
            "k2": "sage.method.anchors:K2",
            "k3": "sage.method.anchors:K3",
            "k3_corrected": "sage.method.anchors:K3Corrected",
            "sampled": "sage.method.anchors:SampledForwardKL",
            "exact": "sage.method.anchors:ExactForwardKL",
            "k1_reward": "sage.method.credit:K1InReward",
        },
    ),
    "advantage": Registry(
        what="an advantage",
        method="advantages",
        arguments=("rewards",),
        classes={
            "group": "sage.method.advantages:GroupNormalised",
            "centred": "sage.method.advantages:Centred",
        },
    ),
    "credit": Registry(
        what="a credit rule",
        method="token_advantages",
        arguments=("signals",),
    ),
    "rewards": Registry(
        what="a reward",
        method="score",
        arguments=("completion",),
        classes={
            "correct": "sage.method.rewards:Correct",
            "random": "sage.method.rewards:Random",
            "tagged": "sage.method.rewards:Tagged",
            "incorrect": "sage.method.rewards:Incorrect",
        },
    ),
    "filter": Registry(
        what="a filter",
        method="keep",
        arguments=("correct", "rewards"),
    ),
    "planner": Registry(
        what="a planner",
        method="further",
        arguments=("drawn",),
        attributes=("chosen",),
    ),
}
"""By the key of a method that each serves."""

add_rivals(REGISTRIES)


PAPER_GUIDES: dict[str, dict[str, Any]] = {
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
"""What the name of a guide alone means: the paper's settings (Eq. 9 to 12)."""


class Choice(Strict):
    """One choice of a method: a kind and its settings, or the kind alone for short."""

    kind: str
    """one of the kinds below, or a class of your own [name or `module:Class`]"""
    settings: dict[str, Any] = Field(default_factory=dict)
    """the settings of that kind [values by name]"""

    def __str__(self) -> str:
        return self.kind


class Guide(Choice):
    """A guide function by name, with its settings and the clamp of its values."""

    clamp: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.6, 1.4]
    )
    """the factor of each token is kept between these two [factors]"""

    @model_validator(mode="after")
    def _clamp_in_order(self) -> Guide:
        if self.clamp[0] > self.clamp[1]:
            raise Faults([f"clamp: must be [lowest, highest], not {self.clamp}"])
        return self


class Filter(Choice):
    """Which groups of rollouts are trained on; other prompts take the place of the rest."""

    max_refills: Annotated[int, Field(ge=0)]
    """how often groups are replaced at most; with 0 never [times per step]"""


def choice_from(key: str) -> Any:
    """The part of an annotation for a choice from the registry `key`, in full or for short."""

    def checked(value: Any) -> Any:
        if faults := list(REGISTRIES[key].faults(value)):
            raise Faults(faults)
        if not isinstance(value, str):
            return value
        stated = PAPER_GUIDES.get(value, {}) if key == "guide" else {}
        return {"kind": value, "settings": {**stated}}

    return BeforeValidator(checked)
