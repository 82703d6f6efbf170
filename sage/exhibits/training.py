"""Training curves: reward, KL, entropy, gradient norm, completion length, guide factor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

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

MANY = 4
"""Above this number of methods only the first has a band: others would cover the lines."""

POINTS = 60
"""The most points of a line: more cannot be seen in a panel, and make the page large."""

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
        "training. Lines are means over training seeds, bands the range from the lowest to the "
        "highest seed (of the first method alone, where there are more than four), both running "
        "means over a twentieth of the steps."
    )

    def measure(self, job: Measuring) -> None:
        """Write `histories`: the recorded values, a row for each run and step."""
        from sage.analysis.dynamics import history_frame, read_histories

        job.write(histories=history_frame(read_histories(job.files["policies"])))

    def figure(self, display: Display) -> Figure:
        """A panel for each recorded quantity; without any history the figure says so.

        Lines are means over seeds, bands their range, both as running means over a twentieth of
        the steps, of which at most POINTS are drawn.
        """
        from matplotlib.ticker import MaxNLocator

        from sage.rendering.style import add_legend, draw_lines, grid_of_panels, say

        frame = display.frame("histories")
        frame = frame[frame["algorithm"].isin(display.rows)]
        recorded = [key for key in _TRAINING if key in frame and frame[key].notna().any()]
        if "sampler_gap_mean" in recorded and frame["sampler_gap_mean"].max() < _ROUNDING:
            recorded = [key for key in recorded if key not in _GAPS]
        names, styles = display.rows_in(frame), line_styles(display.study)
        figure, panels = grid_of_panels(max(1, len(recorded)))
        if not recorded:
            panels[0].set(title="Training")
            say(panels[0], "no training history")
            return figure
        for axes, key in zip(panels, recorded, strict=True):
            drawn = _smoothed(frame.dropna(subset=[key]), key)
            for name in names if len(names) <= MANY else names[:1]:
                band, colour = drawn[drawn["algorithm"] == name], styles[name].hex
                look: dict[str, Any] = {"color": colour, "alpha": 0.13, "lw": 0}
                axes.fill_between(band["step"], band["low"], band["high"], **look)
            draw_lines(axes, drawn, "step", "mean", names, styles, markers=False)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set(title=_TRAINING[key], xlabel="optimizer step", ylabel="")
            _widen_if_flat(axes, drawn["mean"])
        add_legend(figure, names, styles, display.study, markers=False)
        return figure


def _smoothed(known: pd.DataFrame, key: str) -> pd.DataFrame:
    """Columns algorithm, step, mean, low and high of `key` over seeds, as centred running means."""
    by_step = known.groupby(["algorithm", "step"], sort=False)[key]
    frame = by_step.agg(mean="mean", low="min", high="max").reset_index()
    window = max(1, round(frame["step"].nunique() / 20))
    columns = ["mean", "low", "high"]
    frame[columns] = frame.groupby("algorithm", sort=False)[columns].transform(
        lambda values: values.rolling(window, center=True, min_periods=1).mean()
    )
    steps = sorted(set(frame["step"]))
    every = max(1, len(steps) // POINTS)
    return frame[frame["step"].isin([*steps[::every], steps[-1]])]


def _widen_if_flat(axes: Axes, values: pd.Series) -> None:
    """Show at least two percent around a nearly constant value, so that rounding stays small."""
    middle, span = float(values.mean()), float(values.max() - values.min())
    if 0 < span < 0.02 * abs(middle):
        axes.set_ylim(middle - 0.02 * abs(middle), middle + 0.02 * abs(middle))
