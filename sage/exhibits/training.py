"""Of training: gradient norms (Table 5), curves, and what a learned guide has learned."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from sage.evaluation.histories import (
    STAGES,
    Histories,
    by_step,
    history_frame,
    read_histories,
    stage_means,
)
from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name
from sage.method.learned_guide import LEARNED, SIGNALS
from sage.rendering.labels import listed
from sage.rendering.lines import PALETTE, line_styles
from sage.rendering.numbers import NONE
from sage.rendering.table import Cell, Column, Record, TableDocument
from sage.results import run_at
from sage.runtime.faults import Damaged
from sage.study import ResolvedStudy
from sage.study.exhibit import ExhibitOfRows, Surroundings

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
    "guide_dose": "Dose of the guide in the reward (SDs of advantages)",
    "loss_dose": "Dose of the guide in the loss (SDs of advantages)",
    "kl_dose": "Dose of the KL term (SDs of advantages)",
    "sampler_gap_mean": "Gap of sampler to trainer (nats)",
    "sampler_gap_max": "Largest gap of a token (nats)",
    "sampler_clipped_share": "Share of gaps above the cap",
}

_GAPS = [key for key in _TRAINING if key.startswith("sampler_")]

MANY = 4
"""Above this number of methods only the first has a band: others would cover the lines."""

POINTS = 60
"""The most points of a line: more cannot be seen in a panel, and make the page large."""

STAGE_COLUMNS = ["algorithm", "stage", "value", "low", "high", "coverage", "n_seeds", "steps"]

CURVE_COLUMNS = ["algorithm", "seed", "signal", "place", "value", "q"]
"""A point a row: `place` counts along the grid; `value` in nats, or a share for the position."""

GRID = 41
"""Points of a learned guide's curve."""

_ROUNDING = 1e-4
"""Below this the sampler's and the trainer's log-probabilities differ by rounding alone."""

_PANELS = {
    "entropy": "entropy of the state (nats)",
    "surprisal": "surprisal of the token (nats)",
    "position": "position in the completion",
}


class OfTraining(ExhibitOfRows, Kind):
    """An exhibit of trained policies alone; the base has no training."""

    of_training: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("policies",)


class GradientTable(OfTraining):
    """Mean gradient norm in each third of training (Table 5).

    Mean gradient norm before clipping in each third of training. With several training seeds, `low`
    and `high` are the smallest and the largest run; `coverage` is the probability that this range
    contains the median run.
    """

    kind: Literal["gradient_norms"]

    def measure(self, job: Measuring) -> None:
        job.write(stages=gradient_norm_table(read_histories(job.files["policies"])))

    def table(self, display: Display) -> TableDocument:
        """A row for each method and third of training."""
        frame = display.ordered(display.frame("stages"))
        covered = {int(n): p for n, p in zip(frame["n_seeds"], frame["coverage"], strict=True)}
        once = covered.pop(1, None) is not None
        each = [f"{p:g} with {n} runs" for n, p in sorted(covered.items())]
        range_ = (
            "Beneath a value is the range of its training runs; it contains the median run with "
            f"probability {listed(each)}. " + "Methods trained once have no range." * once
            if each
            else "Each method was trained once, so the variation between training runs is unknown."
        ).strip()
        caption = (
            f"{display.heading}: norm of the gradient before clipping, mean over each third of "
            f"training. {range_}"
        )
        columns: list[Column] = [("", one.capitalize(), partial(_norm, one)) for one in STAGES]
        return display.document(frame, columns, caption, by="stage")

    def as_in_paper(self, display: Display) -> pd.DataFrame:
        return self.table(display).frame.rename(columns={"stage": "quantity"}).assign(benchmark="")


