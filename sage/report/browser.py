"""The sample browser's data: a limited choice of completions of every row, as JSON.

Paper-sized studies have gigabytes of completions. So the choice is made from small columns, and
only the chosen texts are read. What exceeds the budget is left out evenly: first completions of a
problem, then problems, spread over each benchmark. Texts are not changed; the page shows them as
text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from sage.evaluation.curves import run_of
from sage.problems.record import Problem, read_problems, readable_gold
from sage.rendering.labels import benchmark_titles, row_title
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy

BUDGET = 8_000_000
"""Bytes of JSON; with them the page stays well under 15 MB."""

LONGEST = 4_000
"""The most characters shown of a completion, and of a problem."""

QUOTAS = ((4, 4, 2), (2, 2, 1), (1, 1, 1))
"""Correct, wrong and other completions per problem and row; the largest quota is tried first."""

_LIGHT = ["problem_id", "eval_seed", "sample_index", "status", "n_tokens", "finish_reason"]
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Candidates:
    """The candidates of one sample file: all rows that the largest quota could take.

    `rows` has the small columns, indexed by the row's place in the file. For each row, `problem`
    is a place in `names`, `kind` is correct, wrong or other, and `rank` counts the earlier rows of
    that kind. `counts` maps a problem to (correct, all).
    """

    rows: pd.DataFrame
    names: Sequence[str]
    problem: np.ndarray
    kind: np.ndarray
    rank: np.ndarray
    counts: Mapping[str, tuple[int, int]]

    def taken(self, problems: Sequence[str], quota: tuple[int, int, int]) -> np.ndarray:
        """Which rows are among the first of their kind for one of `problems`; booleans `[N]`."""
        wanted = set(problems)
        asked = np.array([name in wanted for name in self.names], dtype=bool)
        return np.asarray(asked[self.problem] & (self.rank < np.array(quota)[self.kind]))


class Choice(NamedTuple):
    """`rows` of one sample file to show, in file order, and `counts` by problem, as above."""

    rows: pd.DataFrame
    counts: Mapping[str, tuple[int, int]]


def write_excerpts(samples: Sequence[Path], problems: Mapping[str, Path], output: Path) -> None:
    """Choose completions of the sample files and write them as JSON of at most BUDGET bytes.

    `problems` maps benchmarks to their files.
    """
    records = {name: read_problems(path) for name, path in problems.items()}
    light = {path: candidates(read_frame(path, columns=_LIGHT)) for path in samples}
    by_benchmark = {path.stem: len(records.get(path.stem, ())) for path in samples}
    for quota, most in plans(by_benchmark):
        shown = {name: spread(records[name], most) for name in by_benchmark if name in records}
        asked = {path: [p.problem_id for p in shown.get(path.stem, ())] for path in light}
        lengths = [
            of.rows["n_tokens"].to_numpy()[of.taken(asked[path], quota)]
            for path, of in light.items()
        ]
        if estimated_bytes(np.concatenate(lengths)) > BUDGET:
            continue
        chosen = {path: choose(of, asked[path], quota) for path, of in light.items()}
        texts = {path: read_texts(path, choice.rows.index) for path, choice in chosen.items()}
        text = json.dumps(excerpts(chosen, texts, shown), ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) <= BUDGET:
            break
    else:
        raise ValueError(
            f"the excerpts of {len(samples)} sample files do not fit {BUDGET} bytes, even with "
            "one problem per benchmark; name fewer models, algorithms or benchmarks in the study"
        )
    write_text_atomic(output, text)


def plans(sizes: Mapping[str, int]) -> Iterable[tuple[tuple[int, int, int], int]]:
    """(quota, most problems per benchmark), from everything down to one problem each."""
    most = max(sizes.values(), default=1)
    yield from ((quota, most) for quota in QUOTAS)
    while most > 1:
        most = (most + 1) // 2
        yield QUOTAS[0] if most <= 8 else QUOTAS[1], most
        yield QUOTAS[-1], most


def spread(problems: Sequence[Problem], most: int) -> list[Problem]:
    """At most `most` problems, evenly spaced over the benchmark."""
    if len(problems) <= most:
        return list(problems)
    places = np.linspace(0, len(problems) - 1, most).round().astype(int)
    return [problems[place] for place in places]


def candidates(frame: pd.DataFrame) -> Candidates:
    """The candidates in a frame of small columns, in its order."""
    codes, names = pd.factorize(frame["problem_id"], sort=True)
    kinds = frame["status"].map({"correct": 0, "wrong": 1}).fillna(2).to_numpy(dtype=int)
    ranks = frame.groupby([codes, kinds], sort=False).cumcount().to_numpy()
    drawn = np.bincount(codes, minlength=len(names))
    correct = np.bincount(codes[kinds == 0], minlength=len(names))
    counts = {
        str(name): (int(right), int(all_))
        for name, right, all_ in zip(names, correct, drawn, strict=True)
    }
    kept = ranks < np.array(QUOTAS[0])[kinds]
    return Candidates(frame[kept], list(counts), codes[kept], kinds[kept], ranks[kept], counts)


def choose(of: Candidates, problems: Sequence[str], quota: tuple[int, int, int]) -> Choice:
    """The first correct, wrong and other completions of each problem, up to `quota`."""
    wanted = set(problems)
    counts = {name: count for name, count in of.counts.items() if name in wanted}
    return Choice(of.rows[of.taken(problems, quota)], counts)


def estimated_bytes(tokens: np.ndarray) -> int:
    """A conservative estimate of the size of texts with that many tokens."""
    characters = np.minimum(_CHARACTERS_PER_TOKEN * tokens, LONGEST)
    return int(characters.sum()) + 40 * len(tokens)


def read_texts(path: Path, places: pd.Index) -> list[tuple[str, str | None]]:
    """(completion, answer) of some rows of a sample file, in their order.

    Only row groups that contain one of these rows are read.
    """
    found: list[tuple[str, str | None]] = []
    wanted = np.asarray(places, dtype=np.int64)
    with pq.ParquetFile(path) as file:
        start = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            here = wanted[(wanted >= start) & (wanted < start + size)] - start
            if len(here):
                table = file.read_row_group(group, columns=["completion", "answer"]).take(here)
                found += zip(*(column.to_pylist() for column in table.columns), strict=True)
            start += size
    return found


def excerpts(
    chosen: Mapping[Path, Choice],
    texts: Mapping[Path, Sequence[tuple[str, str | None]]],
    problems: Mapping[str, Sequence[Problem]],
) -> dict[str, Any]:
    """The JSON that the browser's script reads, without titles; the page adds them
    (`with_titles`).

    `runs` has an entry for each sample file. Its `cells` map a problem's place in its benchmark to
    the number of correct completions, the number of all completions, and the shown ones: [status,
    text, answer, tokens, evaluation seed, index, truncated, cut].
    """
    places = {
        benchmark: {problem.problem_id: place for place, problem in enumerate(of)}
        for benchmark, of in problems.items()
    }
    runs = []
    for path, choice in chosen.items():
        model, algorithm, seed, benchmark = run_of(path)
        cells: dict[str, dict[str, Any]] = {}
        for name, (correct, drawn) in choice.counts.items():
            cells[str(places[benchmark][name])] = {"correct": correct, "drawn": drawn, "shown": []}
        rows = choice.rows.to_dict("records")
        for row, (completion, answer) in zip(rows, texts[path], strict=True):
            said = row["status"], completion[:LONGEST], None if answer is None else answer[:200]
            numbers = row["n_tokens"], row["eval_seed"], row["sample_index"]
            cut = row["finish_reason"] == "length", len(completion) > LONGEST
            shown = [*said, *map(int, numbers + cut)]
            cells[str(places[benchmark][row["problem_id"]])]["shown"].append(shown)
        run = {"model": model, "algorithm": algorithm, "seed": seed, "benchmark": benchmark}
        runs.append({**run, "cells": cells})
    shown_problems = {name: list(map(_problem, found)) for name, found in problems.items()}
    return {"problems": shown_problems, "runs": runs}


def _problem(problem: Problem) -> dict[str, str]:
    answer = readable_gold(problem.answer, problem.kind)
    return {
        "id": problem.problem_id,
        "text": problem.problem[:LONGEST],
        "answer": answer[:LONGEST],
    }


def with_titles(text: str, study: ResolvedStudy) -> str:
    """The JSON of `write_excerpts` with the titles of models, rows and benchmarks.

    Raises ValueError for text that is not JSON.
    """
    content = json.loads(text)
    titles = benchmark_titles(study)
    rows = dict.fromkeys(run["algorithm"] for run in content["runs"])
    named = {
        "models": {name: model.title for name, model in study.study.models.items()},
        "algorithms": {name: row_title(study, name) for name in rows},
        "benchmarks": {name: titles[name] for name in content["problems"]},
    }
    return json.dumps(named | content, ensure_ascii=False, separators=(",", ":"))
