"""A study: what it consists of, and how it is read and checked (`reading`)."""

from sage.fields import BASE
from sage.problems.corpus import Corpus
from sage.study.algorithms import Algorithm, choice_files, is_control
from sage.study.bases import Architecture, Pretraining, ScratchBase
from sage.study.choices import CHOICES, Choice, Guide
from sage.study.models import RL, SFT, Draws, Evaluation, LoRA, Model, Sampling
from sage.study.parsed import StudyError
from sage.study.reading import load_settings
from sage.study.types import ResolvedStudy, Settings, Study
from sage.tasks.arithmetic import ArithmeticSet
from sage.tasks.knights import KnightsSet
from sage.tasks.known import ProblemSet

__all__ = [
    "BASE",
    "CHOICES",
    "RL",
    "SFT",
    "Algorithm",
    "Architecture",
    "ArithmeticSet",
    "Choice",
    "Corpus",
    "Draws",
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
    "choice_files",
    "is_control",
    "load_settings",
]
