"""How many different right completions a method finds, and how evenly it uses them.

pass@k asks whether one of k samples is right; where a problem has many right answers a method can
keep pass@k and lose most of them. Completions count as the same if their texts are, white space
aside, so this says something where the text is the answer (a route), and little where it is prose.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.evaluation.curves import paired_runs, run_of
from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name, Positive
from sage.rendering.numbers import NONE, number_text
from sage.rendering.table import Cell, Column, Record, TableDocument, points_cell, share_cell
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

if TYPE_CHECKING:
    from sage.evaluation.intervals import Estimate

Quantity = Literal["distinct", "differ"]


class DistinctTable(ExhibitOfRows, Kind):
    """How many different right completions a method finds, and how even they are.

    `distinct`: how many different right completions k samples of a problem are expected to hold.
    `differ`: the chance that two right samples differ, over problems with two right ones in every
    run. Both are unbiased means over problems, with 95 % intervals over problems and runs.
    """

    kind: Literal["distinct"]
    benchmark: Name
    """the problem set, whose problems have several right answers"""
    k: Positive | None = None
    """samples of a problem; `null` takes `evaluation.primary_k` [samples]"""

    evidence: ClassVar[str] = "distinct"

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        yield from around.too_many("k", self.k, around.eval_seeds)

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"k": self.k or study.evaluation(self.model).primary_k}

    def measure(self, job: Measuring) -> None:
        """Write `distinct`: a row for each method, training seed and problem."""
        columns = ["problem_id", "completion", "status"]
        rows = []
        for path in job.files["samples"]:
            _, algorithm, seed, _ = run_of(path)
            named = {"algorithm": algorithm, "train_seed": seed, "k": job.settings["k"]}
            rows.append(by_problem(read_frame(path, columns), job.settings["k"]).assign(**named))
        job.write(distinct=pd.concat(rows, ignore_index=True))

    def table(self, display: Display) -> TableDocument:
        frame, draws = display.frame("distinct"), display.evaluation.bootstrap
        baseline, rows, k = display.baseline, [], int(frame["k"].iloc[0])
        for name in display.rows_in(frame):
            row: dict[str, Any] = {"algorithm": name}
            for quantity in ("distinct", "differ"):
                own = estimated(frame, name, None, quantity, draws)
                change = None
                if name != baseline:
                    change = estimated(frame, name, baseline, quantity, draws)
                row |= _ends(quantity, own) | _ends(f"{quantity}_change", change)
            rows.append(row)
        shown = display.ordered(pd.DataFrame(rows))
        minus = f"minus {display.title(baseline)}"
        columns: list[Column] = [
            (f"Different in {k}", "number", partial(_number, "distinct", ".2f")),
            (f"Different in {k}", minus, partial(_number, "distinct_change", "+.2f")),
            ("Two right ones differ", "%", _share),
            ("Two right ones differ", minus, _points),
        ]
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: different right completions "
            f"expected in {k} samples of a problem, and the chance that two right samples of a "
            "problem differ, where every run has two. Below: 95 % intervals over problems and runs."
        )
        return display.document(shown, columns, caption)


def by_problem(samples: pd.DataFrame, k: int) -> pd.DataFrame:
    """Graded samples of a run as a row for each problem: `problem_id`, `n`, `correct`, `distinct`
    (in k samples, without replacement) and `differ`, NaN with fewer than two right ones.

    Raises ValueError if a problem has fewer than k samples.
    """
    from sage.evaluation.pass_at_k import pass_at_k

    n = samples.groupby("problem_id").size()
    if n.min() < k:
        raise ValueError(f"{n.idxmin()} has {n.min()} samples, fewer than k = {k}")
    right = samples[samples["status"] == "correct"]
    text = right["completion"].str.split().str.join(" ")
    kinds = right.assign(text=text).groupby(["problem_id", "text"]).size().rename("count")
    one = kinds.reset_index()
    counts, sizes = one["count"].to_numpy(), one["problem_id"].map(n).to_numpy(dtype=int)
    found = pass_at_k(sizes, counts, np.array([k]))[:, 0] if len(one) else 0.0
    one = one.assign(found=found, same=one["count"] * (one["count"] - 1.0))
    sums = one.groupby("problem_id")[["count", "found", "same"]].sum().reindex(n.index).fillna(0.0)
    pairs = sums["count"] * (sums["count"] - 1.0)
    differ = (1.0 - sums["same"] / pairs.where(pairs > 0)).to_numpy()
    made = {"n": n, "correct": sums["count"].astype(int), "distinct": sums["found"]}
    return pd.DataFrame(made).assign(differ=differ).reset_index()


def estimated(
    frame: pd.DataFrame, row: str, other: str | None, quantity: Quantity, draws: int
) -> tuple[Estimate, int, int] | None:
    """The mean of a quantity of a row, or its difference from another, over problems and runs.

    Problems without the quantity in some run are left out. Returns the estimate `[1]`, how many
    problems and how many pairs of runs; None with fewer than two problems. Runs are paired by
    training seed, and every run meets the one base.
    """
    from sage.evaluation.intervals import mean_of, parts_of  # scipy is slow to import

    sides = [
        frame[frame["algorithm"] == name].pivot(
            index="train_seed", columns="problem_id", values=quantity
        )
        for name in (row, other)
        if name is not None
    ]
    values = sides[0].to_numpy()
    if other is not None:
        named = [(name, [*map(int, s.index)]) for name, s in zip((row, other), sides, strict=True)]
        _, ours, theirs = paired_runs(named[0], named[1])
        values = values[ours] - sides[1][sides[0].columns].to_numpy()[theirs]
    values = values[:, ~np.isnan(values).any(axis=0)]
    runs, problems = values.shape
    if problems < 2:
        return None
    return mean_of([parts_of(values[..., None], draws, None)]), problems, runs


def _ends(name: str, found: tuple[Estimate, int, int] | None) -> dict[str, float]:
    """The columns of an estimate; NaN where there is none."""
    value, low, high = np.nan, np.nan, np.nan
    if found:
        value, low, high = (float(end[0]) for end in (found[0].value, *found[0].interval()))
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _number(name: str, form: str, row: Record) -> Cell:
    value, *ends = (row[each] for each in (name, f"{name}_low", f"{name}_high"))
    if np.isnan(value):
        return Cell(NONE, mark="nil")
    return Cell(number_text(value, form), " to ".join(number_text(end, form) for end in ends))


def _share(row: Record) -> Cell:
    return share_cell(row["differ"], row["differ_low"], row["differ_high"], missing=NONE)


def _points(row: Record) -> Cell:
    return points_cell(*(row[f"differ_change{end}"] for end in ("", "_low", "_high")))
