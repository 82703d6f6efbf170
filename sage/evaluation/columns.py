"""What the columns of a file of completions are called, whatever program wrote it.

`grade` and `compare` look for the same names, so that a file of one is a file of the other. An
option names a column that is called otherwise; what a logger calls its own is in
`sage.evaluation.loggers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np
import pandas as pd

NAMES: dict[str, tuple[str, ...]] = {
    "problem": (
        *("problem_id", "problem", "question_id", "question", "prompt", "query"),
        *("doc_id", "sample_id", "task_id", "id", "input", "uid"),
    ),
    "correct": (
        *("correct", "is_correct", "status", "evaluation.is_correct", "passed"),
        *("exact_match", "acc", "accuracy", "score", "reward"),
    ),
    "seed": ("seed", "train_seed", "training_seed"),
    "benchmark": ("benchmark", "task", "task_name", "dataset", "data_source", "evaluation_name"),
    "cluster": ("cluster",),
    "model": ("model", "model_name", "model_id", "method", "algorithm", "policy"),
    "sample": (
        *("sample", "sample_index", "sample_idx", "completion_index", "generation_index"),
        *("rollout_index", "repeat_index"),
    ),
    "answer": (
        *("answer", "gold", "gold_answer", "correct_answer", "reference_answer"),
        *("expected_answer", "ground_truth", "target", "reference", "gts", "label", "solution"),
    ),
    "completion": (
        *("completion", "completions", "response", "responses", "generation", "generations"),
        *("generated_text", "output", "outputs", "model_output", "prediction", "predictions"),
    ),
}
"""What a file says, and the columns that say it, the first that there is."""

MEANING = {
    "problem": "the problem, or its id",
    "correct": "whether the completion is right",
    "seed": "the training run",
    "benchmark": "the benchmark, or task",
    "cluster": "what several problems were drawn with",
    "model": "the method, where one file has several",
    "sample": "the number of a completion among those of its problem and run",
    "answer": "the correct answer",
    "completion": "the completion",
}
"""The same, as `--help` explains them."""

_ANSWERS_ALONE = ("label", "solution")
"""Names of answers that may stand beside another: a class, and a worked solution."""

_EVEN_BY_CHANCE, _AGAIN_BY_CHANCE = 12, 4
"""Completions beyond one a problem that show that no chance doubled every row of a file, in any
order, or one half after the other."""


def column_of(
    table: pd.DataFrame, what: str, given: str | None = None, own: Mapping[str, str] | None = None
) -> str | None:
    """The column of `table` that says `what` (of NAMES); None if there is none.

    `given` is the one that the user names, `own` what the file's logger calls its own. Raises
    ValueError if the named column is not there, and for correct answers in two columns.
    """
    if given:
        ends = [name for name in map(str, table) if name == given or name.endswith(f".{given}")]
        if given in ends or len(ends) == 1:
            return given if given in ends else ends[0]
        raise ValueError(f"{no_column(table, given)}. Name the column with --{what}")
    if own and what in own:
        return own[what]
    there = [name for name in NAMES[what] if name in table]
    if what == "answer":
        _refuse_two_columns(table, [name for name in there if name not in _ANSWERS_ALONE])
    return there[0] if there else None


def no_column(table: pd.DataFrame, name: str) -> str:
    """How an error begins that a column is missing."""
    return f"no column {name!r}; it has {', '.join(map(str, table))}"


def _refuse_two_columns(table: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise ValueError if columns that can be the correct answer differ: one may be the model's."""
    for name in names[1:]:
        if (differ := (table[names[0]].map(str) != table[name].map(str)).to_numpy()).any():
            row = int(differ.argmax())
            raise ValueError(
                f"columns {names[0]} and {name} can both be the correct answer, and row {row + 1} "
                f"has {str(table[names[0]].iloc[row])[:40]!r} and "
                f"{str(table[name].iloc[row])[:40]!r}; name the right one with --answer"
            )


def empty_rows(column: pd.Series) -> np.ndarray:
    """Which rows say nothing where a problem or a benchmark is asked for, `[N]`."""
    return (column.isna() | (column.map(str) == "")).to_numpy()


def refuse_repeated(table: pd.DataFrame, keys: pd.DataFrame, numbered: bool) -> None:
    """Raise ValueError for rows that are there twice, which would count as more completions.

    `keys` has a row for each of `table`, with its run, benchmark and problem, and, if they are
    `numbered`, the number of its completion. Without numbers, single rows may be alike, as
    completions are; but not every row of a file.
    """
    if numbered:
        if (again := keys.duplicated().to_numpy()).any():
            row = int(again.argmax())
            first = int((keys == keys.iloc[row]).all(axis=1).to_numpy().argmax())
            same = {str(name): str(keys[name].iloc[row])[:40] for name in keys}
            says = ", ".join(f"{k} {v!r}" for k, v in same.items() if v)
            raise ValueError(
                f"row {row + 1} repeats row {first + 1} ({says}); remove one, or name the column "
                "that numbers the completions of a problem with --sample"
            )
        return
    rows = pd.util.hash_pandas_object(table.map(str), index=False)
    sizes = rows.value_counts()
    times = gcd(*map(int, sizes)) if len(sizes) else 1
    half = len(rows) // 2
    in_order = np.array_equal(rows.to_numpy()[:half], rows.to_numpy()[half:])
    beyond = len(sizes) - len(keys.drop_duplicates())
    if times > 1 and beyond >= (_AGAIN_BY_CHANCE if in_order else _EVEN_BY_CHANCE):
        row = half if in_order else int(rows.duplicated().to_numpy().argmax())
        first = int((rows == rows.iloc[row]).to_numpy().argmax())
        raise ValueError(
            f"every row is there {times} times: row {row + 1} repeats row {first + 1}; remove the "
            "copies, or number the completions of a problem in a column `sample`"
        )
