"""Markup for the page's templates: figures, line styles, paths, commands.

The templates escape all text. Only what this project draws itself becomes markup here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from xml.etree import ElementTree

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
    "v": "M14 9.4l3.4-6.2h-6.8z",
    "X": "M12 2.6l2 2l2-2l1.4 1.4l-2 2l2 2l-1.4 1.4l-2-2l-2 2l-1.4-1.4l2-2l-2-2z",
}


def visible(text: str) -> str:
    """Untrusted text, with control characters replaced by a visible mark."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_UNSHOWN)


def figure_html(svg: str, prefix: str, label: str, keys: Mapping[str, LineStyle]) -> Markup:
    """An SVG file's text as markup for the page: each panel by itself, so that they wrap.

    Colours of `PALETTE` become CSS variables, so that figures follow light and dark mode. Ids that
    something refers to get `prefix`, because one page holds several figures. `label` is the text
    for screen readers. A legend of names that all have a line style in `keys` becomes text.
    Raises ValueError for an SVG that `draw_figure` did not write.
    """
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    parts = [group for group in root.iter("g") if "data-box" in group.attrib]
    if not parts:
        raise ValueError(
            "this SVG has no panels, so `draw_figure` did not write it; make the figure again"
        )
    shared = [child for child in root if child.tag == "defs"]
    drawn, legend, widths = Markup(""), Markup(""), []
    for group in parts:
        names = ["".join(text.itertext()) for text in group.iter("text")]
        if group.get("id", "").startswith("legend") and set(names) <= set(keys):
            entries = Markup("").join(
                Markup("<li>{}{}</li>").format(line_key(keys[name]), name) for name in names
            )
            legend += Markup('<ul class="legend">{}</ul>').format(entries)
            continue
        box = group.attrib.pop("data-box")
        width = float(box.split()[2])
        body = "".join(_svg_text(one, prefix, used) for one in (*shared, group))
        widths += [] if group.get("id", "").startswith("legend") else [width]
        head = Markup('<svg viewBox="{}" style="max-width:{}px" aria-hidden="true">')
        drawn += head.format(box, round(1.25 * width)) + Markup(body + "</svg>")
        shared = []
    panels = Markup('<div class="panels" role="img" aria-label="{}" style="--panel:{}px">{}</div>')
    return panels.format(label, round(0.95 * max(widths)), drawn) + legend


def _svg_text(element: ElementTree.Element, prefix: str, used: Collection[str]) -> str:
    """An element as text without line breaks, unused ids, colours and fonts of its own, and what
    makes a page of many marks large: long numbers, and the same style at each mark."""
    for one in element.iter():
        for key in {"x", "y"} & one.attrib.keys():
            one.set(key, f"{float(one.attrib[key]):.2f}")
        if one.get("transform", "").startswith("rotate(-0 "):
            del one.attrib["transform"]
        if "d" in one.attrib:
            one.set("d", " ".join(one.attrib["d"].split()))
        styles = {child.get("style", "") for child in one}
        if len(one) > 1 and {child.tag for child in one} == {"use"} and len(styles) == 1:
            one.set("style", f"{one.get('style', '')}{styles.pop()}")
            for child in one:
                child.attrib.pop("style", None)
        name = one.attrib.pop("id", "")
        if name in used:
            one.set("id", f"{prefix}-{name}")
        if one.tag not in ("text", "tspan"):
            one.text = None
        one.tail = None
    text = ElementTree.tostring(element, encoding="unicode")
    text = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", text)
    text = re.sub(r" font-family: [^;\"]+;", "", text)
    return re.sub(r' style="[^"]+"', _themed, text)


def _local(name: str) -> str:
    """A name without its XML namespace."""
    return name.rpartition("}")[2]


def line_key(style: LineStyle) -> Markup:
    """A short sample of a method's line, as the figures draw it."""
    dashes = " ".join(f"{1.7 * length:.3g}" for length in style.dashes)
    return Markup(
        '<svg class="key" viewBox="-8 0 44 12" aria-hidden="true" style="color:var(--fig-{})">'
        '<path class="line" d="M-8 6H36" stroke-dasharray="{}"/><path class="mark" d="{}"/></svg>'
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
