"""Accuracy and coverage of every method at equal steps and at equal drawn tokens, in one table.

Methods draw unequally many tokens in equally many steps: completions differ in length, and dynamic
sampling draws groups that it drops. Each run is looked at in the snapshot nearest to the budget,
the end of training included, so no run is favoured; how far it is from that is part of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import pandas as pd

from sage.evaluation.curves import run_of
from sage.evaluation.histories import Histories, History, read_histories
from sage.exhibits import pooled_pass_at_k
from sage.exhibits.kind import Display, Measuring
from sage.exhibits.pooled_pass_at_k import ShowsPassAtK, WithCoverage, pooled
from sage.fields import Name, Positive
from sage.rendering.labels import interval_name, problems_worth, seeds_said
from sage.rendering.numbers import NONE, number_text
from sage.rendering.table import Cell, Column, Record, TableDocument
from sage.results import run_at
from sage.runtime.tables import read_frame
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

COLUMNS = ["algorithm", "train_seed", "steps", "tokens", "budget", "step", "step_tokens"]

DRAWN = "drawn_tokens"

MOMENTS = {"steps": "", "tokens": "tokens/"}
"""The final policies, and the snapshots at the same number of drawn tokens; where their frames
are."""

_COUNTS = {"steps": ("steps", "tokens"), "tokens": ("step", "step_tokens")}
"""Columns of steps and of tokens, by moment."""


class EqualTokensTable(WithCoverage, ExhibitOfRows, ShowsPassAtK):
    """pass@1 and pass@k of every method at equal optimizer steps and at equal drawn tokens.

    Pass@1 and pass@k of every method at equal optimizer steps (`steps`: the final policy) and at
    equal drawn tokens (`tokens`: the snapshot nearest to `budget`, the largest number of completion
    tokens that every run has drawn), as shares between 0 and 1, pooled over training seeds, with 95
    % intervals. `steps` and `tokens` are those of the whole run, `step` and `step_tokens` those of
    the snapshot: means over training seeds, with the smallest and the largest. `mark` as in tables
    of accuracy.
    """

    kind: Literal["equal_tokens"]
    benchmark: Name
    """the problem set"""
    snapshots: Positive = 12
    """moments of training at which policies are kept; the more there are, the nearer to the same
    number of tokens [moments]"""

    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("samples", "base", "policies", "problems")

    def snapshots_kept(self) -> int:
        return self.snapshots

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        evaluation = study.evaluation(self.model)
        return {"evaluation": evaluation.draws(), "bootstrap": evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        """Write `moments`, and pass@k and comparisons of the second of MOMENTS.

        Runs whose snapshot is the last one are not sampled again.
        """
        from sage.evaluation.metrics import write_metrics
        from sage.evaluation.snapshots import snapshots_of

        policies, tokens = job.files["policies"], 0
        kept = {
            run_at(policy)[1:]: dict(snapshots_of(policy, self.snapshots)) for policy in policies
        }
        chosen = moments(read_histories(policies), {run: [*steps] for run, steps in kept.items()})
        sampler = job.snapshot_sampler(self.model, self.benchmark)
        at_budget = {run_of(path)[1:3]: path for path in job.files["samples"]}
        for row in chosen[chosen["step"] != chosen["steps"]].to_dict("records"):
            run = row["algorithm"], row["train_seed"]
            at_budget[run] = sampler.samples(kept[run][row["step"]], *run, row["step"])
            tokens += int(read_frame(at_budget[run], ["n_tokens"])["n_tokens"].sum())
        tables, place = ("pass_at_k", "comparisons"), job.folder / MOMENTS["tokens"]
        write_metrics([*at_budget.values()], job.settings["bootstrap"], place, tables)
        job.write(moments=chosen)
        job.write_manifest(tokens)

    def table(self, display: Display) -> TableDocument:
        """A row for each method: ``{moment} pass@{k} value``, ``… low``, ``… high``, ``… mark``
        (`estimate_columns`) for MOMENTS and both k, then `steps`, `tokens`, `step`, `step_tokens`,
        each with ``… low`` and ``… high``, and `budget`. What a method has no number for is NaN.
        """
        blocks: list[pd.DataFrame] = []
        columns: list[Column] = []
        for moment, place in MOMENTS.items():
            rows = pooled(display.frame(f"{place}pass_at_k"), display)
            comparisons = pooled_pass_at_k.compared(display.frame(f"{place}comparisons"), display)
            head = f"Equal {moment}"
            for k in sorted(
                {1, self.k or pooled_pass_at_k.shown_ks(rows, display.evaluation.primary_k)[-1]}
            ):
                start = f"{moment} pass@{k}"
                measured = pooled_pass_at_k.estimates(rows, self.benchmark, k, display.rows)
                marks = pooled_pass_at_k.marks_of(
                    measured["value"], comparisons[comparisons["k"] == k]
                )
                blocks.append(pooled_pass_at_k.estimate_columns(start, measured, marks))
                columns.append((head, f"pass@{k}", partial(pooled_pass_at_k.estimate_cell, start)))
            step, tokens = _COUNTS[moment]
            columns.append((head, "step", partial(_range_cell, step, "{:.0f}".format)))
            columns.append((head, "tokens (M)", partial(_range_cell, tokens, _millions)))
        moments = display.frame("moments")
        runs = moments.groupby("algorithm")[[name for names in _COUNTS.values() for name in names]]
        for ending, counts in (("", runs.mean()), (" low", runs.min()), (" high", runs.max())):
            blocks.append(counts.astype(float).add_suffix(ending))
        frame = display.by_method(blocks).assign(budget=float(moments["budget"].iloc[0]))
        of_end = pooled(display.frame("pass_at_k"), display)
        return display.document(frame, columns, self._caption(of_end, moments, display))

    def _caption(self, rows: pd.DataFrame, moments: pd.DataFrame, display: Display) -> str:
        """The budget, how near the snapshots are to it, intervals and marks."""
        budget = float(moments["budget"].iloc[0])
        distances = (moments["step_tokens"] / budget - 1.0) * 100
        near, far = (number_text(each, "+.1f") for each in (distances.min(), distances.max()))
        falling = display.study.rl(self.model).schedule == "linear"
        early = ", and where they come before the end, the learning rate has not yet fallen to 0"
        runs = pooled_pass_at_k.numbers_of_runs(rows)
        return (
            f"{display.heading} on {display.titles[self.benchmark]}: pass@k in percent, the "
            f"unbiased estimate from {pooled_pass_at_k.samples_said(display)}. Equal "
            f"steps: the final policies. Equal tokens: of {self.snapshots} snapshots of each run "
            f"the one nearest to {_millions(budget)} million completion tokens, the most that "
            f"every run has drawn in training; the snapshots are between {near} % and {far} % away "
            f"from it{early if falling else ''}. Tokens: completion tokens drawn so far, in "
            "millions, dropped rollouts among them. Steps and tokens are means over training "
            f"seeds, with their range. Below each pass@k: {interval_name(runs)}. "
            f"{seeds_said(runs)} {problems_worth(pooled_pass_at_k.sizes(rows, display))} "
            f"{pooled_pass_at_k.marks_said('', 'all comparisons of that column')}"
        )


def _range_cell(name: str, text: Callable[[float], str], row: Record) -> Cell:
    """A mean over seeds with the smallest and the largest below, where they differ."""
    mean, low, high = (float(row[f"{name}{ending}"]) for ending in ("", " low", " high"))
    if pd.isna(mean):
        return Cell(NONE)
    return Cell(text(mean), "" if low == high else f"{text(low)}–{text(high)}")


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:.3g}"


def moments(histories: Histories, kept: Mapping[tuple[str, int], Sequence[int]]) -> pd.DataFrame:
    """Which of its `kept` steps represents each run at the budget, with COLUMNS.

    `tokens` are those drawn in all `steps`, `step_tokens` those up to `step`. Of two steps equally
    near, the earlier is taken. The last step must be among those kept. Raises ValueError for a
    history without the number of drawn tokens, and if there is none.
    """
    if not histories:
        raise ValueError("no trained run to compare; name methods besides base")
    drawn = {run: _drawn(run, history) for run, history in histories.items()}
    budget = min(tokens[max(tokens)] for tokens in drawn.values())
    rows = []
    for (algorithm, seed), tokens in drawn.items():
        step = min(sorted(kept[algorithm, seed]), key=lambda at: abs(tokens[at] - budget))
        last = max(tokens)
        rows.append((algorithm, seed, last, tokens[last], budget, step, tokens[step]))
    return pd.DataFrame(rows, columns=COLUMNS)


def _drawn(run: tuple[str, int], history: History) -> dict[int, float]:
    """Tokens drawn up to each step; 0 before the first."""
    if not history or any(DRAWN not in row for row in history):
        raise ValueError(
            f"{run[0]}, seed {run[1]}: the history lacks {DRAWN}; it was written by an earlier "
            "version, so train the run again"
        )
    return {int(row["step"]): float(row[DRAWN]) for row in history}
