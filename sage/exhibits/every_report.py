"""Tables of every report: luck and working behind pass@k, grading, problems kept and lost,
contamination.

They show all models and benchmarks of the study, and need no settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from sage.evaluation.chance import LUCKY
from sage.evaluation.curves import POOLED
from sage.evaluation.metrics import RATED
from sage.exhibits.kind import Display, Shows
from sage.rendering.labels import benchmark_titles
from sage.rendering.numbers import NONE, grouped, number_text, percent
from sage.rendering.table import Cell, Column, Record, TableDocument, share_cell, table_of, titled
from sage.study import ResolvedStudy

_ALWAYS = ("correct", "wrong", "unparsed", "truncated")
"""Statuses whose columns are shown even if they are empty."""

_COUNTS = {"preserved": "Kept", "shrunk": "Lost", "expanded": "New", "neither": "Never"}
_SHARES = {"srr": "Retention", "ndr": "Discovery", "sds": "Dynamics", "nscr": "Net change"}


class OfWholeStudy(Shows):
    """Shows metrics of every model and benchmark."""

    def evaluated(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        """All of them, in the order of the study's models and problem sets."""
        order = list(study.study.problems)
        return [
            (model, benchmark)
            for model in study.study.models
            for benchmark in sorted({name for _, name in study.evaluated(model)}, key=order.index)
        ]

    def document(
        self,
        display: Display,
        frame: pd.DataFrame,
        columns: Sequence[tuple[str, Callable[[Record], Cell | str]]],
        caption: str,
        summary: str = "",
    ) -> TableDocument:
        """A table with a group of rows for each model and benchmark of `frame`."""
        titles, study = benchmark_titles(display.study), display.study
        keys = ["model", "benchmark", *(["stratum"] if "stratum" in frame else [])]
        groups = []
        for (model, *place), rows in frame.groupby(keys, sort=False):
            names = [study.model(str(model)).title] if frame["model"].nunique() > 1 else []
            names += [titles[str(place[0])], *filter(None, map(str, place[1:]))]
            groups.append((", ".join(names), titled(rows)))
        alone: list[Column] = [("", title, read) for title, read in columns]
        return TableDocument(frame, table_of("Method", alone, groups, study), caption, summary)


class GradingTable(OfWholeStudy):
    """Share of each method's completions by grading status, pooled over training seeds. `truncated`
    ones also have another status."""

    def table(self, display: Display) -> TableDocument:
        """In percent, without columns of zeros."""
        frame = grading_table(display.frame("rates"))
        statuses = [name for name in RATED if name in _ALWAYS or frame[name].any()]
        titles = {"gold_unparsed": "No reference"}
        columns = [(titles.get(s, s.capitalize()), partial(_share, s)) for s in statuses]
        caption = (
            "Percentage of a method’s completions by status, pooled over training seeds. "
            "Unparsed: no answer could be extracted. Timeout: the comparison with the reference "
            "answer took too long. Truncated: cut off at the token limit; a truncated completion "
            "also has one of the other statuses."
        )
        counted = ("Completions", partial(_count, "n_samples"))
        summary = "Statuses of every method’s completions"
        return self.document(display, frame, [*columns, counted], caption, summary)


class ChanceTable(OfWholeStudy):
    """For each method and benchmark: pass@k at the primary k (`value`), the same against the
    answers of other problems (`chance`), and counting correct working only (`worked`, with its 95 %
    interval `low` to `high`), pooled over training seeds; `reliable` is the share of problems
    solved in at least half of the samples. `stratum` is empty for all problems of a benchmark."""

    def table(self, display: Display) -> TableDocument:
        """Pooled rows of the controls, at the primary k; empty columns are left out."""
        chance = display.frame("chance")
        rows = chance[chance["train_seed"] == POOLED]
        primary = [
            k == display.study.evaluation(str(model)).primary_k
            for model, k in zip(rows["model"], rows["k"], strict=True)
        ]
        frame = rows[primary].reset_index(drop=True)
        worked = bool(frame["worked"].notna().any())
        columns: list[tuple[str, Callable[[Record], Cell | str]]] = [
            ("k", lambda row: str(row["k"])),
            ("pass@k", lambda row: percent(row["value"])),
            ("Other problems’ answers", _chance),
            *[("Correct working", _worked)] * worked,
            ("Solved in 50 %", lambda row: percent(row["reliable"])),
        ]
        working = (
            " Correct working: only samples count whose steps are all right, where the problem set "
            "can check them; below, the 95 % interval."
        )
        caption = (
            f"How much of pass@k is luck{', and how much has correct working' * worked}: in "
            "percent, at the primary k, pooled over training seeds, also for each stratum. Other "
            "problems’ answers: the same estimate with every problem graded against the answers of "
            f"the others, which is what luck alone gives; ! marks more than {100 * LUCKY:.0f} % of "
            f"pass@k, where a claim about solving problems is not testable.{working * worked} The "
            "last column is Cover@0.5 (arXiv 2510.08325): the share of problems solved in at least "
            "half of the samples, which guessing does not raise."
        )
        return self.document(display, frame, columns, caption)


