"""Two finished studies on one page: what differs in their settings, then in their numbers.

    sage-rlvr compare A B --html page.html

A method of both studies is compared with itself, on the benchmarks whose problems are the same:
paired by problem, and by training run where both have the same seeds. The second study is taken
minus the first. p is adjusted after Holm over all differences of the page. Methods, models and
benchmarks have the titles of the studies' files, where these are still there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import ANSWERS, LEVEL
from sage.evaluation.intervals import holm
from sage.evaluation.pass_at_k import pass_at_k
from sage.exhibits import load_study
from sage.problems.record import read_problems
from sage.rendering import markup
from sage.rendering.forest import Forest, difference_line, forest
from sage.rendering.labels import benchmark_titles
from sage.rendering.numbers import interval_of_points, p_text, percent, points
from sage.rendering.table import Column, Table, points_cell, table_of, titled
from sage.report.loader import read_sources
from sage.report.page import SCRIPTS, STYLE, content_policy, environment_of
from sage.report.warnings import changes
from sage.results import Results
from sage.runtime.files import write_text_atomic
from sage.runtime.records import manifests
from sage.runtime.tables import read_frame
from sage.study import BASE, ResolvedStudy, StudyError
from sage.study.written import moved

TEMPLATE = "compare.html.j2"
MOST = 12
"""The most differences in a forest: the largest ones."""

DRAWS = 10_000
"""Bootstrap draws of an interval."""

KEYS = ["model", "algorithm", "benchmark"]
DIFFERENCES = [*KEYS, "k", "first", "second", "value", "low", "high", "p", "p_holm", "n_seeds"]
"""`first` and `second` are pass@k of the studies, `value` is second minus first (shares)."""


def write_comparison(
    one: Path, two: Path, page: Path, reports: Path = Path("reports"), draws: int = DRAWS
) -> str:
    """Compare the results folders `one` and `two` on the page `page`; returns the main sentence.

    Raises FileNotFoundError for a study that has no counts yet, and ValueError for two that share
    no method on the same problems.
    """
    counts = [read_frame(Results(folder).metrics("counts")) for folder in (one, two)]
    shared = set(counts[0]["benchmark"]) & set(counts[1]["benchmark"])
    other = {name for name in shared if _problems(one, name) != _problems(two, name)}
    alike = [each[~each["benchmark"].isin(other)] for each in counts]
    table = differences(alike[0], alike[1], draws)
    settings = [_settings(folder) for folder in (one, two)]
    names, sources = (one.name, two.name), read_sources(reports)
    left_out = _left_out(counts, table)
    titles = _titles([_study_of(folder, reports.parent / "config") for folder in (two, one)])
    table = table.assign(**{key: table[key].replace(titles[key]) for key in KEYS})
    sentence, script = _sentence(table, names), sources.get(SCRIPTS[0], "")
    template = environment_of(sources, page).get_template(TEMPLATE)
    text = template.render(
        names=names,
        sentence=sentence,
        forests=[_of_k(table, k) for k in sorted(set(table["k"]))],
        table=_table(table, names),
        changed=_changed(*settings),
        only=[sorted(set(mine) - set(other)) for mine, other in (settings, settings[::-1])],
        most=MOST,
        left_out=sorted(
            " / ".join(titles[one].get(name, name) for one, name in zip(KEYS, key, strict=True))
            for key in left_out
        ),
        policy=content_policy(script),
        script=Markup(script),
        style=Markup(sources.get(STYLE, "")),
        palette=Markup(markup.palette_css()),
    )
    write_text_atomic(page, text)
    return sentence


def differences(one: pd.DataFrame, two: pd.DataFrame, draws: int) -> pd.DataFrame:
    """DIFFERENCES of two studies' counts, at k = 1 and the largest k that both have.

    Training runs are paired by seed, or in order where no seed is in both; runs that are left over
    do not count. Raises ValueError if nothing is on the same problems.
    """
    ours, theirs = (dict(list(counts.groupby(KEYS, sort=False))) for counts in (one, two))
    rows = []
    for key in ours:
        if key not in theirs:
            continue
        sides = [ours[key], theirs[key]]
        if set(sides[0]["problem_id"]) != set(sides[1]["problem_id"]):
            continue
        if not set(sides[0]["train_seed"]) & set(sides[1]["train_seed"]):
            sides = [side.assign(train_seed=pd.factorize(side["train_seed"])[0]) for side in sides]
        named = [side.assign(algorithm=name) for side, name in zip(sides, "ab", strict=True)]
        table = comparisons_table(pd.concat(named), draws)
        shown = (table["metric"] == ANSWERS) & table["k"].isin([1, table["k"].max()])
        for row in table[shown].to_dict("records"):
            levels = {
                name: _pass_at_k(side[side["train_seed"].isin(row["train_seeds"])], row["k"])
                for name, side in zip(("first", "second"), sides, strict=True)
            }
            rows.append(row | dict(zip(KEYS, key, strict=True)) | levels)
    if not rows:
        raise ValueError("the two studies share no method that was evaluated on the same problems")
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p"].to_numpy(dtype=float))
    return frame[DIFFERENCES]


def _pass_at_k(counts: pd.DataFrame, k: int) -> float:
    """The mean of unbiased pass@k over a method's runs and problems."""
    n, correct = int(counts["n_samples"].iloc[0]), counts["correct"].to_numpy()
    return float(np.mean(pass_at_k(n, correct, np.array([k]))))


def _problems(folder: Path, benchmark: str) -> dict[str, tuple[str, str]] | None:
    """Problem and answer by id, for made sets only number theirs; None if unknown."""
    file = Results(folder).problems(benchmark)
    if not file.is_file():
        return None
    return {one.problem_id: (one.problem, one.answer) for one in read_problems(file)}


