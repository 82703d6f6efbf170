"""Whether RL solves what its base practically cannot (docs/support-study.md).

    python -m benchmarks.out_of_support results/support
    python -m benchmarks.out_of_support results/support_bases

Problems are chosen by many draws of the base; every policy is then held against other draws of it.
A folder of a kept run will do as well. From results, whose samples are there, it also writes
`benchmarks/out_of_support.json`: how often each method uses the strategy that a sheet needs, and
how often that is then right. Of a study of several bases, each with sheets of its own that are
outside, it prints means over bases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import arguments
from benchmarks.chance import difference, markdown
from benchmarks.kept_tables import points_of
from benchmarks.path_tables import mean_over
from benchmarks.use_and_execution import samples_of, sheets_of, uses
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import interval_of_points, percent
from sage.results import Results
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE

MODEL, CHOOSING, COOLER = "sums", "drawn_again", "cooler"
AGAIN, COOLED = "_again", f"_{COOLER}"
"""How a study of several bases ends the names of the draws that choose, and of cooler ones."""

FILE = Path(__file__).with_suffix(".json")
K = 512

MOST = 4
"""Right draws of the choosing 4,096 that a problem outside the support has at most."""


def outside(counts: pd.DataFrame, most: int = MOST) -> list[str]:
    """Problems with at most `most` right draws (correct working) of those that choose, in order."""
    drawn = counts[(counts["model"] == CHOOSING) & (counts["algorithm"] == BASE)]
    return sorted(drawn.loc[drawn["worked"] <= most, "problem_id"])


def coverage(counts: pd.DataFrame, row: str, chosen: Sequence[str], k: int = K) -> np.ndarray:
    """pass@k with correct working of each run of a method on the chosen problems, `[S, P]`."""
    own = counts[(counts["model"] == MODEL) & (counts["algorithm"] == row)]
    runs = [run.set_index("problem_id").loc[list(chosen)] for _, run in own.groupby("train_seed")]
    return np.stack(
        [
            pass_at_k(int(run["n_samples"].iloc[0]), run["worked"].to_numpy(int), np.array([k]))
            for run in runs
        ]
    )[..., 0]


def table(counts: pd.DataFrame, k: int = K) -> str:
    """Each method on the problems outside, and minus the base's second draw, as Markdown."""
    chosen = outside(counts)
    base, twice = (coverage(counts, BASE, chosen, draws) for draws in (k, 2 * k))
    lines = [
        ["base, second draw", "", _rate(counts, BASE, chosen), percent(base.mean()), ""],
        [f"the same, pass@{2 * k}", "", "", percent(twice.mean()), ""],
    ]
    for row in counts.loc[counts["model"] == MODEL, "algorithm"].unique():
        if row != BASE:
            own = coverage(counts, row, chosen, k)
            apart = points_of(difference(own, base))
            rate = _rate(counts, row, chosen)
            lines.append([f"`{row}`", str(len(own)), rate, percent(own.mean()), apart])
    head = f"method | runs | right of 10,000 draws | pass@{k} | minus the base's second draw"
    return markdown(head, lines)


def _rate(counts: pd.DataFrame, row: str, chosen: Sequence[str]) -> str:
    """How many of 10,000 draws of a method are right with correct working."""
    own = counts[(counts["model"] == MODEL) & (counts["algorithm"] == row)]
    own = own[own["problem_id"].isin(chosen)]
    return f"{1e4 * own['worked'].sum() / own['n_samples'].sum():.1f}"


CONTRASTS = (
    ("grpo_branch_stronger_k1_reward", "grpo_k1_reward"),
    ("grpo", COOLER),
    ("grpo", "grpo_random_reward"),
)
"""Of a study of several bases, the differences of two policies that are printed."""


