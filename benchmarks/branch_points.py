"""Measures that the rules of a world rest on: chance, entropies, log q, dose of the branch guide.

Shared by `route_rules` and `sums_rules`; the guide is the paper's. Samples are frames with a row
for each completion of a problem.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from sage.evaluation.chance import chance_level
from sage.method.guides import BranchGuide, Moment, Noise, Signals, guide_log_factors
from sage.problems.record import Problem

THRESHOLD, RATIO, CLAMP = 1.2, 0.3, (0.6, 1.4)
"""The paper's branch guide."""

K = 16
"""The primary k."""

FEW = 16
"""Samples of a problem in which entropies are measured."""

BATCH = 256


def samples_each(samples: pd.DataFrame) -> int:
    """How many samples each problem has; raises ValueError if not all have as many."""
    sizes = samples.groupby("problem_id").size().unique()
    if len(sizes) != 1:
        raise ValueError(f"problems have {sorted(sizes)} samples; each must have as many")
    return int(sizes[0])


def chance(samples: pd.DataFrame, problems: Sequence[Problem], k: int) -> float:
    """Mean pass@k of the answers to each problem, graded as answers to every other problem."""
    given = {p.problem_id: {} for p in problems} | {
        name: own.value_counts().to_dict() for name, own in samples.groupby("problem_id")["answer"]
    }
    answers = [given[p.problem_id] for p in problems]
    return float(chance_level(answers, problems, samples_each(samples), np.array([k])).mean())


def entropies(
    model: PreTrainedModel, prompts: Sequence[list[int]], completions: Sequence[list[int]]
) -> list[np.ndarray]:
    """The policy's entropy (nats) before each token of each completion."""
    rows = list(zip(prompts, completions, strict=True))
    measured = []
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        longest = max(len(a) + len(b) for a, b in batch)
        # Padding stands behind all that is read, so any token will do.
        ids = torch.tensor([a + b + [0] * (longest - len(a) - len(b)) for a, b in batch])
        with torch.no_grad():
            log_probs = model(ids).logits.log_softmax(-1)
        values = -(log_probs.exp() * log_probs).sum(-1).numpy()
        measured += [
            row[len(a) - 1 : len(a) + len(b) - 1] for row, (a, b) in zip(values, batch, strict=True)
        ]
    return measured


def log_factors(values: np.ndarray) -> np.ndarray:
    """log q of the branch guide for entropies `[T]`."""
    signal = torch.tensor(values)[None]
    signals = Signals(torch.zeros_like(signal), signal, torch.ones_like(signal))
    moment = Moment(0, 1, Noise("rules of a world"))
    return guide_log_factors(BranchGuide(RATIO, THRESHOLD), signals, moment, *CLAMP)[0].numpy()


def of_log_q(few: pd.DataFrame, kl_coefficient: float) -> dict[str, float]:
    """Mean log q, right minus wrong completions of a problem, and the dose.

    `few` has `problem_id`, `correct` and the `log_q` of each completion. The dose is the KL
    coefficient times the standard deviation within a problem, in units of the advantages' own.
    """
    within = few.groupby("problem_id")["log_q"].std()
    means = few.groupby(["problem_id", "correct"])["log_q"].mean().unstack()
    gap = (means[True] - means[False]).mean() if means.shape[1] == 2 else float("nan")
    return {
        "log_q": round(float(few["log_q"].mean()), 4),
        "log_q_right_minus_wrong": round(float(gap), 4),
        "log_q_sd_within_problem": round(float(within.mean()), 4),
        "dose_of_the_paper": round(kl_coefficient * float(within.mean()), 5),
    }
