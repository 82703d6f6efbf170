"""The ground of the types of a study, which lies on a floor below it: `sage.strict`."""

from sage.strict import (
    BASE,
    Name,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    Seed,
    Share,
    Strict,
    about,
)

__all__ = [
    "BASE",
    "Name",
    "NonNegativeFloat",
    "Positive",
    "PositiveFloat",
    "Seed",
    "Share",
    "Strict",
    "about",
]
