"""Accuracy against coverage: how far each method is from the first one in pass@1 and pass@k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.exhibits import pooled_pass_at_k
from sage.exhibits.kind import Display
from sage.exhibits.pooled_pass_at_k import OnBenchmarks, ShowsPassAtK, WithCoverage, pooled
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.rendering.numbers import number_text
from sage.rendering.placement import line_end, placed, touching
from sage.study import BASE, ResolvedStudy, is_control

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = PALETTE["grey"][0]
MANY = 14
"""Above this number of methods, panels are larger and intervals are left out."""

_FAR = 0.75
"""The base or a control is drawn as an arrow if it is farther from the methods than this share of
their range."""

_NEAR = 0.2
"""Arrows are at least this share of half a panel apart."""


Label = tuple[str, tuple[float, float], str]
"""Of a method's mark: the method, the mark's place and the text."""


class TradeoffFigure(WithCoverage, OnBenchmarks, ShowsPassAtK):
    """Differences of pass@1 and pass@k from the first method, one panel per benchmark.

    Differences from the first method, which is where the lines cross: pass@1 across, pass@k up, in
    points, paired by problem; one panel per benchmark. Large marks are methods, lines their 95 %
    intervals (up to 14 methods; if some were trained several times, of these), small marks single
    training runs. Right and below: more accuracy and less coverage. An arrow points to the base, or
    a control, that is far away. Where problems have strata, pass@1 is that on the strata that RL
    trains on, and a small open mark stands where that on all strata would be.
    """

    kind: Literal["tradeoff"]
    leads: ClassVar[bool] = True

    def figure(self, display: Display) -> Figure:
        """Each method at its differences of pass@1 and pass@k, pooled and by training run."""
        from sage.rendering.style import panels_of

        rows = pooled(display.frame("pass_at_k"), display)
        apart = pooled_pass_at_k.differences(
            display.frame("comparisons"), display, display.baseline
        )
        apart = _where_rl_trains(apart, display)
        names = display.rows_in(rows)
        size = (4.4, 3.9) if len(names) <= MANY else (4.8, 7.4)
        titles = {name: display.titles[name] for name in display.benchmarks}
        figure, panels = panels_of(titles, rows, size, columns=2)
        labels = []
        for axes, here in panels:
            k = self.k or pooled_pass_at_k.shown_ks(here, display.evaluation.primary_k)[-1]
            points = _points(apart[apart["benchmark"] == here["benchmark"].iloc[0]], k)
            points = points[points["algorithm"].isin(names)]
            labels.append((axes, *_draw(axes, points, display)))
            where = " where RL trains" if points["everywhere"].notna().any() else ""
            axes.set(xlabel=f"Δ pass@1{where} (points)", ylabel=f"Δ pass@{k} (points)")
        figure.draw_without_rendering()  # labels need to know where marks are
        for each in labels:
            _label(*each)
        return figure


def _where_rl_trains(apart: pd.DataFrame, display: Display) -> pd.DataFrame:
    """`apart` with differences of pass@1 on the strata that RL trains on, and in `everywhere` those
    on all strata; NaN there, and no change, for benchmarks without others."""
    from sage.evaluation.curves import curves_of, paired_runs  # with scipy
    from sage.evaluation.intervals import mean_of, parts_of

    apart, trained = (
        apart.assign(everywhere=math.nan),
        display.study.trained_strata(display.exhibit.model),
    )
    if not trained:
        return apart
    counts = display.frame("counts")
    counts = counts[counts["model"] == display.exhibit.model]
    for at, row in apart[apart["k"] == 1].iterrows():
        own = counts[counts["benchmark"] == row["benchmark"]]
        seen = own["stratum"].isin(trained)
        if seen.all() or not seen.any():
            continue
        curves = {name: curve for (_, name, _), curve in curves_of(own[seen]).items()}
        one, other = (curves[name] for name in (row["algorithm"], row["other"]))
        pair = (row["algorithm"], one.seeds), (row["other"], other.seeds)
        seeds, ours, theirs = paired_runs(*pair)
        values = one.correct[ours] / one.n - other.correct[theirs] / other.n
        draws = display.study.study.evaluation.bootstrap
        estimate = mean_of([parts_of(values[..., None], draws, groups=one.groups)])
        (low,), (high,) = estimate.interval()
        new = {"value": estimate.value[0], "low": low, "high": high, "everywhere": row["value"]}
        new |= {"sign": 1, "train_seeds": seeds, "by_run": estimate.by_run[:, 0].tolist()}
        for name, each in new.items():
            apart.at[at, name] = each
    return apart


def _points(apart: pd.DataFrame, k: int) -> pd.DataFrame:
    """In points, by method: x, y, the ends of their intervals, and both by training run."""
    sides = []
    for side, wanted in (("x", 1), ("y", k)):
        rows = apart[apart["k"] == wanted].set_index("algorithm")
        ends = 100 * rows[["value", "low", "high"]].set_axis(["", "_low", "_high"], axis=1)
        runs = [
            dict(zip(row["train_seeds"], 100 * row["sign"] * np.array(row["by_run"]), strict=True))
            for row in rows.to_dict("records")
        ]
        of_runs = pd.Series(runs, rows.index, dtype=object, name=f"{side}_runs")
        sides.append(ends.add_prefix(side).join(of_runs))
    everywhere = 100 * apart[apart["k"] == 1].set_index("algorithm")["everywhere"]
    return sides[0].join(sides[1], how="inner").join(everywhere).reset_index()


def _draw(
    axes: Axes, points: pd.DataFrame, display: Display
) -> tuple[list[Label], list[tuple[float, ...]]]:
    """The methods of a panel, and the first method at 0.

    Returns the labels, and what they avoid: boxes (left, bottom, right, top) of lines and runs.
    """
    from matplotlib.ticker import FuncFormatter

    from sage.rendering.style import of_method

    styles = line_styles(display.study)
    axes.axhline(0.0, color=PALETTE["ink"][0], lw=0.8, zorder=1)
    axes.axvline(0.0, color=PALETTE["ink"][0], lw=0.8, zorder=1)
    few = len(points) <= MANY
    columns = [["x", "x_low", "x_high"], ["y", "y_low", "y_high"]] if few else [["x"], ["y"]]
    outer = np.array([_outer(display.study, name) for name in points["algorithm"]], dtype=bool)
    limits = [_limits(points.loc[~outer, names].to_numpy().ravel()) for names in columns]
    away = np.array([_far(place, limits) for place in points[["x", "y"]].to_numpy()], dtype=bool)
    far, drawn = points[outer & away], points[~(outer & away)]
    if len(near := drawn[outer[drawn.index]]):
        limits = [
            _limits(np.append(near[side], ends)) for side, ends in zip("xy", limits, strict=True)
        ]
    axes.set(xlim=limits[0], ylim=limits[1])
    (left, right), (bottom, top) = limits
    thin: list[tuple[float, ...]] = [(left, 0.0, right, 0.0), (0.0, bottom, 0.0, top)]
    least = min(2, points["x_runs"].map(len).max())  # the interval of one run lacks its luck
    for row in drawn.to_dict("records"):
        with of_method(axes, row["algorithm"]):
            interval = few and len(row["x_runs"]) >= least
            thin += _draw_method(axes, row, styles[row["algorithm"]], interval)
    baseline = display.baseline
    look = styles[baseline]
    with of_method(axes, baseline):
        axes.scatter([0], [0], marker=look.marker, s=62, color=look.hex, zorder=4)
    places = [(0.0, 0.0), *zip(drawn["x"], drawn["y"], strict=True)]
    names = [baseline, *drawn["algorithm"]]
    labels = [(name, at, display.title(name)) for name, at in zip(names, places, strict=True)]
    taken: list[np.ndarray] = []
    for row in far.to_dict("records"):
        name, place = row["algorithm"], np.array([row["x"], row["y"]])
        text = f"{display.title(name)}: " + ", ".join(
            number_text(row[side], "+.1f") for side in "xy"
        )
        with of_method(axes, name):
            start, end = _point_to(axes, place, limits, styles[name].hex, taken)
        labels.append((name, start, text))
        thin += [(*share, *share) for share in np.linspace(start, end, 9)]
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda at, _: number_text(at, "+g") if at else "0"))
    return labels, thin


def _outer(study: ResolvedStudy, name: str) -> bool:
    """Whether a panel need not reach it: the base, and methods rewarded for no right answer."""
    return name == BASE or is_control(study.algorithms[name])


def _far(place: np.ndarray, limits: Sequence[tuple[float, float]]) -> bool:
    low, high = np.array(limits).T
    return bool((np.abs(place - (low + high) / 2) > (0.5 + _FAR) * (high - low)).any())


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Around `values` and 0, with a margin; ends of intervals that are not known are left out."""
    low, high = np.nanmin([0.0, *values]), np.nanmax([0.0, *values])
    margin = 0.12 * (high - low) or 1.0
    return low - margin, high + margin


