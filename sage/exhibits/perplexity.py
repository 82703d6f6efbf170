"""Perplexity of responses under the base model, and its tails (Figure 7)."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Kind, Measuring
from sage.exhibits.perplexity_of_responses import TAIL, read_perplexities
from sage.fields import Name, Positive
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.rendering.numbers import percent
from sage.rendering.table import Column, TableDocument, table_of, titled
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Rows, Surroundings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class PerplexityFigure(ExhibitOfRows, Kind):
    """Perplexity of responses under the policy before RL (Figure 7).

    Perplexity, under the base policy, of every method's responses to each problem. In the figure a
    dot is a response, filled if it is correct. Boxes show the middle half, lines the middle 90
    percent. The dashed line is the base's 95th percentile. The table has the median, the 95th
    percentile (`upper`), and the share of a method's responses above the base's 95th percentile
    (`tail_share`).
    """

    kind: Literal["perplexity"]
    benchmark: Name
    """the problem set"""
    problems: Rows | None = None
    """ids of the problems shown; left out, the first two of the problem set"""
    responses: Positive = 64
    """responses per problem and run: the first samples of each training seed [responses]"""
    tail_problems: Positive = 20
    """how many problems the tails are compared on, for the claim about them: those shown and the
    next of the problem set [problems]"""

    with_model: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("base", "samples", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.exhibits.perplexity_of_responses",)
    evidence: ClassVar[str] = "perplexities"
    caption: ClassVar[str] = (
        "Each dot is a response, placed at its perplexity under the policy before RL: further "
        "right is less likely under that policy. Filled: correct. Boxes show the middle half with "
        "the median, whiskers the middle 90 percent."
    )

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        yield from around.too_many("responses", self.responses, around.eval_seeds)

    def facts(self, study: ResolvedStudy) -> list[tuple[str, str]]:
        return [("Responses", f"{self.responses} per problem and run")]

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        return {"algorithms": self.methods_of(study)}

    def measure(self, job: Measuring) -> None:
        """Write `perplexities`, a row per response, and their `tails`."""
        table, tails = read_perplexities(
            base=job.file("base"),
            samples=job.files["samples"],
            problems=job.file("problems"),
            algorithms=job.settings["algorithms"],
            named=self.problems,
            more=self.tail_problems,
            responses=self.responses,
            device=job.device,
        )
        job.write(perplexities=table, tails=tails)
        job.write_manifest(int(table["n_tokens"].sum()))

    def table(self, display: Display) -> TableDocument:
        """The tails: a row for each problem and method."""
        tails = display.frame("tails")
        problems = {name: place for place, name in enumerate(dict.fromkeys(tails["problem_id"]))}
        frame = display.ordered(tails).sort_values(
            "problem_id", key=lambda names: names.map(problems), kind="stable", ignore_index=True
        )
        base = display.title(BASE)
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: perplexity under {base}, the "
            f"policy before RL, of {self.responses} responses of each run to each problem. Upper: "
            "the 95th percentile of a method's responses. Above the base: percentage of these "
            f"responses above the 95th percentile of {base}. The results hold for these problems "
            "only."
        )
        columns: list[Column] = [
            ("", "Median", lambda row: f"{row['median']:.3g}"),
            ("", "Upper", lambda row: f"{row['upper']:.3g}"),
            ("", "Above the base", lambda row: percent(row["tail_share"])),
            ("", "Responses", lambda row: str(row["n"])),
        ]
        groups = [
            (f"Problem {number} ({problem})", titled(rows))
            for number, (problem, rows) in enumerate(frame.groupby("problem_id", sort=False), 1)
        ]
        return TableDocument(frame, table_of("Method", columns, groups, display.study), caption)

    def figure(self, display: Display) -> Figure:
        """A panel for each problem, a row for each method. Raises ValueError without rows."""
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
        from matplotlib.ticker import LogLocator, MaxNLocator

        from sage.rendering.style import belongs_to, of_method, plain_ticks

        responses, tails = display.frame("perplexities"), display.frame("tails")
        responses = responses[responses["problem_id"].isin(tails["problem_id"])]
        names, problems = display.rows_in(responses), list(dict.fromkeys(responses["problem_id"]))
        if not names:
            asked = ", ".join(display.rows)
            message = f"{display.name}: no perplexities of {asked}; measure the exhibit first"
            raise ValueError(message)
        styles = line_styles(display.study)
        dashed: dict[str, Any] = {"color": PALETTE["grey"][0], "lw": 0.9, "ls": (0, (4, 2))}
        size = (4.6 * len(problems), 0.55 * len(names) + 1.9)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(problems), squeeze=False, sharey=True)[0]
        for number, (axes, problem) in enumerate(zip(panels, problems, strict=True), start=1):
            here = responses[responses["problem_id"] == problem]
            for place, name in enumerate(names):
                if len(own := here[here["algorithm"] == name]):
                    with of_method(axes, name):
                        _box(axes, own, names, styles[name])
                        _dots(axes, place, own, styles[name])
            of_base = here.loc[here["algorithm"] == BASE, "perplexity"]
            if len(of_base):
                axes.axvline(of_base.quantile(TAIL), **dashed)
            limits = _with_margins(here["perplexity"])
            axes.set(xscale="log", xlim=limits)
            axes.set(title=f"Problem {number} ({problem})", xlabel="perplexity under the base")
            near, far = MaxNLocator(6, steps=[1, 2, 5]), LogLocator(subs=(1, 2, 5), numticks=6)
            plain_ticks(axes.xaxis, near if limits[1] < 10 * limits[0] else far)
            axes.grid(visible=False, axis="y")
            axes.set_ylabel("")
            axes.tick_params(labelleft=True)  # the page shows each panel by itself
        titles = [textwrap.fill(display.title(name), 20) for name in names]
        panels[0].set_yticks(range(len(names)), titles)
        panels[0].set_ylim(len(names) - 0.4, -0.5)
        for axes in panels:
            for name, tick in zip(names, axes.get_yticklabels(), strict=True):
                belongs_to(tick, name)
        dot: dict[str, Any] = {"color": PALETTE["slate"][0], "ls": "", "marker": "o"}
        handles = [
            Line2D([], [], **dot, markersize=4, label="correct"),
            Line2D([], [], **dot, markersize=4, markerfacecolor="none", label="not correct"),
            Line2D([], [], **dashed, label=f"{100 * TAIL:.0f}th percentile of the base"),
        ]
        figure.legend(handles=handles, loc="outside lower center")
        return figure


def _box(axes: Axes, rows: pd.DataFrame, names: list[str], look: LineStyle) -> None:
    """A box of one method's perplexities, at its place among `names` from the first down."""
    import seaborn
    from matplotlib import MatplotlibDeprecationWarning

    with warnings.catch_warnings():  # seaborn 0.13 still says `vert` to matplotlib
        warnings.simplefilter("ignore", MatplotlibDeprecationWarning)
        seaborn.boxplot(
            rows,
            x="perplexity",
            y="algorithm",
            order=names,
            color=look.hex,
            whis=(5, 95),
            width=0.3,
            fliersize=0,
            saturation=1,
            linecolor=PALETTE["ink"][0],
            linewidth=0.8,
            boxprops={"alpha": 0.45},
            ax=axes,
        )


def _dots(axes: Axes, place: int, rows: pd.DataFrame, look: LineStyle) -> None:
    """The perplexities of one method below height `place`, filled where correct.

    They are spread by rank, not at random, so that the same data gives the same picture.
    """
    import numpy as np

    rows = rows.sort_values("perplexity", kind="stable")
    heights = place + 0.32 + 0.2 * ((7 * np.arange(len(rows))) % 11 / 10 - 0.5)
    correct = (rows["status"] == "correct").to_numpy()
    for chosen, face in ((correct, look.hex), (~correct, "none")):
        axes.scatter(
            rows["perplexity"].to_numpy(dtype=float)[chosen],
            heights[chosen],
            s=7,
            facecolor=face,
            edgecolor=look.hex,
            linewidth=0.6,
            alpha=0.7,
            zorder=3,
        )


def _with_margins(values: pd.Series) -> tuple[float, float]:
    """Limits of a logarithmic axis of perplexities: their range plus a twentieth on each side.

    No perplexity is below 1, so an axis that would start near 1 starts at 1.
    """
    low, high = float(values.min()), float(values.max())
    low = min(low, 1.0) if low < 1.2 else low
    margin = max(high / low, 1.01) ** 0.05
    return low / margin, high * margin
