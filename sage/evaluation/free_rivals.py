"""What costs nothing beyond a baseline's own training: stopping it early, or sampling it hotter.

Both move along pass@1 and pass@k, as mixtures with the base do (`sage.evaluation.mixtures`). A
method keeps coverage only if it is above all three at equal accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from sage.evaluation.counts import counts_table
from sage.evaluation.snapshots import SnapshotSampler, snapshots_of
from sage.results import run_at
from sage.runtime.tables import read_frame


def at_step(step: int) -> str:
    """The name of the baseline stopped at a step, in place of a method's."""
    return f"step-{step}"


def at_temperature(temperature: float) -> str:
    """The name of the finished baseline sampled at a temperature."""
    return f"temperature-{temperature:g}"


def rival_counts(
    sampler: SnapshotSampler,
    policies: Sequence[Path],
    snapshots: int,
    temperatures: Sequence[float],
) -> tuple[pd.DataFrame, int]:
    """Counts (`sage.evaluation.counts.COUNTS`) of both rivals, and how many tokens were drawn.

    `policies` are the baseline's runs; each is sampled at `snapshots` even moments without the
    last, and at its end with each of `temperatures`. The names stand in the column `algorithm`.
    """
    frames: dict[tuple[str, str, int, str], pd.DataFrame] = {}
    for policy in policies:
        _, algorithm, seed = run_at(policy)
        moments = snapshots_of(policy, snapshots)[:-1] if snapshots else []
        drawn = {
            at_step(step): sampler.samples(folder, algorithm, seed, step)
            for step, folder in moments
        }
        for temperature in temperatures:
            name = at_temperature(temperature)
            sampling = sampler.settings.sampling.model_copy(update={"temperature": temperature})
            hotter = replace(
                sampler,
                settings=sampler.settings.model_copy(update={"sampling": sampling}),
                shards=sampler.shards / name,
            )
            drawn[name] = hotter.samples(policy, algorithm, seed, 0)
        for name, path in drawn.items():
            frames[sampler.model, name, seed, sampler.benchmark] = read_frame(path)
    tokens = sum(int(frame["n_tokens"].sum()) for frame in frames.values())
    return counts_table(frames, sampler.problems), tokens