class TrainingFigure(OfTraining):
    """Reward, KL, entropy, gradient norm and lengths over training.

    Reward, KL, token entropy, gradient norm, completion length and what the guide does, over
    training. Where it is more than rounding, also the gap between the sampler's and the trainer's
    log-probabilities: its mean, its largest, and the share of tokens above the cap of weights.
    Doses are standard deviations, within a group, of β log q and of β log π/π_ref. Lines are means
    over training seeds, bands the range from the lowest to the highest seed (of the first method
    alone, where there are more than four), both running means over a twentieth of the steps.
    """

    kind: Literal["training"]

    def measure(self, job: Measuring) -> None:
        """Write `histories`: the recorded values, a row for each run and step."""
        job.write(histories=history_frame(read_histories(job.files["policies"])))

    def figure(self, display: Display) -> Figure:
        """A panel for each recorded quantity; without any history the figure says so."""
        from matplotlib.ticker import MaxNLocator

        from sage.rendering.style import add_legend, draw_lines, grid_of_panels, say

        frame = display.frame("histories")
        frame = frame[frame["algorithm"].isin(display.rows)]
        recorded = [key for key in _TRAINING if key in frame and frame[key].notna().any()]
        gap = frame["sampler_gap_mean"].max() if "sampler_gap_mean" in recorded else 0.0
        recorded = [k for k in recorded if k not in _GAPS or min(gap, frame[k].max()) >= _ROUNDING]
        names, styles = display.rows_in(frame), line_styles(display.study)
        figure, panels = grid_of_panels(max(1, len(recorded)))
        if not recorded:
            panels[0].set(title="Training")
            say(panels[0], "no training history")
            return figure
        for axes, key in zip(panels, recorded, strict=True):
            drawn = _smoothed(frame.dropna(subset=[key]), key)
            bands = names if len(names) <= MANY else names[:1]
            draw_lines(axes, drawn, "step", "mean", names, styles, bands)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set(title=_TRAINING[key], xlabel="optimizer step", ylabel="")
            of_bands = drawn.loc[drawn["algorithm"].isin(bands), ["low", "high"]]
            _widen_if_flat(axes, np.append(drawn["mean"], of_bands))
        add_legend(figure, names, display.study)
        return figure


class LearnedGuideFigure(OfTraining):
    """q of the learned guide at the end of training, against each signal that it sees.

    Factor q of the learned guide at the end of training, within its clamp, against entropy,
    surprisal and position. The two other signals are at their mean over the tokens of training.
    Thin lines are training seeds, thick lines their mean. At the start q is 1.
    """

    kind: Literal["learned_guide"]
    algorithms: Annotated[list[Name], Field(min_length=1)]
    """methods whose guide is `learned`, in order"""

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
        job.write(curves=learned_curves(job.files["policies"], job.settings["clamps"]))

    def figure(self, display: Display) -> Figure:
        from sage.rendering.style import add_legend, draw_lines, grid_of_panels, of_method, say

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
                with of_method(axes, str(name)):
                    colour = styles[str(name)].hex
                    axes.plot(run["value"], run["q"], color=colour, lw=0.5, alpha=0.4)
            mean = known.groupby(["algorithm", "place"], sort=False)[["value", "q"]].mean()
            draw_lines(axes, mean.reset_index(), "value", "q", names, styles)
        add_legend(figure, names, display.study)
        return figure


def gradient_norm_table(histories: Histories) -> pd.DataFrame:
    """Table 5: the mean of `grad_norm` for each method and third of training, with STAGE_COLUMNS.

    It is the norm before clipping. `value` averages the runs' means over training seeds.
    The steps of a run depend on each other, so only seeds can give an interval. `low` and `high`
    are the smallest and largest run. This range contains the median run with probability
    `coverage` = 1 - 2^(1 - n_seeds), for any distribution (0.75 with three seeds); a single run
    has NaN and 0. Raises ValueError if a run lacks it or runs differ in length.
    """
    runs: dict[str, list[np.ndarray]] = {}
    for (algorithm, seed), history in sorted(histories.items()):
        norms = by_step(history, "grad_norm", f"{algorithm}, seed {seed}")
        runs.setdefault(algorithm, []).append(norms)
    rows: list[tuple[object, ...]] = []
    for algorithm, of_seeds in runs.items():
        count, lengths = len(of_seeds), sorted({len(norms) for norms in of_seeds})
        if len(lengths) > 1:
            raise ValueError(
                f"{algorithm}: runs of different lengths, {lengths} steps; all seeds need the "
                "same `steps`"
            )
        means = np.stack([stage_means(norms) for norms in of_seeds])
        for stage, norms in zip(STAGES, means.T, strict=True):
            ends = (norms.min(), norms.max()) if count > 1 else (np.nan, np.nan)
            size = 1.0 - 2.0 ** (1 - count), count, lengths[0]
            rows.append((algorithm, stage, norms.mean(), *ends, *size))
    return pd.DataFrame(rows, columns=STAGE_COLUMNS)