def _settings(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The settings of a study's jobs, by their folder, from their manifests, without paths."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in manifests(folder):
        own = json.loads(path.read_text("utf-8")).get("settings", {})
        known = {name: value for name, value in own.items() if name not in ("scratch", "shards")}
        found[path.relative_to(folder).as_posix()] = known
    return found


def _changed(
    one: Mapping[str, Mapping[str, Any]], two: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Settings of jobs of both studies that differ: (change, how many jobs have it)."""
    jobs: dict[str, list[str]] = {}
    for path in one:
        for change in changes(one[path], two[path]) if path in two else ():
            jobs.setdefault(change, []).append(path)
    return [
        (change, f"{len(paths)} jobs" if len(paths) > 1 else paths[0])
        for change, paths in jobs.items()
    ]


def _left_out(counts: Sequence[pd.DataFrame], table: pd.DataFrame) -> set[tuple[str, ...]]:
    """What either study has and the other has not, or with other problems: values of KEYS."""
    there, compared = (
        {tuple(map(str, key)) for frame in frames for key in frame[KEYS].to_numpy().tolist()}
        for frames in (counts, [table])
    )
    return there - compared


def _study_of(folder: Path, config: Path) -> ResolvedStudy | None:
    """The study whose results are in `folder`, with settings in its name or without: in `config`,
    or a file beside the Snakefile; None if there is none, or it cannot be read."""
    words = folder.name.split("-")
    for name in ("-".join(words[:count]) for count in range(len(words), 0, -1)):
        for written in filter(None, (name, moved(name, config / "studies"), f"{name}.yaml")):
            with suppress(StudyError):
                return load_study(written, config)
    return None


def _titles(studies: Sequence[ResolvedStudy | None]) -> dict[str, dict[str, str]]:
    """Titles by name for each of KEYS; those of the last study count."""
    titles: dict[str, dict[str, str]] = {key: {} for key in KEYS}
    titles["algorithm"][BASE] = "Base"
    for study in studies:
        if study is not None:
            titles["model"] |= {name: model.title for name, model in study.study.models.items()}
            titles["algorithm"] |= {name: one.title for name, one in study.algorithms.items()}
            titles["benchmark"] |= benchmark_titles(study)
    return titles


def _sentence(table: pd.DataFrame, names: tuple[str, str]) -> str:
    """The largest clear difference, or that there is none and the largest."""
    clear = table[table["p_holm"] < LEVEL]
    largest = (clear if len(clear) else table).sort_values("value", key=lambda v: -v.abs()).iloc[0]
    limits = interval_of_points(largest["low"], largest["high"])
    known = f", 95 % interval {limits}" if limits else ""
    said = (
        f"pass@{largest['k']} of {largest['algorithm']} on {largest['benchmark']} is "
        f"{percent(largest['second'])} % in {names[1]} and {percent(largest['first'])} % in "
        f"{names[0]} ({points(largest['value'])} points{known})"
    )
    if len(clear):
        return f"{said}, the largest difference that is clear among {len(table)}."
    start = f"No difference between {names[0]} and {names[1]} is clear. The largest may be chance"
    return f"{start} among {len(table)}: {said}."


def _of_k(table: pd.DataFrame, k: int) -> tuple[int, Forest | None, int]:
    """k, a forest of at most MOST of its differences, the largest, and how many there are."""
    rows = table[table["k"] == k]
    order = rows["value"].abs().sort_values(ascending=False, kind="stable").index
    return k, _forest(rows.loc[sorted(order[:MOST])]), len(rows)


def _forest(rows: pd.DataFrame) -> Forest | None:
    several = rows["model"].nunique() > 1
    lines = [
        difference_line(
            row["algorithm"],
            f"{row['model']}, " * several + row["benchmark"],
            {"effect": row["value"], **row},
            row["p_holm"],
            row["n_seeds"],
        )
        for row in rows.to_dict("records")
    ]
    return forest(lines)


def _table(table: pd.DataFrame, names: tuple[str, str]) -> Table:
    """Every difference, in a group for each model and benchmark."""
    columns: list[Column] = [
        ("", "k", lambda row: str(row["k"])),
        ("", names[0], lambda row: percent(row["first"])),
        ("", names[1], lambda row: percent(row["second"])),
        ("", "Δ", lambda row: points_cell(row["value"], row["low"], row["high"])),
        ("", "p after Holm", lambda row: p_text(row["p_holm"])),
        ("", "Runs", lambda row: str(row["n_seeds"])),
    ]
    groups = (
        (f"{model}, {benchmark}", titled(rows))
        for (model, benchmark), rows in table.groupby(["model", "benchmark"], sort=False)
    )
    return table_of("Method", columns, groups)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two studies, as the command line says; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="sage-rlvr compare", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("first", help="a finished study, or its folder of results")
    parser.add_argument("second", help="the same of another one")
    parser.add_argument("--html", type=Path, required=True, help="the page to write")
    asked = parser.parse_args(arguments)
    folders = [
        Path(name) if Path(name).is_dir() else Path("results") / name
        for name in (asked.first, asked.second)
    ]
    for folder in folders:
        if not Results(folder).metrics("counts").exists():
            print(
                f"{folder}: has no results to compare; run the study here first, "
                f"sage-rlvr run {folder.name}",
                file=sys.stderr,
            )
            return 1
    try:
        print(write_comparison(folders[0], folders[1], asked.html))
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(asked.html)
    return 0


if __name__ == "__main__":
    sys.exit(main())
