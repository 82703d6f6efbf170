"""A run of a study held against a kept run: is it what that run could have been?

Both are pass@k by training run on the same problems, so what varies is the training run alone.
From the kept runs follows where the mean of as many further runs would lie (Student's
prediction interval); the user's mean lies inside or outside of it. A result that is one of many
may be outside by chance, so a run fails only where p, adjusted after Holm over all of them, is
below 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import POOLED
from sage.evaluation.intervals import holm, p_of_distance, student
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame

KEYS = ["model", "algorithm", "benchmark", "k"]
COLUMNS = [*KEYS, "kept", "kept_runs", "low", "high", "value", "runs", "place", "p", "p_holm"]
LEVEL = 0.05

_FILES = ("pass_at_k.csv", "pass_at_k.parquet", "metrics/pass_at_k.parquet")
_NEEDED = [*KEYS, "train_seed", "metric", "value", "n_problems"]


def kept_file(folder: Path | None) -> Path:
    """The one file of a kept run that is read: its pass@k by training run.

    Raises ValueError if no kept run is named, and FileNotFoundError that names what was looked
    for.
    """
    if folder is None:
        raise ValueError(
            "no kept run: name the folder of one, `sage-rlvr compare STUDY FOLDER` or `snakemake "
            "compare --cores 1 --config study=STUDY kept=FOLDER`"
        )
    for name in _FILES:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"{folder}: no {', '.join(_FILES)}; a kept run is the results folder of a finished "
        "study, or a folder with a copy of its metrics/pass_at_k.parquet, as it is or as CSV"
    )


def own_metrics(path: Path, study: str) -> Path:
    """A finished study's own file. Raises FileNotFoundError: a comparison starts no study."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: the study has not been run; run it first (`sage-rlvr run {study}`), then "
            "compare"
        )
    return path


def read_kept(path: Path) -> pd.DataFrame:
    """pass@k by training run from a file as `metrics/pass_at_k.parquet`, or that as CSV.

    Raises ValueError if a column is missing or if there is no row of a single run.
    """
    table = pd.read_csv(path) if path.suffix == ".csv" else read_frame(path)
    if lacking := [name for name in _NEEDED if name not in table]:
        raise ValueError(f"{path}: no column {', '.join(lacking)}; needed: {', '.join(_NEEDED)}")
    if not (table["train_seed"] != POOLED).any():
        raise ValueError(
            f"{path}: only pooled rows (train_seed {POOLED}); a kept run needs a row for each "
            "training run"
        )
    return table


def compared_with_kept(run: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS: a row for each pass@k that both have, at k = 1 and the largest k they share.

    `low` and `high` are the 95 % prediction interval of the mean of `runs` runs given those of
    the kept run; with one run there, the spread is that of the user's runs. It is at least one
    problem wide on either side. `place` is `inside` or `outside`, or `unknown` where both have
    one run and nothing is known of how runs differ. Raises ValueError if nothing is in common, or
    if a benchmark has other problems.
    """
    ours, theirs = _by_run(run), _by_run(kept)
    common = [key for key in theirs if key in ours]
    for key in common:
        if (here := ours[key][1]) != (there := theirs[key][1]):
            raise ValueError(
                f"the kept run is of another study: benchmark {key[2]!r} has {there} problems "
                f"there and {here} here; compare with a run of this study"
            )
    largest: dict[tuple[Any, ...], int] = {}
    for *row, k in common:
        largest[tuple(row)] = max(largest.get(tuple(row), 1), k)
    rows = [
        {**dict(zip(KEYS, key, strict=True)), **_row(*ours[key], theirs[key][0])}
        for key in common
        if key[-1] in (1, largest[key[:-1]])
    ]
    if not rows:
        raise ValueError("the run and the kept run share no model, algorithm, benchmark and k")
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"].to_numpy(dtype=float)))[COLUMNS]


def passes(table: pd.DataFrame) -> bool:
    """Whether no row differs from the kept run by more than chance allows."""
    return not bool((table["p_holm"] < LEVEL).any())


def summary(table: pd.DataFrame) -> str:
    """The comparison as text: what lies outside, and how many rows lie where."""
    counts = table["place"].value_counts().to_dict()
    lines = [
        "{} {} {} pass@{}: {:.1f}, expected {:.1f} to {:.1f}{}".format(
            *(row[key] for key in KEYS),
            *(100 * row[name] for name in ("value", "low", "high")),
            "" if row["p_holm"] < LEVEL else " (may be chance, among so many)",
        )
        for row in table[table["place"] == "outside"].to_dict("records")
    ]
    places = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("inside", "outside", "unknown"))
    judged = len(table) - counts.get("unknown", 0)
    verdict = "the run agrees with the kept run" if passes(table) else "the run differs from it"
    if not judged:
        same = int((table["value"] == table["kept"]).sum())
        verdict = (
            f"{same} of {len(table)} are equal, and more cannot be said: with one training run on "
            "both sides nothing is known of how runs differ"
        )
    return "\n".join([*lines, f"{places}: {verdict}."])


def compare(metrics: Path, kept: Path, table: Path) -> tuple[str, bool]:
    """Compare a study's metrics/pass_at_k.parquet with such a file, and write the table.

    Returns what was found as text, and whether the run agrees.
    """
    compared = compared_with_kept(read_frame(metrics), read_kept(kept))
    write_text_atomic(table, compared.to_csv(index=False, lineterminator="\n"))
    return summary(compared), passes(compared)


def _by_run(metrics: pd.DataFrame) -> dict[tuple[Any, ...], tuple[np.ndarray, int]]:
    """Values of runs `[S]` and the number of problems, by KEYS."""
    runs = metrics[(metrics["metric"] == "pass@k") & (metrics["train_seed"] != POOLED)]
    return {
        (*map(str, key[:-1]), int(str(key[-1]))): (rows["value"].to_numpy(float), problems)
        for key, rows in runs.groupby(KEYS, sort=False)
        for problems in [int(rows["n_problems"].iloc[0])]
    }


def _row(ours: np.ndarray, problems: int, theirs: np.ndarray) -> Mapping[str, Any]:
    value, kept = float(ours.mean()), float(theirs.mean())
    known = {"kept": kept, "kept_runs": len(theirs), "value": value, "runs": len(ours)}
    several = theirs if len(theirs) > 1 else ours
    if len(several) < 2:
        return known | {"low": math.nan, "high": math.nan, "p": math.nan, "place": "unknown"}
    df = len(several) - 1
    error = float(several.std(ddof=1)) * math.sqrt(1.0 / len(ours) + 1.0 / len(theirs))
    reach = max(student(df, 0.975) * error, 1.0 / problems)
    inside = abs(value - kept) <= reach + 1e-12
    return known | {
        "low": max(kept - reach, 0.0),
        "high": min(kept + reach, 1.0),
        "p": max(p_of_distance(abs(value - kept), error, df), LEVEL if inside else 0.0),
        "place": "inside" if inside else "outside",
    }
