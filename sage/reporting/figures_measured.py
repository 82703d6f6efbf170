"""Figures of what was measured: pass@k curves, training, reward against accuracy, perplexity.

Each takes the frame or the histories that its rule reads and returns a matplotlib figure; the
look is `sage.reporting.looks`', the numbers are the evaluation's and the analysis'.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)

from sage.analysis.dynamics import Histories, reward_and_accuracy
from sage.reporting.histories import history_frame
from sage.reporting.looks import (
    PALETTE,
    STYLE,
    LineStyle,
    add_legend,
    draw_lines,
    grid_of_panels,
    line_styles,
    say,
)
from sage.reporting.pooled import pooled_pass_at_k, require
from sage.reporting.wording import benchmark_titles, row_title
from sage.study import BASE, ResolvedStudy

TAIL = 0.95
"""The quantile of the base's perplexities that a panel marks, as the table of tails does."""

_TAIL_LABEL = f"{100 * TAIL:.0f}th percentile of the base"

_TRAINING = {
    "reward": "Training reward",
    "kl": "KL to the anchor",
    "entropy": "Token entropy (nats)",
    "grad_norm": "Gradient norm",
    "mean_length": "Completion length (tokens)",
    "q_mean": "Guide factor (mean)",
}


def curves_figure(pass_at_k: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> Figure:
    """Pass@k against k up to the samples of one evaluation seed, one panel per benchmark, with
    bands for the 95 % intervals.

    `pass_at_k` has the columns of `metrics/pass_at_k.parquet`; see `pooled_pass_at_k` for what
    is drawn and for the errors raised. A benchmark without rows has an empty panel.
    """
    rows = pooled_pass_at_k(pass_at_k, study, exhibit)
    samples = study.evaluation(study.study.exhibits[exhibit].model).samples
    rows = rows[rows["k"] <= samples]
    names = [name for name in study.rows_of(exhibit) if name in set(rows["algorithm"])]
    benchmarks, titles = study.benchmarks_of(exhibit), benchmark_titles(study)
    styles = line_styles(study)
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


def training_figure(histories: Histories, study: ResolvedStudy, exhibit: str) -> Figure:
    """Training curves: reward, KL, entropy, gradient norm, completion length, guide factor.

    `histories` maps (algorithm, training seed) to the rows of its `history.jsonl`. Thin lines
    are the seeds step by step; thick ones their mean, smoothed by a running mean over a
    twentieth of the steps. A step far above all others does not set the scale and leaves the
    panel. A quantity no run recorded has no panel; without any history the figure says so.
    """
    frame = history_frame(histories, study.rows_of(exhibit))
    recorded = [key for key in _TRAINING if key in frame and frame[key].notna().any()]
    names = list(dict.fromkeys(frame["algorithm"]))
    styles = line_styles(study)
    faint = min(0.3, 1.5 / max(1, len(histories)))
    with matplotlib.rc_context(STYLE):
        figure, panels = grid_of_panels(max(1, len(recorded)), len(names))
        if not recorded:
            panels[0].set(title="Training")
            say(panels[0], "no training history")
        for axes, key in zip(panels, recorded, strict=False):
            known = frame.dropna(subset=[key])
            for (name, _), run in known.groupby(["algorithm", "seed"], sort=False):
                axes.plot(run["step"], run[key], color=styles[str(name)].hex, lw=0.5, alpha=faint)
            draw_lines(axes, _smoothed(known, key), "step", key, names, styles, markers=False)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set(title=_TRAINING[key], xlabel="optimizer step", ylabel="")
            _cut_spikes(axes, known[key])
            _widen_if_flat(axes, known[key])
        if recorded:
            add_legend(figure, names, styles, study, markers=False)
    return figure


def trajectory_figure(
    histories: Histories, accuracies: pd.DataFrame, study: ResolvedStudy, exhibit: str
) -> Figure:
    """Figure 2: each run's way through training reward (across) and test accuracy (up).

    `accuracies` has the columns algorithm, train_seed, step, value, low, high of the exhibit's
    metrics; rewards are means over a twentieth of the run around each checkpoint, see
    `reward_and_accuracy`, which raises for what does not fit. Crosses are the base, before the
    first step; an arrow points to the last; numbers are steps, of the first checkpoint and the
    last; upright bars are 95 % intervals.
    """
    names = [name for name in study.rows_of(exhibit) if name in set(accuracies["algorithm"])]
    shown = accuracies[accuracies["algorithm"].isin(names)]
    longest = max((len(history) for history in histories.values()), default=1)
    points = reward_and_accuracy(histories, shown, max(1, round(longest / 20)))
    styles = line_styles(study)
    with matplotlib.rc_context(STYLE):
        figure, (axes,) = grid_of_panels(1, len(names) + 1)
        figure.set_size_inches(6.2, 4.2)
        for name in names:
            for _, run in points[points["algorithm"] == name].groupby("train_seed"):
                _way(axes, run, styles[name])
        starts = points[points["step"] == 0]
        look = styles[BASE]
        axes.scatter(
            starts["reward"],
            starts["accuracy"],
            marker=look.marker,
            s=60,
            color=look.hex,
            edgecolor=PALETTE["paper"][0],
            linewidth=0.8,
            zorder=4,
        )
        axes.set(xlabel="training reward", ylabel="test accuracy (pass@1)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
        axes.margins(0.09)
        add_legend(figure, [BASE, *names], styles, study, markers=True)
    return figure


def perplexity_figure(perplexities: pd.DataFrame, study: ResolvedStudy, exhibit: str) -> Figure:
    """Figure 7: perplexities under the base, a panel per problem, a row per algorithm.

    `perplexities` has at least the columns problem_id, algorithm, status and perplexity. A dot
    is a response, filled if it is correct; boxes hold the middle half, whiskers the middle 90
    percent; the upright line is the base's 95th percentile. Raises ValueError without rows.
    """
    require(perplexities, ["problem_id", "algorithm", "status", "perplexity"], exhibit)
    names = [name for name in study.rows_of(exhibit) if name in set(perplexities["algorithm"])]
    if not names:
        raise ValueError(f"{exhibit}: no perplexities of {', '.join(study.rows_of(exhibit))}")
    problems = list(dict.fromkeys(perplexities["problem_id"]))
    styles = line_styles(study)
    with matplotlib.rc_context(STYLE):
        figure = Figure(
            figsize=(2.4 + 3.6 * len(problems), 0.55 * len(names) + 1.4), layout="constrained"
        )
        panels = figure.subplots(1, len(problems), squeeze=False, sharey=True)[0]
        for number, (axes, problem) in enumerate(zip(panels, problems, strict=True), start=1):
            of = perplexities[perplexities["problem_id"] == problem]
            for place, name in enumerate(names):
                _spread(axes, place, of[of["algorithm"] == name], styles[name])
            of_base = of.loc[of["algorithm"] == BASE, "perplexity"]
            if len(of_base):
                axes.axvline(
                    of_base.quantile(TAIL), color=PALETTE["grey"][0], lw=0.9, ls=(0, (4, 2))
                )
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(_log_ticks(of["perplexity"])))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.set_xlim(*_with_margins(of["perplexity"]))
            axes.grid(visible=False, axis="y")
            axes.set(title=f"Problem {number} ({problem})", xlabel="perplexity under the base")
        panels[0].set_yticks(range(len(names)), [row_title(study, name) for name in names])
        panels[0].set_ylim(len(names) - 0.4, -0.5)
        colour = PALETTE["slate"][0]
        dot: dict[str, Any] = {"color": colour, "ls": "", "marker": "o", "markersize": 4}
        handles = [
            Line2D([], [], **dot, label="correct"),
            Line2D([], [], **dot, markerfacecolor="none", label="not correct"),
            Line2D([], [], color=PALETTE["grey"][0], lw=0.9, ls=(0, (4, 2)), label=_TAIL_LABEL),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _way(axes: Axes, run: pd.DataFrame, look: LineStyle) -> None:
    """One run's way from checkpoint to checkpoint."""
    run = run.sort_values("step")
    if {"low", "high"} <= set(run):
        trained = run[run["step"] > 0]
        axes.vlines(
            trained["reward"], trained["low"], trained["high"], color=look.hex, alpha=0.25, lw=1
        )
    axes.plot(
        run["reward"],
        run["accuracy"],
        color=look.hex,
        linestyle=(0, look.dashes) if look.dashes else "-",
        linewidth=1.5,
        marker=look.marker,
        markersize=5,
        markeredgecolor=PALETTE["paper"][0],
        markeredgewidth=0.6,
    )
    places = run[["reward", "accuracy"]].to_numpy()
    if len(places) > 1 and not np.array_equal(places[-2], places[-1]):
        axes.annotate(
            "",
            xy=tuple(places[-1]),
            xytext=tuple(places[-2]),
            arrowprops={"arrowstyle": "-|>", "color": look.hex, "shrinkA": 0, "shrinkB": 4},
        )
    trained_steps = [step for step in run["step"] if step > 0]
    for step, (reward, accuracy) in zip(run["step"], places, strict=True):
        if step in (trained_steps[:1] + trained_steps[-1:]):  # between them labels would crowd
            axes.annotate(
                f"{step}",
                (reward, accuracy),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=7,
                color=look.hex,
                bbox={"facecolor": PALETTE["paper"][0], "alpha": 0.75, "pad": 0.5, "lw": 0},
            )


def _spread(axes: Axes, place: int, rows: pd.DataFrame, look: LineStyle) -> None:
    """Box and dots of one algorithm's perplexities at height `place`."""
    values = rows["perplexity"].to_numpy(dtype=float)
    if not len(values):
        return
    low, first, middle, third, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    axes.plot([low, high], [place, place], color=look.hex, lw=1.2, zorder=2)
    axes.barh(
        place, third - first, left=first, height=0.3, color=look.hex, alpha=0.35, lw=0, zorder=2
    )
    axes.plot([middle, middle], [place - 0.19, place + 0.19], color=look.hex, lw=2.2, zorder=3)
    # Spread by rank, not by chance, so that the same data gives the same picture.
    offsets = 0.32 + 0.2 * np.array([(7 * rank) % 11 / 10 - 0.5 for rank in range(len(values))])
    order = np.argsort(values, kind="stable")
    correct = (rows["status"] == "correct").to_numpy()[order]
    for chosen, face in ((correct, look.hex), (~correct, "none")):
        axes.scatter(
            values[order][chosen],
            place + offsets[chosen],
            s=7,
            facecolor=face,
            edgecolor=look.hex,
            linewidth=0.6,
            alpha=0.7,
            zorder=3,
        )


def _smoothed(known: pd.DataFrame, key: str) -> pd.DataFrame:
    """Columns algorithm, step and `key`: the mean over seeds, as a centred running mean."""
    mean = known.groupby(["algorithm", "step"], sort=False)[key].mean().reset_index()
    window = max(1, round(mean["step"].nunique() / 20))
    mean[key] = mean.groupby("algorithm", sort=False)[key].transform(
        lambda values: values.rolling(window, center=True, min_periods=1).mean()
    )
    return mean


def _powers(ks: Iterable[int]) -> list[int]:
    """Powers of two up to the largest k, every other one where they would crowd."""
    powers = [2**power for power in range(int(math.log2(max(ks))) + 1)]
    return powers[::2] if len(powers) > 7 else powers


def _log_ticks(values: pd.Series) -> list[float]:
    """About five round numbers over the range of `values`, for a logarithmic axis."""
    low, high = float(values.min()), float(values.max())
    if high < 3 * low:
        ticks = np.asarray(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    else:
        steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = np.array([step * 10.0**power for power in powers for step in steps])
    first, last = _with_margins(values)
    return [float(tick) for tick in ticks if first <= tick <= last]


def _with_margins(values: pd.Series) -> tuple[float, float]:
    """Limits of a logarithmic axis of perplexities: their range and a twentieth on each side.

    No perplexity is below 1, so an axis that begins near it begins there.
    """
    low, high = float(values.min()), float(values.max())
    low = min(low, 1.0) if low < 1.2 else low
    margin = max(high / low, 1.01) ** 0.05
    return low / margin, high * margin


def _share_limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Limits of a panel of shares: around the intervals, within [0, 1] but for the markers."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    low, high = max(0.0, min(low, high - 0.1)), min(1.0, max(high, low + 0.1))
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _cut_spikes(axes: Axes, values: pd.Series) -> None:
    """End the axis above all but the highest hundredth of `values`, where those are spikes.

    They are if they reach further above the median than three times all the others.
    """
    middle, most, highest = np.quantile(values, [0.5, 0.99, 1.0])
    lowest = float(values.min())
    if highest - middle > 3 * (most - middle) > 0:
        axes.set_ylim(lowest - 0.05 * (most - lowest), most + 0.5 * (most - lowest))


def _widen_if_flat(axes: Axes, values: pd.Series) -> None:
    """Give a constant at least two percent of its size, so that rounding does not look wild."""
    middle, span = float(values.mean()), float(values.max() - values.min())
    if 0 < span < 0.02 * abs(middle):
        axes.set_ylim(middle - 0.02 * abs(middle), middle + 0.02 * abs(middle))
