"""Two or more methods compared from anyone's samples: `python -m sage.evaluation.compare A B`.

An argument is a file of samples, or a folder with a file for each training run; `NAME=PATH` names
the method. A file is CSV, JSON Lines or Parquet with a row for each completion: `problem`,
`correct`, and where there are several, `seed` (the training run) and `benchmark`; options name
other columns. Logs of Inspect (.eval) are read where `inspect_ai` is installed, files of this
project as they are. Printed are pass@k and paired differences with 95 % intervals, p-values after
Holm, and the smallest difference that could be found, as in the reports of this project
(`sage.evaluation.comparisons`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd

from sage.evaluation.averages import average
from sage.evaluation.comparisons import adjusted, comparisons_table
from sage.evaluation.counts import COUNTS
from sage.evaluation.curves import POOLED
from sage.evaluation.intervals import detectable
from sage.evaluation.metrics import pass_at_k_table
from sage.results import run_at
from sage.runtime.tables import read_frame

COLUMNS = {"problem": "problem_id", "correct": "status", "seed": "", "benchmark": ""}
"""What a file of samples says, and the column of this project's files that says it."""

MODEL = "these samples"
"""What errors call the samples of all methods."""


def _inspect_log(path: Path) -> pd.DataFrame:
    """The samples of a log that Inspect wrote, as its own package reads them."""
    try:
        analysis = import_module("inspect_ai.analysis")
    except ImportError as error:
        raise ValueError(f"{path}: to read a log of Inspect, install inspect-ai") from error
    samples: pd.DataFrame = analysis.samples_df(str(path))
    return samples


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: pd.read_csv(path),
    ".jsonl": lambda path: pd.read_json(path, lines=True, dtype=False),
    ".parquet": read_frame,
    ".eval": _inspect_log,
}

RIGHT = ("true", "1", "1.0", "c", "correct")
WRONG = ("false", "0", "0.0", "i", "incorrect", "wrong", "unparsed", "timeout", "gold_unparsed")
"""What `correct` may say, in any case."""


