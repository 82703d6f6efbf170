"""Accuracy and coverage of every method at equal steps and at equal drawn tokens, in one table.

Equal steps are the final policies. Equal tokens are the snapshots nearest to the largest number of
completion tokens that every run has drawn (`sage.evaluation.equal_tokens`), so a method that
draws more than others, as dynamic sampling does, gets no more of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.accuracy import LEVEL, marks_of
from sage.exhibits.kind import Files, Kind, Measuring, Shown, TableMaker
from sage.exhibits.pass_at_k import WithCoverage, estimates, pooled_pass_at_k, shown_ks
from sage.exhibits.rows import require
from sage.fields import Name, Positive, about
from sage.rendering.labels import (
    benchmark_titles,
    exhibit_heading,
    interval_name,
    problems_worth,
    row_title,
    seeds_said,
)
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Group, Head, Table, TableDocument, algorithm_row, share_cell
from sage.results import Results
from sage.study import Evaluation, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

MOMENTS = ("steps", "tokens")
"""The final policies, and the snapshots at the same number of drawn tokens."""

_PARTS = ("value", "low", "high")
_COUNTS = ("steps", "tokens", "step", "step_tokens")


class EqualTokensTable(WithCoverage, ExhibitOfRows, Kind):
    """pass@1 and pass@k of every row at equal optimizer steps and at equal drawn tokens."""

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
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.equal_tokens",)
    contents: ClassVar[str] = (
        "Pass@1 and pass@k of every method at equal optimizer steps (`steps`: the final policy) "
        "and at equal drawn tokens (`tokens`: the snapshot nearest to `budget`, the largest "
        "number of completion tokens that every run has drawn), as shares between 0 and 1, "
        "pooled over training seeds, with 95 % intervals. `steps` and `tokens` are those of the "
        "whole run, `step` and `step_tokens` those of the snapshot: means over training seeds, "
        "with the smallest and the largest. `mark` as in tables of accuracy."
    )

    def snapshots_kept(self) -> int:
        """See `Exhibit`."""
        return self.snapshots

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """See `Exhibit`."""
        return [self.benchmark]

    def inputs(self, study: ResolvedStudy, results: Results, name: str) -> Files:
        """Samples of the final policies, and what it takes to sample their snapshots."""
        return {
            "samples": self.samples_files(study, results),
            "base": [results.parent(self.model)],
            "policies": [results.policy(run) for run in self.runs(study)],
            "problems": [results.problems(self.benchmark)],
        }

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """See `Kind`."""
        return {"evaluation": study.evaluation(self.model).model_dump()}

    def modules(self, study: ResolvedStudy) -> Sequence[str]:
        """See `Kind`; with the sampling engine."""
        return [*self.measured_by, f"sage.sampling.{study.evaluation(self.model).engine}_engine"]

    def measure(self, job: Measuring) -> None:
        """Write `moments`, and pass@k and comparisons of both moments."""
        from sage.evaluation.equal_tokens import write_equal_tokens
        from sage.problems.record import read_problems

        tokens = write_equal_tokens(
            samples=job.files["samples"],
            base=job.file("base"),
            policies=job.files["policies"],
            problems=read_problems(job.file("problems")),
            settings=Evaluation.model_validate(job.settings["evaluation"]),
            device=job.device,
            model=self.model,
            benchmark=self.benchmark,
            count=self.snapshots,
            shards=job.shards,
            folder=job.folder,
            manifest=job.manifest,
        )
        job.manifest.write(job.folder / "manifest.json", tokens)

    def tables(self) -> Mapping[str, TableMaker]:
        """The table."""
        return {"": equal_tokens_document}


def equal_tokens_document(shown: Shown) -> TableDocument:
    """The table with its caption."""
    frames = {
        f"{moment}_{table}": shown.frame(f"{moment}_{table}")
        for moment in MOMENTS
        for table in ("pass_at_k", "comparisons")
    }
    moments = shown.frame("moments")
    frame = equal_tokens_table(frames, moments, shown.study, shown.name)
    caption = equal_tokens_caption(frames, moments, shown.study, shown.name)
    return TableDocument(frame, equal_tokens_view(frame, shown.study), caption)


def equal_tokens_table(
    frames: Mapping[str, pd.DataFrame], moments: pd.DataFrame, study: ResolvedStudy, exhibit: str
) -> pd.DataFrame:
    """A row for each algorithm, in the exhibit's order.

    `frames` and `moments` are those of `sage.evaluation.equal_tokens`. Columns: `algorithm`,
    `title`; for each of MOMENTS and each k (1 and the exhibit's) ``{moment} pass@{k} value``,
    ``… low``, ``… high`` (shares; NaN if a run is missing) and ``… mark``; for `steps`, `tokens`,
    `step` and `step_tokens` the mean over training seeds, ``… low`` and ``… high`` the smallest
    and the largest; and `budget` (tokens). The base has no such numbers: NaN.
    """
    require(moments, ["algorithm", "train_seed", *_COUNTS, "budget"], exhibit)
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, EqualTokensTable)
    algorithms = study.rows_of(exhibit)
    columns: dict[str, Any] = {
        "algorithm": algorithms,
        "title": [row_title(study, name) for name in algorithms],
    }
    for moment in MOMENTS:
        rows = pooled_pass_at_k(frames[f"{moment}_pass_at_k"], study, exhibit)
        compared = frames[f"{moment}_comparisons"]
        for k in _ks(rows, shown, study):
            found = estimates(rows, shown.benchmark, k, algorithms, _PARTS)
            for part in _PARTS:
                columns[f"{moment} pass@{k} {part}"] = found[part].tolist()
            here = compared[(compared["metric"] == "pass@k") & (compared["k"] == k)]
            columns[f"{moment} pass@{k} mark"] = marks_of(found["value"], here)
    runs = moments.groupby("algorithm")[list(_COUNTS)]
    for ending, found in (("", runs.mean()), (" low", runs.min()), (" high", runs.max())):
        found = found.reindex(algorithms)
        columns |= {f"{name}{ending}": found[name].astype(float).tolist() for name in _COUNTS}
    return pd.DataFrame(columns).assign(budget=float(moments["budget"].iloc[0]))


def equal_tokens_caption(
    frames: Mapping[str, pd.DataFrame], moments: pd.DataFrame, study: ResolvedStudy, exhibit: str
) -> str:
    """The caption: the budget, how near the snapshots are to it, intervals and marks."""
    shown = study.study.exhibits[exhibit]
    assert isinstance(shown, EqualTokensTable)
    rows = pooled_pass_at_k(frames["steps_pass_at_k"], study, exhibit)
    title = benchmark_titles(study)[shown.benchmark]
    sizes = {title: int(rows["n_problems"].iloc[0])} if len(rows) else {}
    budget = float(moments["budget"].iloc[0])
    distance = (moments["step_tokens"] / budget - 1.0) * 100
    falling = study.model(shown.model).rl.schedule == "linear"
    not_ended = ", and where they come before the end, the learning rate has not yet fallen to 0"
    return (
        f"{exhibit_heading(study, exhibit)} on {title}: pass@k in percent, the unbiased estimate "
        f"from {study.evaluation(shown.model).samples} samples per problem. Equal steps: the "
        f"final policies. Equal tokens: of {shown.snapshots} snapshots of each run the one nearest "
        f"to {_millions(budget)} million completion tokens, the most that every run has drawn in "
        f"training; the snapshots are between {_signed(distance.min())} % and "
        f"{_signed(distance.max())} % away from it{not_ended if falling else ''}. Tokens: "
        "completion tokens drawn so far, in millions, dropped rollouts among them. Steps and "
        "tokens are means over training seeds, with their range. Below each pass@k: "
        f"{interval_name(study)}. {seeds_said(study)} {problems_worth(sizes)} Bold: "
        f"above every other method in a paired comparison (p < {LEVEL:g}, adjusted after Holm for "
        "all comparisons of that column). ≈: no method is bold, and this one is the highest or "
        "not significantly different from it."
    )


def equal_tokens_view(table: pd.DataFrame, study: ResolvedStudy) -> Table:
    """The frame as a table in percent, with steps, and tokens in millions."""
    ks = [int(c.split("@")[1].split()[0]) for c in table.columns if c.startswith("steps pass@")]
    ks = list(dict.fromkeys(ks))
    rows = []
    for values in table.to_dict("records"):
        cells = []
        for moment, step, tokens in (
            ("steps", "steps", "tokens"),
            ("tokens", "step", "step_tokens"),
        ):
            for k in ks:
                start = f"{moment} pass@{k}"
                value, low, high = (values[f"{start} {part}"] for part in _PARTS)
                cells.append(share_cell(value, low, high, values[f"{start} mark"]))
            cells.append(_range_cell(values, step, lambda steps: f"{steps:.0f}"))
            cells.append(_range_cell(values, tokens, _millions))
        rows.append(algorithm_row(study, str(values["algorithm"]), cells))
    columns = *(f"pass@{k}" for k in ks), "step", "tokens (M)"
    heads = tuple(Head(f"Equal {moment}", columns) for moment in MOMENTS)
    return Table("Algorithm", heads, (Group("", tuple(rows)),))


def _ks(rows: pd.DataFrame, shown: EqualTokensTable, study: ResolvedStudy) -> list[int]:
    largest = shown.k or shown_ks(rows, study.evaluation(shown.model).samples)[-1]
    return sorted({1, largest})


def _range_cell(values: Mapping[Hashable, Any], name: str, text: Any) -> Cell:
    """A mean over seeds with the smallest and the largest below, where they differ."""
    mean, low, high = (float(values[f"{name}{ending}"]) for ending in ("", " low", " high"))
    if pd.isna(mean):
        return Cell(NONE)
    return Cell(text(mean), "" if low == high else f"{text(low)}–{text(high)}")


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:.3g}"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "\u2212")
