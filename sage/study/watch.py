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

from sage.fields import NonNegativeFloat, Positive, PositiveFloat, Share, Strict

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
    `large_loss`: the absolute loss is above `largest_loss`, in one step. `sampler_gap`: log-probs
    of sampler and trainer differ by more than `largest_gap` per token, in one step, so rollouts
    are of another policy than the one that is trained. top_k, top_p and min_p make them differ
    too, by the log of the probability that they keep. The others concern the mean over `patience`
    steps. `zero_reward`: no completion is correct. `zero_advantages`: every
    advantage is 0, so only the KL term trains. `truncated`: the share of truncated completions is
    at least `truncated_share`. `low_entropy`: the entropy is below `lowest_entropy`.
    `grader_timeouts`: the share of answers on which the grader ran out of time or memory is above
    `timeout_share`. `runaway`, of runs with a guide, compares the means of `patience` steps with
    those of the `patience` steps before: the reward has fallen by `reward_fall` while log q of a
    completion has risen by `log_q_rise`, or the truncated share by `truncated_rise`; the guide
    then pays for what it has brought about. These settings change no result: after a change only
    the page is made again, and finished runs keep the warnings that they have.
    """

    patience: Positive = 20
    """over how many steps a mean is taken [optimizer steps]"""
    largest_loss: PositiveFloat = 100.0
    """a larger absolute loss is a sign [loss]"""
    largest_gap: PositiveFloat = 0.1
    """a larger mean gap between sampler and trainer is a sign [nats per token]"""
    truncated_share: Share = 1.0
    """this share of truncated completions, or more, is a sign [share, 0 to 1]"""
    lowest_entropy: NonNegativeFloat = 0.001
    """a lower mean entropy per token is a sign [nats]"""
    timeout_share: Share = 0.1
    """a larger share of answers without a verdict is a sign [share, 0 to 1]"""
    reward_fall: Share = 0.05
    """a fall of the mean reward that may be a sign [reward, 0 to 1]"""
    log_q_rise: PositiveFloat = 0.5
    """a rise of log q with which it is [nats per completion]"""
    truncated_rise: Share = 0.1
    """a rise of the truncated share with which it is [share, 0 to 1]"""
    stop: list[Sign] = Field(default=["not_finite", "sampler_gap"])
    """signs that end the run with an error, which names the reason and the last checkpoint before
    it"""


def for_jobs(watches: Mapping[str, Watch]) -> dict[str, str]:
    """The environment variable that hands the settings, by model, to jobs."""
    return {VARIABLE: json.dumps({model: watch.model_dump() for model, watch in watches.items()})}


def of_job(model: str, environment: Mapping[str, str] = os.environ) -> Watch:
    """The settings of `model` that `for_jobs` has handed over; KeyError if it has not."""
    return Watch.model_validate(json.loads(environment[VARIABLE])[model])
