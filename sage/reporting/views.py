"""What the page's templates print: tables of text, figures as markup, numbers as people read them.

Text stays text: it is the templates that escape it. Only figures, which this project draws
itself, become markup here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from markupsafe import Markup

from sage.reporting.looks import PALETTE, LineStyle, line_styles
from sage.reporting.wording import percent, row_title
from sage.study import BASE, ResolvedStudy

NONE = "–"
"""What stands where there is no number."""

_UNSHOWN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\ufffd")
_MARKER_SHAPES = {
    "o": "M17 6a3 3 0 1 1-6 0a3 3 0 1 1 6 0z",
    "s": "M11.3 3.3h5.4v5.4h-5.4z",
    "^": "M14 2.6l3.4 6.2h-6.8z",
    "D": "M14 2.4l3.6 3.6l-3.6 3.6l-3.6-3.6z",
    "P": "M13 2.6h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4v-2h2.4z",
    "X": "M12 2.6l2 2l2-2l1.4 1.4l-2 2l2 2l-1.4 1.4l-2-2l-2 2l-1.4-1.4l2-2l-2-2z",
}


@dataclass(frozen=True)
class Cell:
    """A cell's text, what stands small beneath it, and its mark: best, tie, own, nil or empty."""

    text: str
    small: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """A row; `base` sets it apart from the rows below, `key` is a piece of its line in figures."""

    title: str
    cells: tuple[Cell, ...]
    key: str | Markup = ""
    base: bool = False


@dataclass(frozen=True)
class Head:
    """Columns under one title; without a title they stand alone."""

    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Rows under a heading of their own; the heading may be empty."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table of the page. `first` heads the column of row titles; `words`: cells are text."""

    first: str
    heads: tuple[Head, ...]
    groups: tuple[Group, ...]
    words: bool = False

    @property
    def columns(self) -> int:
        """How many columns there are beside the row titles."""
        return sum(len(head.columns) for head in self.heads)

    @property
    def grouped(self) -> bool:
        """Whether columns stand under titles."""
        return any(head.title for head in self.heads)


@dataclass(frozen=True)
class Part:
    """One table or figure with its caption and file; folded behind `summary` if there is one."""

    anchor: str
    caption: str
    path: str
    target: str
    table: Table | None = None
    figure: Markup | None = None
    summary: str = ""


def share_cell(value: float, low: float, high: float, mark: str = "") -> Cell:
    """A share in percent over its interval."""
    if math.isnan(value):
        return Cell("not run", mark="nil")
    return Cell(percent(value), interval(low, high), mark)


def norm_cell(value: float, low: float, high: float) -> Cell:
    """A gradient norm over the range of runs, if it has one."""
    return Cell(f"{value:.3f}", "" if math.isnan(low + high) else f"{low:.3f}–{high:.3f}")


def algorithm_row(study: ResolvedStudy, algorithm: str, cells: Sequence[Cell]) -> Row:
    """A row under its algorithm's name, with a piece of its line in figures."""
    key = line_key(line_styles(study)[algorithm])
    return Row(row_title(study, algorithm), tuple(cells), key, algorithm == BASE)


def interval(low: float, high: float) -> str:
    """An interval of shares in percent; nothing where it is unknown."""
    return "" if math.isnan(low + high) else f"{percent(low)}–{percent(high)}"


def points(value: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    rounded = round(100 * value, 1) or 0.0  # no minus before a nought
    return f"{rounded:+.1f}".replace("-", "\u2212")


def interval_of_points(low: float, high: float) -> str:
    """An interval of a difference of shares."""
    return "" if math.isnan(low + high) else f"{points(low)} to {points(high)}"


def p_text(p: float) -> str:
    """A p-value with as many digits as matter."""
    if math.isnan(p):
        return NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def plain_table(frame: Any, first: str, titles: dict[str, str] | None = None) -> Table:
    """A small frame as it is: its first column names the rows, numbers to three digits."""
    columns = [str(name) for name in frame.columns[1:]]
    rows = tuple(
        Row(str(values[0]), tuple(Cell(plain_text(value)) for value in values[1:]))
        for values in frame.itertuples(index=False, name=None)
    )
    heads = (Head("", tuple((titles or {}).get(name, name) for name in columns)),)
    return Table(first, heads, (Group("", rows),), words=True)


def plain_text(value: Any) -> str:
    """A value of a frame as people read it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def shown(text: str) -> str:
    """Text that others wrote, its control characters replaced by a visible mark."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_UNSHOWN)


def inline_svg(svg: str, prefix: str, label: str) -> Markup:
    """An SVG file's text as markup for the page.

    Colours of `PALETTE` become CSS variables, so that figures follow light and dark; ids get
    `prefix`, since one page holds several figures; `label` is read to those who do not see it.
    """
    box = re.search(r'viewBox="([^"]+)"', svg)
    if box is None:
        raise ValueError("a figure without viewBox is not one of `save_figure`")
    body = svg[svg.index(">", svg.index("<svg")) + 1 :].strip()
    body = re.sub(r"<!--.*?-->|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sid="([^"]+)"', rf' id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'\s(?:xlink:)?href="#([^"]+)"', rf' href="#{prefix}-\1"', body)
    body = re.sub(r' d="[^"]+"', _rounded, body)
    body = re.sub(r' style="[^"]+"', _themed, body)
    width = float(box[1].split()[2])
    sizes = f"min-width:{0.95 * width:.0f}px;max-width:{1.55 * width:.0f}px"
    head = Markup('<svg viewBox="{}" role="img" aria-label="{}" style="{}">')
    return head.format(box[1], label, sizes) + Markup(body)


def line_key(style: LineStyle) -> Markup:
    """A short piece of an algorithm's line, as the figures draw it."""
    dashes = " ".join(f"{1.7 * length:.3g}" for length in style.dashes)
    return Markup(
        '<svg class="key" viewBox="0 0 28 12" aria-hidden="true" style="color:var(--fig-{})">'
        '<path class="line" d="M0 6H28" stroke-dasharray="{}"/><path class="mark" d="{}"/></svg>'
    ).format(style.colour, dashes or "none", _MARKER_SHAPES[style.marker])


def palette_css() -> str:
    """The figures' colours as CSS variables, for light ground and for dark."""
    light, dark = (
        "".join(f"--fig-{name}:{pair[ground]};" for name, pair in PALETTE.items())
        for ground in (0, 1)
    )
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def breakable(path: str) -> Markup:
    """A path that a line may break behind any of its slashes."""
    return Markup("/<wbr>").join(path.split("/"))


def command(study: ResolvedStudy, target: str) -> Markup:
    """What to type to make a file of the study's results, or to reach a target by name."""
    text = Markup(
        'snakemake <span class="keep">--cores all</span> {} '
        '<span class="keep">--config study={}</span>'
    )
    return text.format(breakable(target), study.option)


def yaml_text(value: Any) -> str:
    """A value as YAML in its own order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=88)


def grouped(number: float) -> str:
    """A whole number in groups of three digits."""
    return f"{int(number):,}".replace(",", "\u202f")


def duration(seconds: float | None) -> str:
    """A time in the two units that matter, such as ``1 h 02 min``."""
    if seconds is None:
        return NONE
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def listing(names: Sequence[str], most: int = 12) -> str:
    """Names in a row, cut off where they would fill the page."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _rounded(path: re.Match[str]) -> str:
    """Hundredths of a point are finer than any screen."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", path[0])


def _themed(style: re.Match[str]) -> str:
    text = style[0]
    for name, (light, _) in PALETTE.items():
        text = re.sub(light, f"var(--fig-{name})", text, flags=re.IGNORECASE)
    return text