def _draw_method(
    axes: Axes, row: dict[Any, Any], look: LineStyle, interval: bool
) -> list[tuple[float, ...]]:
    """A method's mark, its intervals and its training runs; returns the boxes of the last two."""
    x, y = row["x"], row["y"]
    thin: list[tuple[float, ...]] = []
    if interval:
        thin += [(row["x_low"], y, row["x_high"], y), (x, row["y_low"], x, row["y_high"])]
        line: dict[str, Any] = {"color": look.hex, "lw": 0.9, "alpha": 0.4, "zorder": 2}
        axes.plot([row["x_low"], row["x_high"]], [y, y], **line)
        axes.plot([x, x], [row["y_low"], row["y_high"]], **line)
    seeds = [seed for seed in row["x_runs"] if seed in row["y_runs"]]
    if len(seeds) > 1:
        across, up = ([row[side][seed] for seed in seeds] for side in ("x_runs", "y_runs"))
        axes.scatter(across, up, marker=look.marker, s=9, alpha=0.45, lw=0, color=look.hex)
        thin += zip(across, up, across, up, strict=True)
    if not math.isnan(row["everywhere"]):
        open_mark: dict[str, Any] = {"facecolor": "none", "edgecolor": look.hex, "alpha": 0.6}
        axes.scatter([row["everywhere"]], [y], marker=look.marker, s=18, lw=0.7, **open_mark)
    mark: dict[str, Any] = {"edgecolor": PALETTE["paper"][0], "lw": 0.7, "zorder": 4}
    axes.scatter([x], [y], marker=look.marker, s=62, color=look.hex, **mark)
    return thin


