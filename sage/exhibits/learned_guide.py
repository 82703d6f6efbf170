"""What a learned guide has learned: q against entropy, surprisal and position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name, about
from sage.rendering.lines import PALETTE, line_styles
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = {
    "entropy": "entropy of the state (nats)",
    "surprisal": "surprisal of the token (nats)",
    "position": "position in the completion",
}


class LearnedGuideFigure(ExhibitOfRows, Kind):
    """q of the learned guide at the end of training, against each signal that it sees."""

    kind: Literal["learned_guide"]
    algorithms: Annotated[
        list[Name], Field(min_length=1), about("methods whose guide is `learned`, in order")
    ]

    of_training: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("policies",)
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.learned",)
    contents: ClassVar[str] = (
        "Factor q of the learned guide at the end of training, within its clamp, against entropy, "
        "surprisal and position. The two other signals are at their mean over the tokens of "
        "training. Thin lines are training seeds, thick lines their mean. At the start q is 1."
    )

    def faults(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """Methods whose guide does not learn."""
        for name in self.algorithms:
            row = around.algorithms.get(name)
            kind = row.guide.kind if row and row.guide else None
            if row and kind != "learned":
                yield "algorithms", f"{name!r} has {kind or 'no guide'}, not the guide 'learned'"

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        guides = {row: study.algorithms[row].guide for row in self.algorithms}
        return {"clamps": {row: guide.clamp for row, guide in guides.items() if guide}}

    def measure(self, job: Measuring) -> None:
        """Write `curves`."""
        from sage.analysis.learned import learned_curves

        job.write(curves=learned_curves(job.files["policies"], job.settings["clamps"]))

    def figure(self, display: Display) -> Figure:
        """q against each signal, a panel for each."""
        from sage.rendering.style import add_legend, draw_lines, grid_of_panels, say

        curves = display.frame("curves")
        names, styles = display.rows_in(curves), line_styles(display.study)
        figure, panels = grid_of_panels(len(_PANELS))
        for axes, (signal, label) in zip(panels, _PANELS.items(), strict=True):
            known = curves[curves["signal"] == signal]
            axes.set(title=signal.capitalize(), xlabel=label, ylabel="q")
            if known.empty:
                say(axes, "no learned guide")
                continue
            axes.axhline(1.0, color=PALETTE["grey"][0], lw=0.8, ls=":")
            for (name, _), run in known.groupby(["algorithm", "seed"], sort=False):
                axes.plot(run["value"], run["q"], color=styles[str(name)].hex, lw=0.5, alpha=0.4)
            mean = known.groupby(["algorithm", "place"], sort=False)[["value", "q"]].mean()
            draw_lines(axes, mean.reset_index(), "value", "q", names, styles, markers=False)
        add_legend(figure, names, styles, display.study, markers=False)
        return figure
