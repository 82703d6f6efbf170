"""A forward KL and PKPO beside GRPO in larger models (docs/sizes-study.md).

    python -m benchmarks.sizes_rivals reports/kept/sizes_rivals
    python -m benchmarks.sizes_rivals --rewards results/sizes_rivals

Prints the levels of each method at two sizes, means over three bases and two runs; the rivals'
differences from GRPO and from a mixture of the base and of GRPO that is as accurate where RL
trains, with intervals over bases, of all runs and without those of APART; what each base became;
and single runs whose right answers often have wrong working. All count correct working. A folder of
results will do as well as a kept run. With `--rewards`, which reads the histories of training,
prints how rewards rose and writes it to `benchmarks/sizes_rivals.json`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import SEEN, K, points_of
from benchmarks.path_tables import mean_over
from benchmarks.sizes import counts_of, levels, mixtures
from sage.evaluation.histories import history_frame, read_histories
from sage.rendering.numbers import percent, points
from sage.runtime.files import write_json_atomic
from sage.study import BASE

FILE = Path(__file__).with_suffix(".json")

SIZES = {
    "0.6 M": ("middle_first", "middle_second", "middle_third"),
    "2.3 M": ("sums", "large_second", "large_third"),
}
"""The bases of each size."""

PLAIN, RIVALS = "grpo", ("grpo_forward_kl_exact", "pkpo_kl")

APART = ("middle_first", 1)
"""The base and training seed of the two runs with the most wrong working, seen afterwards."""

WRONG = 0.1
"""Runs are listed in which more than this share of completions is right with wrong working."""

STEPS = 20
"""Rewards are means over so many steps."""

Levels = dict[str, dict[str, np.ndarray]]


def levels_of(counts: pd.DataFrame) -> dict[str, Levels]:
    """By size and method what `levels` reads."""
    rows = (BASE, PLAIN, *RIVALS)
    return {
        size: {row: levels(counts, bases, row) for row in rows} for size, bases in SIZES.items()
    }


def differences(counts: pd.DataFrame, runs: str) -> list[list[str]]:
    """The rivals' lines at each size and over both; `runs` says which runs there are."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for size, by_row in levels_of(counts).items():
        plain = by_row[PLAIN]
        for row in RIVALS:
            own = by_row[row]
            mixed = mixtures(counts, SIZES[size], by_row, row, PLAIN)
            parts = (
                own["working"] - plain["working"],
                own["coverage"] - plain["coverage"],
                own["coverage"] - mixed,
            )
            for where in (size, "both"):
                lists = found.setdefault((row, where), [[], [], []])
                for values, part in zip(lists, parts, strict=True):
                    values.extend(part)
    return [
        [f"`{row}`", runs, where, *(points_of(mean_over(np.array(each))) for each in parts)]
        for (row, where), parts in sorted(found.items())
    ]


def of_bases(counts: pd.DataFrame) -> list[list[str]]:
    """A line for each base: GRPO's accuracy and loss, and the rivals minus GRPO in both."""
    lines = []
    for size, by_row in levels_of(counts).items():
        plain = by_row[PLAIN]
        apart = [plain["coverage"] - by_row[BASE]["coverage"]]
        for row in RIVALS:
            apart += [by_row[row][what] - plain[what] for what in ("working", "coverage")]
        for n, each in enumerate(zip(*apart, strict=True)):
            lines.append([size, str(n + 1), percent(plain["working"][n]), *map(points, each)])
    return lines


def with_wrong_working(counts: pd.DataFrame) -> list[list[str]]:
    """Trained runs that are right with wrong working more often than WRONG, where RL trains."""
    seen = counts[counts["stratum"].isin(SEEN) & (counts["algorithm"] != BASE)]
    sums = seen.groupby(["model", "algorithm", "train_seed"])[["correct", "worked", "n_samples"]]
    shares = sums.sum().pipe(lambda each: each.div(each["n_samples"], axis=0))
    wrong = shares[shares["correct"] - shares["worked"] > WRONG]
    return [
        [model, f"`{row}`, run {run}", percent(one["correct"]), percent(one["worked"])]
        for (model, row, run), one in wrong.iterrows()
    ]


def tables(counts: pd.DataFrame) -> list[str]:
    """Levels, differences, single bases and runs with wrong working, as Markdown."""
    model, seed = APART
    fewer = counts[(counts["model"] != model) | (counts["train_seed"] != seed)]
    lines = [
        [size, f"`{row}`", *(percent(each.mean()) for each in level.values())]
        for size, by_row in levels_of(counts).items()
        for row, level in by_row.items()
    ]
    rivals = [
        f"`{row}` minus GRPO, {what}" for row in RIVALS for what in ("pass@1 there", f"pass@{K}")
    ]
    return [
        markdown(
            f"size | method | pass@1 where RL trains | with correct working | pass@{K} with it",
            lines,
        ),
        markdown(
            "method minus GRPO | runs | size | pass@1 where RL trains, correct working | "
            f"pass@{K} with it | pass@{K} minus a mixture",
            differences(counts, "all") + differences(fewer, f"without run {seed} of {model}"),
        ),
        markdown(
            "size | base | GRPO, pass@1 where RL trains, correct working | GRPO minus base, "
            f"pass@{K} | " + " | ".join(rivals),
            of_bases(counts),
        ),
        markdown(
            "base | policy | pass@1 where RL trains | with correct working",
            with_wrong_working(counts),
        ),
    ]


def rewards(results: Path) -> dict[str, dict[str, list[float]]]:
    """By base and method the mean rewards over each STEPS steps, means over runs."""
    found: dict[str, dict[str, list[float]]] = {}
    for model in (base for bases in SIZES.values() for base in bases):
        folders = sorted((results / "models" / model).glob("*/seed*"))
        frame = history_frame(read_histories(folders))
        part = (frame["step"] - 1) // STEPS
        means = frame.groupby(["algorithm", part])["reward"].mean().round(3).unstack()
        found[model] = {str(row): list(map(float, values)) for row, values in means.T.items()}
    return found


def rewards_table(found: dict[str, dict[str, list[float]]]) -> str:
    """A line for each base and method."""
    count = len(found[SIZES["0.6 M"][0]][PLAIN])
    ends = [f"steps {STEPS * n + 1} to {STEPS * (n + 1)}" for n in range(count)]
    lines = [
        [model, f"`{row}`", *(f"{value:.2f}" for value in values)]
        for model, rows in found.items()
        for row, values in rows.items()
    ]
    return markdown(" | ".join(["base", "method", *ends]), lines)


if __name__ == "__main__":
    if sys.argv[1] == "--rewards":
        read = rewards(Path(sys.argv[2]))
        write_json_atomic(FILE, read)
        print(rewards_table(read))
    else:
        print("\n".join(tables(counts_of(Path(sys.argv[1])))))
