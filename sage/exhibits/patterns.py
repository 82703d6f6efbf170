"""How often correct solutions show a reasoning pattern (Table 2, Eq. 13).

Relies on graded samples and on phrase lists; sampling and grading are the evaluation's. Eq. 13
can be read as a share of all correct solutions (pooled) or as the mean of the problems' shares,
so both are given: the pooled one leans to easy problems, which have many correct solutions. The
paper's numbers are not pooled: with 16 samples of 60 problems, three shares of one method would
then have a denominator in common, and the least are 275, 260 and 276 of 960, where pass@1 is 3 to
6 % in its Table 1.
Both are ratios of sums over problems, and their intervals are those of linearised means. Two
methods solve different problems, so they are compared on those that both solve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.evaluation.curves import Run, paired_runs, run_of
from sage.exhibits.kind import Display, Files, Kind, Measuring
from sage.exhibits.phrases import Pattern, load_patterns, plain_text
from sage.fields import Name, Positive
from sage.rendering.numbers import NONE, grouped
from sage.rendering.table import Column, Record, TableDocument, cell_of, share_cell
from sage.results import Results
from sage.runtime.files import from_repository
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

if TYPE_CHECKING:
    from sage.evaluation.intervals import Estimate

COLUMNS = ["model", "algorithm", "benchmark", "pattern", "title", "pooled", "per_problem"]
COLUMNS += ["low", "high", "per_problem_low", "per_problem_high", "n_correct", "n_problems"]
COLUMNS += ["n_runs", "train_seeds", "problems", "correct", "shown"]
"""What is measured; SHOWN is what the table has."""

_POOLED = ("pooled", "low", "high")
_PER_PROBLEM = ("per_problem", "per_problem_low", "per_problem_high")
SHOWN = ["algorithm", "title", "pattern", "pattern_title", *_POOLED, *_PER_PROBLEM]
SHOWN += ["n_correct", "n_problems"]


class PatternTable(ExhibitOfRows, Kind):
    """Reasoning patterns among correct solutions (Table 2).

    How often correct solutions show a reasoning pattern, as shares between 0 and 1: `pooled` over
    all correct solutions, and `per_problem`, the mean of the problems' shares. A pattern is
    detected by phrase lists.
    """

    kind: Literal["patterns"]
    benchmark: Name
    """the problem set"""
    samples: Positive | None = None
    """how many samples of each problem and evaluation seed count, the first ones; left out, all
    [samples]"""
    phrases: str = "config/patterns.yaml"
    """the file with the phrases used to detect patterns, from the folder of the Snakefile [path]"""

    measured_by: ClassVar[tuple[str, ...]] = ("sage.exhibits.patterns", "sage.exhibits.phrases")
    evidence: ClassVar[str] = "patterns"

    def samples_shown(self, study: ResolvedStudy) -> int:
        drawn = study.evaluation(self.model).samples
        return min(drawn, self.samples or drawn)

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        yield from around.too_many("samples", self.samples)

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        return {**super().inputs(study, results, name), "phrases": [from_repository(self.phrases)]}

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"bootstrap": study.study.evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        columns = ["problem_id", "sample_index", "completion", "status"]
        # Only the first few of hundreds of samples: all texts would fill the memory.
        first = [("sample_index", "<", self.samples)] if self.samples else None
        frames = {run_of(path): read_frame(path, columns, first) for path in job.files["samples"]}
        patterns = load_patterns(job.file("phrases"))
        job.write(patterns=pattern_table(frames, patterns, job.settings["bootstrap"]))

    def table(self, display: Display) -> TableDocument:
        """A row for each method and pattern, with both estimators of Eq. 13."""
        measured = display.frame("patterns").rename(columns={"title": "pattern_title"})
        frame = display.ordered(measured)[SHOWN]
        which = f"the first {self.samples} samples" if self.samples else "all samples"
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: share of correct solutions "
            f"that show a pattern, in percent, among {which} of each problem and evaluation seed. "
            "Below each value: its 95 % interval. Patterns are detected by phrase lists, so "
            "compare the numbers within this study only."
        )
        columns: list[Column] = []
        for pattern, title in dict(
            zip(frame["pattern"], frame["pattern_title"], strict=True)
        ).items():
            all_, each = (
                cell_of(partial(share_cell, missing=NONE), pattern, ends=ends)
                for ends in (_POOLED, _PER_PROBLEM)
            )
            columns += [(title, "all", all_), (title, "per problem", each)]
        columns.append(("", "Correct solutions", _correct))
        return display.document(frame, columns, caption, by="pattern")

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        """The means of the problems' shares, which the paper's numbers must be."""
        named = {"pattern": "quantity", "per_problem": "value"}
        return self.table(display).frame.rename(columns=named).assign(benchmark=self.benchmark)


def _correct(row: Record) -> str:
    return grouped(next(iter(row.values()))["n_correct"])


def detect(texts: Sequence[str], patterns: Sequence[Pattern]) -> np.ndarray:
    """Which texts show which patterns: booleans `[N, P]`."""
    plain = [plain_text(text) for text in texts]
    shows = [[pattern.occurs_in(text) for pattern in patterns] for text in plain]
    return np.array(shows, dtype=bool).reshape(len(texts), len(patterns))


def frequency(showing: np.ndarray, correct: np.ndarray, draws: int) -> dict[str, float]:
    """Eq. 13 from counts for each training seed and problem, both `[S, P]`, showing <= correct.

    pooled = sum of showing / sum of correct. per_problem = the mean of showing / correct over the
    problems (of each run) with a correct solution. Their 95 % intervals, over problems and runs,
    are those of `sage.evaluation.intervals` (`low` and `high` of the pooled one,
    `per_problem_low` and `per_problem_high`), and exact if no correct solution shows the pattern
    or all do. Without a correct solution everything is NaN. Raises ValueError for counts that do
    not fit together.
    """
    showing, correct = np.asarray(showing, dtype=float), np.asarray(correct, dtype=float)
    if showing.shape != correct.shape or showing.ndim != 2:
        raise ValueError(f"counts of shapes {showing.shape} and {correct.shape}, not both [S, P]")
    if (showing < 0).any() or (showing > correct).any():
        raise ValueError("more solutions show the pattern than are correct, or a negative count")
    solved, shares = (correct > 0).astype(float), showing / np.maximum(correct, 1.0)
    found = {}
    known = correct.any()
    for name, start, parts, wholes in (
        ("pooled", "", showing, correct),
        ("per_problem", "per_problem_", shares, solved),
    ):
        found[name] = float(parts.sum() / wholes.sum()) if known else np.nan
        ends = _ratio_interval(parts, wholes, draws) if known else (np.nan, np.nan)
        found[f"{start}low"], found[f"{start}high"] = ends
    return found


def pattern_table(
    samples: Mapping[Run, pd.DataFrame], patterns: Sequence[Pattern], draws: int
) -> pd.DataFrame:
    """Table 2: a row for each model, algorithm, benchmark and pattern, with COLUMNS.

    Training seeds of a method are taken together. `low` and `high` belong to `pooled`; `n_problems`
    counts the problems with a correct solution, `n_runs` the training seeds. `correct` and `shown`
    list the correct solutions, and those of them that show the pattern, seed by seed
    (`train_seeds`) and in each by `problems`: what `shares_compared` reads. Raises ValueError if
    the training seeds of a method were sampled on different problems.
    """
    counts: dict[tuple[str, str, str], dict[int, pd.DataFrame]] = {}
    for (model, algorithm, seed, benchmark), frame in samples.items():
        counts.setdefault((model, algorithm, benchmark), {})[seed] = _counts(frame, patterns)
    rows: list[dict[str, object]] = []
    for key, by_seed in counts.items():
        problems = {tuple(count.index) for count in by_seed.values()}
        if len(problems) > 1:
            raise ValueError(f"{', '.join(key)}: training seeds sampled on different problems")
        head: dict[str, object] = dict(zip(("model", "algorithm", "benchmark"), key, strict=True))
        correct = np.stack([count["correct"].to_numpy() for count in by_seed.values()])
        head |= {"n_correct": int(correct.sum()), "n_problems": int(correct.any(axis=0).sum())}
        head |= {"n_runs": len(by_seed), "train_seeds": [*by_seed], "problems": [*problems.pop()]}
        for pattern in patterns:
            showing = np.stack([count[pattern.name].to_numpy() for count in by_seed.values()])
            own: dict[str, object] = {"pattern": pattern.name, "title": pattern.title}
            own |= frequency(showing, correct, draws)
            own |= {"correct": correct.ravel().tolist(), "shown": showing.ravel().tolist()}
            rows.append(head | own)
    return pd.DataFrame(rows, columns=COLUMNS)


def shares_compared(
    row: Mapping[Any, Any], other: Mapping[Any, Any], draws: int
) -> tuple[Estimate, int, int] | None:
    """How much more often correct solutions of `row` show a pattern than those of `other`.

    Both are rows of `pattern_table` for the same pattern. A problem counts in the runs in which
    both solve it, each problem and run the same: the mean over these of the difference of the
    shares. Its interval is that of a linearised ratio, whose values have no range. Returns the
    estimate `[1]`, the number of problems and that of pairs of runs; runs are paired by training
    seed, and every run meets the one base. None where
    fewer than two problems are solved by both. Raises ValueError without a seed in common.
    """
    from sage.evaluation.intervals import mean_of, parts_of  # scipy is slow to import

    if list(row["problems"]) != list(other["problems"]):
        raise ValueError(f"{row['algorithm']} and {other['algorithm']}: different problems")
    named = [(str(side["algorithm"]), [*map(int, side["train_seeds"])]) for side in (row, other)]
    _, *places = paired_runs(*named)
    one, two = (
        [counts[place] for counts in _counts_by_run(side)]
        for side, place in zip((row, other), places, strict=True)
    )
    solved = (one[0] > 0) & (two[0] > 0)
    count = int(solved.any(axis=0).sum())
    if count < 2:
        return None
    shares = [showing / np.maximum(correct, 1.0) for correct, showing in (one, two)]
    kept = solved.any(axis=0)  # what nobody solves says nothing
    solved = solved[:, kept]
    difference = np.where(solved, (shares[0] - shares[1])[:, kept], 0.0)
    weight, mean = solved.mean(), difference.sum() / solved.sum()
    values = mean + (difference - mean * solved) / weight
    ends = (-1.0 / weight, 1.0 / weight)
    return mean_of([parts_of(values[..., None], draws, ends)]), count, len(solved)


def _counts(samples: pd.DataFrame, patterns: Sequence[Pattern]) -> pd.DataFrame:
    """Correct solutions per problem, and how many of them show each pattern; by problem_id."""
    correct = samples[samples["status"] == "correct"]
    shows = detect(correct["completion"].tolist(), patterns)
    marks = pd.DataFrame(shows, columns=[pattern.name for pattern in patterns])
    marks = marks.assign(correct=True, problem_id=correct["problem_id"].to_numpy())
    problems = sorted(samples["problem_id"].unique())
    return marks.groupby("problem_id").sum().reindex(problems, fill_value=0).astype(int)


def _counts_by_run(row: Mapping[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Correct solutions, and those that show the pattern, of a row of the table, `[S, P]` each."""
    shape = len(row["train_seeds"]), len(row["problems"])
    correct, showing = (
        np.asarray(row[name], dtype=float).reshape(shape) for name in ("correct", "shown")
    )
    return correct, showing


def _ratio_interval(parts: np.ndarray, wholes: np.ndarray, draws: int) -> tuple[float, float]:
    """95 % interval of sum(parts) / sum(wholes), both `[S, P]`, within [0, 1].

    To first order, the ratio R varies like the mean of R + (part - R whole) / mean(whole). Where
    it is 0 or 1 nothing varies: P problems with means over runs w of `wholes` then bound it as
    Clopper and Pearson do, by (1 - 0.025^(1 / P)) max(w) / mean(w) from that end.
    """
    ratio = parts.sum() / wholes.sum()
    if ratio in (0.0, 1.0):
        counts = wholes.mean(axis=0)
        counts = counts[counts > 0]
        reach = counts.max() / counts.mean() * (1.0 - 0.025 ** (1.0 / len(counts)))
        return (0.0, min(reach, 1.0)) if ratio == 0.0 else (max(1.0 - reach, 0.0), 1.0)
    from sage.evaluation.intervals import interval_of_mean

    values = ratio + (parts - ratio * wholes) / wholes.mean()
    low, high = interval_of_mean(values[..., None], draws)
    return float(np.clip(low[0], 0.0, 1.0)), float(np.clip(high[0], 0.0, 1.0))
