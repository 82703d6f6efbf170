"""Training curves: reward, KL, entropy, gradient norm, completion length, guide factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import pandas as pd

from sage.exhibits.kind import Display, Kind, Measuring
from sage.rendering.lines import line_styles
from sage.study.exhibit import ExhibitOfRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TRAINING = {
    "reward": "Training reward",
    "kl": "KL to the anchor",
    "entropy": "Token entropy (nats)",
    "grad_norm": "Gradient norm",
    "mean_length": "Completion length (tokens)",
    "q_mean": "Guide factor (mean)",
    "amplified_share": "Share of tokens amplified",
    "log_q": "log q of a completion (nats)",
    "guide_dose": "SD of β log q in a group (SD of advantages)",
    "kl_dose": "SD of β log π/π_ref in a group (SD of advantages)",
    "sampler_gap_mean": "Gap of sampler to trainer (nats)",
    "sampler_gap_max": "Largest gap of a token (nats)",
    "sampler_clipped_share": "Share of tokens with a gap above the cap",
}

_GAPS = [key for key in _TRAINING if key.startswith("sampler_")]

_ROUNDING = 1e-4
"""Below this the sampler's and the trainer's log-probabilities differ by rounding alone."""


class TrainingFigure(ExhibitOfRows, Kind):
    """Reward, KL, entropy, gradient norm and lengths over training."""

    kind: Literal["training"]

    of_training: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("policies",)
    measured_by: ClassVar[tuple[str, ...]] = ("sage.analysis.dynamics",)
    contents: ClassVar[str] = (
        "Reward, KL, token entropy, gradient norm, completion length, what the guide does, and the "
        "gap between the sampler's and the trainer's log-probabilities (its mean, its largest, and "
        "the share of tokens above the cap of weights) where it is more than rounding, over "
        "training. Thin lines are single optimizer steps. Thick lines are running "
        "means over a twentieth of the steps, averaged over training seeds."
    )
    caption: ClassVar[str] = (
        "Thin lines are single optimizer steps (single spikes may leave the panel). Thick lines "
        "are their running mean, averaged over training seeds."
    )

    def measure(self, job: Measuring) -> None:
        """Write `histories`: the recorded values, a row for each run and step."""
        from sage.analysis.dynamics import history_frame, read_histories

        job.write(histories=history_frame(read_histories(job.files["policies"])))

    def figure(self, display: Display) -> Figure:
        """A panel for each recorded quantity; without any history the figure says so.

        Thin lines are single seeds, step by step. Thick lines are their mean, smoothed by a running
        mean over a twentieth of the steps. A step far above all others does not set the scale and
        leaves the panel.
        """
        from matplotlib.ticker import MaxNLocator

        from sage.rendering.style import add_legend, draw_lines, grid_of_panels, say

        order = {name: place for place, name in enumerate(display.rows)}
        frame = display.frame("histories")
        frame = frame[frame["algorithm"].isin(list(order))]
        frame = frame.assign(place=frame["algorithm"].map(order))
        frame = frame.sort_values(["place", "seed", "step"], ignore_index=True)
        recorded = [key for key in _TRAINING if key in frame and frame[key].notna().any()]
        if "sampler_gap_mean" in recorded and frame["sampler_gap_mean"].max() < _ROUNDING:
            recorded = [key for key in recorded if key not in _GAPS]
        names, styles = display.rows_in(frame), line_styles(display.study)
        faint = min(0.3, 1.5 / max(1, len(frame[["algorithm", "seed"]].drop_duplicates())))
        figure, panels = grid_of_panels(max(1, len(recorded)), len(names))
        if not recorded:
            panels[0].set(title="Training")
            say(panels[0], "no training history")
            return figure
        for axes, key in zip(panels, recorded, strict=True):
            known = frame.dropna(subset=[key])
            for (name, _), run in known.groupby(["algorithm", "seed"], sort=False):
                axes.plot(run["step"], run[key], color=styles[str(name)].hex, lw=0.5, alpha=faint)
            draw_lines(axes, _smoothed(known, key), "step", key, names, styles, markers=False)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set(title=_TRAINING[key], xlabel="optimizer step", ylabel="")
            _cut_spikes(axes, known[key])
            _widen_if_flat(axes, known[key])
        add_legend(figure, names, styles, display.study, markers=False)
        return figure


def _smoothed(known: pd.DataFrame, key: str) -> pd.DataFrame:
    """Columns algorithm, step and `key`: the mean over seeds, as a centred running mean."""
    mean = known.groupby(["algorithm", "step"], sort=False)[key].mean().reset_index()
    window = max(1, round(mean["step"].nunique() / 20))
    mean[key] = mean.groupby("algorithm", sort=False)[key].transform(
        lambda values: values.rolling(window, center=True, min_periods=1).mean()
    )
    return mean


def _cut_spikes(axes: Axes, values: pd.Series) -> None:
    """Cut the axis above the 99 % quantile of `values` if higher values are spikes.

    They are spikes if they are more than three times as far above the median as the quantile.
    """
    import numpy as np

    middle, most, highest = np.quantile(values, [0.5, 0.99, 1.0])
    lowest = float(values.min())
    if highest - middle > 3 * (most - middle) > 0:
        axes.set_ylim(lowest - 0.05 * (most - lowest), most + 0.5 * (most - lowest))


def _widen_if_flat(axes: Axes, values: pd.Series) -> None:
    """Show at least two percent around a nearly constant value, so that rounding stays small."""
    middle, span = float(values.mean()), float(values.max() - values.min())
    if 0 < span < 0.02 * abs(middle):
        axes.set_ylim(middle - 0.02 * abs(middle), middle + 0.02 * abs(middle))
