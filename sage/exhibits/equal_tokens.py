"""Accuracy and coverage of every method at equal steps and at equal drawn tokens, in one table.

Equal steps are the final policies. Equal tokens are the snapshots nearest to the largest number of
completion tokens that every run has drawn (`sage.analysis.equal_tokens`), so a method that
draws more than others, as dynamic sampling does, gets no more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Measuring, Shown
from sage.exhibits.pass_at_k import (
    ShowsPassAtK,
    WithCoverage,
    compared,
    estimate_cell,
    estimate_columns,
    estimates,
    marks_of,
    marks_said,
    numbers_of_runs,
    pooled,
    shown_ks,
    sizes,
)
from sage.fields import Name, Positive, about
from sage.rendering.labels import interval_name, problems_worth, seeds_said
from sage.rendering.numbers import NONE
from sage.rendering.table import (
    Cell,
    Head,
    Record,
    Table,
    TableDocument,
    algorithm_row,
    algorithm_table,
)
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

MOMENTS = {"steps": "", "tokens": "tokens/"}
"""The final policies, and the snapshots at the same number of drawn tokens; where their frames
are."""

_COUNTS = ("steps", "tokens", "step", "step_tokens")


class EqualTokensTable(WithCoverage, ExhibitOfRows, ShowsPassAtK):
    """pass@1 and pass@k of every method at equal optimizer steps and at equal drawn tokens."""

    kind: Literal["equal_tokens"]
    benchmark: Annotated[Name, about("the problem set")]
    snapshots: Annotated[
        Positive,
        about(
            "moments of training at which policies are kept; the more there are, the nearer to "
            "the same number of tokens",
            unit="moments",
        ),
    ] = 12

    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("samples", "base", "policies", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.equal_tokens",)
    contents: ClassVar[str] = (
        "Pass@1 and pass@k of every method at equal optimizer steps (`steps`: the final policy) "
        "and at equal drawn tokens (`tokens`: the snapshot nearest to `budget`, the largest "
        "number of completion tokens that every run has drawn), as shares between 0 and 1, "
        "pooled over training seeds, with 95 % intervals. `steps` and `tokens` are those of the "
        "whole run, `step` and `step_tokens` those of the snapshot: means over training seeds, "
        "with the smallest and the largest. `mark` as in tables of accuracy."
    )

    def snapshots_kept(self) -> int:
        return self.snapshots

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"evaluation": study.evaluation(self.model).model_dump()}

    def measure(self, job: Measuring) -> None:
        """Write `moments`, and pass@k and comparisons of the second of MOMENTS."""
        from sage.analysis.equal_tokens import write_equal_tokens

        tokens = write_equal_tokens(
            job.snapshot_sampler(self.model, self.benchmark),
            samples=job.files["samples"],
            policies=job.files["policies"],
            count=self.snapshots,
            folder=job.folder,
        )
        job.write_manifest(tokens)

    def table(self, shown: Shown) -> TableDocument:
        """A row for each algorithm, at both moments."""
        rows = {
            moment: pooled(shown.frame(f"{place}pass_at_k"), shown)
            for moment, place in MOMENTS.items()
        }
        ks = {moment: self._ks(rows[moment], shown) for moment in MOMENTS}
        moments = shown.frame("moments")
        frame = _frame(rows, ks, moments, shown)
        table = _view(frame, ks["steps"], shown.study)
        return TableDocument(frame, table, self._caption(rows["steps"], moments, shown))

    def _ks(self, rows: pd.DataFrame, shown: Shown) -> list[int]:
        return sorted({1, self.k or shown_ks(rows, shown.evaluation.samples)[-1]})

    def _caption(self, rows: pd.DataFrame, moments: pd.DataFrame, shown: Shown) -> str:
        """The budget, how near the snapshots are to it, intervals and marks."""
        budget = float(moments["budget"].iloc[0])
        distance = (moments["step_tokens"] / budget - 1.0) * 100
        falling = shown.study.model(self.model).rl.schedule == "linear"
        early = ", and where they come before the end, the learning rate has not yet fallen to 0"
        runs = numbers_of_runs(rows)
        return (
            f"{shown.heading} on {shown.titles[self.benchmark]}: pass@k in percent, the unbiased "
            f"estimate from {shown.evaluation.samples} samples per problem. Equal steps: the final "
            f"policies. Equal tokens: of {self.snapshots} snapshots of each run the one nearest to "
            f"{_millions(budget)} million completion tokens, the most that every run has drawn in "
            f"training; the snapshots are between {_signed(distance.min())} % and "
            f"{_signed(distance.max())} % away from it{early if falling else ''}. Tokens: "
            "completion tokens drawn so far, in millions, dropped rollouts among them. Steps and "
            "tokens are means over training seeds, with their range. Below each pass@k: "
            f"{interval_name(runs)}. {seeds_said(runs)} "
            f"{problems_worth(sizes(rows, shown))} {marks_said('', 'that column')}"
        )


def _frame(
    rows: Mapping[str, pd.DataFrame],
    ks: Mapping[str, Sequence[int]],
    moments: pd.DataFrame,
    shown: Shown,
) -> pd.DataFrame:
    """A row for each algorithm, in the exhibit's order.

    `rows` are pooled pass@k by moment, `moments` as `sage.analysis.equal_tokens` writes them.
    Columns: `algorithm`, `title`; for each of MOMENTS and each k (1 and the exhibit's)
    ``{moment} pass@{k} value``, ``… low``, ``… high`` (shares; NaN if a run is missing) and
    ``… mark``; for `steps`, `tokens`, `step` and `step_tokens` the mean over training seeds,
    ``… low`` and ``… high`` the smallest and the largest; and `budget` (tokens). The base has no
    such numbers: NaN.
    """
    columns: dict[str, Any] = {
        "algorithm": shown.rows,
        "title": [shown.title(row) for row in shown.rows],
    }
    for moment, place in MOMENTS.items():
        comparisons = compared(shown.frame(f"{place}comparisons"), shown)
        for k in ks[moment]:
            found = estimates(rows[moment], shown.benchmarks[0], k, shown.rows)
            marks = marks_of(found["value"], comparisons[comparisons["k"] == k])
            columns |= estimate_columns(f"{moment} pass@{k}", found, marks)
    runs = moments.groupby("algorithm")[list(_COUNTS)]
    for ending, found in (("", runs.mean()), (" low", runs.min()), (" high", runs.max())):
        found = found.reindex(shown.rows)
        columns |= {f"{name}{ending}": found[name].astype(float).tolist() for name in _COUNTS}
    return pd.DataFrame(columns).assign(budget=float(moments["budget"].iloc[0]))


def _view(frame: pd.DataFrame, ks: Sequence[int], study: ResolvedStudy) -> Table:
    """The frame as a table in percent, with steps, and tokens in millions."""
    rows = []
    for row in frame.to_dict("records"):
        cells = []
        for moment, step, tokens in zip(MOMENTS, _COUNTS[::2], _COUNTS[1::2], strict=True):
            cells += [estimate_cell(row, f"{moment} pass@{k}") for k in ks]
            cells.append(_range_cell(row, step, lambda steps: f"{steps:.0f}"))
            cells.append(_range_cell(row, tokens, _millions))
        rows.append(algorithm_row(study, row["algorithm"], cells))
    columns = *(f"pass@{k}" for k in ks), "step", "tokens (M)"
    return algorithm_table([Head(f"Equal {moment}", columns) for moment in MOMENTS], rows)


def _range_cell(row: Record, name: str, text: Callable[[float], str]) -> Cell:
    """A mean over seeds with the smallest and the largest below, where they differ."""
    mean, low, high = (float(row[f"{name}{ending}"]) for ending in ("", " low", " high"))
    if pd.isna(mean):
        return Cell(NONE)
    return Cell(text(mean), "" if low == high else f"{text(low)}–{text(high)}")


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:.3g}"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "\u2212")
