"""README's figure: pass@k where RL trains and where it does not, from the kept study `bases`.

    python -m workflow.strata_figure

writes `reports/strata.svg` and prints pass@1 and pass@16 of each line, a mean over ten bases.
`early` is the guide's control: the same method without a guide, stopped where it is as accurate as
the guided policy on the strata that RL trains on, linear between its moments.
"""

from __future__ import annotations

import io

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sage.evaluation.pass_at_k import pass_at_k, powers_of_two
from sage.rendering.lines import PALETTE
from sage.rendering.numbers import percent
from sage.rendering.style import STYLE, in_percent
from sage.runtime.files import write_text_atomic
from sage.study import BASE
from workflow.kept_tables import GUIDED, PLAIN, REPORTS, counts_of, early_line, trained_strata

FILE, RUN = REPORTS / "strata.svg", REPORTS / "bases/bases"
KS = powers_of_two(32)
PANELS = {"trained": "The two strategies that RL trains on", "others": "The four others"}
LINES = {
    BASE: ("before RL", "grey", (0, (2.4, 1.2))),
    GUIDED: ("RL with a far stronger guide", "green", "-"),
    "early": ("RL without it, stopped where as accurate", "blue", (0, (5, 1.6))),
    "grpo": ("RL (GRPO)", "rust", "-"),
}
"""What is shown: its words, colour and dashes."""

Curves = dict[str, np.ndarray]
"""pass@k by right answers of one policy on each panel's strata, `[KS]`."""


def curves() -> dict[str, list[Curves]]:
    """Those of each line from each base."""
    counts = counts_of(RUN)
    found: dict[str, list[Curves]] = {line: [] for line in LINES}
    for _, of_base in counts.groupby("model"):
        policies = {str(name): _of(own) for name, own in of_base.groupby("algorithm")}
        path = [policies[p] for p in policies if p in (BASE, PLAIN) or p.startswith("step-")]
        accuracies = [one["trained"][0] for one in path]
        accuracy = policies[GUIDED]["trained"][0]
        policies["early"] = {
            panel: np.array([early_line(accuracies, each, accuracy) for each in columns])
            for panel in PANELS
            for columns in [np.array([one[panel] for one in path]).T]
        }
        for line in LINES:
            found[line].append(policies[line])
    return found


def _of(own: pd.DataFrame) -> Curves:
    each = pass_at_k(int(own["n_samples"].iloc[0]), own["correct"].to_numpy(int), KS)
    seen = own["stratum"].isin(trained_strata(RUN, "sums")).to_numpy()
    return {"trained": each[seen].mean(axis=0), "others": each[~seen].mean(axis=0)}


def draw(found: dict[str, list[Curves]]) -> Figure:
    """A panel for each group of strata, on paper of its own, which a dark page leaves as it is."""
    figure = Figure(figsize=(8.2, 3.1), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (panel, title) in zip(panels, PANELS.items(), strict=True):
        for line, (words, colour, dashes) in LINES.items():
            mean = np.mean([one[panel] for one in found[line]], axis=0)
            axes.plot(
                KS, mean, linestyle=dashes, linewidth=2, label=words, color=PALETTE[colour][0]
            )
        axes.set(title=title, xscale="log", ylim=(0, 1.03), xlabel="k answers drawn for a problem")
        axes.set_xticks(KS)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}"))
        axes.minorticks_off()
        in_percent(axes.yaxis)
    panels[0].set_ylabel("at least one right (pass@k), %")
    panels[1].legend(loc="upper left")
    return figure


def main() -> None:
    """Draw the figure and print its numbers."""
    found = curves()
    with matplotlib.rc_context(STYLE):
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        draw(found).savefig(file, format="svg", metadata=nothing)
    write_text_atomic(FILE, file.getvalue())
    for line, (words, *_) in LINES.items():
        for panel, title in PANELS.items():
            mean = np.mean([one[panel] for one in found[line]], axis=0)
            ends = (f"pass@{k} {percent(mean[list(KS).index(k)])}" for k in (1, 16))
            print(f"{title}, {words}: {', '.join(ends)}")


if __name__ == "__main__":
    main()
