"""The ground of the types of a study, which lies on a floor below it: `sage.fields`."""

from sage.fields import (
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
