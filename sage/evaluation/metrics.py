"""Tidy metrics from graded samples, a parquet file per table.

Each is measured once for a model and a benchmark; the study's file of that name holds those of all
of them. Here are pass@k with intervals, the paper's own reading of it, and what became of the
samples; comparisons, support and chance are modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.chance import chance_table, checks_working
from sage.evaluation.comparisons import adjusted, comparisons_table, part_columns
from sage.evaluation.counts import RUN, counts_table
from sage.evaluation.curves import POOLED, Curves, Samples, run_of, run_table
from sage.evaluation.intervals import ends_of_share, mean_of, parts_of_share
from sage.evaluation.support import support_table
from sage.grading import STATUSES
from sage.problems.record import read_problems
from sage.runtime.files import atomic_directory, atomic_file
from sage.runtime.tables import read_frame, read_frames

RATED: list[str] = [*STATUSES, "truncated"]
"""Statuses of a completion. A truncated one also has another status."""

_COLUMNS = ["problem_id", "eval_seed", "sample_index", "answer", "status", "finish_reason"]


def write_metrics(
    samples: Sequence[Path],
    draws: int,
    folder: Path,
    names: Sequence[str] | None = None,
    problems: Path | None = None,
) -> None:
    """Read graded samples and write TABLES, or those named, each as a Parquet file in `folder`.

    Chance levels and correct working need the file of their `problems`. The folder is written
    completely or not at all.
    """
    asked = [] if problems is None else read_problems(problems)
    columns = [*_COLUMNS, "completion"] if asked and checks_working(asked) else _COLUMNS
    frames = {run_of(path): read_frame(path, columns=columns) for path in samples}
    counts = counts_table(frames, asked)
    with atomic_directory(folder) as temporary:
        for name in names or TABLES:
            table = (
                OF_COUNTS[name](counts, draws) if name in OF_COUNTS else OF_SAMPLES[name](frames)
            )
            table.to_parquet(temporary / f"{name}.parquet", index=False)


def of_counts(
    counts: pd.DataFrame, bases: Mapping[str, Sequence[str]], draws: int
) -> dict[str, pd.DataFrame]:
    """Every table of a whole study that is made from its counts alone, by name."""
    tables = {name: make(counts, draws) for name, make in OF_COUNTS.items()}
    return tables | {"comparisons": _with_bases(tables["comparisons"], counts, bases, draws)}


def _with_bases(
    comparisons: pd.DataFrame, counts: pd.DataFrame, bases: Mapping[str, Sequence[str]], draws: int
) -> pd.DataFrame:
    """Comparisons within models, then those over groups of them, with p adjusted."""
    over = [comparisons_table(counts, draws, bases)] if bases else []
    return adjusted(pd.concat([comparisons, *over], ignore_index=True))


def join_metrics(
    folders: Sequence[Path],
    tables: Mapping[str, Path],
    bases: Mapping[str, Sequence[str]],
    draws: int,
) -> None:
    """Write the tables named in `tables`, each to its path, from what `write_metrics` wrote.

    The comparisons have those over `bases` as well, and p adjusted for all of a model at that k.
    """
    for name, path in tables.items():
        joined = read_frames([folder / f"{name}.parquet" for folder in folders])
        if name == "comparisons":
            counts = read_frames([folder / "counts.parquet" for folder in folders])
            joined = _with_bases(joined, counts, bases, draws)
        with atomic_file(path) as temporary:
            joined.to_parquet(temporary, index=False)


def pass_at_k_table(counts: pd.DataFrame, draws: int) -> pd.DataFrame:
    """Unbiased pass@k for k = 1, 2, 4, … n, per run and pooled over training seeds.

    Columns: model, algorithm, train_seed (POOLED for all), benchmark, metric, k, value, low,
    high (95 %, see `sage.evaluation.intervals`; pooled, it is about training runs as well),
    n_problems, n_samples, and PART_COLUMNS, which the mean over benchmarks is made from
    (`sage.evaluation.comparisons`). Raises ValueError if problems were sampled unequally often.
    """

    def measure(curves: Curves, runs: slice) -> Iterator[dict[str, Any]]:
        values, seeds = curves.values[runs], curves.seeds[runs]
        parts = parts_of_share(values, draws, groups=curves.groups)
        low, high = ends_of_share(mean_of([parts], bounded=True))
        value = values.mean(axis=(0, 1))
        head = {"metric": "pass@k", "k": curves.ks, "value": value, "low": low, "high": high}
        yield head | part_columns(parts, seeds)

    return run_table(counts, measure)


def paper_reading_table(samples: Samples) -> pd.DataFrame:
    """pass@1 and pass@n as the paper reports them: mean and std over evaluation seeds.

    Per evaluation seed, pass@1 is the share of problems whose first sample is correct, pass@n
    that of problems with any correct among the seed's n samples. Columns: model, algorithm,
    train_seed (POOLED: over the evaluation seeds of all runs), benchmark, metric, k, value, std
    (within a training run, with n - 1: pooled rows have the root of the mean variance of the runs;
    NaN for one evaluation seed), n_eval_seeds (of all runs), n_problems.
    """
    readings: dict[tuple[str, str, str], dict[int, pd.DataFrame]] = {}
    problems = {}
    for (model, algorithm, train_seed, benchmark), frame in samples.items():
        readings.setdefault((model, algorithm, benchmark), {})[train_seed] = _reading(frame)
        problems[model, algorithm, benchmark] = frame["problem_id"].nunique()
    frames = []
    for key, by_run in readings.items():
        groups = {**{seed: [run] for seed, run in by_run.items()}, POOLED: list(by_run.values())}
        for train_seed, runs in groups.items():
            reading = pd.concat(runs)
            columns = {
                **dict(zip(("model", "algorithm", "benchmark"), key, strict=True)),
                "train_seed": train_seed,
                "metric": "pass@k",
                "k": reading.columns,
                "value": reading.mean().to_numpy(),
                "std": np.sqrt(np.mean([run.var(ddof=1) for run in runs], axis=0)),
                "n_eval_seeds": len(reading),
                "n_problems": problems[key],
            }
            frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _reading(frame: pd.DataFrame) -> pd.DataFrame:
    """pass@1 and pass@n (columns 1 and n) of each evaluation seed (rows)."""
    correct = frame["status"] == "correct"
    n = int(frame["sample_index"].max()) + 1
    first = correct[frame["sample_index"] == 0].groupby(frame["eval_seed"]).mean()
    any_ = correct.groupby([frame["eval_seed"], frame["problem_id"]]).any().groupby(level=0).mean()
    return pd.DataFrame({1: first, n: any_})


def rates_table(samples: Samples) -> pd.DataFrame:
    """Share of samples per status (RATED), per run.

    Columns: model, algorithm, train_seed, benchmark, status, share, n_samples (of the run).
    """
    frames = []
    for run, frame in samples.items():
        shares = frame["status"].value_counts(normalize=True).reindex(RATED, fill_value=0.0)
        shares["truncated"] = (frame["finish_reason"] == "length").mean()
        columns = {"status": RATED, "share": shares.to_numpy(), "n_samples": len(frame)}
        frames.append(pd.DataFrame(dict(zip(RUN, run, strict=True)) | columns))
    return pd.concat(frames, ignore_index=True)


OF_COUNTS: dict[str, Callable[[pd.DataFrame, int], pd.DataFrame]] = {
    "counts": lambda counts, draws: counts,
    "pass_at_k": pass_at_k_table,
    "comparisons": comparisons_table,
    "support": support_table,
    "chance": chance_table,
}
OF_SAMPLES: dict[str, Callable[[Samples], pd.DataFrame]] = {
    "rates": rates_table,
    "paper_reading": paper_reading_table,
}
TABLES = (*OF_COUNTS, *OF_SAMPLES)
"""The tables by the names of their files."""
