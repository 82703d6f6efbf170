"""Markup for the page's templates: figures, line styles, paths, commands.

The templates escape all text. Only what this project draws itself becomes markup here.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from markupsafe import Markup

from sage.rendering.lines import PALETTE, LineStyle
from sage.study import ResolvedStudy

_UNSHOWN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\ufffd")
_MARKER_SHAPES = {
    "o": "M17 6a3 3 0 1 1-6 0a3 3 0 1 1 6 0z",
    "s": "M11.3 3.3h5.4v5.4h-5.4z",
    "^": "M14 2.6l3.4 6.2h-6.8z",
    "D": "M14 2.4l3.6 3.6l-3.6 3.6l-3.6-3.6z",
    "P": "M13 2.6h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4v-2h2.4z",
    "X": "M12 2.6l2 2l2-2l1.4 1.4l-2 2l2 2l-1.4 1.4l-2-2l-2 2l-1.4-1.4l2-2l-2-2z",
}


def visible(text: str) -> str:
    """Untrusted text, with control characters replaced by a visible mark."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_UNSHOWN)


def inline_svg(svg: str, prefix: str, label: str) -> Markup:
    """An SVG file's text as markup for the page.

    Colours of `PALETTE` become CSS variables, so that figures follow light and dark mode. Ids get
    `prefix`, because one page holds several figures. `label` is the text for screen readers.
    Raises ValueError for an SVG without viewBox.
    """
    box = re.search(r'viewBox="([^"]+)"', svg)
    if box is None:
        raise ValueError(
            "this SVG has no viewBox, so `draw_figure` did not write it; make the figure again"
        )
    body = svg[svg.index(">", svg.index("<svg")) + 1 :].strip()
    body = re.sub(r"<!--.*?-->|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\sid="([^"]+)"', rf' id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'\s(?:xlink:)?href="#([^"]+)"', rf' href="#{prefix}-\1"', body)
    body = re.sub(r' style="[^"]+"', _themed, body)
    width = float(box[1].split()[2])
    sizes = f"min-width:{0.95 * width:.0f}px;max-width:{1.55 * width:.0f}px"
    head = Markup('<svg viewBox="{}" role="img" aria-label="{}" style="{}">')
    return head.format(box[1], label, sizes) + Markup(body)


def line_key(style: LineStyle) -> Markup:
    """A short sample of a method's line, as the figures draw it."""
    dashes = " ".join(f"{1.7 * length:.3g}" for length in style.dashes)
    return Markup(
        '<svg class="key" viewBox="0 0 28 12" aria-hidden="true" style="color:var(--fig-{})">'
        '<path class="line" d="M0 6H28" stroke-dasharray="{}"/><path class="mark" d="{}"/></svg>'
    ).format(style.colour, dashes or "none", _MARKER_SHAPES[style.marker])


def palette_css() -> str:
    """The figures' colours as CSS variables, for light and dark backgrounds."""
    light, dark = (
        "".join(f"--fig-{name}:{pair[ground]};" for name, pair in PALETTE.items())
        for ground in (0, 1)
    )
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def breakable(path: str) -> Markup:
    """A path with a possible line break after every slash."""
    return Markup("/<wbr>").join(path.split("/"))


def command(study: ResolvedStudy, target: str) -> Markup:
    """The command that makes a file of the study's results, or a named target."""
    text = Markup(
        'snakemake <span class="keep">--cores all</span> {} '
        '<span class="keep">--config study={}</span>'
    )
    return text.format(breakable(target), study.option)


def yaml_text(value: Any) -> str:
    """A value as YAML, keys in their own order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=88)


def _themed(style: re.Match[str]) -> str:
    text = style[0]
    for name, (light, _) in PALETTE.items():
        text = re.sub(light, f"var(--fig-{name})", text, flags=re.IGNORECASE)
    return text
