"""Curves of pass@k against k (Figures 3, 4, 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display
from sage.exhibits.pass_at_k import OnBenchmarks, ShowsPassAtK, pooled, single_runs
from sage.rendering.lines import line_styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CurvesFigure(OnBenchmarks, ShowsPassAtK):
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

    def figure(self, display: Display) -> Figure:
        """Pass@k against k, up to the samples of one evaluation seed, with 95 % intervals."""
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

        from sage.rendering.style import add_legend, draw_lines, panels_of

        metrics = display.frame("pass_at_k")
        metrics = metrics[metrics["k"] <= display.evaluation.samples]
        rows = pooled(metrics, display)
        names, styles = display.rows_in(rows), line_styles(display.study)
        runs = single_runs(metrics[metrics["metric"] == "pass@k"], names)
        several = runs.groupby("algorithm")["train_seed"].transform("nunique") > 1
        runs = runs[several].sort_values(["train_seed", "k"])
        titles = {benchmark: display.titles[benchmark] for benchmark in display.benchmarks}
        figure, panels = panels_of(titles, rows, len(names))
        for axes, here in panels:
            for name in names:
                band = here[here["algorithm"] == name].sort_values("k")
                look: dict[str, Any] = {"color": styles[name].hex, "alpha": 0.1, "lw": 0}
                axes.fill_between(band["k"], band["low"], band["high"], **look)
            of_benchmark = runs[runs["benchmark"] == here["benchmark"].iloc[0]]
            for (row, _), run in of_benchmark.groupby(["algorithm", "train_seed"], sort=False):
                axes.plot(run["k"], run["value"], color=styles[str(row)].hex, lw=0.5, alpha=0.5)
            draw_lines(axes, here, "k", "value", names, styles, markers=True)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(FixedLocator(_powers(here["k"])))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}"))
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
            axes.set(xlabel="samples per problem, k", ylabel="")
            axes.set_ylim(*_share_limits(here))
        figure.axes[0].set_ylabel("pass@k")
        add_legend(figure, names, styles, display.study, markers=True)
        return figure


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
