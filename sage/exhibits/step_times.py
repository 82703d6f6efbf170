"""What a guide costs: the time of learning from the same completions (section 4.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import Field

from sage.exhibits.kind import Files, Kind, Measuring, Shown, TableMaker
from sage.exhibits.rows import titled
from sage.fields import Name, about
from sage.rendering.labels import exhibit_heading, row_title
from sage.rendering.numbers import NONE, interval_of_points, points
from sage.rendering.table import Cell, Group, Head, Table, TableDocument, algorithm_row
from sage.results import Results
from sage.study import RL, Algorithm, ResolvedStudy
from sage.study.exhibit import Surroundings

COLUMNS = ["algorithm", "title", "seconds", "excess", "low", "high", "rounds"]


class StepTimesTable(Kind):
    """What a guide costs: the time of learning from the same completions (section 4.3)."""

    kind: Literal["step_times"]
    algorithms: Annotated[
        list[Name],
        Field(min_length=2),
        about("rows that differ in their guide alone; the others are compared with the first"),
    ]
    rounds: Annotated[
        int, Field(ge=6), about("how often each row is timed, in turn", unit="rounds")
    ] = 40

    of_training: ClassVar[bool] = True
    of_policies: ClassVar[bool] = False
    with_model: ClassVar[bool] = True
    measured_by: ClassVar[tuple[str, ...]] = ("sage.training.stopwatch",)
    evidence: ClassVar[str] = "times"
    contents: ClassVar[str] = (
        "Time for loss and gradient of the same completions, for each method in turn on one "
        "machine. `seconds` is the median. `excess` is the overhead: the median over rounds of "
        "the ratio to the first method, minus one, with its 95 % interval."
    )

    def named(self) -> list[str]:
        """See `Exhibit`."""
        return self.algorithms

    def rows_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`."""
        return self.algorithms

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """Rows that differ in more than their guide."""
        plain = {
            name: around.algorithms[name].model_dump(exclude={"title", "guide"})
            for name in self.algorithms
            if name in around.algorithms
        }
        first = next(iter(plain), "")
        for name, settings in plain.items():
            if differing := [k for k, value in settings.items() if value != plain[first][k]]:
                yield (
                    "algorithms",
                    f"{name!r} and {first!r} differ in {', '.join(differing)}; name rows that "
                    "differ in their guide alone",
                )

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """See `Kind`. It is timed on the policy before RL, which is not updated."""
        longest = study.model(self.model).rl.sampling.max_tokens
        return [("Rounds", str(self.rounds)), ("Completions", f"≤ {longest} tokens each")]

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """The parent, and what RL trains on."""
        return {
            "parent": [results.parent(self.model)],
            "problems": [study.training_problems(results, self.model)],
        }

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """See `Kind`."""
        rows = {row: study.algorithms[row].model_dump() for row in self.algorithms}
        return {"rl": study.model(self.model).rl.model_dump(), "algorithms": rows}

    def measure(self, job: Measuring) -> None:
        """Write `times`."""
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
        job.manifest.write(job.folder / "manifest.json", int(table["tokens"].sum()))

    def tables(self) -> Mapping[str, TableMaker]:
        """The overheads."""
        return {"": step_times_document}


def step_times_document(shown: Shown) -> TableDocument:
    """The table of overheads."""
    frame = step_times_table(shown.frame("times"), shown.study, shown.name)
    caption = step_times_caption(frame, shown.study, shown.name)
    return TableDocument(frame, step_times_view(frame, shown.study), caption)


def step_times_table(found: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> pd.DataFrame:
    """The overhead of guides, with COLUMNS: median seconds, and `excess` over the first row.

    `found` is the frame written by `sage.training.stopwatch`. The first row has no excess.
    """
    from sage.analysis.step_times import time_ratio

    first = study.rows_of(exhibit)[0]
    rows = []
    for row, times in found.groupby("algorithm", sort=False):
        seconds, rounds = float(times["seconds"].median()), len(times)
        excess, low, high = math.nan, math.nan, math.nan
        if row != first:
            cost = time_ratio(found, str(row), first)
            excess, low, high = cost.excess, cost.low, cost.high
        rows.append((row, seconds, excess, low, high, rounds))
    columns = [name for name in COLUMNS if name != "title"]
    return titled(pd.DataFrame(rows, columns=columns), COLUMNS, study, exhibit)


def step_times_caption(table: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> str:
    """The caption of the table of step times."""
    rounds, first = int(table["rounds"].max()) if len(table) else 0, study.rows_of(exhibit)[0]
    return (
        f"{exhibit_heading(study, exhibit)}: time for loss and gradient of the same micro-batch "
        f"of completions, measured in turn, {rounds} rounds on one machine. Seconds: median "
        "(wall-clock time on a GPU, processor time on a CPU). Overhead: median over rounds of "
        f"the ratio to {row_title(study, first)}, minus one, in percent with its 95 % interval. "
        "Sampling the completions takes more time, the same for all methods."
    )


def step_times_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """A frame of step times as a table: medians, and the overhead over the first row."""
    rows = []
    for row in table.to_dict("records"):
        cost = Cell(NONE)
        if not math.isnan(row["excess"]):
            cost = Cell(points(row["excess"]), interval_of_points(row["low"], row["high"]))
        seconds = Cell(f"{row['seconds']:.3f}")
        rows.append(algorithm_row(study, str(row["algorithm"]), [seconds, cost]))
    heads = tuple(Head("", (name,)) for name in ("Seconds", "Overhead (%)"))
    return Table("Algorithm", heads, (Group("", tuple(rows)),))
