"""One problem that all methods solve, their solutions side by side (App. H).

A rule makes the choice from graded samples, so nobody can pick a favourable example. The reader
judges the solutions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from sage.evaluation.curves import run_of
from sage.exhibits.kind import Kind, Measuring
from sage.fields import BASE, Name
from sage.problems.record import Problem, read_problems
from sage.runtime.files import write_text_atomic
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

CASE = "case.json"
"""The file of the case, which the page shows as text."""

_COLUMNS = ["problem_id", "eval_seed", "sample_index", "completion", "answer", "status"]


class CaseStudyText(ExhibitOfRows, Kind):
    """One problem that all methods solve, their solutions side by side (App. H).

    One problem that all methods solve, with the first correct solution of each.
    """

    kind: Literal["case_study"]
    benchmark: Name
    """the problem set"""

    needs: ClassVar[tuple[str, ...]] = ("samples", "problems")

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"algorithms": self.methods_of(study)}

    def measure(self, job: Measuring) -> None:
        """Write the case as JSON; `null` if no problem is solved by every method.

        The first training seed of every method is used. Raises ValueError for a method without
        samples.
        """
        last_first = sorted(job.files["samples"], key=run_of, reverse=True)
        first = {run_of(path)[1]: path for path in last_first}
        if lacking := set(job.settings["algorithms"]) - set(first):
            raise ValueError(f"no samples of {', '.join(sorted(lacking))}; there are {[*first]}")
        frames = {row: read_frame(first[row], _COLUMNS) for row in job.settings["algorithms"]}
        case = select_case(frames, read_problems(job.file("problems")))
        text = json.dumps(case and asdict(case), ensure_ascii=False, indent=1)
        write_text_atomic(job.folder / CASE, text + "\n")


@dataclass(frozen=True)
class Solution:
    """A correct completion, unchanged, and how many of the policy's samples were correct."""

    algorithm: str
    completion: str
    answer: str
    eval_seed: int
    sample_index: int
    n_correct: int
    n_samples: int


@dataclass(frozen=True)
class CaseStudy:
    """A problem and one solution per policy, in the given order.

    All policies solved `n_candidates` of `n_problems` problems.
    """

    problem: Problem
    solutions: tuple[Solution, ...]
    n_candidates: int
    n_problems: int


def select_case(
    samples: Mapping[str, pd.DataFrame], problems: Sequence[Problem]
) -> CaseStudy | None:
    """The hardest problem that all policies solve, or None if there is no such problem.

    `samples` maps methods to graded samples of one benchmark. The hardest problem is the one
    with the smallest share of correct samples of the base; ties go to the lowest problem_id.
    Each policy shows its first correct sample, by evaluation seed and sample index. Raises
    ValueError if the base is not among the policies.
    """
    if BASE not in samples:
        raise ValueError(f"no samples of {BASE!r}; there are {', '.join(samples)}")
    shares = pd.DataFrame(
        {
            name: (frame["status"] == "correct").groupby(frame["problem_id"]).mean()
            for name, frame in samples.items()
        }
    )
    solved = shares[(shares > 0).all(axis=1)].sort_index()
    if solved.empty:
        return None
    chosen = str(solved[BASE].idxmin())
    by_id = {problem.problem_id: problem for problem in problems}
    return CaseStudy(
        problem=by_id[chosen],
        solutions=tuple(_first_correct(name, frame, chosen) for name, frame in samples.items()),
        n_candidates=len(solved),
        n_problems=len(shares),
    )


def read_case(path: Path) -> CaseStudy | None:
    """Read what `CaseStudyText.measure` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content is None:
        return None
    content["problem"] = Problem(**content["problem"])
    content["solutions"] = tuple(Solution(**solution) for solution in content["solutions"])
    return CaseStudy(**content)


def _first_correct(algorithm: str, samples: pd.DataFrame, problem: str) -> Solution:
    drawn = samples[samples["problem_id"] == problem]
    correct = drawn[drawn["status"] == "correct"].sort_values(["eval_seed", "sample_index"])
    first = correct.iloc[0]
    place = int(first["eval_seed"]), int(first["sample_index"])
    text = str(first["completion"]), str(first["answer"])
    return Solution(algorithm, *text, *place, n_correct=len(correct), n_samples=len(drawn))
