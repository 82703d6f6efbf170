"""Accuracy against coverage: how far each method is from the first one in pass@1 and pass@k."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.exhibits.kind import Display
from sage.exhibits.pass_at_k import (
    OnBenchmarks,
    ShowsPassAtK,
    WithCoverage,
    differences,
    pooled,
    shown_ks,
)
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.study import BASE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 14
"""Above this number of methods, panels are larger and intervals are left out."""

_FAR = 0.75
"""The base is drawn as an arrow if it is farther from the others than this share of their range."""

_LETTER, _LINE = 4.6, 9.5
"""Width of a letter and height of a line of labels, in points."""


class TradeoffFigure(WithCoverage, OnBenchmarks, ShowsPassAtK):
    """Differences of pass@1 and pass@k from the first method, one panel per benchmark.

    Differences from the first method, which is where the lines cross: pass@1 across, pass@k up, in
    points, paired by problem; one panel per benchmark. Large marks are methods, lines their 95 %
    intervals (up to 14 methods), small marks single training runs. Right and below: more accuracy
    and less coverage. An arrow points to the base if it is far away.
    """

    kind: Literal["tradeoff"]
    leads: ClassVar[bool] = True

    def figure(self, display: Display) -> Figure:
        """Each method at its differences of pass@1 and pass@k, pooled and by training run."""
        from sage.rendering.style import panels_of

        rows = pooled(display.frame("pass_at_k"), display)
        apart = differences(display.frame("comparisons"), display, display.baseline)
        names = display.rows_in(rows)
        size = (4.4, 3.9) if len(names) <= MANY else (6.6, 6.0)
        titles = {name: display.titles[name] for name in display.benchmarks}
        figure, panels = panels_of(titles, rows, size, columns=2)
        for axes, here in panels:
            k = self.k or shown_ks(here, display.evaluation.primary_k)[-1]
            points = _points(apart[apart["benchmark"] == here["benchmark"].iloc[0]], k)
            _draw(axes, points[points["algorithm"].isin(names)], display, size)
            first = display.title(display.baseline)
            axes.set(xlabel=f"pass@1 minus {first}’s (points)")
            axes.set(ylabel=f"pass@{k} minus {first}’s (points)")
        return figure


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
    return sides[0].join(sides[1], how="inner").reset_index()


def _draw(axes: Axes, points: pd.DataFrame, display: Display, size: tuple[float, float]) -> None:
    """The methods of a panel of `size` inches, their labels, and the first method at 0."""
    from matplotlib.ticker import FuncFormatter

    styles = line_styles(display.study)
    axes.axhline(0.0, color=PALETTE["ink"][0], lw=0.8, zorder=1)
    axes.axvline(0.0, color=PALETTE["ink"][0], lw=0.8, zorder=1)
    ends = points[points["algorithm"] != BASE]
    few = len(points) <= MANY
    columns = [["x_low", "x_high"], ["y_low", "y_high"]] if few else [["x"], ["y"]]
    limits = [_limits(ends[names].to_numpy().ravel()) for names in columns]
    base = points.loc[points["algorithm"] == BASE, ["x", "y"]].to_numpy()
    far = len(base) == 1 and any(
        not low - _FAR * (high - low) < value < high + _FAR * (high - low)
        for value, (low, high) in zip(base[0], limits, strict=True)
    )
    if len(base) and not far:
        limits = [_limits(np.append(b, ends)) for b, ends in zip(base[0], limits, strict=True)]
    axes.set(xlim=limits[0], ylim=limits[1])
    drawn = ends if far else points
    for row in drawn.to_dict("records"):
        _draw_method(axes, row, styles[row["algorithm"]], few)
    baseline = display.baseline
    look = styles[baseline]
    axes.scatter([0], [0], marker=look.marker, s=62, color=look.hex, zorder=4)
    places = [(0.0, 0.0), *zip(drawn["x"], drawn["y"], strict=True)]
    names = [baseline, *drawn["algorithm"]]
    labels = [
        (place, display.title(name), styles[name].hex)
        for place, name in zip(places, names, strict=True)
    ]
    if far:
        text = "Base: {:+.1f}, {:+.1f}".format(*base[0]).replace("-", "−")
        labels.append((_point_to(axes, base[0], limits), text, styles[BASE].hex))
    _label(axes, labels, np.array([size[0] - 0.8, size[1] - 0.9]) * 72)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}".replace("-", "−")))


def _limits(values: np.ndarray) -> tuple[float, float]:
    """Around `values` and 0, with a margin."""
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.12 * (high - low) or 1.0
    return low - margin, high + margin


def _draw_method(axes: Axes, row: dict[Any, Any], look: LineStyle, interval: bool) -> None:
    """A method's mark, its intervals and its training runs."""
    x, y = row["x"], row["y"]
    if interval:
        line: dict[str, Any] = {"color": look.hex, "lw": 0.9, "alpha": 0.4, "zorder": 2}
        axes.plot([row["x_low"], row["x_high"]], [y, y], **line)
        axes.plot([x, x], [row["y_low"], row["y_high"]], **line)
    seeds = [seed for seed in row["x_runs"] if seed in row["y_runs"]]
    if len(seeds) > 1:
        across, up = ([row[side][seed] for seed in seeds] for side in ("x_runs", "y_runs"))
        axes.scatter(across, up, marker=look.marker, s=9, alpha=0.45, lw=0, color=look.hex)
    mark: dict[str, Any] = {"edgecolor": PALETTE["paper"][0], "lw": 0.7, "zorder": 4}
    axes.scatter([x], [y], marker=look.marker, s=62, color=look.hex, **mark)