def learned_curves(policies: Sequence[Path], clamps: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """q of the guide of each policy against each of SIGNALS, with CURVE_COLUMNS.

    `policies` are folders `{algorithm}/seed{seed}`, `clamps` the limits of q by algorithm. Entropy
    and surprisal go from 0 to three standard deviations above their mean over the tokens of
    training, in log(1 + nats), and position from 0 to 1; the other signals are at their mean.
    Raises FileNotFoundError for a policy without a learned guide, and Damaged.
    """
    parts = [
        guide_curves(policy / LEARNED, clamps[algorithm]).assign(algorithm=algorithm, seed=seed)
        for policy in policies
        for _, algorithm, seed in (run_at(policy),)
    ]
    return pd.concat(parts, ignore_index=True)[CURVE_COLUMNS]


def guide_curves(path: Path, clamp: Sequence[float]) -> pd.DataFrame:
    """The curves of one guide. Raises Damaged for a file that holds no network."""
    text = path.read_text(encoding="utf-8")
    try:
        learned = json.loads(text)
        weights = [np.array(weight, dtype=float) for weight in learned["weights"]]
        means = np.array([float(learned["mean"][signal]) for signal in SIGNALS])
        spreads = np.array([float(learned["deviation"][signal]) for signal in SIGNALS])
        frames = []
        for column, signal in enumerate(SIGNALS):
            share = signal == "position"
            end = 1.0 if share else means[column] + 3 * spreads[column]
            inputs = np.tile(means, (GRID, 1))
            inputs[:, column] = np.linspace(0.0, end, GRID)
            q = np.exp(log_q(weights, inputs)).clip(*clamp)
            values = inputs[:, column] if share else np.expm1(inputs[:, column])
            frame = pd.DataFrame({"place": range(GRID), "value": values, "q": q})
            frames.append(frame.assign(signal=signal))
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(path, f"holds no learned guide ({error})") from error
    return pd.concat(frames, ignore_index=True)


def log_q(weights: Sequence[np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """What `sage.method.learned_guide.Network` computes, without torch: `[N, inputs]` to `[N]`."""
    hidden, shifts, output, shift = weights
    values: np.ndarray = np.tanh(inputs @ hidden.T + shifts) @ output + shift
    return values


def _norm(stage: str, row: Record) -> Cell:
    """A norm with the range of runs, if it has one."""
    own = row.get(stage, {})
    value, low, high = (own.get(end, math.nan) for end in ("value", "low", "high"))
    if math.isnan(value):
        return Cell(NONE, mark="nil")
    return Cell(f"{value:.3f}", "" if math.isnan(low + high) else f"{low:.3f}–{high:.3f}")


def _smoothed(known: pd.DataFrame, key: str) -> pd.DataFrame:
    """Columns algorithm, step, mean, low and high of `key` over seeds, as centred running means."""
    by_step = known.groupby(["algorithm", "step"], sort=False)[key]
    frame = by_step.agg(mean="mean", low="min", high="max").reset_index()
    frame = frame.sort_values("step", kind="stable")  # the first run may not have logged all
    window = max(1, round(frame["step"].nunique() / 20))
    columns = ["mean", "low", "high"]
    frame[columns] = frame.groupby("algorithm", sort=False)[columns].transform(
        lambda values: values.rolling(window, center=True, min_periods=1).mean()
    )
    steps = sorted(set(frame["step"]))
    every = max(1, len(steps) // POINTS)
    return frame[frame["step"].isin([*steps[::every], steps[-1]])]


def _widen_if_flat(axes: Axes, values: np.ndarray) -> None:
    """Show at least two percent around nearly constant values, so that rounding stays small."""
    middle, span = float(values.mean()), float(values.max() - values.min())
    if 0 < span < 0.02 * abs(middle):
        axes.set_ylim(middle - 0.02 * abs(middle), middle + 0.02 * abs(middle))
