"""Algorithms as data: loss x advantage x KL x estimator x guide x extras."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sage.fields import NonNegativeFloat, Positive, PositiveFloat, Strict


class Guide(Strict):
    """A guide function by name, with its settings and the clamp of its values."""

    kind: str
    settings: dict[str, float | str] = Field(default_factory=dict)
    clamp: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.6, 1.4]
    )


ESTIMATORS = {
    "none": (),
    "reverse": ("k2", "k3", "k3_corrected"),
    "forward": ("sampled", "exact"),
}
"""The estimators that each kind of KL term can use."""


class DynamicSampling(Strict):
    """Groups whose rewards are all equal are replaced, at most `max_refills` times a step."""

    max_refills: Positive


class Overlong(Strict):
    """A penalty that grows linearly to -1 over the last `margin_tokens` of the length limit."""

    margin_tokens: Positive


class Algorithm(Strict):
    """A row of the paper's tables as data.

    `fidelity: released` computes what the official release does where it differs from the
    paper: the KL reference is the model before SFT, and schedules advance with every loss call.
    """

    title: str
    fidelity: Literal["paper", "released"] = "paper"
    loss: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
    importance: Literal["token", "sequence"] = "token"
    advantage: Literal["group", "centred", "beta"] = "group"
    kl: Literal["none", "reverse", "forward"]
    estimator: Literal["k2", "k3", "k3_corrected", "sampled", "exact"] | None = None
    kl_coefficient: PositiveFloat | None = None
    guide: Guide | None = None
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    entropy_bonus: NonNegativeFloat = 0.0
    dynamic_sampling: DynamicSampling | None = None
    overlong: Overlong | None = None
    mask_truncated: bool = False

    @model_validator(mode="after")
    def _importance_suits_the_loss(self) -> Algorithm:
        allowed = {"grpo": ("token", "sequence"), "sapo": ("token", "sequence")}
        of_loss = allowed.get(self.loss, ("sequence",) if self.loss == "luspo" else ("token",))
        if self.importance not in of_loss:
            raise ValueError(
                f"importance {self.importance!r} does not go with loss {self.loss!r}; "
                f"allowed: {', '.join(of_loss)}"
            )
        return self

    @model_validator(mode="after")
    def _kl_term_is_whole(self) -> Algorithm:
        allowed = ESTIMATORS[self.kl]
        if self.guide and not allowed:
            raise ValueError("a guide shapes the anchor of the KL term, but kl is 'none'")
        if allowed and self.estimator not in allowed:
            raise ValueError(
                f"estimator {self.estimator!r} does not go with kl {self.kl!r}; "
                f"allowed: {', '.join(allowed)}"
            )
        if not allowed and (self.estimator or self.kl_coefficient):
            raise ValueError("estimator and kl_coefficient need a KL term, but kl is 'none'")
        if self.guide and self.estimator == "exact":
            raise ValueError(
                "a guide is known for the drawn token only, but the exact forward KL sums over "
                "the vocabulary; use estimator: sampled"
            )
        if self.fidelity == "released" and not allowed:
            raise ValueError("fidelity 'released' differs in the KL term, but kl is 'none'")
        return self
