"""Curves of pass@k against k (Figures 3, 4, 6)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.exhibits.kind import FigureMaker
from sage.exhibits.pass_at_k import MeasuredPassAtK, OnBenchmarks, pooled_pass_at_k
from sage.rendering.labels import benchmark_titles
from sage.rendering.lines import line_styles
from sage.study import ResolvedStudy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CurvesFigure(OnBenchmarks, MeasuredPassAtK):
    """pass@k against k, one panel per benchmark (Figures 3, 4, 6)."""

    kind: Literal["curves"]

    contents: ClassVar[str] = (
        "Share of problems solved by at least one of k samples, against k; one panel for each "
        "benchmark. Bands are 95 % intervals over problems (and over training runs, if there are "
        "several); thin lines are single training runs."
    )
    caption: ClassVar[str] = (
        "Share of problems solved by at least one of k samples (unbiased estimate). Bands are "
        "the 95 % interval of each curve, thin lines single training runs. If a curve is below the "
        "base’s, the policy may have lost problems that the base solves with enough samples. The "
        "paired comparisons say whether the difference is significant."
    )

    def figures(self) -> Mapping[str, FigureMaker]:
        """The curves."""
        return {"": lambda shown: curves_figure(shown.frame("pass_at_k"), shown.study, shown.name)}


def curves_figure(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> Figure:
    """Pass@k against k, up to the samples of one evaluation seed; one panel for each benchmark.
    Bands are 95 % intervals.

    `pass_at_k` has the columns of `metrics/pass_at_k.parquet`. See `pooled_pass_at_k` for the rows
    drawn and the errors raised. A benchmark without rows has an empty panel.
    """
    import matplotlib
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

    from sage.rendering.style import STYLE, add_legend, draw_lines, grid_of_panels, say

    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    samples = study.evaluation(study.study.exhibits[exhibit].model).samples
    rows = rows[rows["k"] <= samples]
    names = [name for name in study.rows_of(exhibit) if name in set(rows["algorithm"])]
    benchmarks, titles = study.benchmarks_of(exhibit), benchmark_titles(study)
    styles = line_styles(study)
    runs = single_runs(pass_at_k[pass_at_k["k"] <= samples], names)
    with matplotlib.rc_context(STYLE):
        figure, panels = grid_of_panels(len(benchmarks), len(names))
        for axes, benchmark in zip(panels, benchmarks, strict=True):
            shown = rows[rows["benchmark"] == benchmark]
            axes.set(title=titles[benchmark])
            if shown.empty:
                say(axes, "not evaluated")
                continue
            for name in names:
                band = shown[shown["algorithm"] == name].sort_values("k")
                axes.fill_between(
                    band["k"], band["low"], band["high"], color=styles[name].hex, alpha=0.1, lw=0
                )
            here = runs[runs["benchmark"] == benchmark]
            for (row, _), run in here.groupby(["algorithm", "train_seed"], sort=False):
                axes.plot(run["k"], run["value"], color=styles[str(row)].hex, lw=0.5, alpha=0.5)
            draw_lines(axes, shown, "k", "value", names, styles, markers=True)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(_powers(shown["k"])))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}"))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
            axes.set(xlabel="samples per problem, k", ylabel="")
            axes.set_ylim(*_share_limits(shown))
        panels[0].set_ylabel("pass@k")
        add_legend(figure, names, styles, study, markers=True)
    return figure


def single_runs(pass_at_k: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """Rows of single training runs, of those algorithms in `names` that have several."""
    runs = pass_at_k[(pass_at_k["train_seed"] != POOLED) & pass_at_k["algorithm"].isin(names)]
    runs = runs[runs["metric"] == "pass@k"].sort_values(["train_seed", "k"])
    several = runs.groupby("algorithm")["train_seed"].transform("nunique") > 1
    return runs[several]


def _powers(ks: Iterable[int]) -> list[int]:
    """Powers of two up to the largest k; every second one if they would overlap."""
    powers = [2**power for power in range(int(math.log2(max(ks))) + 1)]
    return powers[::2] if len(powers) > 7 else powers


def _share_limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Limits of a panel of shares: around the intervals, within [0, 1] plus room for markers."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    low, high = max(0.0, min(low, high - 0.1)), min(1.0, max(high, low + 0.1))
    margin = 0.04 * (high - low)
    return low - margin, high + margin
