"""What became of each problem in each run, as counts: all that intervals and verdicts need.

pass@k, its differences, support, Cover@tau and the chance level are made from this table, so that a
kept run can be judged again without its samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sage.evaluation.chance import chance_level, checks_working
from sage.evaluation.curves import Samples, samples_each
from sage.evaluation.pass_at_k import powers_of_two
from sage.problems.record import Problem
from sage.prompting import WORK_CLOSE
from sage.tasks import stratum_of, task_of

RUN = ["model", "algorithm", "train_seed", "benchmark"]
COUNTS = [*RUN, "problem_id", "cluster", "stratum", "n_samples", "correct", "worked", "chance"]


def counts_table(samples: Samples, problems: Sequence[Problem] = ()) -> pd.DataFrame:
    """COUNTS, a row for each problem of each run, problems in sorted order.

    `correct` of `n_samples` are right, `worked` of those with correct working (NaN where it cannot
    be checked); `chance` lists pass@k for k = 1, 2, 4, … n against the answers of other problems
    (NaN where it cannot be computed). Without the benchmark's `problems` both are NaN, and
    `cluster` and `stratum` empty. `samples` need the column `completion`
    where working can be checked. Raises ValueError unless all problems of a run were sampled
    equally often.
    """
    by_id = {problem.problem_id: problem for problem in problems}
    tables = []
    for run, frame in samples.items():
        counts = (frame["status"] == "correct").groupby(frame["problem_id"]).agg(["sum", "size"])
        n = samples_each(counts["size"], run)
        asked = [by_id[name] for name in counts.index] if by_id else []
        ks = powers_of_two(n)
        chance = np.full((len(counts), len(ks)), np.nan)
        if asked:
            chance = chance_level(_answers(frame, asked), asked, n, ks)
        columns = dict(zip(RUN, run, strict=True)) | {
            "problem_id": counts.index,
            "cluster": [problem.cluster for problem in asked] or "",
            "stratum": [stratum_of(problem) for problem in asked] or "",
            "n_samples": n,
            "correct": counts["sum"].to_numpy(),
            "worked": np.array(_worked(frame, asked) or [np.nan] * len(counts)),
            "chance": [*chance],
        }
        tables.append(pd.DataFrame(columns, columns=COUNTS))
    return pd.concat(tables, ignore_index=True)


def _answers(samples: pd.DataFrame, problems: Sequence[Problem]) -> list[dict[str, int]]:
    """How often each answer was given, problem by problem; samples without one are left out."""
    counts = samples.groupby(["problem_id", "answer"], sort=False).size().reset_index(name="count")
    answers: dict[str, dict[str, int]] = {problem.problem_id: {} for problem in problems}
    for name, answer, count in counts.itertuples(index=False):
        answers[name][answer] = int(count)
    return list(answers.values())


def _worked(samples: pd.DataFrame, problems: Sequence[Problem]) -> list[float]:
    """How many correct samples of each problem have correct working; empty if nobody can say."""
    if not checks_working(problems):
        return []
    checks = {
        problem.problem_id: task_of(problem.kind, problem.source).working for problem in problems
    }
    by_id = {problem.problem_id: problem for problem in problems}
    rows = samples.loc[samples["status"] == "correct", ["problem_id", "completion", "answer"]]
    counts = dict.fromkeys(by_id, 0.0)
    for name, completion, answer in rows.itertuples(index=False):
        problem = by_id[name]
        working = completion.partition(WORK_CLOSE)[0]
        if check := checks[name]:
            counts[name] += check(problem.problem, working, answer)
    return list(counts.values())
