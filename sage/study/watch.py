"""When training counts as gone wrong, and which signs of it end the run.

The settings reach jobs as an environment variable: they are no parameter of a job, so changing them
makes none run again but the page, which lists all settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from sage.fields import Positive, PositiveFloat, Strict

VARIABLE = "SAGE_WATCH"
"""The environment variable with the settings of every model, as JSON."""

Sign = Literal[
    "not_finite",
    "large_loss",
    "sampler_gap",
    "zero_reward",
    "zero_advantages",
    "truncated",
    "low_entropy",
    "grader_timeouts",
    "runaway",
]
"""What can be wrong; `sage.training.signs` decides it from the rows of a history."""


class Watch(Strict):
    """Signs that RL goes wrong. Each is a warning in the log of the run and on the page.

    `not_finite`: the loss or the gradient's norm is not a number or infinite, in one step.
    `large_loss`: the absolute loss is above 100, in one step. `sampler_gap`: log-probs of sampler
    and trainer differ by more than `largest_gap` per token, in one step, so rollouts are of another
    policy than the one that is trained. top_k, top_p and min_p make them differ too, by the log of
    the probability that they keep. The others concern the mean over `patience` steps.
    `zero_reward`: no completion is correct. `zero_advantages`: every advantage is 0, so only the KL
    term trains. `truncated`: all completions are truncated. `low_entropy`: the entropy is below
    0.001 nats. `grader_timeouts`: on more than 10 % of the answers the grader ran out of time or
    memory. `runaway`, of runs with a guide, compares the means of `patience` steps with those of
    the `patience` steps before: the reward has fallen by 0.05 while log q of a completion has risen
    by 0.5 nats, or the truncated share by 0.1; the guide then pays for what it has brought about.
    These settings change no result: after a change only the page is made again, and finished runs
    keep the warnings that they have.
    """

    patience: Positive = 20
    """over how many steps a mean is taken [optimizer steps]"""
    largest_gap: PositiveFloat = 0.1
    """a larger mean gap between sampler and trainer is a sign [nats per token]"""
    stop: list[Sign] = Field(default=["not_finite", "sampler_gap"])
    """signs that end the run with an error, which names the reason and the last checkpoint before
    it"""


def for_jobs(watches: Mapping[str, Watch]) -> dict[str, str]:
    """The environment variable that hands the settings, by model, to jobs."""
    return {VARIABLE: json.dumps({model: watch.model_dump() for model, watch in watches.items()})}


def of_job(model: str, environment: Mapping[str, str] = os.environ) -> Watch:
    """The settings of `model` that `for_jobs` has handed over; KeyError if it has not."""
    return Watch.model_validate(json.loads(environment[VARIABLE])[model])