def read_counts(name: str, path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """The samples of a method as counts (`sage.evaluation.counts`) of the model MODEL.

    `columns` are the file's names for COLUMNS. A file without seeds is one run: that of its path,
    if it ends with seed{N}/{benchmark}.parquet as this project's, else the next number. Raises
    ValueError, which names the file, for what cannot be read.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in READERS)
    if not files or not files[0].exists():
        raise ValueError(f"{path}: no samples there; they are files {', '.join(READERS)}")
    samples = pd.concat([_read(file, run, columns) for run, file in enumerate(files, start=1)])
    keys = ["train_seed", "benchmark", "problem_id"]
    counts = samples.groupby(keys)["correct"].agg(correct="sum", n_samples="size").reset_index()
    counts = counts.assign(model=MODEL, algorithm=name, worked=np.nan)
    unknown = pd.Series([np.array([np.nan])] * len(counts), dtype=object)
    return counts.assign(chance=unknown)[COUNTS]


def _read(file: Path, run: int, columns: Mapping[str, str]) -> pd.DataFrame:
    """The columns train_seed, benchmark, problem_id and correct of a file."""
    if file.suffix not in READERS:
        raise ValueError(f"{file}: not a file {', '.join(READERS)}")
    table = READERS[file.suffix](file)
    names = {what: [n for n in (columns[what], own) if n in table] for what, own in COLUMNS.items()}
    for what in ("problem", "correct"):
        if not names[what]:
            raise ValueError(
                f"{file}: no column {columns[what]!r}; it has {', '.join(map(str, table))}. "
                f"Name the column with --{what}"
            )
    says = table[names["correct"][0]].astype(str).str.lower()
    if unknown := sorted(set(says) - {*RIGHT, *WRONG}):
        raise ValueError(
            f"{file}: {names['correct'][0]} says {unknown[0]!r}; known are "
            f"{', '.join((*RIGHT, *WRONG))}"
        )
    benchmark = ""
    if file.parent.name.startswith("seed"):
        (*_, run), benchmark = run_at(file.parent), file.stem
    seeds = table[names["seed"][0]] if names["seed"] else pd.Series(run, table.index)
    if not pd.api.types.is_integer_dtype(seeds):
        raise ValueError(f"{file}: {names['seed'][0]} must be a whole number in every row")
    benchmarks = table[names["benchmark"][0]] if names["benchmark"] else benchmark
    samples = pd.DataFrame({"problem_id": table[names["problem"][0]].astype(str)})
    return samples.assign(correct=says.isin(RIGHT), train_seed=seeds, benchmark=benchmarks)


def compare(
    counts: Mapping[str, pd.DataFrame], draws: int = 10_000
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """pass@k of each method, over its runs, and all differences with `p_holm` and `detectable`.

    `counts` are those of each method (`read_counts`). Raises ValueError for methods on different
    problems, or without a training run in common.
    """
    joined = pd.concat(counts.values(), ignore_index=True)
    curves = pass_at_k_table(joined, draws)
    differences = adjusted(comparisons_table(joined, draws))
    least = [
        detectable(row["low"], row["high"], row["value"], float(average([row]).df[0]))
        for row in differences.to_dict("records")
    ]
    return curves[curves["train_seed"] == POOLED], differences.assign(detectable=least)


def lines(curves: pd.DataFrame, differences: pd.DataFrame, k: int | None = None) -> Iterator[str]:
    """Both as text at k = 1 and `k`; if it is None, the largest power of two with 2k samples."""
    for benchmark in curves["benchmark"].unique():
        of_benchmark = curves[curves["benchmark"] == benchmark]
        first = of_benchmark.iloc[0]
        n = int(of_benchmark["n_samples"].min())
        ks = sorted({1, k or 2 ** max((n // 2).bit_length() - 1, 0)})
        if missing := set(ks) - {*of_benchmark["k"]}:
            known = ", ".join(map(str, sorted({*of_benchmark["k"]})))
            raise ValueError(
                f"--k {missing.pop()}: with {n} samples of a problem it can be {known}"
            )
        yield f"{benchmark or 'All problems'}: {first['n_problems']} problems, {n} samples of each"
        for row in of_benchmark[of_benchmark["k"].isin(ks)].to_dict("records"):
            runs = len(row["train_seeds"])
            yield (
                f"  {row['algorithm']} ({runs} run{'s' * (runs > 1)}): pass@{row['k']} "
                f"{100 * row['value']:.1f} % ({100 * row['low']:.1f} to {100 * row['high']:.1f})"
            )
        here = differences[(differences["benchmark"] == benchmark) & differences["k"].isin(ks)]
        for row in here.to_dict("records"):
            value, low, high, least = (
                100 * row[name] for name in ("value", "low", "high", "detectable")
            )
            yield (
                f"  {row['algorithm']} - {row['other']}: pass@{row['k']} {value:+.1f} points "
                f"({low:+.1f} to {high:+.1f}), p {row['p']:.3g}, after Holm {row['p_holm']:.3g}; "
                f"detectable {least:.1f}"
                + (", for these single runs alone" if row["n_seeds"] == 1 else "")
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the comparison; the exit status is 1 if there is none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("methods", nargs="+", help="PATH or NAME=PATH, two or more")
    parser.add_argument("--k", type=int, help="a power of two; half of the samples unless named")
    for what in COLUMNS:
        parser.add_argument(f"--{what}", default=what, help=f"the column of the {what}")
    given = vars(parser.parse_args(arguments))
    named = [one.rpartition("=") for one in given["methods"]]
    try:
        counts = {
            name or path: read_counts(name or path, Path(path), given) for name, _, path in named
        }
        if len(counts) < 2:
            raise ValueError("name two or more methods, each by another path or NAME=PATH")
        print("\n".join(lines(*compare(counts), given["k"])))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
