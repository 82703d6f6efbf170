"""Whether effects change with the size of the model (docs/sizes-study.md).

    python -m benchmarks.sizes reports/kept/sizes reports/kept/sizes_large
    python -m benchmarks.sizes --forms results/sizes_large

Prints pass@1 and pass@16 with correct working of each method at each size, means over three bases,
and how the guide's effect differs between sizes. Folders of results will do as well as of kept
runs. The first base of the largest size is in both studies; that of the second is taken. With
`--forms`, which reads completions, prints which strategy's form the sums of each policy have, and
writes it to `benchmarks/sizes.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from benchmarks.chance import markdown
from benchmarks.kept_tables import SEEN, K, points_of
from benchmarks.path_tables import mean_over
from benchmarks.use_and_execution import FORMS, forms_of
from sage.evaluation.mixtures import mixture_pass_at_k
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import percent, points
from sage.results import Results, Run
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE

FILE = Path(__file__).with_suffix(".json")

SIZES = {
    "0.17 M": ("sums", "small_second", "small_third"),
    "0.6 M": ("middle_first", "middle_second", "middle_third"),
    "2.3 M": ("large_first", "large_second", "large_third"),
}
"""The bases of each size."""

FIRST = "large_first"
"""The base that both studies have; in the second it is called `sums`."""

GUIDED, PLAIN = "grpo_branch_stronger_k1_reward", "grpo_k1_reward"


def counts_of(folder: Path) -> pd.DataFrame:
    """Counts of a study's results, or of a kept run."""
    kept = folder / "counts.parquet"
    return read_frame(kept if kept.exists() else Results(folder).metrics("counts"))


def joined(sizes: pd.DataFrame, large: pd.DataFrame) -> pd.DataFrame:
    """The counts of both studies, FIRST from the second."""
    large = large.assign(model=large["model"].replace("sums", FIRST))
    return pd.concat([sizes[sizes["model"] != FIRST], large])


def made_again(sizes: pd.DataFrame, large: pd.DataFrame) -> str:
    """How many counts of FIRST came out the same in both studies."""
    keys = ["algorithm", "train_seed", "problem_id"]
    before = sizes[sizes["model"] == FIRST].set_index(keys)["worked"]
    after = large[large["model"] == "sums"].set_index(keys)["worked"]
    same = int((before == after.reindex(before.index)).sum())
    return f"{FIRST}, made twice: {same} of {len(before)} counts are the same\n"


def levels(counts: pd.DataFrame, bases: Sequence[str], row: str) -> dict[str, np.ndarray]:
    """Of a method pass@1 where RL trains by answers and working, and pass@16 by working.

    Each is an array of shares, `[bases]`.
    """
    found: dict[str, list[float]] = {"answers": [], "working": [], "coverage": []}
    for base in bases:
        own = counts[(counts["model"] == base) & (counts["algorithm"] == row)]
        n, seen = int(own["n_samples"].iloc[0]), own[own["stratum"].isin(SEEN)]
        found["answers"].append(float((seen["correct"] / n).mean()))
        found["working"].append(float((seen["worked"] / n).mean()))
        solved = pass_at_k(n, own["worked"].to_numpy(int), np.array([K]))
        found["coverage"].append(float(solved.mean()))
    return {name: np.array(values) for name, values in found.items()}


def mixtures(
    counts: pd.DataFrame,
    bases: Sequence[str],
    found: Mapping[str, dict[str, np.ndarray]],
    method: str = GUIDED,
    plain: str = PLAIN,
) -> np.ndarray:
    """pass@16 `[bases]` of draws from the base and `plain`, mixed to be right as often as `method`
    is where RL trains, a mean over runs; all with correct working."""
    accuracy, most, least = (found[row]["working"] for row in (method, plain, BASE))
    shares = np.clip((most - accuracy) / np.maximum(most - least, 1e-9), 0, 1)
    mixed = []
    for base, share in zip(bases, shares, strict=True):
        own = counts[counts["model"] == base]
        runs = own.pivot(index=["algorithm", "train_seed"], columns="problem_id", values="worked")
        drawn, trained = (runs.loc[row].to_numpy(int) for row in (BASE, plain))
        n = int(counts["n_samples"].iloc[0])
        mixed.append(mixture_pass_at_k(n, drawn[0], trained, float(share), K).mean())
    return np.array(mixed)


def tables(counts: pd.DataFrame) -> list[str]:
    """The levels of each method at each size, the guide's effect beside the smallest size's and
    beside a mixture of the base and of the method without a guide that is as accurate, and what
    became of each base."""
    lines, effects, beside, each_base = [], {}, {}, []
    for size, bases in SIZES.items():
        rows = counts.loc[counts["model"] == bases[0], "algorithm"].unique()
        by_row = {row: levels(counts, bases, row) for row in rows}
        for row, found in by_row.items():
            lines.append([size, f"`{row}`", *(percent(each.mean()) for each in found.values())])
        effects[size] = by_row[GUIDED]["coverage"] - by_row[PLAIN]["coverage"]
        beside[size] = by_row[GUIDED]["coverage"] - mixtures(counts, bases, by_row)
        loss = by_row["grpo"]["coverage"] - by_row[BASE]["coverage"]
        trained = by_row[PLAIN]["working"]
        for n, (right, lost, kept) in enumerate(zip(trained, loss, effects[size], strict=True), 1):
            each_base.append([size, str(n), percent(right), points(lost), points(kept)])
    first = next(iter(effects))
    apart = []
    for size, effect in effects.items():
        welch = ttest_ind(effect, effects[first], equal_var=False).confidence_interval()
        value = effect.mean() - effects[first].mean()
        told = "" if size == first else points_of((value, welch.low, welch.high))
        means = [points_of(mean_over(each[size])) for each in (effects, beside)]
        apart.append([size, means[0], told, means[1]])
    return [
        markdown(
            f"size | method | pass@1 where RL trains | with correct working | pass@{K} with it",
            lines,
        ),
        markdown(
            f"size | guide minus none, pass@{K} | minus that at {first} | minus a mixture", apart
        ),
        markdown(
            f"size | base | pass@1 where RL trains, no guide | GRPO minus base, pass@{K} "
            "| guide minus none",
            each_base,
        ),
    ]


def forms(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Of each base and run what `forms_of` reads."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for file in sorted(results.folder.glob("samples/*/*/seed*/sheets.parquet")):
        model, row, folder = file.parts[-4:-1]
        run = Run(model, row, int(folder.removeprefix("seed")))
        label = f"`{row}`" if row == BASE else f"`{row}`, run {run.seed}"
        found.setdefault(FIRST if model == "sums" else model, {})[label] = forms_of(results, run)
    return dict(sorted(found.items()))


def forms_table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A line for each base and run."""
    lines = [
        [model, label, *(percent(written[name]) for name in FORMS)]
        for model, rows in found.items()
        for label, written in rows.items()
    ]
    return markdown(" | ".join(["base", "policy", *FORMS.values()]), lines)


if __name__ == "__main__":
    if sys.argv[1] == "--forms":
        kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        results = Results(Path(sys.argv[2]))
        read = forms(results)
        write_json_atomic(FILE, kept | {results.folder.name: read})
        print(forms_table(read))
    else:
        both = [counts_of(Path(folder)) for folder in sys.argv[1:3]]
        print("\n".join([*tables(joined(*both)), made_again(*both)]))
