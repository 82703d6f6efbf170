"""Compares two or more methods from anyone's samples.

    sage-rlvr compare a.csv b.csv
    sage-rlvr compare before=logs/a after=logs/b --html page.html
    sage-rlvr compare all.csv               # several models, told apart by its column `model`

An argument is a file of samples, or a folder of them; `NAME=PATH` names the method. Files are

- CSV, JSON Lines or Parquet with a row for each completion: `problem` (or `problem_id`),
  `correct`, and where there are several, `seed` (the training run), `benchmark`, `sample` (the
  number of the completion) and `cluster` (what several problems were drawn with). Options name
  other columns; keys of nested rows are joined by dots;
- logs of Inspect (JSON or .eval), samples of lm-eval (`--log_samples`), details of lighteval
  (`--save-details`), instances of Every Eval Ever, completions of TRL;
- this project's own, and those of `sage-rlvr grade`.

In a folder, files of one benchmark are training runs. Printed are what the numbers rest on, pass@k
and paired differences with 95 % intervals, p-values after Holm, and the smallest difference that
could be found, as in the reports of this project (`sage.evaluation.comparisons`). For all k at once
there is a band, and the first k at which a method falls below another
(`sage.evaluation.curve_bands`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from sage.evaluation.columns import MEANING
from sage.evaluation.comparisons import adjusted, average, comparisons_table
from sage.evaluation.curve_bands import CurveBand, bands_of
from sage.evaluation.curves import NO_SEED, POOLED
from sage.evaluation.foreign_samples import (
    MODEL,
    READ,
    Method,
    one_each,
    other_ids,
    read_methods,
)
from sage.evaluation.intervals import detectable
from sage.evaluation.metrics import pass_at_k_table
from sage.rendering.numbers import interval_of_points, p_text, percent, points, size_of
from sage.tools import parser_of
from sage.tools.pairing import basis, count_text, numbers_text, pairing, shown_k

ALONE = "no interval from a single problem or cluster"


def compare(
    methods: Mapping[str, Method], draws: int = 10_000
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """pass@k of each method, over its runs, and all differences with `p_holm` and `detectable`.

    `band_low` and `band_high` are the ends of the band over all k at a row's k, `band` all of it.
    A cluster that one method names is that of its problem for all. Raises ValueError for methods
    without a benchmark in common, on different problems or clusters, or whose training runs cannot
    be paired.
    """
    _refuse_unpaired(list(methods.values()))
    joined = pd.concat([method.counts for method in methods.values()], ignore_index=True)
    clusters = one_each(joined, "cluster", MODEL)
    contents = [
        (*place, text, m.name) for m in methods.values() for place, text in m.contents.items()
    ]
    named = ["benchmark", "problem_id", "content", "algorithm"]
    one_each(pd.DataFrame(contents, columns=named), "content", MODEL)
    keys = zip(joined["benchmark"], joined["problem_id"], strict=True)
    joined = joined.assign(cluster=[clusters.get(key, "") for key in keys])
    try:
        differences = adjusted(comparisons_table(joined, draws))
    except ValueError as error:
        columns = {method.columns[0]: name for name, method in methods.items()}
        if len(columns) == 1:
            ids = [method.counts["problem_id"] for method in methods.values()]
            hints = (other_ids(*pair) for pair in combinations(ids, 2))
            raise ValueError(f"{error}{next(filter(None, hints), '')}") from error
        told = ", ".join(f"{column} of {name}" for column, name in columns.items())
        raise ValueError(
            f"{error}. Problems are read from the columns {told}; name one that all have with "
            "--problem"
        ) from error
    least = [
        detectable(row["low"], row["high"], row["value"], float(average([row]).df[0]))
        for row in differences.to_dict("records")
    ]
    bands = bands_of(joined, draws)
    pairs = differences[["model", "benchmark", "algorithm", "other"]].itertuples(index=False)
    of_row = pd.Series([bands[tuple(pair)] for pair in pairs], index=differences.index)
    ends = {
        f"band_{end}": [
            float(getattr(band, end)[band.ks == k][0])
            for band, k in zip(of_row, differences["k"], strict=True)
        ]
        for end in ("low", "high")
    }
    return pooled(joined, draws), differences.assign(detectable=least, **ends, band=of_row)


def pooled(counts: pd.DataFrame, draws: int = 10_000) -> pd.DataFrame:
    """pass@k of each method over its runs, with 95 % intervals."""
    curves = pass_at_k_table(counts, draws)
    return curves[curves["train_seed"] == POOLED]


def without_unscored(methods: Mapping[str, Method]) -> dict[str, Method]:
    """The methods without the problems of which any of them has a sample without a verdict."""
    left_out = {problem for method in methods.values() for problem in method.unscored}
    kept = {}
    for name, method in methods.items():
        keys = zip(method.counts["benchmark"], method.counts["problem_id"], strict=True)
        counts = method.counts[[key not in left_out for key in keys]]
        if counts.empty:
            raise ValueError(f"{name}: every problem has a sample without a verdict")
        note = f"left out: {count_text(len(left_out), 'problem')} with a sample without a verdict"
        notes = (*method.notes, *([note] if left_out else []))
        kept[name] = replace(method, counts=counts, unscored={}, notes=notes)
    return kept


def _refuse_unpaired(methods: Sequence[Method]) -> None:
    """Raise ValueError for methods without a benchmark in common, and for runs without seeds beside
    runs that have some."""
    for at, one in enumerate(methods):
        for two in methods[:at]:
            here, there = (dict.fromkeys(each.counts["benchmark"]) for each in (two, one))
            if not set(here) & set(there):
                raise ValueError(
                    f"no benchmark in common: {two.name} has {_listed(here)}, {one.name} has "
                    f"{_listed(there)}"
                )
            seedless, other = (one, two) if two.seeds else (two, one)
            runs = sorted({*seedless.counts["train_seed"]})
            if other.seeds and not seedless.seeds and runs != [NO_SEED]:
                seeds = numbers_text(sorted({*other.counts["train_seed"]}))
                raise ValueError(
                    f"{other.name} has the seeds {seeds}, and the {len(runs)} runs of "
                    f"{seedless.name} have none, so they cannot be paired; add a column `seed`, or "
                    "name its files or folders seed1, seed2, …"
                )


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(name or "one without a name" for name in names)


def lines(
    methods: Mapping[str, Method],
    curves: pd.DataFrame,
    differences: pd.DataFrame | None = None,
    k: int | None = None,
) -> Iterator[str]:
    """What was found, as text at k = 1 and `k` (`shown_k`), and what it rests on."""
    for benchmark in curves["benchmark"].unique():
        of_benchmark = curves[curves["benchmark"] == benchmark]
        first, ks = of_benchmark.iloc[0], shown_k(of_benchmark, k)
        units = f" ({first['units']} clusters)" if first["units"] != first["n_problems"] else ""
        title = benchmark or "All problems"
        yield f"{title}: {count_text(int(first['n_problems']), 'problem')}{units}"
        for name, method in methods.items():
            if benchmark in set(method.counts["benchmark"]):
                yield f"  {name}: {basis(method, benchmark)}"
            else:
                yield f"  {name}: was not evaluated on it"
        of_k = of_benchmark[of_benchmark["k"].isin(ks)]
        for row in of_k.to_dict("records"):
            ends = f"{percent(row['low'])} to {percent(row['high'])}"
            runs, ends = (
                count_text(len(row["train_seeds"]), "run"),
                ends if row["units"] > 1 else ALONE,
            )
            value = f"{percent(row['value'])} %"
            yield f"  {row['algorithm']} ({runs}): pass@{row['k']} {value} ({ends})"
        if differences is None:
            continue
        here = differences[(differences["benchmark"] == benchmark) & differences["k"].isin(ks)]
        for row in here.to_dict("records"):
            yield _difference(row, of_k[of_k["k"] == row["k"]])
        for row in here[here["k"] == 1].to_dict("records"):
            if row["units"] > 1 and len(row["band"].ks) > 1:
                yield f"  {falls_below(row['algorithm'], row['other'], row['band'])}"


def falls_below(one: str, other: str, band: CurveBand) -> str:
    """From which k on the method that is ahead at k = 1 is below another; `band` is of their
    difference."""
    if band.value[0] < 0:
        one, other, band = other, one, band.turned()
    late = "never" if band.first_low is None else f"k = {band.first_low} or later, or never"
    to = late if band.first_high is None else f"k = {band.first_low} to {band.first_high}"
    when = "never" if band.first is None else "first"
    at = "" if band.first is None else f" at k = {band.first}"
    return (
        f"{one} - {other}, k = 1 to {band.ks[-1]} together: {one} {when} falls below {other}{at} "
        f"(95 %: {to})"
    )


def _difference(row: Mapping[Any, Any], curves: pd.DataFrame) -> str:
    known, least = points(row["value"]), row["detectable"]
    head = f"  {row['algorithm']} - {row['other']}: pass@{row['k']} {known} points "
    if row["units"] == 1:
        return f"{head}({ALONE})"
    head += f"({interval_of_points(row['low'], row['high'])}), "
    if row["n_tests"] == 0:
        return f"{head}no test: both have the same right samples of every problem"
    return (
        f"{head}p {p_text(row['p'])}, "
        f"after Holm {p_text(row['p_holm'])} (of {row['n_tests']}); detectable "
        + (size_of(least) if least <= 1 else "none")
        + (", for these single runs alone" if row["n_seeds"] == 1 else "")
        + pairing(row, curves)
    )


def named_paths(arguments: Sequence[str]) -> list[tuple[str, Path]]:
    """(name, path) of each argument, PATH or NAME=PATH; a path gives its own name, as short as
    tells it from the others. Raises ValueError for a name that is given twice."""
    pairs = [("", "", one) if Path(one).exists() else one.rpartition("=") for one in arguments]
    paths = [Path(path) for _, _, path in pairs]
    short = [path.name if path.is_dir() else path.stem for path in paths]
    names = [
        name or (stem if short.count(stem) == 1 and stem else str(path))
        for (name, _, _), stem, path in zip(pairs, short, paths, strict=True)
    ]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]} is given twice; put all its runs into one folder")
    return list(zip(names, paths, strict=True))


def _parser() -> argparse.ArgumentParser:
    made = parser_of("compare", __doc__)
    made.add_argument("methods", nargs="+", help="PATH or NAME=PATH")
    made.add_argument("--k", type=int, help="a power of two (default: half of the samples)")
    made.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="take these rows only; may be given several times",
    )
    made.add_argument(
        "--unscored",
        choices=("wrong", "left-out"),
        default="wrong",
        help="what becomes of samples without a verdict: they count as wrong (the default), or "
        "their problems are left out, for all methods",
    )
    made.add_argument("--figure", type=Path, help="a file for the curves, .svg, .pdf or .png")
    made.add_argument("--html", type=Path, help="a page with all of it")
    for what in READ:
        made.add_argument(f"--{what}", metavar="COLUMN", help=f"the column of {MEANING[what]}")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and print the comparison; the exit status is 1 if there is none."""
    given = vars(_parser().parse_args(arguments))
    try:
        methods = read_methods(named_paths(given["methods"]), given, given["only"])
        if len(methods) < 2:
            raise ValueError(
                "name two or more methods, each by another path or NAME=PATH, or one file with "
                "several models and its column, --model COLUMN"
            )
        if given["unscored"] == "left-out":
            methods = without_unscored(methods)
        curves, differences = compare(methods)
        print("\n".join(lines(methods, curves, differences, given["k"])))
        if given["figure"] or given["html"]:
            from sage.tools.samples_page import write_figure, write_page  # with what draws

            if given["figure"]:
                write_figure(curves, given["figure"])
            if given["html"]:
                write_page(methods, curves, differences, given["k"], given["html"])
                print(given["html"])
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(f"sage-rlvr compare: {error}", file=sys.stderr)
        return 1
    return 0
