"""The style of every figure: panels, lines, legends, and the files it is saved to.

Figures do not touch pyplot's global state, and the same data gives the same bytes. An SVG file
names its panels and the box of each, so that the page can lay them out for any width
(`sage.rendering.markup.figure_html`).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator

from sage.rendering.labels import method_title
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.runtime.files import atomic_file, write_text_atomic
from sage.study import ResolvedStudy

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "text.color": PALETTE["ink"][0],
    "axes.edgecolor": PALETTE["ink"][0],
    "axes.labelcolor": PALETTE["ink"][0],
    "axes.linewidth": 0.7,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False,
    "grid.color": PALETTE["rule"][0],
    "grid.linewidth": 0.7,
    "xtick.color": PALETTE["ink"][0],
    "ytick.color": PALETTE["ink"][0],
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.handlelength": 3.6,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
    "svg.fonttype": "none",
    "svg.hashsalt": "sage",
    "pdf.fonttype": 42,
}

_LINE_INCHES, _ENTRY_INCHES, _LETTER_INCHES = 0.24, 0.7, 0.068
"""Of a legend: the height of a line, the width of an entry without its text, and of a letter."""


_METHOD = "method "
"""Before the name of a method in the gid of what belongs to it."""

_PATH = re.compile(r' d="[^"]+"')
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")


def _with_short_numbers(path: re.Match[str]) -> str:
    """A path of an SVG file with two decimals, a hundredth of a point, instead of six."""
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", path[0])


def draw_figure(draw: Callable[[], Figure], svg_path: Path) -> None:
    """Draw a figure in this style and write it as SVG and, beside it, as PDF.

    The same figure gives the same bytes. In the SVG, panels and legends are groups called
    `panel_1`, `legend_below_1` and so on, with their box (x, y, width, height in points) as
    `data-box`; panels with a logarithmic axis across have the places of 1 and 2 on it, and their
    top and bottom, as `data-x`. What belongs to a method (`of_method`) has it as `data-method`.
    """
    with matplotlib.rc_context(STYLE):
        figure = draw()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # both files have the same places, and boxes fit them
        attributes = _attributes(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=nothing)
        text = _PATH.sub(_with_short_numbers, file.getvalue())
        text = re.sub(f' id="{_METHOD}([^"]*)"', r' data-method="\1"', text)
        for name, known in attributes.items():
            text = text.replace(f'id="{name}"', f'id="{name}" {known}', 1)
        write_text_atomic(svg_path, text)
        with atomic_file(svg_path.with_suffix(".pdf")) as temporary:
            figure.savefig(temporary, format="pdf", metadata={"CreationDate": None})


@contextmanager
def of_method(axes: Axes, name: str) -> Iterator[None]:
    """All that is drawn on the axes inside belongs to this method, which the page can hide."""
    before = {*axes.get_children()}
    yield
    for artist in axes.get_children():
        if artist not in before:
            belongs_to(artist, name)


def belongs_to(artist: Artist, name: str) -> None:
    """Say of which method an artist is."""
    for each in (artist, getattr(artist, "arrow_patch", None)):
        if each is not None:
            each.set_gid(_METHOD + name)


def _attributes(figure: Figure) -> dict[str, str]:
    """Name the panels and legends of a figure, and give what is known of each by its name.

    All panels have the same margins around their axes, so that equal axes have equal boxes.
    """
    points, height = 72 / figure.dpi, 72 * figure.get_figheight()
    extents, scales = {}, {}
    for number, axes in enumerate(figure.axes, 1):
        axes.set_gid(f"panel_{number}")
        if axes.get_xscale() == "log":
            (one, _), (two, _) = points * axes.transData.transform([(1, 1), (2, 1)])
            bottom, top = points * axes.bbox.intervaly
            scales[f"panel_{number}"] = (one, two, height - top, height - bottom)
        if legend := axes.get_legend():
            entries = zip(legend.legend_handles, legend.get_texts(), strict=True)
            for handle, entry in zip(axes.get_legend_handles_labels()[0], entries, strict=False):
                for each in filter(None, entry):
                    each.set_gid(handle.get_gid())
        outer = axes.get_tightbbox()
        assert outer is not None
        both = (axes.get_window_extent().extents, outer.extents)
        extents[f"panel_{number}"] = tuple(np.asarray(each) for each in both)
    away = np.array([1, 1, -1, -1])
    margin = np.max([away * (inner - outer) for inner, outer in extents.values()], axis=0)
    ends = {name: inner - away * (margin + 2) for name, (inner, _) in extents.items()}
    for number, legend in enumerate(figure.legends, 1):
        name = f"legend_below_{number}"  # matplotlib calls a legend within a panel `legend_1`
        legend.set_gid(name)
        ends[name] = legend.get_window_extent().extents
    known = {}
    for name, (x, y, right, top) in ((name, points * box) for name, box in ends.items()):
        numbers = {"box": (x, height - top, right - x, top - y)}
        numbers |= {"x": scales[name]} if name in scales else {}
        known[name] = " ".join(
            f'data-{key}="{" ".join(f"{n:.1f}" for n in each)}"' for key, each in numbers.items()
        )
    return known


def grid_of_panels(
    count: int, size: tuple[float, float] = (3.4, 2.75), columns: int = 3
) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels of `size` (width and height in inches), in at most `columns`.

    No panel is wider than a phone, so that its type stays legible where the page shows it alone.
    """
    columns = 2 if count == 4 else min(count, columns)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def panels_of(
    benchmarks: Mapping[str, str],
    rows: pd.DataFrame,
    size: tuple[float, float] = (3.4, 2.75),
    columns: int = 3,
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure with a titled panel for each benchmark, by name, and the panels with their rows.

    A panel without rows says so and is left out of the list.
    """
    figure, panels = grid_of_panels(len(benchmarks), size, columns)
    drawn = []
    for axes, (benchmark, title) in zip(panels, benchmarks.items(), strict=True):
        axes.set(title=title)
        here = rows[rows["benchmark"] == benchmark]
        if here.empty:
            say(axes, "not evaluated")
        else:
            drawn.append((axes, here))
    return figure, drawn


def draw_lines(
    axes: Axes,
    data: pd.DataFrame,
    x: str,
    y: str,
    names: Sequence[str],
    styles: Mapping[str, LineStyle],
    bands: Collection[str] = (),
) -> None:
    """Lines of `y` against `x`, one for each method in `names`, in its style; `bands` have theirs.

    A long line has a mark at about every fifth of its length, at other places than the others.
    """
    for place, name in enumerate(names):
        line = data[data["algorithm"] == name].dropna(subset=[x, y]).sort_values([x, y])
        every = max(1, len(line) // 5)
        marked = (every * (2 * place + 1) // (2 * len(names)), every)
        if len(line):
            with of_method(axes, name):
                axes.plot(line[x], line[y], markevery=marked, **line_look(styles[name]))
                if name in bands:
                    draw_band(axes, line, x, styles[name].hex)


def draw_band(axes: Axes, data: pd.DataFrame, x: str, colour: str) -> None:
    """What lies between the columns `low` and `high` over `x`."""
    data = data.sort_values(x, kind="stable")
    axes.fill_between(data[x], data["low"], data["high"], color=colour, alpha=0.13, lw=0)


def line_look(style: LineStyle) -> dict[str, Any]:
    """How a method's line looks, in a panel and in the legend."""
    return {
        "color": style.hex,
        "linestyle": (0, style.dashes) if style.dashes else "-",
        "marker": style.marker,
        "markersize": 5,
        "markeredgecolor": PALETTE["paper"][0],
        "markeredgewidth": 0.6,
        "linewidth": 1.7,
    }


def add_legend(figure: Figure, names: Sequence[str], study: ResolvedStudy) -> None:
    """A legend of a study's methods in `names`, below the panels."""
    styles = line_styles(study)
    legend_below(figure, [(method_title(study, name), styles[name]) for name in names])


def legend_below(figure: Figure, entries: Sequence[tuple[str, LineStyle]]) -> None:
    """A legend below the panels, in as many columns as fit, up to 4."""
    if not entries:
        return
    labels = [label for label, _ in entries]
    width, height = figure.get_size_inches()
    fitting = int(width / (_ENTRY_INCHES + _LETTER_INCHES * max(map(len, labels))))
    columns = max(1, min(4, len(entries), fitting))
    more = _LINE_INCHES * math.ceil(len(entries) / columns) + 0.1
    figure.set_size_inches(width, height + more)
    handles = [Line2D([], [], **line_look(look)) for _, look in entries]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def powers_of_two(axes: Axes, ks: Iterable[int]) -> None:
    """A logarithmic axis of samples, with a tick at about every second power of two."""
    powers = [2**power for power in range(int(math.log2(max(ks))) + 1)]
    axes.set_xscale("log", base=2)
    plain_ticks(axes.xaxis, FixedLocator(powers[::2] if len(powers) > 5 else powers))


def share_limits(rows: pd.DataFrame) -> tuple[float, float]:
    """Limits of a panel of shares: around the intervals, within [0, 1] plus room for markers."""
    low, high = float(rows["low"].min()), float(rows["high"].max())
    low, high = max(0.0, min(low, high - 0.1)), min(1.0, max(high, low + 0.1))
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def in_percent(*sides: Axis) -> None:
    """Show the shares of these axes in percent, without the sign."""
    for side in sides:
        side.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))


def plain_ticks(side: Axis, at: Locator | None = None) -> None:
    """Ticks as plain numbers, where `at` has them if it is given, and none between them."""
    if at is not None:
        side.set_major_locator(at)
    side.set_minor_locator(NullLocator())
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def say(axes: Axes, text: str) -> None:
    """Text in an empty panel."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])
