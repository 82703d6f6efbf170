"""What a guide costs: the time of learning from the same completions (section 4.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.fields import Name
from sage.rendering.table import Column, TableDocument, points_cell, table_of, titled
from sage.results import Results
from sage.study import RL, Algorithm, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

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
            "parent": [results.parent(self.model)],
            "problems": [study.training_problems(results, self.model)],
        }

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        untitled = {"title": ""}  # neither titles nor limits of warnings change what is measured
        rows = {row: study.algorithms[row].model_dump() | untitled for row in self.algorithms}
        rl = study.rl(self.model).model_dump(exclude={"watch"})
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
        from sage.analysis.step_times import time_ratio

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
        table = table_of("Method", columns, [("", titled(frame))], display.study)
        return TableDocument(frame, table, caption)
