"""Snapshots that a run of RL has kept, and what is measured on samples of them for one exhibit.

That is accuracy at moments of training (Figure 2), pass@k there by stratum, and what costs nothing
beyond a baseline's own training: stopping it early, or sampling it hotter. Both of the latter move
along pass@1 and pass@k, as mixtures with the base do (`sage.evaluation.mixtures`). A method keeps
coverage only if it is above all three at equal accuracy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from sage.evaluation.counts import counts_table
from sage.evaluation.curves import Curves, curves_of
from sage.evaluation.intervals import interval_of_difference, interval_of_share
from sage.evaluation.samples import evaluate
from sage.problems.record import Problem
from sage.results import run_at
from sage.runtime.manifest import Manifest
from sage.runtime.tables import read_frame
from sage.study import BASE, Draws


@dataclass(frozen=True)
class SnapshotSampler:
    """Samples snapshots of a model's runs on one benchmark.

    `base` is the parent that they were trained from. Samples go into the folder `shards`, each with
    a copy of `manifest`; what is there is not drawn again, so a killed job goes on.
    """

    base: Path
    problems: Sequence[Problem]
    settings: Draws
    device: str
    model: str
    benchmark: str
    shards: Path
    manifest: Manifest

    def samples(self, policy: Path | None, algorithm: str, seed: int, step: int) -> Path:
        """The file of graded samples of the snapshot `policy`, None for the parent itself.

        Its path ends as those of the evaluation do: {model}/{algorithm}/seed{seed}/{benchmark}.
        """
        folder = self.shards / f"step{step}" / self.model / algorithm / f"seed{seed}"
        output = folder / f"{self.benchmark}.parquet"
        evaluate(
            base=self.base,
            policy=policy,
            problems=self.problems,
            settings=self.settings,
            device=self.device,
            model=self.model,
            benchmark=self.benchmark,
            train_seed=seed,
            shards=output.with_suffix(""),
            output=output,
            manifest=self.manifest,
        )
        return output


def snapshots_of(policy: Path, count: int) -> list[tuple[int, Path]]:
    """(step, folder) of `count` evenly spaced snapshots of a policy, the end among them.

    Raises FileNotFoundError if fewer have been kept.
    """
    folders = (policy / "snapshots").glob("step*")
    kept = sorted((int(folder.name.removeprefix("step")), folder) for folder in folders)
    if len(kept) < count:
        raise FileNotFoundError(f"{policy}/snapshots: {len(kept)} of {count} snapshots")
    return [kept[round(len(kept) * (i + 1) / count) - 1] for i in range(count)]


TRAJECTORY = ["algorithm", "train_seed", "step", "value", "low", "high"]


def trajectory_table(
    sampler: SnapshotSampler, policies: Sequence[Path], count: int, bootstrap: int
) -> tuple[pd.DataFrame, int]:
    """Sample the parent and `count` snapshots of each of `policies`.

    `policies` are folders .../{algorithm}/seed{seed}. Returns pass@1 with its interval over
    problems, from `bootstrap` resamples (TRAJECTORY), and how many tokens were drawn; step 0 is the
    parent. Of snapshots kept for a finer figure, those at `count` even shares of the run are taken.
    Raises FileNotFoundError for too few snapshots.
    """
    rows, tokens = [], 0

    def accuracy(
        policy: Path | None, algorithm: str, seed: int, step: int
    ) -> tuple[float, float, float]:
        nonlocal tokens
        frame = read_frame(sampler.samples(policy, algorithm, seed, step))
        tokens += int(frame["n_tokens"].sum())
        run = sampler.model, algorithm, seed, sampler.benchmark
        (curves,) = curves_of(counts_table({run: frame}, sampler.problems)).values()
        at_one = curves.values[:, :, :1]
        low, high = interval_of_share(at_one, bootstrap, curves.groups)
        return float(at_one.mean()), float(low[0]), float(high[0])

    start = accuracy(None, BASE, 0, 0)
    for policy in policies:
        _, algorithm, seed = run_at(policy)
        rows.append((algorithm, seed, 0, *start))
        for step, folder in snapshots_of(policy, count):
            rows.append((algorithm, seed, step, *accuracy(folder, algorithm, seed, step)))
    return pd.DataFrame(rows, columns=TRAJECTORY), tokens


def rival_counts(
    sampler: SnapshotSampler,
    policies: Sequence[Path],
    snapshots: int,
    temperatures: Sequence[float],
) -> tuple[pd.DataFrame, int]:
    """Counts (`sage.evaluation.counts.COUNTS`) of both rivals, and how many tokens were drawn.

    `policies` are the baseline's runs; each is sampled at `snapshots` even moments without the
    last, and at its end with each of `temperatures`. The names, such as `step-40` and
    `temperature-1.5`, stand in the column `algorithm`.
    """
    frames: dict[tuple[str, str, int, str], pd.DataFrame] = {}
    for policy in policies:
        _, algorithm, seed = run_at(policy)
        moments = snapshots_of(policy, snapshots)[:-1] if snapshots else []
        drawn = {
            f"step-{step}": sampler.samples(folder, algorithm, seed, step)
            for step, folder in moments
        }
        for temperature in temperatures:
            name = f"temperature-{temperature:g}"
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


BY_STEP = ["step", "part", "problems", "runs", "k", "value", "low", "high"]
BY_STEP += ["change", "change_low", "change_high"]
"""pass@k (a share) with its 95 % interval, and its change from the base, NaN for the base."""


def by_step(
    counts: pd.DataFrame, steps: Mapping[str, int], trained: Collection[str], k: int, draws: int
) -> pd.DataFrame:
    """BY_STEP: pass@1 and pass@k at moments of training, a row for each `part` of the problems.

    `counts` (`sage.evaluation.counts.COUNTS`) are those of one model and benchmark; `steps` says
    at which step each name in its column `algorithm` is, the base at 0. Parts are `all`, `trained`
    for problems of the strata that RL trains on, and `others`; `all` alone if either has no
    problems. Intervals are over problems and runs (`draws` of the bootstrap), changes paired by
    problem. Raises ValueError without counts of the base, and for a k that is neither a power of
    two up to the samples nor their number.
    """
    seen = counts["stratum"].isin(trained)
    parts = {"all": counts, "trained": counts[seen], "others": counts[~seen]}
    rows = []
    for part, own in parts.items() if 0 < seen.sum() < len(seen) else [("all", counts)]:
        curves = {name: each for (_, name, _), each in curves_of(own).items()}
        if BASE not in curves:
            raise ValueError("no counts of the base, from which changes are measured")
        for name, each in sorted(curves.items(), key=lambda one: steps[one[0]]):
            values, base = (_at(one, k) for one in (each, curves[BASE]))
            ends = interval_of_share(values, draws, each.groups)
            moved = (
                (values - base).mean(axis=(0, 1)),
                *interval_of_difference(values - base, draws, each.groups),
            )
            if name == BASE:
                moved = (np.full(2, np.nan),) * 3
            columns = zip((1, k), values.mean(axis=(0, 1)), *ends, *moved, strict=True)
            head = steps[name], part, len(each.problems), len(each.seeds)
            rows += [(*head, *column) for column in columns]
    return pd.DataFrame(rows, columns=BY_STEP)


def _at(curves: Curves, k: int) -> np.ndarray:
    """pass@1 and pass@k, `[S, P, 2]`."""
    if k not in curves.ks:
        raise ValueError(
            f"pass@{k} of {curves.n} samples; it is known for {[*map(int, curves.ks)]}"
        )
    return curves.values[..., [0, int(np.searchsorted(curves.ks, k))]]
