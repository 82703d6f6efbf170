"""Training reward against test accuracy over training (Figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from sage.evaluation.histories import Histories, by_step, history_frame, read_histories
from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name, Positive
from sage.rendering.lines import PALETTE, LineStyle, line_styles
from sage.rendering.numbers import listing
from sage.study import BASE, ResolvedStudy
from sage.study.exhibit import ExhibitOfRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class TrajectoryFigure(ExhibitOfRows, Kind):
    """Training reward against test accuracy at moments of training (Figure 2).

    Training reward against test accuracy at moments of training, from the base (crosses) on.
    Vertical bars are 95 % intervals over problems. Where a method has several runs, marks and bars
    are their means, thin lines the single runs. Moving right but not up: reward rises without
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
    measured_by: ClassVar[tuple[str, ...]] = (
        "sage.evaluation.snapshots",
        "sage.evaluation.histories",
    )

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
        from sage.evaluation.snapshots import trajectory_table

        sampler = job.snapshot_sampler(self.model, self.benchmark)
        accuracies, tokens = trajectory_table(
            sampler, job.files["policies"], self.snapshots, job.settings["bootstrap"]
        )
        histories = history_frame(read_histories(job.files["policies"]))
        job.write(accuracies=accuracies, histories=histories)
        job.write_manifest(tokens)

    def figure(self, display: Display) -> Figure:
        """Each method's path; rewards are means over a twentieth of the run around a checkpoint."""
        from sage.rendering.style import add_legend, grid_of_panels, in_percent, of_method

        histories, accuracies = display.frame("histories"), display.frame("accuracies")
        names, styles = display.rows_in(accuracies), line_styles(display.study)
        runs: dict[tuple[str, int], Any] = {
            (str(run["algorithm"].iloc[0]), int(run["seed"].iloc[0])): run.to_dict("records")
            for _, run in histories.groupby(["algorithm", "seed"])
        }
        longest = max((len(history) for history in runs.values()), default=1)
        of_rows = accuracies[accuracies["algorithm"].isin(names)]
        points = reward_and_accuracy(runs, of_rows, max(1, round(longest / 20)))
        figure, (axes,) = grid_of_panels(1, (4.2, 3.7))
        for name in names:
            with of_method(axes, name):
                _path(axes, points[points["algorithm"] == name], styles[name], styles[BASE])
        steps = listing([str(step) for step in sorted(set(points["step"]))], most=6)
        axes.set(title=f"{display.titles[self.benchmark]}\nafter {steps} steps")
        axes.set(xlabel="training reward", ylabel="test accuracy (pass@1, %)")
        in_percent(axes.yaxis)
        axes.margins(0.09)
        add_legend(figure, [BASE, *names], display.study)
        return figure


def reward_and_accuracy(
    histories: Histories, accuracies: pd.DataFrame, window: int
) -> pd.DataFrame:
    """Figure 2: training reward and test accuracy, a row for each checkpoint.

    `accuracies` has columns algorithm, train_seed, step and value (a share; step 0 is the parent
    checkpoint, repeated for every run of a model) and may have low and high. The `reward` of step
    s is the mean over the `window` steps around it, s + 1 - window // 2 to s + (window + 1) // 2,
    cut off at the ends: the first rollouts for step 0, the last ones for the last step. Returns
    algorithm, train_seed, step, reward, accuracy and, if given, low and high. Raises ValueError
    for a checkpoint without a history or outside of it.
    """
    kept = [name for name in ("low", "high") if name in accuracies]
    frames = []
    for (algorithm, seed), rows in accuracies.groupby(["algorithm", "train_seed"], sort=False):
        run = f"{algorithm}, seed {seed}"
        history = histories.get((str(algorithm), int(str(seed))))
        if not history:
            raise ValueError(f"{run}: accuracies at checkpoints, but no history")
        rewards = by_step(history, "reward", run)
        if [int(row["step"]) for row in history] != list(range(1, len(history) + 1)):
            raise ValueError(f"{run}: the history does not hold every step from 1 on")
        steps = rows["step"].to_numpy(dtype=int)
        if steps.min() < 0 or steps.max() > len(rewards):
            raise ValueError(
                f"{run}: checkpoints from step {steps.min()} to {steps.max()}, "
                f"but a history of {len(rewards)} steps"
            )
        known = pd.Series(rewards).where(np.isfinite(rewards)).reindex(range(len(rewards) + 1))
        means = known.rolling(window, center=True, min_periods=1).mean().ffill()
        frames.append(
            rows[["algorithm", "train_seed", "step"]]
            .assign(reward=means[steps].to_numpy(), accuracy=rows["value"])
            .join(rows[kept])
            .sort_values("step")
        )
    if not frames:
        columns = ["algorithm", "train_seed", "step", "reward", "accuracy", *kept]
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)


def _path(axes: Axes, points: pd.DataFrame, look: LineStyle, start: LineStyle) -> None:
    """A method's path from checkpoint to checkpoint, its runs behind it."""
    from sage.rendering.style import line_look

    if points["train_seed"].nunique() > 1:
        for _, run in points.groupby("train_seed"):
            axes.plot(run["reward"], run["accuracy"], color=look.hex, lw=0.5, alpha=0.5)
    mean = points.groupby("step").mean(numeric_only=True)
    if {"low", "high"} <= set(mean):
        trained = mean[mean.index > 0]
        bars = trained["reward"], trained["low"], trained["high"]
        axes.vlines(*bars, color=look.hex, alpha=0.4, lw=1)
    axes.plot(mean["reward"], mean["accuracy"], **line_look(look) | {"linewidth": 1.5})
    cross: dict[str, Any] = {"color": start.hex, "edgecolor": PALETTE["paper"][0], "lw": 0.8}
    begin = mean[mean.index == 0]
    axes.scatter(begin["reward"], begin["accuracy"], 60, marker=start.marker, zorder=4, **cross)