class SupportTable(OfWholeStudy):
    """Problems solved by any sample before and after RL, added over training seeds, and support
    scores with their 95 % intervals (arXiv 2507.14843)."""

    def table(self, display: Display) -> TableDocument:
        support = display.frame("support")
        frame = support[support["train_seed"] == POOLED].reset_index(drop=True)
        columns = [(title, partial(_count, name)) for name, title in _COUNTS.items()]
        columns += [(title, partial(_score, name)) for name, title in _SHARES.items()]
        epsilon = ", ".join(f"{value:.2g}" for value in sorted(set(frame["epsilon"])))
        caption = (
            "Problems solved by any sample before and after RL, added over training seeds. "
            "Retention: of the problems solved before, the share still solved. Discovery: of the "
            "problems solved after, the share that is new. Dynamics: the harmonic mean of "
            "retention and discovery. Net change: new minus lost, divided by all solved. A "
            f"problem counts as unsolved if its success rate is likely below {epsilon}; the rate "
            "need not be 0 (Wu et al. 2025)."
        )
        return self.document(display, frame, columns, caption, "Problems kept, lost and new")


class ContaminationTable(Shows):
    """Benchmark problems that also occur in the RL training set: with the same text (`exact`) or
    sharing most of their sequences of words (`ngram`)."""

    @property
    def measures(self) -> bool:
        """From problem sets alone, in a rule of its own."""
        return True

    def table(self, display: Display) -> TableDocument:
        """A group of rows for each training set, a row for each benchmark."""
        rule, titles = display.study.study.contamination, benchmark_titles(display.study)
        frame = display.frame("contamination")

        columns: list[Column] = [
            ("", "Problems", partial(_count, "problems")),
            ("", "Same text", lambda row: _or_nil(grouped(row["exact"]), row["exact"])),
            ("", "Near", lambda row: _or_nil(grouped(row["ngram"]), row["ngram"])),
            ("", "Share (%)", lambda row: _or_nil(percent(row["share"]), row["share"])),
            ("", "In training", partial(_count, "training_overlapping")),
        ]
        groups = (
            (
                f"{titles.get(str(name), name)} ({grouped(rows['training_problems'].iloc[0])} "
                "problems)",
                [
                    (titles.get(benchmark, benchmark), row)
                    for benchmark, row in titled(rows, "benchmark")
                ],
            )
            for name, rows in frame.groupby("training", sort=False)
        )
        caption = (
            "Benchmark problems that also occur in the RL training set, with the same text or a "
            f"similar one. Near: at least {rule.share:g} of the problem’s {rule.ngram}-word "
            "sequences also occur in a training problem. The last column counts training problems. "
            f"{'Overlapping training problems were' if rule.drop else 'No training problem was'} "
            "dropped."
        )
        return TableDocument(frame, table_of("Benchmark", columns, groups), caption)


def grading_table(rates: pd.DataFrame) -> pd.DataFrame:
    """How completions were graded, pooled over training seeds.

    `rates` has the columns of `metrics/rates.parquet`; `n_samples` counts the completions graded
    per run and benchmark. Returns columns model, benchmark, algorithm, n_samples and one share in
    [0, 1] for each of RATED, in the order of `rates`.
    """
    keys = ["model", "benchmark", "algorithm"]
    rows = rates[rates["train_seed"] != POOLED]
    rows = rows.assign(count=rows["share"] * rows["n_samples"])
    counts = rows.pivot_table("count", keys, "status", aggfunc="sum", sort=False, fill_value=0.0)
    sizes = rows.drop_duplicates([*keys, "train_seed"]).groupby(keys, sort=False)["n_samples"].sum()
    shares = counts.reindex(columns=list(RATED), fill_value=0.0).div(sizes, axis=0)
    return pd.concat([sizes, shares], axis=1).rename_axis(columns=None).reset_index()


def _chance(row: Record) -> Cell:
    if pd.isna(row["chance"]):
        return Cell(NONE)
    lucky = row["chance"] > LUCKY * row["value"]
    return Cell(percent(row["chance"]) + " !" * lucky)


def _worked(row: Record) -> Cell:
    if pd.isna(row["worked"]):
        return Cell(NONE)
    return share_cell(row["worked"], row["low"], row["high"])


def _share(status: str, row: Record) -> Cell:
    return _or_nil(percent(row[status]), percent(row[status]) != "0.0")


def _or_nil(text: str, value: float) -> Cell:
    """A cell that is pale where its value is 0."""
    return Cell(text, mark="" if value else "nil")


def _count(name: str, row: Record) -> str:
    return grouped(row[name])


def _score(name: str, row: Record) -> str:
    return number_text(row[name], ".2f")