def of_each_base(counts: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The counts of each base as if it were the only one: its models are MODEL and CHOOSING, and
    draws of it that are cooler the method COOLER."""
    found = {}
    for base in counts["model"].unique():
        own = {base: MODEL, base + AGAIN: CHOOSING, base + COOLED: MODEL}
        if base + AGAIN in set(counts["model"]):
            part = counts[counts["model"].isin(own)]
            cooler = part["model"] == base + COOLED
            row = part["algorithm"].where(~cooler, COOLER)
            found[base] = part.assign(model=part["model"].replace(own), algorithm=row)
    return found


def over_bases(
    counts: Mapping[str, pd.DataFrame],
    k: int = K,
    fewest: int = 30,
    pairs: Sequence[tuple[str, str]] = CONTRASTS,
) -> str:
    """Means over bases with at least `fewest` problems outside, as Markdown; intervals are
    Student's t over bases. Each of `pairs` is two policies whose difference is printed."""
    found = {base: outside(own) for base, own in counts.items()}
    chosen = {base: names for base, names in found.items() if len(names) >= fewest}
    outsiders = [
        [f"`{base}`", f"{len(names)}{', left out' * (base not in chosen)}"]
        for base, names in found.items()
    ]
    first = counts[next(iter(chosen))]
    rows = list(first.loc[first["model"] == MODEL, "algorithm"].unique())
    values = {
        row: np.array([coverage(counts[base], row, own, k).mean() for base, own in chosen.items()])
        for row in rows
    }
    lines = []
    for row in rows:
        rate = np.mean([float(_rate(counts[base], row, own)) for base, own in chosen.items()])
        apart = values[row] - values[BASE]
        name = "base, second draw" if row == BASE else f"`{row}`"
        told = ["", ""] if row == BASE else [points_of(mean_over(apart)), _ends(apart)]
        lines.append([name, f"{rate:.1f}", percent(values[row].mean()), *told])
    between = [
        [f"`{one}` minus `{other}`", points_of(mean_over(apart)), _ends(apart)]
        for one, other in pairs
        for apart in [values[one] - values[other]]
    ]
    head = f"method | right of 10,000 draws | pass@{k} | minus the base's second draw"
    return "\n".join(
        [
            markdown("base | problems outside", outsiders),
            markdown(f"{head} | of single bases", lines),
            markdown(f"difference of pass@{k} | mean over bases | of single bases", between),
        ]
    )


def _ends(apart: np.ndarray) -> str:
    """The smallest and the largest of differences, in points."""
    return interval_of_points(apart.min(), apart.max())


def strategies(
    results: Results, chosen: Sequence[str], model: str = MODEL
) -> dict[str, dict[str, float]]:
    """By method: draws on the chosen problems that use their problem's strategy, of 10,000, and the
    share of these that is right with correct working."""
    found = {}
    for row, samples in samples_of(results, model).items():
        drawn = uses(samples[samples["problem_id"].isin(chosen)], sheets_of(results))
        used, right = drawn["used"].sum(), drawn["right"].sum()
        if used:
            found[row] = {
                "used": round(float(1e4 * used / len(drawn)), 1),
                "right": round(float(right / used), 3),
            }
    return found


def strategies_table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """What `strategies` found of each base, as Markdown: uses in 10,000 draws, and right of them in
    percent."""
    lines = [
        [
            f"`{row}`",
            *(f"{own[row]['used']} / {100 * own[row]['right']:.0f}" for own in found.values()),
        ]
        for row in next(iter(found.values()))
    ]
    return markdown(" | ".join(["method", *(f"`{base}`" for base in found)]), lines)


def main(folder: Path) -> None:
    """Print how many problems are outside, and the table; of several bases the means over them."""
    kept = folder / "counts.parquet"
    counts = read_frame(kept if kept.exists() else Results(folder).metrics("counts"))
    bases = of_each_base(counts)
    if bases:
        print(over_bases(bases))
    else:
        drawn = counts[counts["model"] == CHOOSING]
        print(f"{len(outside(counts))} of {drawn['problem_id'].nunique()} problems are outside\n")
        print(table(counts))
    if not kept.exists():
        results = Results(folder)
        used = {
            model: strategies(results, outside(own), model)
            for model, own in (bases or {MODEL: counts}).items()
        }
        for base in bases:
            cooler = strategies(results, outside(bases[base]), base + COOLED)
            used[base] |= {COOLER: cooler[BASE]} if BASE in cooler else {}
        print(strategies_table(used))
        before = json.loads(FILE.read_text(encoding="utf-8"))
        write_json_atomic(FILE, before | {folder.name: used if bases else used[MODEL]})


if __name__ == "__main__":
    main(arguments.folder(__doc__, "the results of a study, or a kept run"))
