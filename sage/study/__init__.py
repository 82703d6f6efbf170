"""A study: what it consists of, and how it is read and checked (`reading`)."""

from sage.fields import BASE
from sage.study.algorithms import Algorithm, Guide
from sage.study.bases import Architecture, Corpus, Pretraining, ScratchBase
from sage.study.models import RL, SFT, Evaluation, LoRA, Model, Sampling
from sage.study.problem_sets import ArithmeticSet, KnightsSet, ProblemSet
from sage.study.reading import StudyError, load_settings, load_study
from sage.study.types import ResolvedStudy, Settings, Study

__all__ = [
    "BASE",
    "RL",
    "SFT",
    "Algorithm",
    "Architecture",
    "ArithmeticSet",
    "Corpus",
    "Evaluation",
    "Guide",
    "KnightsSet",
    "LoRA",
    "Model",
    "Pretraining",
    "ProblemSet",
    "ResolvedStudy",
    "Sampling",
    "ScratchBase",
    "Settings",
    "Study",
    "StudyError",
    "load_settings",
    "load_study",
]
