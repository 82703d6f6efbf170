"""What a guide costs: the time of learning from the same completions (section 4.3).

The times are measured in turn, round by round. So the result is the ratio of two in a round, not
their times, and the median over rounds, which one slow round does not change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name
from sage.rendering.table import Column, TableDocument, points_cell
from sage.results import Results
from sage.study import RL, Algorithm, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings
from sage.study.without_effect import WITHOUT_EFFECT

_COLUMNS = ["algorithm", "seconds", "excess", "low", "high", "rounds"]


class StepTimesTable(ExhibitOfRows, Kind):
    """What a guide costs: the time of learning from the same completions (section 4.3).

    Time for loss and gradient of the same completions, for each method in turn on one machine.
    `seconds` is the median. `excess` is the overhead: the median over rounds of the ratio to the
    first method, minus one, with its 95 % interval.
    """

    kind: Literal["step_times"]
    algorithms: Annotated[list[Name], Field(min_length=2)]
    """methods that differ in their guide alone; the others are compared with the first"""
    rounds: Annotated[int, Field(ge=6)] = 40
    """how often each method is timed, in turn [rounds]"""

    of_training: ClassVar[bool] = True
    of_policies: ClassVar[bool] = False
    with_model: ClassVar[bool] = True
    measured_by: ClassVar[tuple[str, ...]] = ("sage.training.stopwatch",)
    evidence: ClassVar[str] = "times"

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """Methods that differ in more than their guide."""
        plain = {
            name: around.algorithms[name].model_dump(exclude={"title", "guide"})
            for name in self.algorithms
            if name in around.algorithms
        }
        first = next(iter(plain), "")
        for name, settings in plain.items():
            if differing := [k for k, value in settings.items() if value != plain[first][k]]:
                both = f"{name!r} and {first!r} differ in {', '.join(differing)}"
                yield "algorithms", f"{both}; name methods that differ in their guide alone"

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """See `Kind`. It is timed on the policy before RL, which is not updated."""
        longest = study.rl(self.model).sampling.max_tokens
        return [("Rounds", str(self.rounds)), ("Completions", f"≤ {longest} tokens each")]

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        return {
            "parent": [results.rl_start(self.model)],
            "problems": [study.training_problems(results, self.model)],
        }

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        untitled = {"title": ""}  # neither titles nor limits of warnings change what is measured
        rows = {row: study.algorithms[row].model_dump() | untitled for row in self.algorithms}
        rl = study.rl(self.model).model_dump(exclude=set(WITHOUT_EFFECT["rl"]))
        return {"rl": rl, "algorithms": rows}

    def measure(self, job: Measuring) -> None:
        from sage.training.stopwatch import step_times

        rows = job.settings["algorithms"]
        table = step_times(
            parent=job.file("parent"),
            problems=job.file("problems"),
            settings=RL.model_validate(job.settings["rl"]),
            algorithms={name: Algorithm.model_validate(row) for name, row in rows.items()},
            rounds=self.rounds,
            device=job.device,
        )
        job.write(times=table)
        job.write_manifest(int(table["tokens"].sum()))

    def table(self, display: Display) -> TableDocument:
        """Median seconds, and `excess` over the first method, which has none itself.

        The times are those of `sage.training.stopwatch`.
        """
        times, first = display.frame("times"), display.rows[0]
        rows = []
        for row, own in times.groupby("algorithm", sort=False):
            cost = [math.nan] * 3
            if row != first:
                ratio = time_ratio(times, str(row), first)
                cost = [ratio.excess, ratio.low, ratio.high]
            rows.append((row, float(own["seconds"].median()), *cost, len(own)))
        frame = display.ordered(pd.DataFrame(rows, columns=_COLUMNS))
        caption = (
            f"{display.heading}: time for loss and gradient of the same micro-batch of "
            f"completions, measured in turn, {frame['rounds'].max()} rounds on one machine. "
            "Seconds: median (wall-clock time on a GPU, processor time on a CPU). Overhead: median "
            f"over rounds of the ratio to {display.title(first)}, minus one, in percent with its "
            "95 % interval. Sampling the completions takes more time, the same for all methods."
        )
        columns: list[Column] = [
            ("", "Seconds", lambda row: f"{row['seconds']:.3f}"),
            ("", "Overhead (%)", lambda row: points_cell(row["excess"], row["low"], row["high"])),
        ]
        return display.document(frame, columns, caption)


@dataclass(frozen=True)
class Ratio:
    """Median of a method's time over another's by round, less one, between `low` and `high`.

    Interval and p are of the sign test: nothing is assumed of the times but that rounds do not
    depend on each other.
    """

    excess: float
    low: float
    high: float
    p: float
    rounds: int


def time_ratio(
    times: pd.DataFrame, row: str, other: str, level: float = 0.95, null: float = 0.0
) -> Ratio:
    """The overhead of `row` over `other`; `times` is what `sage.training.stopwatch` measured.

    The interval is at `level`, and p that of a median of `null`. Raises ValueError where one of
    the two was not timed.
    """
    by_round = times.pivot(index="round", columns="algorithm", values="seconds")
    if missing := [name for name in (row, other) if name not in by_round]:
        raise ValueError(
            f"{' and '.join(missing)} not timed; there are {', '.join(map(str, by_round))}"
        )
    ratios = (by_round[row] / by_round[other]).to_numpy()
    from scipy.stats import quantile_test  # slow to import

    test = quantile_test(ratios, q=1.0 + null, p=0.5)
    bounds = test.confidence_interval(level)
    excess = float(np.median(ratios)) - 1.0
    return Ratio(excess, bounds.low - 1.0, bounds.high - 1.0, float(test.pvalue), len(ratios))
