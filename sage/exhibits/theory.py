"""Exhibits that need no run: Figures 1 and 5, the toy example of Appendix C, exact gradients.

`sage.theory` computes them with the guide functions and the pseudo-KL of training. This module
only draws them, in the colours of the methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from sage.exhibits.kind import Display, Shows
from sage.rendering.lines import COLOURS, PALETTE
from sage.rendering.numbers import NONE, ends, number_text
from sage.rendering.table import Record, TableDocument, cell_of, plain_table, table_of, titled_by
from sage.study import Algorithm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sage.theory.figures import Fit, GuidedAnchors, ModeFits
    from sage.theory.toy import ToyExample

_INK, _GREY = PALETTE["ink"][0], PALETTE["grey"][0]
OPEN = 1.2
"""A state is open from this entropy on, in nats: the branch guide's default threshold."""

_TITLES = {
    "random": "Random guide: noise",
    "token": "Token guide: surprisal",
    "branch": "Branch guide: entropy",
}


ESTIMATORS = "estimators"
"""The name under which every report has the table of guides and estimators."""

_EFFECTS = {
    "own": "own direction",
    "other beta": "changes β only",
    "none": "none: it cancels",
    "depends on the tree": "depends on the tree",
    "no guide": NONE,
}

_CAPTION = (
    "What each guide does under each estimator of the KL term: exact expected gradients, on "
    "policy, on {trees} random trees of completions of one to three tokens; the median over "
    "trees, the quartiles in brackets. Sum: losses that add up the tokens of a batch and divide "
    "by a constant (dr_grpo; bnpo and dapo as far as the number of tokens of a batch "
    "is constant). Mean: losses that take the mean over each completion (grpo), scaled here "
    "to the same size. Distance: of the expected gradient from that of the paper’s objective (Eq. "
    "4) with the same guide, relative to the latter. Direction: the cosine of what the guide "
    "alone changes with what it changes in Eq. 4. Opposed: the share of trees where that cosine "
    "is negative. Share: the size of the guide’s change, relative to that in Eq. 4. Only with the "
    "KL in the reward (k1_reward) and a sum Eq. 4 is followed. With a mean, each token has the "
    "weight of one over its completion's length. This weight is what turns the branch guide "
    "against Eq. 4: with a sum it cancels (k2, k3_corrected) or has no fixed direction (k3). "
    "Lengths vary much in these trees; where they are alike, a mean acts as a sum."
)


def _distance(row: Record) -> str:
    value = row["relative_distance"]
    return "0 (rounding)" if value < 1e-10 else f"{value:.3f}"


