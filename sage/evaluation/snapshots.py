"""Snapshots that a run of RL has kept, and samples of them for one exhibit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sage.evaluation.samples import evaluate
from sage.problems.record import Problem
from sage.runtime.manifest import Manifest
from sage.study import Draws


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
