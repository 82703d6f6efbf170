"""Settings of jobs that change no result: when to save, and when to warn.

They reach jobs as an environment variable. They are no parameters of a job, so changing them makes
none run again but the page, which lists all settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sage.study.types import ResolvedStudy

VARIABLE = "SAGE_WITHOUT_EFFECT"
"""The environment variable with the settings of every model, as JSON."""

WITHOUT_EFFECT = {
    "rl": ("watch", "checkpoint_every", "vllm_sleep"),
    "sft": ("checkpoint_every",),
    "evaluation": ("shard_size",),
}
"""The settings, by section of a model. Registrations leave out fewer (`models.UNCOUNTED`): the sums
of kept ones depend on which."""


def for_jobs(study: ResolvedStudy) -> dict[str, str]:
    """The environment variable that hands the settings to jobs."""
    settings: dict[str, dict[str, Any]] = {}
    for name, model in study.study.models.items():
        parts = {"rl": model.rl, "sft": model.sft, "evaluation": study.evaluation(name)}
        settings[name] = {
            part: values.model_dump(mode="json", include=set(WITHOUT_EFFECT[part]))
            for part, values in parts.items()
            if values is not None
        }
    return {VARIABLE: json.dumps(settings)}


def of_job(model: str, part: str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Those of a section of `model` that `for_jobs` has handed over; KeyError if it has not."""
    return dict(json.loads(environment[VARIABLE])[model][part])
