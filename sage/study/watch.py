"""When training counts as gone wrong, and which signs of it end the run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sage.fields import Positive, Strict

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
    and trainer differ by more than 0.1 nats per token, in one step, so rollouts are of another
    policy than the one that is trained. top_k, top_p and min_p make them differ too, by the log of
    the probability that they keep. The others concern the mean over `patience` steps.
    `zero_reward`: no completion is correct. `zero_advantages`: every advantage is 0, so only the KL
    term trains. `truncated`: all completions are truncated. `low_entropy`: the entropy per token is
    below 0.001 nats. `grader_timeouts`: the grader ran out of time or memory on more than 10 % of
    the answers. `runaway`, of runs with a guide, compares the means of `patience` steps with those
    of the `patience` steps before: the reward has fallen by 0.05 while log q of a completion has
    risen by 0.5 nats, or the truncated share by 0.1; the guide then pays for what it has brought
    about. These settings change no result: after a change only the page is made again, and finished
    runs keep the warnings that they have.
    """

    patience: Positive = 20
    """over how many steps a mean is taken [optimizer steps]"""
    stop: list[Sign] = Field(default=["not_finite", "sampler_gap"])
    """signs that end the run with an error, which names the reason and the last checkpoint before
    it"""
