"""The sample browser's data: a limited choice of completions of every method, as JSON.

Paper-sized studies have gigabytes of completions. So the choice is made from small columns, and
only the chosen texts are read. What exceeds the budget is left out evenly: first completions of a
problem, then problems, spread over each benchmark, then the ends of texts, then whole runs; `note`
says what. The page shows them as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from sage.evaluation.curves import run_of
from sage.problems.record import Problem, read_problems
from sage.rendering.labels import benchmark_titles, method_title
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.tasks import task_of

BUDGET = 1_200_000
"""Bytes of JSON: with figures and tables a page stays below 3 MB, to be sent by mail."""

LONGEST = 4_000
"""The most characters shown of a completion, and of a problem."""

SHORTER = (2_000, 1_000, 500, 250)
"""The same where one problem of each benchmark does not fit; with the last, runs are left out."""

QUOTAS = ((4, 4, 2), (2, 2, 1), (1, 1, 1))
"""Correct, wrong and other completions per problem and method; the largest quota is tried first."""

_LIGHT = ["problem_id", "eval_seed", "sample_index", "status", "n_tokens", "finish_reason"]
_CHARACTERS_PER_TOKEN = 4

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Fit:
    """What may be shown: completions per problem and run, problems per benchmark, characters of a
    text, and sample files."""

    quota: tuple[int, int, int]
    problems: int
    longest: int
    files: int


def write_excerpts(samples: Sequence[Path], problems: Mapping[str, Path], output: Path) -> None:
    """Choose completions of the sample files and write them as JSON of at most BUDGET bytes.

    `problems` maps benchmarks to their files.
    """
    records = {name: read_problems(path) for name, path in problems.items()}
    light = {path: candidates(read_frame(path, columns=_LIGHT)) for path in samples}
    most = max((len(records.get(path.stem, ())) for path in samples), default=1)
    for fit in fits(most, len(samples)):
        paths = spread(samples, fit.files)
        names = dict.fromkeys(path.stem for path in paths if path.stem in records)
        picked = {name: spread(records[name], fit.problems) for name in names}
        ids = {name: [problem.problem_id for problem in of_set] for name, of_set in picked.items()}
        chosen = {path: choose(light[path], ids.get(path.stem, []), fit.quota) for path in paths}
        sized = (estimated_bytes(rows["n_tokens"], fit.longest) for rows in chosen.values())
        if sum(sized) > BUDGET:
            continue
        texts = {path: read_texts(path, rows.index) for path, rows in chosen.items()}
        left_out = len(samples) - len(paths)
        content = excerpts(chosen, texts, picked, fit.longest) | {"note": note(fit, left_out)}
        if len((text := _compact(content)).encode()) <= BUDGET:
            break
    write_text_atomic(output, text)


def fits(most: int, files: int) -> Iterator[Fit]:
    """From `most` problems each down to one, then to the starts of texts, then to no file."""
    yield from (Fit(quota, most, LONGEST, files) for quota in QUOTAS)
    while most > 1:
        most = (most + 1) // 2
        yield Fit(QUOTAS[0] if most <= 8 else QUOTAS[1], most, LONGEST, files)
        yield Fit(QUOTAS[-1], most, LONGEST, files)
    yield from (Fit(QUOTAS[-1], 1, longest, files) for longest in SHORTER)
    while files:
        files //= 2
        yield Fit(QUOTAS[-1], 1, SHORTER[-1], files)


def note(fit: Fit, left_out: int) -> str:
    """What people are told where more than completions and problems is left out."""
    short = f"Texts end after {fit.longest} characters. " if fit.longest < LONGEST else ""
    fewer = f"{left_out} runs on a benchmark are left out. " if left_out else ""
    return f"To keep the page small: {short}{fewer}".strip() if short or fewer else ""


def expected_note(study: ResolvedStudy) -> str:
    """The same for the plan, before anything is sampled; empty where all may fit."""
    models = study.study.models
    tokens = [
        study.evaluation(m).sampling.max_tokens for m in models for _ in study.evaluated_runs(m)
    ]
    if sum(QUOTAS[-1]) * estimated_bytes(pd.Series(tokens, dtype=int), LONGEST) <= BUDGET:
        return ""
    return (
        f"Page: completions of {len(tokens)} runs on a benchmark may be cut short or left out, to "
        f"keep it below {BUDGET / 1e6:g} MB of them; all are in `samples`."
    )


def spread(entries: Sequence[Entry], most: int) -> list[Entry]:
    """At most `most` entries, evenly spaced."""
    if len(entries) <= most:
        return list(entries)
    places = np.linspace(0, len(entries) - 1, most).round().astype(int)
    return [entries[place] for place in places]


def candidates(frame: pd.DataFrame) -> pd.DataFrame:
    """All rows of a frame of small columns that the largest quota could take, in its order.

    The index is the row's place in the sample file. Added columns: `kind` is the place in a quota,
    `rank` counts the earlier rows of the same problem and kind; `correct` and `drawn` count the
    problem's correct completions and all of them.
    """
    correct, wrong = frame["status"] == "correct", frame["status"] == "wrong"
    kind = np.select([correct, wrong], [0, 1], default=2)
    problem = pd.factorize(frame["problem_id"])[0]
    rows = frame.assign(
        kind=kind,
        rank=frame.groupby([problem, kind]).cumcount(),
        correct=correct.groupby(problem).transform("sum"),
        drawn=correct.groupby(problem).transform("size"),
    )
    return rows[rows["rank"] < np.array(QUOTAS[0])[kind]]


def choose(
    rows: pd.DataFrame, problems: Sequence[str], quota: tuple[int, int, int]
) -> pd.DataFrame:
    """The first correct, wrong and other candidates of each problem, up to `quota`."""
    early = rows["rank"] < np.array(quota)[rows["kind"]]
    return rows[early & rows["problem_id"].isin(problems)]


def estimated_bytes(tokens: pd.Series, longest: int) -> int:
    """A conservative estimate of the size of texts with that many tokens, cut at `longest`."""
    return int((_CHARACTERS_PER_TOKEN * tokens).clip(upper=longest).sum()) + 40 * len(tokens)


def read_texts(path: Path, places: pd.Index) -> list[tuple[str, str | None]]:
    """(completion, answer) of some rows of a sample file, in their order.

    Only row groups that contain one of these rows are read.
    """
    texts: list[tuple[str, str | None]] = []
    wanted = np.asarray(places, dtype=np.int64)
    with pq.ParquetFile(path) as file:
        start = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            here = wanted[(wanted >= start) & (wanted < start + size)] - start
            if len(here):
                table = file.read_row_group(group, columns=["completion", "answer"]).take(here)
                texts += zip(*(column.to_pylist() for column in table.columns), strict=True)
            start += size
    return texts


def excerpts(
    chosen: Mapping[Path, pd.DataFrame],
    texts: Mapping[Path, Sequence[tuple[str, str | None]]],
    problems: Mapping[str, Sequence[Problem]],
    longest: int,
) -> dict[str, Any]:
    """The JSON that the browser's script reads, its texts cut at `longest` characters, without
    titles; the page adds them (`with_titles`).

    `runs` has an entry for each sample file. Its `cells` map a problem's place in its benchmark to
    the number of correct completions, the number of all completions, and the shown ones: [status,
    text, answer, tokens, evaluation seed, index, truncated, cut].
    """
    places = {
        benchmark: {problem.problem_id: str(place) for place, problem in enumerate(of_set)}
        for benchmark, of_set in problems.items()
    }
    runs = []
    for path, rows in chosen.items():
        model, algorithm, seed, benchmark = run_of(path)
        cells: dict[str, dict[str, Any]] = {}
        for row, (text, answer) in zip(rows.to_dict("records"), texts[path], strict=True):
            counts = {"correct": row["correct"], "drawn": row["drawn"], "shown": []}
            cell = cells.setdefault(places[benchmark][row["problem_id"]], counts)
            numbers = row["n_tokens"], row["eval_seed"], row["sample_index"]
            cut = row["finish_reason"] == "length", len(text) > longest
            answer = None if answer is None else answer[:200]
            cell["shown"].append([row["status"], text[:longest], answer, *map(int, numbers + cut)])
        run = {"model": model, "algorithm": algorithm, "seed": seed, "benchmark": benchmark}
        runs.append({**run, "cells": cells})
    described = {
        name: [
            {
                "id": problem.problem_id,
                "text": problem.problem[:longest],
                "answer": task_of(problem.kind).readable(problem.answer)[:longest],
            }
            for problem in of_set
        ]
        for name, of_set in problems.items()
    }
    return {"problems": described, "runs": runs}


def with_titles(text: str, study: ResolvedStudy) -> str:
    """The JSON of `write_excerpts` with the titles of models, methods and benchmarks.

    Raises ValueError for text that is not JSON.
    """
    content = json.loads(text)
    titles = benchmark_titles(study)
    rows = dict.fromkeys(run["algorithm"] for run in content["runs"])
    named = {
        "models": {name: model.title for name, model in study.study.models.items()},
        "algorithms": {name: method_title(study, name) for name in rows},
        "benchmarks": {name: titles[name] for name in content["problems"]},
    }
    return _compact(named | content)


def _compact(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
