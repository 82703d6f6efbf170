"""Training reward against test accuracy over training (Figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name, Positive
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class TrajectoryFigure(ExhibitOfRows, Kind):
    """Training reward against test accuracy at moments of training (Figure 2).

    Training reward against test accuracy at moments of training. Crosses are the base, numbers are
    optimizer steps, vertical bars are 95 % intervals. Moving right but not up: reward rises without
    accuracy.
    """

    kind: Literal["trajectory"]
    benchmark: Name
    """the problem set whose accuracy is shown"""
    snapshots: Positive
    """moments of training at which accuracy is measured [moments]"""
    samples: Positive
    """completions per problem at each moment [samples]"""

    of_training: ClassVar[bool] = True
    with_model: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("base", "policies", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("sage.evaluation.snapshots", "sage.analysis.dynamics")

    def snapshots_kept(self) -> int:
        return self.snapshots

    def benchmarks_of(self, study: ResolvedStudy) -> list[str]:
        """None: it draws its own samples."""
        return []

    def problem_sets(self, study: ResolvedStudy) -> list[str]:
        return [self.benchmark]

    def samples_shown(self, study: ResolvedStudy) -> int:
        return self.samples

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        evaluation = study.evaluation(self.model)
        draws = {**evaluation.draws(), "samples": self.samples}
        return {"evaluation": draws, "bootstrap": evaluation.bootstrap}

    def measure(self, job: Measuring) -> None:
        """Write `accuracies` at the snapshots, and `histories` of the same runs."""
        from sage.analysis.dynamics import history_frame, read_histories
        from sage.evaluation.snapshots import trajectory_table

        sampler = job.snapshot_sampler(self.model, self.benchmark)
        accuracies, tokens = trajectory_table(
            sampler, job.files["policies"], self.snapshots, job.settings["bootstrap"]
        )
        histories = history_frame(read_histories(job.files["policies"]))
        job.write(accuracies=accuracies, histories=histories)
        job.write_manifest(tokens)

    def figure(self, display: Display) -> Figure:
        """Each run's path through training reward (x) and test accuracy (y).

        Rewards are means over a twentieth of the run around each checkpoint, see
        `reward_and_accuracy`, which raises ValueError if the two do not fit. Crosses are the base,
        before the first step. An arrow points to the last checkpoint. Numbers are the steps of the
        first and the last checkpoint. Vertical bars are 95 % intervals.
        """
        from matplotlib.ticker import FuncFormatter

        from sage.analysis.dynamics import reward_and_accuracy
        from sage.rendering.style import add_legend, grid_of_panels

        histories, accuracies = display.frame("histories"), display.frame("accuracies")
        names, styles = display.rows_in(accuracies), line_styles(display.study)
        runs: dict[tuple[str, int], Any] = {
            (str(run["algorithm"].iloc[0]), int(run["seed"].iloc[0])): run.to_dict("records")
            for _, run in histories.groupby(["algorithm", "seed"])
        }
        longest = max((len(history) for history in runs.values()), default=1)
        of_rows = accuracies[accuracies["algorithm"].isin(names)]
        points = reward_and_accuracy(runs, of_rows, max(1, round(longest / 20)))
        figure, (axes,) = grid_of_panels(1, (5.0, 3.8))
        for name in names:
            for _, run in points[points["algorithm"] == name].groupby("train_seed"):
                _path(axes, run, styles[name])
        starts, look = points[points["step"] == 0], styles[BASE]
        cross: dict[str, Any] = {"edgecolor": PALETTE["paper"][0], "lw": 0.8, "zorder": 4}
        places = starts["reward"], starts["accuracy"]
        axes.scatter(*places, marker=look.marker, s=60, color=look.hex, **cross)
        axes.set(xlabel="training reward", ylabel="test accuracy (pass@1)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
        axes.margins(0.09)
        add_legend(figure, [BASE, *names], display.study, markers=True)
        return figure


def _path(axes: Axes, run: pd.DataFrame, look: LineStyle) -> None:
    """One run's path from checkpoint to checkpoint."""
    import numpy as np

    from sage.rendering.style import line_look

    run = run.sort_values("step")
    if {"low", "high"} <= set(run):
        trained = run[run["step"] > 0]
        ends = trained["low"], trained["high"]
        axes.vlines(trained["reward"], *ends, color=look.hex, alpha=0.25, lw=1)
    axes.plot(run["reward"], run["accuracy"], **line_look(look, True) | {"linewidth": 1.5})
    places = run[["reward", "accuracy"]].to_numpy()
    if len(places) > 1 and not np.array_equal(places[-2], places[-1]):
        arrow = {"arrowstyle": "-|>", "color": look.hex, "shrinkA": 0, "shrinkB": 4}
        axes.annotate("", tuple(places[-1]), tuple(places[-2]), arrowprops=arrow)
    trained_steps = [step for step in run["step"] if step > 0]
    box = {"facecolor": PALETTE["paper"][0], "alpha": 0.75, "pad": 0.5, "lw": 0}
    text: dict[str, Any] = {"fontsize": 7, "color": look.hex, "bbox": box}
    for step, place in zip(run["step"], places, strict=True):
        if step in (trained_steps[:1] + trained_steps[-1:]):  # more labels would overlap
            axes.annotate(f"{step}", tuple(place), (5, 4), textcoords="offset points", **text)
