"""A run of a study held against a kept run: is it what that run could have been?

Both are pass@k by training run on the same problems, so what varies is the training run alone.
From the kept runs follows where the mean of as many further runs would lie (Student's
prediction interval); the user's mean lies inside or outside of it. A result that is one of many
may be outside by chance, so a run fails only where p, adjusted after Holm over all of them, is
below 0.05.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import LEVEL, POOLED
from sage.evaluation.intervals import holm, p_of_distance, student
from sage.rendering.numbers import percent
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame

KEYS = ["model", "algorithm", "benchmark", "k"]
COLUMNS = [*KEYS, "kept", "kept_runs", "low", "high", "value", "runs", "place", "p", "p_holm"]

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
    if folder.parent.name == "kept" and (there := [*folder.parents[1].glob(f"*/{folder.name}")]):
        raise FileNotFoundError(f"{folder}: has moved to {there[0]}")
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

    Raises ValueError if a column is missing, if there is no row of a single run, for a run that is
    there twice, and for a value that is no share.
    """
    table = pd.read_csv(path) if path.suffix == ".csv" else read_frame(path)
    if lacking := [name for name in _NEEDED if name not in table]:
        raise ValueError(f"{path}: no column {', '.join(lacking)}; needed: {', '.join(_NEEDED)}")
    if not (table["train_seed"] != POOLED).any():
        raise ValueError(
            f"{path}: only pooled rows (train_seed {POOLED}); a kept run needs a row for each "
            "training run"
        )
    own = [name for name in _NEEDED if name not in ("value", "n_problems")]
    if (again := table.duplicated(own)).any():
        raise ValueError(f"{path}: row {1 + int(again.argmax())} is of a run that is there before")
    shares = pd.to_numeric(table["value"], errors="coerce").between(0, 1)
    if (wrong := ~shares & (table["metric"] == "pass@k")).any():
        raise ValueError(f"{path}: the value in row {1 + int(wrong.argmax())} is no share, 0 to 1")
    return table


def compare(metrics: Path, kept: Path, table: Path) -> tuple[str, bool]:
    """Compare a study's metrics/pass_at_k.parquet with such a file, and write the table.

    Returns what was found as text, and whether the run agrees.
    """
    compared = compared_with_kept(read_frame(metrics), read_kept(kept))
    write_text_atomic(table, compared.to_csv(index=False, lineterminator="\n"))
    return summary(compared)


def compared_with_kept(run: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS: a row for each pass@k that both have, at k = 1 and the largest k they share.

    `low` and `high` are the 95 % prediction interval of the mean of `runs` runs given those of
    the kept run; with one run there, the spread is that of the user's runs. It is at least one
    problem wide on either side. `place` is `inside` or `outside`, or `unknown` where both have
    one run and nothing is known of how runs differ. Raises ValueError if nothing is in common, or
    if a benchmark has other problems.
    """
    both = _by_run(kept).add_suffix("_kept").join(_by_run(run), how="inner")
    if both.empty:
        raise ValueError("the run and the kept run share no model, algorithm, benchmark and k")
    others = both[both["problems"] != both["problems_kept"]].reset_index()
    for one in others.head(1).to_dict("records"):
        raise ValueError(
            f"the kept run is of another study: benchmark {one['benchmark']!r} has "
            f"{one['problems_kept']} problems there and {one['problems']} here; compare with a run "
            "of this study"
        )
    both = both.reset_index()
    largest = both.groupby(KEYS[:-1])["k"].transform("max")
    rows = [
        {key: row[key] for key in KEYS} | _row(row["values"], row["problems"], row["values_kept"])
        for row in both[(both["k"] == 1) | (both["k"] == largest)].to_dict("records")
    ]
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"].to_numpy(dtype=float)))[COLUMNS]


def summary(table: pd.DataFrame) -> tuple[str, bool]:
    """What lies outside, how many rows lie where, as text, and whether the run agrees: no row
    differs by more than chance allows."""
    places = table["place"].value_counts().reindex(["inside", "outside", "unknown"], fill_value=0)
    agrees = not (table["p_holm"] < LEVEL).any()
    lines = [
        f"{row['model']} {row['algorithm']} {row['benchmark']} pass@{row['k']}: "
        f"{percent(row['value'])}, expected {percent(row['low'])} to {percent(row['high'])}"
        + ("" if row["p_holm"] < LEVEL else " (may be chance, among so many)")
        for row in table[table["place"] == "outside"].to_dict("records")
    ]
    verdict = "the run agrees with the kept run" if agrees else "the run differs from it"
    if places["unknown"] == len(table):
        verdict = (
            f"{(table['value'] == table['kept']).sum()} of {len(table)} are equal, and more cannot "
            "be said: with one training run on both sides nothing is known of how runs differ"
        )
    counts = ", ".join(f"{count} {place}" for place, count in places.items())
    return "\n".join([*lines, f"{counts}: {verdict}."]), agrees


def _by_run(metrics: pd.DataFrame) -> pd.DataFrame:
    """`values` of runs `[S]` and the number of `problems`, by KEYS."""
    runs = metrics[(metrics["metric"] == "pass@k") & (metrics["train_seed"] != POOLED)]
    groups = runs.groupby(KEYS, sort=False)
    return groups.agg(values=("value", np.array), problems=("n_problems", "first"))


def _row(ours: np.ndarray, problems: int, theirs: np.ndarray) -> dict[str, Any]:
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
