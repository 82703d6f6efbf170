"""Two or more methods compared from anyone's samples: `python -m sage.evaluation.foreign_samples A B`.

An argument is a file of samples, or a folder with a file for each training run; `NAME=PATH` names
the method. Files are

- CSV, JSON Lines or Parquet with a row for each completion: `problem`, `correct`, and where there
  are several, `seed` (the training run), `benchmark` and `cluster` (what several problems were
  drawn with). Options name other columns; keys of nested rows are joined by dots;
- samples of lm-eval (`--log_samples`) and instances of Every Eval Ever, JSON Lines as well;
- logs of Inspect, as JSON, or .eval where `inspect_ai` is installed;
- this project's own.

Printed are pass@k and paired differences with 95 % intervals, p-values after Holm, and the smallest
difference that could be found, as in the reports of this project (`sage.evaluation.comparisons`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sage.evaluation.comparisons import adjusted, average, comparisons_table
from sage.evaluation.counts import COUNTS
from sage.evaluation.curves import POOLED
from sage.evaluation.intervals import detectable
from sage.evaluation.metrics import pass_at_k_table
from sage.problems.fetching import rows_in
from sage.problems.record import DataError
from sage.results import run_at
from sage.runtime.records import is_hidden
from sage.runtime.tables import read_table

COLUMNS = {
    "problem": ("problem", "problem_id", "doc_id", "sample_id"),
    "correct": ("correct", "status", "evaluation.is_correct"),
    "seed": ("seed",),
    "benchmark": ("benchmark", "evaluation_name"),
    "cluster": ("cluster",),
}
"""What a file of samples says, and the columns that say it, the first that there is."""

MEANING = {
    "problem": "the problem",
    "correct": "whether the completion is right",
    "seed": "the training run",
    "benchmark": "the benchmark",
    "cluster": "what several problems were drawn with",
}
"""The same columns, as `--help` explains them."""

NEEDED = ("problem", "correct")

MODEL = "these samples"
"""What errors call the samples of all methods."""

NO_ROWS = "{path}: has no rows; it needs one for each completion or problem"
ALONE = "no interval from a single problem or cluster"

RIGHT = ("true", "1", "1.0", "c", "correct")
WRONG = ("false", "0", "0.0", "i", "incorrect", "wrong", "unparsed", "timeout", "gold_unparsed")
"""What `correct` may say, in any case."""


def table_of(path: Path) -> pd.DataFrame:
    """The rows of a CSV, JSON Lines or Parquet file, their values as they are written.

    Keys of nested rows are joined by dots. Raises DataError for a file that cannot be read or has
    no rows.
    """
    rows = [dict(_flat(row)) for row in rows_in(path)]
    if not rows:
        raise DataError(NO_ROWS.format(path=path))
    return pd.DataFrame(rows, dtype=object)


def _flat(row: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", value


def _of_parquet(path: Path) -> pd.DataFrame:
    """The rows of a Parquet file, with the fields of nested columns as columns of their own."""
    table = read_table(path)
    while any(pa.types.is_struct(column.type) for column in table.columns):
        table = table.flatten()
    if not len(table):
        raise DataError(NO_ROWS.format(path=path))
    return table.to_pandas()


def _of_lm_eval(table: pd.DataFrame) -> pd.DataFrame:
    """Samples of lm-eval with their metric, if there is one, as `correct`; other tables as is."""
    if not {"doc_id", "filter", "metrics"} <= {*table}:
        return table
    if len(filters := sorted(set(table["filter"]))) > 1:
        raise ValueError(
            f"filters {', '.join(filters)}; name one, as in --only filter={filters[0]}"
        )
    metrics = {name for names in table["metrics"] for name in names}
    return table.rename(columns={metrics.pop(): "correct"}) if len(metrics) == 1 else table


def _of_inspect(log: Mapping[str, Any]) -> pd.DataFrame:
    """The samples of a log of Inspect; its score, if there is one, is `correct`."""
    if "samples" not in log:
        raise ValueError("not a log of Inspect with its samples")
    rows = [
        {"problem": one["id"], **{name: score["value"] for name, score in one["scores"].items()}}
        for one in log["samples"]
    ]
    table = pd.DataFrame(rows)
    scores = [name for name in table if name != "problem"]
    return table.rename(columns={scores[0]: "correct"}) if len(scores) == 1 else table


def _inspect_log(path: Path) -> pd.DataFrame:
    try:
        logs = import_module("inspect_ai.log")
    except ImportError as error:
        raise ValueError("to read a log of Inspect, install inspect-ai") from error
    return _of_inspect(logs.read_eval_log(str(path)).model_dump(mode="json"))


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": table_of,
    ".jsonl": table_of,
    ".parquet": _of_parquet,
    ".json": lambda path: _of_inspect(json.loads(path.read_text(encoding="utf-8"))),
    ".eval": _inspect_log,
}


def read_counts(
    name: str, path: Path, columns: Mapping[str, str | None] | None = None, only: str = ""
) -> pd.DataFrame:
    """The samples of a method as counts (`sage.evaluation.counts`) of the model MODEL.

    `columns` are the file's names where they are not those of COLUMNS, `only` (COLUMN=VALUE) the
    rows to take. A file without seeds is one run: that of its path, if it ends with
    seed{N}/{benchmark}.parquet as this project's, else the next number. Raises ValueError, which
    names the file, for what cannot be read.
    """
    files = [path]
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.suffix in READERS)
        files = [file for file in inside if not is_hidden(file.relative_to(path))]
    if not files or not files[0].exists():
        what = "no samples there" if path.exists() else "no samples there: it does not exist"
        raise ValueError(f"{path}: {what}; they are files {', '.join(READERS)}")
    tables = []
    for run, file in enumerate(files, start=1):
        try:
            tables.append(_read(file, run, columns or {}, only))
        except DataError as error:  # which names the file
            raise ValueError(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: {error}") from error
    samples = pd.concat(tables)
    _one_cluster(samples.assign(algorithm=name), str(path))
    keys = ["train_seed", "benchmark", "problem_id", "cluster"]
    counts = samples.groupby(keys)["correct"].agg(correct="sum", n_samples="size").reset_index()
    counts = counts.assign(model=MODEL, algorithm=name, stratum="", worked=np.nan)
    unknown = pd.Series([np.array([np.nan])] * len(counts), dtype=object)
    return counts.assign(chance=unknown)[COUNTS]


def _read(file: Path, run: int, columns: Mapping[str, str | None], only: str) -> pd.DataFrame:
    """The columns train_seed, benchmark, problem_id, cluster and correct of a file."""
    if file.suffix not in READERS:
        raise ValueError(f"not a file {', '.join(READERS)}; convert it, or unpack it")
    table = _of_lm_eval(_only(READERS[file.suffix](file), only))
    names = {
        what: next((n for n in ([columns[what]] if columns.get(what) else own) if n in table), None)
        for what, own in COLUMNS.items()
    }
    for what in COLUMNS:
        if names[what] is None and (what in NEEDED or columns.get(what)):
            raise ValueError(
                f"no column {columns.get(what) or what!r}; it has {', '.join(map(str, table))}. "
                f"Name the column with --{what}"
            )
    says = table[names["correct"]].map(str).str.lower()
    if unknown := sorted(set(says) - {*RIGHT, *WRONG}):
        known = ", ".join((*RIGHT, *WRONG))
        row = 1 + int((says == unknown[0]).to_numpy().argmax())
        raise ValueError(f"{names['correct']} says {unknown[0]!r} in row {row}; known are {known}")
    benchmark: Any = ""
    if (
        re.fullmatch(r"seed\d+", file.parent.name)
        and file.suffix == ".parquet"
        and len(file.parts) > 3
    ):
        (*_, run), benchmark = run_at(file.parent), file.stem
    written = table[names["seed"]] if names["seed"] else pd.Series(run, table.index)
    seeds = pd.to_numeric(written, errors="coerce")
    if (broken := (seeds % 1 != 0).to_numpy()).any():
        raise ValueError(
            f"{names['seed']} must be a whole number in every row; row {1 + broken.argmax()} says "
            f"{written.iloc[broken.argmax()]!r}"
        )
    for what in ("problem", "benchmark"):
        if names[what] and (empty := table[names[what]].isin(["", None, np.nan])).any():
            raise ValueError(
                f"{names[what]} is empty in {empty.sum()} rows, the first of them row "
                f"{1 + int(empty.to_numpy().argmax())}"
            )
    return pd.DataFrame(
        {
            "problem_id": table[names["problem"]].astype(str),
            "correct": says.isin(RIGHT),
            "train_seed": seeds.astype(int),
            "benchmark": table[names["benchmark"]] if names["benchmark"] else benchmark,
            "cluster": table[names["cluster"]].fillna("").astype(str) if names["cluster"] else "",
        }
    )


def _only(table: pd.DataFrame, only: str) -> pd.DataFrame:
    """The rows where a column says a value, `only` as COLUMN=VALUE; all if it is empty."""
    column, _, value = only.partition("=")
    if only and column not in table:
        raise ValueError(f"no column {column!r} for --only; it has {', '.join(map(str, table))}")
    return table[table[column].astype(str) == value] if only else table


def compare(
    counts: Mapping[str, pd.DataFrame], draws: int = 10_000
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """pass@k of each method, over its runs, and all differences with `p_holm` and `detectable`.

    `counts` are those of each method (`read_counts`). A cluster that one method names is that of
    its problem for all. Raises ValueError for methods on different problems or clusters, or without
    a training run in common.
    """
    joined = pd.concat(counts.values(), ignore_index=True)
    clusters = _one_cluster(joined, MODEL)
    keys = zip(joined["benchmark"], joined["problem_id"], strict=True)
    joined = joined.assign(cluster=[clusters.get(key, "") for key in keys])
    differences = adjusted(comparisons_table(joined, draws))
    least = [
        detectable(row["low"], row["high"], row["value"], float(average([row]).df[0]))
        for row in differences.to_dict("records")
    ]
    return pooled(joined, draws), differences.assign(detectable=least)


def _one_cluster(rows: pd.DataFrame, where: str) -> dict[tuple[str, str], str]:
    """The cluster of each problem of each benchmark that has one. Raises ValueError for two."""
    clusters: dict[tuple[str, str], str] = {}
    named = rows[rows["cluster"] != ""]
    places = named[["benchmark", "problem_id", "cluster", "algorithm"]].drop_duplicates()
    for benchmark, problem, cluster, name in places.itertuples(index=False):
        if (known := clusters.setdefault((benchmark, problem), cluster)) != cluster:
            raise ValueError(
                f"{where}: problem {problem[:60]!r} is in two clusters, {known!r} and {cluster!r} "
                f"(in {name}); correct one"
            )
    return clusters


def pooled(counts: pd.DataFrame, draws: int = 10_000) -> pd.DataFrame:
    """pass@k of each method over its runs, with 95 % intervals."""
    curves = pass_at_k_table(counts, draws)
    return curves[curves["train_seed"] == POOLED]


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
        units = f" ({first['units']} clusters)" if first["units"] != first["n_problems"] else ""
        yield (
            f"{benchmark or 'All problems'}: {first['n_problems']} problems{units}, "
            f"{n} samples of each"
        )
        for row in of_benchmark[of_benchmark["k"].isin(ks)].to_dict("records"):
            runs = len(row["train_seeds"])
            ends = f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
            yield (
                f"  {row['algorithm']} ({runs} run{'s' * (runs > 1)}): pass@{row['k']} "
                f"{100 * row['value']:.1f} % ({ends if row['units'] > 1 else ALONE})"
            )
        here = differences[(differences["benchmark"] == benchmark) & differences["k"].isin(ks)]
        for row in here.to_dict("records"):
            value, low, high, least = (
                100 * row[name] for name in ("value", "low", "high", "detectable")
            )
            head = f"  {row['algorithm']} - {row['other']}: pass@{row['k']} {value:+.1f} points "
            if row["units"] == 1:
                yield f"{head}({ALONE})"
                continue
            yield (
                f"{head}({low:+.1f} to {high:+.1f}), p {row['p']:.3g}, "
                f"after Holm {row['p_holm']:.3g} (of {row['n_tests']}); detectable {least:.1f}"
                + (", for these single runs alone" if row["n_seeds"] == 1 else "")
            )


def draw(curves: pd.DataFrame, path: Path) -> None:
    """pass@k over k with its 95 % intervals, a panel for each benchmark, as the file `path`."""
    from matplotlib.figure import Figure  # not needed for numbers

    names = [*curves["benchmark"].unique()]
    figure = Figure(figsize=(4.5 * len(names), 3.5), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, benchmark in zip(panels, names, strict=True):
        for name, rows in curves[curves["benchmark"] == benchmark].groupby("algorithm", sort=False):
            axes.plot(rows["k"], 100 * rows["value"], label=str(name))
            axes.fill_between(rows["k"], 100 * rows["low"], 100 * rows["high"], alpha=0.2)
        axes.set(xscale="log", xlabel="k", ylabel="pass@k (%)", title=benchmark or "All problems")
        axes.legend()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the comparison; the exit status is 1 if there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m sage.evaluation.foreign_samples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("methods", nargs="+", help="PATH or NAME=PATH, two or more")
    parser.add_argument("--k", type=int, help="a power of two (default: half of the samples)")
    parser.add_argument(
        "--only", default="", metavar="COLUMN=VALUE", help="compare these rows only"
    )
    parser.add_argument("--figure", type=Path, help="a file for the curves, .svg, .pdf or .png")
    for what in COLUMNS:
        parser.add_argument(f"--{what}", metavar="COLUMN", help=f"the column with {MEANING[what]}")
    given = vars(parser.parse_args(arguments))
    named = [
        ("", "", one) if Path(one).exists() else one.rpartition("=") for one in given["methods"]
    ]
    try:
        names = [name or path for name, _, path in named]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is given twice; put all its runs into one folder")
        counts = {
            name or path: read_counts(name or path, Path(path), given, given["only"])
            for name, _, path in named
        }
        if len(counts) < 2:
            raise ValueError("name two or more methods, each by another path or NAME=PATH")
        curves, differences = compare(counts)
        print("\n".join(lines(curves, differences, given["k"])))
        if given["figure"]:
            draw(curves, given["figure"])
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