def _label(axes: Axes, labels: Sequence[Label], thin: Sequence[tuple[float, ...]]) -> None:
    """Labels where they cover no mark, no other label and little of `thin`.

    Those away from their mark have a line to it. The figure must have its layout.
    """
    from sage.rendering.style import belongs_to, of_method

    scale = 72 / axes.figure.dpi
    corner, size = scale * np.array(axes.bbox.bounds).reshape(2, 2)
    texts = [
        axes.annotate(title, place, (0, 0), textcoords="offset points", fontsize=8, zorder=5)
        for _, place, title in labels
    ]
    marks = scale * axes.transData.transform([place for _, place, _ in labels]) - corner
    sizes = np.array([scale * np.array(text.get_window_extent().size) for text in texts])
    ends = axes.transData.transform(np.array(thin).reshape(-1, 2))
    avoided = (scale * ends - corner).reshape(-1, 4)
    boxes = placed(marks, sizes, size, avoided)
    lines = zip(marks, boxes, ~touching(marks, boxes), labels, texts, strict=True)
    for mark, box, led, (name, place, _), text in lines:
        belongs_to(text, name)
        text.set(position=(box[:2] + box[2:]) / 2 - mark, ha="center", va="center")
        text.set_in_layout(False)
        if led:
            line = {"arrowstyle": "-", "color": _GREY, "lw": 0.6, "shrinkA": 0, "shrinkB": 4}
            end = tuple(line_end(mark, box) - mark)
            with of_method(axes, name):
                axes.annotate("", place, end, textcoords="offset points", arrowprops=line)


def _point_to(
    axes: Axes,
    place: np.ndarray,
    limits: Sequence[tuple[float, float]],
    colour: str,
    taken: list[np.ndarray],
) -> tuple[tuple[float, float], tuple[float, float]]:
    """An arrow at the edge of a panel towards a place, beside those `taken`, which it joins.

    Returns where it starts and ends.
    """
    middle, span = np.mean(limits, axis=1), np.ptp(np.array(limits), axis=1)
    towards = (place - middle) / span
    towards /= np.abs(towards).max()  # at the edge of the panel
    along = int(np.argmin(np.abs(towards)))
    shifts = (np.eye(2)[along] * shift for shift in sorted(np.linspace(-2, 2, 81), key=abs))
    towards = next(
        moved
        for moved in (towards + shift for shift in shifts)
        if all(np.abs(moved - one).max() > 0.99 * _NEAR for one in taken)
    )
    taken.append(towards)
    ends = (middle + share * towards * span for share in (0.38, 0.48))
    start, end = ((float(x), float(y)) for x, y in ends)
    arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.4}
    axes.annotate("", end, xytext=start, arrowprops=arrow, zorder=5)
    return start, end
