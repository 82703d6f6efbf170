"""Curves of pass@k against k (Figures 3, 4, 6)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.evaluation.curves import POOLED, curves_of, paired_runs
from sage.exhibits.kind import Display
from sage.exhibits.pooled_pass_at_k import PARTS, OnBenchmarks, ShowsPassAtK, differences, pooled
from sage.rendering.lines import PALETTE, line_styles
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Column, PageTable, Record, share_cell, table_of, titled_by
from sage.study import BASE, ResolvedStudy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sage.evaluation.curve_bands import CurveBand


MANY = 4
"""Above this number of methods besides the base, each has a panel of its own."""


class CurvesFigure(OnBenchmarks, ShowsPassAtK):
    """pass@k against k, one panel per benchmark (Figures 3, 4, 6).

    Share of problems solved by at least one of k samples (unbiased estimate), one panel for each
    benchmark. With more than four methods, each has a panel with the difference from the base in
    points, paired by problem; the grey line is the first method’s. Bands are 95 % intervals, thin
    lines single training runs. Below the base’s curve, or below 0, the policy solves fewer problems
    than the base with the same number of samples. In the figure `…_apart`, differences from the
    first method with bands that hold the whole curve in 95 % of studies, and the first k at which a
    method is below it (above it, if it starts below), with the interval that the band gives.
    """

    captions: ClassVar[Mapping[str, str]] = {
        "_apart": "Differences from the first method. In 95 % of studies a band holds the whole "
        "curve. Circles: the first k at which a method is below (or above) it, with its interval."
    }

    kind: Literal["curves"]

    def figures(self) -> Mapping[str, Callable[[Display], Figure]]:
        return {"": self.figure, "_apart": self._apart}

    def left_out(self, study: ResolvedStudy) -> Collection[str]:
        return ["_apart"] if len(self.methods_of(study)) < 2 else []

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

    def at_each_k(self, display: Display, metrics: pd.DataFrame) -> PageTable | None:
        rows = pooled(metrics[metrics["k"] <= display.evaluation.samples], display)
        ks = sorted(set(rows["k"]))
        columns: list[Column] = [("", f"pass@{k}", partial(_level, k)) for k in ks]
        groups = [
            (display.titles[name], titled_by(display.ordered(here), "k"))
            for name in display.benchmarks
            if len(here := rows[rows["benchmark"] == name])
        ]
        table = table_of("Method", columns, groups, display.study)
        return PageTable(table, "pass@k in percent, with 95 % intervals.") if groups else None

    def _curves(
        self, display: Display, rows: pd.DataFrame, runs: pd.DataFrame, names: list[str]
    ) -> Figure:
        """The curves of a few methods together; thin lines are single training runs."""
        from sage.rendering import style

        styles = line_styles(display.study)
        titles = {name: display.titles[name] for name in display.benchmarks}
        figure, panels = style.panels_of(titles, rows)
        several = runs.groupby("algorithm")["train_seed"].transform("nunique") > 1
        runs = runs[several].sort_values(["train_seed", "k"])
        for axes, here in panels:
            of_benchmark = runs[runs["benchmark"] == here["benchmark"].iloc[0]]
            for (row, _), run in of_benchmark.groupby(["algorithm", "train_seed"], sort=False):
                with style.of_method(axes, str(row)):
                    axes.plot(run["k"], run["value"], color=styles[str(row)].hex, lw=0.5, alpha=0.5)
            style.draw_lines(axes, here, "k", "value", names, styles, names)
            style.powers_of_two(axes, here["k"])
            style.in_percent(axes.yaxis)
            axes.set(xlabel="samples per problem, k", ylabel="pass@k (%)")
            axes.set_ylim(*style.share_limits(here))
        style.add_legend(figure, names, display.study)
        return figure

    def _differences(self, display: Display, rows: pd.DataFrame, names: list[str]) -> Figure:
        """A panel for each benchmark and method: its difference from the base, in points."""
        from sage.rendering.style import draw_lines, grid_of_panels, powers_of_two

        styles, first = line_styles(display.study), names[0]
        apart = differences(display.frame("comparisons"), display, BASE)
        apart = apart[apart["k"] <= rows["k"].max()].sort_values("k", kind="stable")
        apart[["value", "low", "high"]] *= 100
        there = [name for name in display.benchmarks if name in set(apart["benchmark"])]
        panels = [(benchmark, name) for benchmark in there for name in names]
        figure, axes_of = grid_of_panels(len(panels), (2.35, 2.2), columns=4)
        for axes, (benchmark, name) in zip(axes_of, panels, strict=True):
            here = apart[apart["benchmark"] == benchmark]
            other = here[here["algorithm"] == first]
            axes.axhline(0.0, color=PALETTE["ink"][0], lw=0.8)
            axes.plot(other["k"], other["value"], color=PALETTE["grey"][0], lw=1.0)
            draw_lines(axes, here, "k", "value", [name], styles, [name])
            powers_of_two(axes, here["k"])
            title = textwrap.fill(display.title(name), 28)
            axes.set(title=f"{title}\n{display.titles[benchmark]}" if len(there) > 1 else title)
            axes.set(xlabel="samples per problem, k", ylabel="points")
            ends = here[["low", "value", "high"]]
            axes.set(ylim=(min(0.0, ends.min().min()) - 1, max(0.0, ends.max().max()) + 1))
            axes.title.set_fontsize(8)
        return figure

    def _apart(self, display: Display) -> Figure:
        """Each method minus the first one over all k, in points, with a simultaneous band."""
        from matplotlib.transforms import ScaledTranslation

        from sage.rendering.style import draw_band, line_look, of_method, panels_of, powers_of_two

        counts, styles = display.frame("counts"), line_styles(display.study)
        counts = counts[(counts["model"] == self.model) & counts["algorithm"].isin(display.rows)]
        bands = bands_from(counts, display.baseline, display.study.study.evaluation.bootstrap)
        titles = {name: display.titles[name] for name in display.benchmarks}
        rows = counts["algorithm"].nunique()
        figure, panels = panels_of(titles, counts, (4.4, 3.0 + 0.17 * rows))
        for axes, here in panels:
            benchmark = str(here["benchmark"].iloc[0])
            axes.axhline(0.0, color=PALETTE["ink"][0], lw=0.8)
            for name in display.rows_in(here):
                if (band := bands.get((benchmark, name))) is None:
                    continue
                ends = 100 * np.array([band.low, band.value, band.high])
                line = pd.DataFrame(ends.T, band.ks, ["low", "value", "high"]).rename_axis("k")
                look = line_look(styles[name]) | {"markevery": 0.2}
                label = f"{display.title(name)}: {_first(band)}"
                with of_method(axes, name):
                    draw_band(axes, line.reset_index(), "k", styles[name].hex)
                    axes.plot(band.ks, ends[1], label=label, **look)
                    axes.plot(*_turn(band), "o", ms=9, mfc="none", mec=styles[name].hex)
                powers_of_two(axes, band.ks)
            axes.set(xlabel="samples per problem, k")
            axes.set_ylabel(f"points from {display.title(display.baseline)}")
            # A fixed distance, as axes are lower above a long legend.
            below = axes.transAxes + ScaledTranslation(0.0, -0.45, figure.dpi_scale_trans)
            place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0)}
            place["bbox_transform"] = below
            axes.legend(fontsize=7.5, handlelength=2.2, borderaxespad=0.0, **place)
        return figure


def bands_from(counts: pd.DataFrame, baseline: str, draws: int) -> dict[tuple[str, str], CurveBand]:
    """Bands of each method minus `baseline`, by benchmark and method, of counts of one model.

    Runs are paired by training seed; a method that shares none with the baseline has no band.
    """
    from sage.evaluation.curve_bands import curve_band, ks_up_to

    bands, curves = {}, curves_of(counts)
    for (model, name, benchmark), own in curves.items():
        other = curves.get((model, baseline, benchmark))
        if name == baseline or other is None:
            continue
        try:
            _, *places = paired_runs((name, own.seeds), (baseline, other.seeds))
        except ValueError:
            continue
        ks = ks_up_to(min(own.n, other.n))
        ours, theirs = (own.correct[places[0]], own.n), (other.correct[places[1]], other.n)
        bands[benchmark, name] = curve_band(ours, theirs, ks, draws=draws, groups=own.groups)
    return bands


def _level(k: int, row: Record) -> Cell | str:
    return share_cell(*(row[k][end] for end in PARTS)) if k in row else NONE


def _sides(band: CurveBand) -> tuple[str, CurveBand]:
    """Where the method falls, and the band that says when: above the other if it starts below."""
    return ("above", band.turned()) if band.first == 1 else ("below", band)


def _first(band: CurveBand) -> str:
    """At which k the method falls below the other; above it, if it starts below."""
    where, one = _sides(band)
    if one.first is None:
        return f"at no k {where}"
    return f"{where} from k = {one.first} on ({one.first_low} to {one.first_high or 'never'})"


def _turn(band: CurveBand) -> tuple[list[float], list[float]]:
    """The point, in percentage points, at the k that `_first` names, if there is one."""
    first = _sides(band)[1].first
    here = [] if first is None else [int(np.flatnonzero(band.ks == first)[0])]
    return [float(band.ks[at]) for at in here], [100 * float(band.value[at]) for at in here]