def _spread(row: Record, name: str) -> str:
    """The median, and the quartiles in brackets where they differ from it."""
    value, low, high = (row[name + end] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return NONE
    if value < 1e-10 and abs(high) < 1e-10 and abs(low) < 1e-10:
        return "0"
    text = number_text(value, ".2f")
    return f"{text} ({ends(low, high, '.2f')})" if high - low >= 0.005 else text


def _opposed(row: Record) -> str:
    return NONE if math.isnan(row["opposed"]) else f"{100 * row['opposed']:.0f} %"


_COLUMNS: dict[str, Callable[[Record], str]] = {
    "Distance from Eq. 4": _distance,
    "Share": lambda row: _spread(row, "guide_norm"),
    "Direction": lambda row: _spread(row, "guide_cosine"),
    "Opposed": _opposed,
    "Guide’s effect": lambda row: _EFFECTS[row["effect"]],
}


class OfTheory(Shows):
    """Shows what is computed, not measured."""

    category: ClassVar[str] = "Theory"


class GuidedAnchorsFigure(OfTheory):
    """How each guide reshapes an anchor. Shown are the completions of a small token tree, most
    likely first: their probability under the reference (bars) and under each anchor (dots), and
    below the factor that the guide gives each, with its running mean (line). An open state has an
    entropy of at least 1.2 nats. Computed with the functions used in training; the numbers are this
    project's."""

    def figure(self, display: Display) -> Figure:
        """The anchor of each guide, a column for each; see `anchors_figure`."""
        from sage.theory.figures import guided_anchors

        return anchors_figure(guided_anchors())


class ModesFigure(OfTheory):
    """One normal policy fitted to a distribution with two modes: by reverse KL, which seeks one
    mode; by forward KL, which covers both; and by the reverse KL to SAGE's anchor, which amplifies
    the rarer mode. The curves are computed; the numbers are this project's."""

    def figure(self, display: Display) -> Figure:
        """The mixture and the three policies fitted to it; see `modes_figure`."""
        from sage.theory.figures import mode_fits

        return modes_figure(mode_fits())


class ToyTable(OfTheory):
    """The toy example of Appendix C with numbers of this project: entropies and guide factors of
    the tokens of a frequent and of a rare valid completion, and their probabilities under the
    reference, under RLVR and under SAGE."""

    def table(self, display: Display) -> TableDocument:
        from sage.theory.toy import toy_example

        example = toy_example()
        titles = {"frequent": "Frequent completion", "rare": "Rare completion"}
        table = plain_table(example.numbers, "Quantity", titles)
        return TableDocument(example.numbers, table, toy_caption(example))


class EstimatorsTable(OfTheory):
    """The exact expected gradient of each guide under each estimator on random token trees, beside
    the gradient of the paper's objective (Eq. 4): medians over the trees. `cosine` and
    `relative_distance` compare the two; `guide_norm` and `guide_cosine`, with quartiles, compare
    what the guide alone changes; `opposed` is the share of trees where it points away from Eq. 4;
    `effect` says whether the guide has a direction of its own. `loss` is `sum` for losses that add
    up tokens and `mean` for means over each completion."""

    def table(self, display: Display) -> TableDocument:
        """A group of rows per guide, a row per estimator, a group of columns per kind of loss."""
        from sage.theory.credit import over_trees, summary

        frame = summary(over_trees())
        columns = [
            (loss.capitalize(), title, cell_of(read, ends=[loss]))
            for loss in dict.fromkeys(frame["loss"])
            for title, read in _COLUMNS.items()
        ]
        groups = (
            (
                "No guide" if guide == "none" else f"Guide {guide}",
                titled_by(rows, "loss", "estimator"),
            )
            for guide, rows in frame.groupby("guide", sort=False)
        )
        caption = _CAPTION.format(trees=frame["trees"].max())
        return TableDocument(frame, table_of("Estimator", columns, groups), caption)


def guide_effects(rows: Mapping[str, Algorithm], effects: pd.DataFrame | None) -> list[str]:
    """What the guides of some methods do under their own estimator and loss: a text per effect.

    `effects` is the exhibit's frame; without it nothing is said. Methods with the same effect share
    a text. Methods without a guide, and guides or estimators that it does not have, are left out.
    """
    if effects is None:
        return []
    effect_of = effects.set_index(["guide", "estimator", "loss"])["effect"]
    titles: dict[str, list[str]] = {}
    for algorithm in rows.values():
        if not (algorithm.guide and algorithm.estimator):
            continue
        loss = "mean" if algorithm.loss == "grpo" else "sum"
        effect = effect_of.get((algorithm.guide.kind, algorithm.estimator.kind, loss))
        if effect is not None:
            text = f"({algorithm.estimator.kind}, {loss}): {_EFFECTS[effect]}"
            titles.setdefault(text, []).append(algorithm.title)
    return [f"{', '.join(names)} {text}" for text, names in titles.items()]


def anchors_figure(data: GuidedAnchors, likeliest: int = 40) -> Figure:
    """Figure 1: what each guide does to the completions of a token tree, most likely first.

    Top: the `likeliest` completions with their probabilities under the reference (bars) and under
    the anchor (dots). Bottom: the factor q(y) of every completion, with its running mean. Filled
    dots are completions that pass an open state, of at least OPEN nats.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from sage.rendering.style import plain_ticks

    ranks = np.arange(1, len(data.reference) + 1)
    first, all_ = slice(0, likeliest), slice(0, len(ranks))
    figure = Figure(figsize=(10.4, 5.0), layout="constrained")
    grid = figure.subplots(2, len(data.anchors), sharey="row", squeeze=False)
    for column, (name, anchor) in enumerate(data.anchors.items()):
        above, below = grid[0, column], grid[1, column]
        colour, factors = PALETTE[COLOURS[name]][0], data.factors[name]
        above.bar(ranks[first], data.reference[first], width=0.8, color=_GREY, alpha=0.35, lw=0)
        above.vlines(ranks[first], data.reference[first], anchor[first], color=colour, lw=1.2)
        _dots(above, ranks, anchor, data, colour, first)
        above.set_yscale("log")
        above.set_ylim(0.5 * data.reference[first].min(), 1.0)
        plain_ticks(above.yaxis)
        above.set(title=_TITLES[name], xlabel=f"the {likeliest} most likely completions")
        below.axhline(1.0, color=_INK, lw=0.9)
        _dots(below, ranks, factors, data, colour, all_)
        means = pd.Series(factors).rolling(len(ranks) // 8, center=True, min_periods=1).mean()
        below.plot(ranks, means, color=colour, lw=1.8)
        below.set(title=_TITLES[name], xlabel="all completions, most likely first")
        for axes, label in ((above, "probability"), (below, "guide q(y)")):
            axes.set_ylabel(label)
            axes.tick_params(labelleft=True)  # the page shows each panel by itself
    colour = PALETTE["slate"][0]
    look: dict[str, Any] = {"ls": "", "marker": "o", "markersize": 5, "color": colour}
    handles = [
        Patch(color=_GREY, alpha=0.35, lw=0, label="reference"),
        Line2D([], [], **look, label="anchor, through an open state"),
        Line2D([], [], **look, markerfacecolor="none", label="anchor, through no open state"),
    ]
    figure.legend(handles=handles, loc="outside lower center")
    return figure


def modes_figure(data: ModeFits) -> Figure:
    """Figure 5: a normal policy fitted to two modes by reverse KL, forward KL and SAGE."""
    from matplotlib.figure import Figure

    panels: Mapping[str, tuple[Fit, str]] = {
        "Reverse KL seeks a mode": (data.reverse, COLOURS["reverse"]),
        "Forward KL covers both": (data.forward, COLOURS["forward"]),
        "SAGE reaches the chosen mode": (data.guided, COLOURS["branch"]),
    }
    figure = Figure(figsize=(10.4, 2.9), layout="constrained")
    row = figure.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
    shade: dict[str, Any] = {"color": _GREY, "alpha": 0.25, "lw": 0, "label": "reference"}
    dashed: dict[str, Any] = {"lw": 1.1, "ls": (0, (4, 2)), "label": "anchor q · ref"}
    for axes, (title, (fit, colour)) in zip(row, panels.items(), strict=True):
        guided = fit is data.guided
        axes.fill_between(data.grid, data.reference, **shade)
        if guided:
            axes.plot(data.grid, data.anchor, color=_INK, **dashed)
        axes.plot(data.grid, fit.density, color=PALETTE[colour][0], lw=2.0, label="policy")
        axes.set(xlim=(-8, 8), ylim=(0, 1.08 * data.anchor.max()), xlabel="response")
        axes.set(title=title, ylabel="density")
        axes.legend(loc="upper left" if guided else "upper right")
        axes.tick_params(labelleft=True)
    return figure


def _dots(
    axes: Axes, ranks: np.ndarray, values: np.ndarray, data: GuidedAnchors, colour: str, part: slice
) -> None:
    """Dots of some completions, filled where one passes an open state."""
    passes = data.entropies.max(axis=1) >= OPEN
    faces = [colour if open_ else "none" for open_ in passes[part]]
    axes.scatter(
        ranks[part], values[part], s=12, facecolors=faces, edgecolors=colour, lw=0.7, zorder=3
    )


def toy_caption(example: ToyExample) -> str:
    """The caption: what the example is, and its result."""
    from sage.theory.toy import BETA, EPSILON, RATIO, THRESHOLD

    met = "is met" if example.condition else "is not met"
    rises = "rises above" if example.conclusion else "stays below"
    return (
        "The toy example of Appendix C on a two-token tree, with numbers of this project: the "
        f"branch guide (ratio {RATIO:g}, threshold {THRESHOLD:g} nats), KL "
        f"coefficient {BETA:g}, support threshold {EPSILON:g}. Under RLVR the "
        f"mean of the guide is {example.expected_guide:.3f}. The condition of Theorem 4.3 {met} "
        f"for the rare completion, which {rises} the threshold."
    )
