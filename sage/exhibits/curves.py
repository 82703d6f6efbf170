"""Curves of pass@k against k (Figures 3, 4, 6)."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal

import pandas as pd

from sage.evaluation.curves import POOLED
from sage.exhibits.kind import Display
from sage.exhibits.pooled_pass_at_k import OnBenchmarks, ShowsPassAtK, differences, pooled
from sage.rendering.lines import PALETTE, line_styles
from sage.study import BASE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MANY = 4
"""Above this number of methods besides the base, each has a panel of its own."""


class CurvesFigure(OnBenchmarks, ShowsPassAtK):
    """pass@k against k, one panel per benchmark (Figures 3, 4, 6).

    Share of problems solved by at least one of k samples (unbiased estimate), one panel for each
    benchmark. With more than four methods, each has a panel with the difference from the base in
    points, paired by problem; the grey line is the first method’s. Bands are 95 % intervals, thin
    lines single training runs. Below the base’s curve, or below 0, the policy solves fewer problems
    than the base with the same number of samples.
    """

    kind: Literal["curves"]

    def figure(self, display: Display) -> Figure:
        """pass@k against k, up to the samples of one evaluation seed, with 95 % intervals."""
        metrics = display.frame("pass_at_k")
        metrics = metrics[metrics["k"] <= display.evaluation.samples]
        rows = pooled(metrics, display)
        names = display.rows_in(rows)
        if BASE in names and len(names) > MANY + 1:
            return self._differences(display, rows, [name for name in names if name != BASE])
        runs = metrics[(metrics["metric"] == "pass@k") & (metrics["train_seed"] != POOLED)]
        return self._curves(display, rows, runs[runs["algorithm"].isin(names)], names)

    def _curves(
        self, display: Display, rows: pd.DataFrame, runs: pd.DataFrame, names: list[str]
    ) -> Figure:
        """The curves of a few methods together; thin lines are single training runs."""
        from sage.rendering.style import (
            add_legend,
            draw_band,
            draw_lines,
            in_percent,
            panels_of,
            powers_of_two,
            share_limits,
        )

        styles = line_styles(display.study)
        titles = {name: display.titles[name] for name in display.benchmarks}
        figure, panels = panels_of(titles, rows)
        several = runs.groupby("algorithm")["train_seed"].transform("nunique") > 1
        runs = runs[several].sort_values(["train_seed", "k"])
        for axes, here in panels:
            of_benchmark = runs[runs["benchmark"] == here["benchmark"].iloc[0]]
            for (row, _), run in of_benchmark.groupby(["algorithm", "train_seed"], sort=False):
                axes.plot(run["k"], run["value"], color=styles[str(row)].hex, lw=0.5, alpha=0.5)
            for name in names:
                draw_band(axes, here[here["algorithm"] == name], "k", styles[name].hex)
            draw_lines(axes, here, "k", "value", names, styles)
            powers_of_two(axes, here["k"])
            in_percent(axes.yaxis)
            axes.set(xlabel="samples per problem, k", ylabel="pass@k (%)")
            axes.set_ylim(*share_limits(here))
        add_legend(figure, names, display.study)
        return figure

    def _differences(self, display: Display, rows: pd.DataFrame, names: list[str]) -> Figure:
        """A panel for each benchmark and method: its difference from the base, in points."""
        from sage.rendering.style import draw_band, draw_lines, grid_of_panels, powers_of_two

        styles, first = line_styles(display.study), names[0]
        apart = differences(display.frame("comparisons"), display, BASE)
        apart = apart[apart["k"] <= rows["k"].max()].sort_values("k", kind="stable")
        apart[["value", "low", "high"]] *= 100
        there = [name for name in display.benchmarks if name in set(apart["benchmark"])]
        panels = [(benchmark, name) for benchmark in there for name in names]
        figure, axes_of = grid_of_panels(len(panels), (2.35, 2.2), columns=4)
        for axes, (benchmark, name) in zip(axes_of, panels, strict=True):
            here = apart[apart["benchmark"] == benchmark]
            own, other = (here[here["algorithm"] == one] for one in (name, first))
            axes.axhline(0.0, color=PALETTE["ink"][0], lw=0.8)
            axes.plot(other["k"], other["value"], color=PALETTE["grey"][0], lw=1.0)
            draw_band(axes, own, "k", styles[name].hex)
            draw_lines(axes, own, "k", "value", [name], styles)
            powers_of_two(axes, here["k"])
            title = textwrap.fill(display.title(name), 28)
            axes.set(title=f"{title}\n{display.titles[benchmark]}" if len(there) > 1 else title)
            axes.set(xlabel="samples per problem, k", ylabel="points")
            ends = here[["low", "value", "high"]]
            axes.set(ylim=(min(0.0, ends.min().min()) - 1, max(0.0, ends.max().max()) + 1))
            axes.title.set_fontsize(8)
        return figure