def _label(
    axes: Axes, labels: Sequence[tuple[tuple[float, float], str, str]], room: np.ndarray
) -> None:
    """Labels (place, title, colour) where they cover no mark and no other title.

    `room` is about the size of the axes in points; distances are judged in it.
    """
    limits = np.array([axes.get_xlim(), axes.get_ylim()])
    places = np.array([place for place, _, _ in labels])
    marks = (places - limits[:, 0]) / np.ptp(limits, axis=1) * room
    taken = [np.array([*mark - 5, *mark + 5]) for mark in marks]
    turns = np.linspace(0, 2 * math.pi, 16, endpoint=False)
    for mark, (place, title, colour) in zip(marks, labels, strict=True):
        half = np.array([_LETTER * len(title), _LINE]) / 2
        boxes = []
        for away, turn in itertools.product(range(0, 160, 6), turns):
            middle = mark + np.array([math.cos(turn), math.sin(turn)]) * (half + 7 + away)
            boxes.append((away, np.array([*(middle - half), *(middle + half)])))
        free = (one for one in boxes if _inside(one[1], room) and not _covers(one[1], taken))
        away, box = next(free, boxes[0])
        taken.append(box)
        leader = {"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkB": 4}
        axes.annotate(
            title,
            place,
            xytext=tuple((box[:2] + box[2:]) / 2 - mark),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            zorder=5,
            arrowprops=leader if away else None,
        )


def _inside(box: np.ndarray, room: np.ndarray) -> bool:
    return bool((box[:2] >= 0).all() and (box[2:] <= room).all())


def _covers(box: np.ndarray, taken: Sequence[np.ndarray]) -> bool:
    return any((box[:2] < one[2:]).all() and (one[:2] < box[2:]).all() for one in taken)


def _point_to(
    axes: Axes, base: np.ndarray, limits: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """An arrow at the edge of a panel towards the base; returns where it starts."""
    middle, span = np.mean(limits, axis=1), np.ptp(np.array(limits), axis=1)
    towards = (base - middle) / span
    towards /= np.abs(towards).max()  # at the edge of the panel
    end, start = middle + 0.48 * towards * span, middle + 0.38 * towards * span
    arrow = {"arrowstyle": "-|>", "color": PALETTE["grey"][0], "lw": 1.4}
    axes.annotate("", tuple(end), xytext=tuple(start), arrowprops=arrow, zorder=5)
    return float(start[0]), float(start[1])
