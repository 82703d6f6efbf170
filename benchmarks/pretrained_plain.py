"""How `pretrained_plain` and `pretrained_methods` are judged: docs/pretrained-study.md.

    python -m benchmarks.pretrained_plain reports/kept/pretrained_plain

Prints what each policy can do on the stratum that RL trains on and elsewhere, with correct working;
pass@32 minus that of what costs nothing and is as accurate there (a mixture of the base and the
method without a guide, or that method stopped early); and how methods differ. Writes that to
`benchmarks/pretrained_plain_judged.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import points_of
from benchmarks.path_tables import beside_stops, over_problems
from benchmarks.pretrained import K, file_of
from benchmarks.pretrained_rivals import GUIDED, PLAIN, counts_of
from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import WORKING, Curves, curves_of, right_counts
from sage.evaluation.mixtures import beside_mixture
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import percent
from sage.runtime.files import write_json_atomic
from sage.study import BASE

TRAINED = "plain"
"""The stratum that RL trains on."""
LARGER = "grpo_k1_reward_larger_beta"
COLUMNS = ("own", "elsewhere", "coverage", "coverage_elsewhere")
DRAWS = 10_000
"""Bootstrap resamples."""

Difference = tuple[float, float, float]
"""A difference and the ends of its 95 % interval, shares."""


def judged(counts: pd.DataFrame) -> dict[str, Any]:
    """What each policy of `counts` can do, and the differences, as JSON."""
    curves = {row: each for (_, row, _), each in curves_of(counts).items()}
    right, worked = right_counts(curves)
    if not worked:
        raise ValueError("the working of some policy was not checked")
    strata = counts.drop_duplicates("problem_id").set_index("problem_id")["stratum"]
    own = strata.loc[list(curves[BASE].problems)].eq(TRAINED).to_numpy()
    path = {row for row in right if row in (BASE, PLAIN) or row.startswith("step-")}
    policies = []
    for row in right:
        n = curves[row].n
        rates = right[row] / n
        each = {"policy": row, "own": rates[:, own].mean(), "elsewhere": rates[:, ~own].mean()}
        covered = pass_at_k(n, right[row].ravel(), np.array([K])).reshape(right[row].shape)
        each |= {"coverage": covered.mean(), "coverage_elsewhere": covered[:, ~own].mean()}
        if row not in (BASE, PLAIN):
            each["mixture"] = _beside_mixture(row, curves, right, own)
        if row not in path and len(path) > 2:
            each["early"], each["seeds"] = _beside_stops(row, curves, right, own, sorted(path))
        policies.append(each)
    pairs = [(PLAIN, BASE), (GUIDED, BASE), (GUIDED, PLAIN), (LARGER, PLAIN), (GUIDED, LARGER)]
    pairs += [("grpo", BASE), ("grpo_no_kl", "grpo"), ("grpo_branch", "grpo")]
    pairs += [("grpo_branch_k1_reward", PLAIN)]
    whole, part = (_differences(each) for each in (counts, counts[counts["stratum"] == TRAINED]))
    differences = [
        {"policy": row, "other": other, "own": part[row, other, 1]}
        | {f"pass_{k}": whole[row, other, k] for k in (1, K)}
        for row, other in pairs
        if {row, other} <= set(right)
    ]
    return _rounded({"policies": policies, "differences": differences})


def _beside_mixture(
    row: str, curves: Mapping[str, Curves], right: Mapping[str, np.ndarray], own: np.ndarray
) -> Difference | None:
    """Coverage minus the mixture's; None where no mixture is as accurate."""
    seeds = [seed for seed in curves[row].seeds if seed in curves[PLAIN].seeds]
    both = (right[name][[curves[name].seeds.index(s) for s in seeds]] for name in (row, PLAIN))
    n, groups = curves[row].n, curves[row].groups
    found = beside_mixture(*both, right[BASE][0], n, K, DRAWS, groups, weights=own / own.mean())
    values = found["value"], found["low"], found["high"]
    return None if np.isnan(values[0]) else values


def _beside_stops(
    row: str,
    curves: Mapping[str, Curves],
    right: Mapping[str, np.ndarray],
    own: np.ndarray,
    path: Sequence[str],
) -> tuple[Difference | None, int]:
    """Coverage minus that of PLAIN stopped where it is as accurate, over training seeds.

    Also the number of seeds that have all moments, some of them as accurate and some less: others
    are left out. None with fewer than two. Runs and problems are both random.
    """
    apart = []
    for seed in curves[row].seeds:
        if not all(name == BASE or seed in curves[name].seeds for name in path):
            continue
        places = {name: 0 if name == BASE else curves[name].seeds.index(seed) for name in path}
        line = np.array([right[name][at] for name, at in places.items()])
        run = right[row][curves[row].seeds.index(seed)]
        _, _, beyond = beside_stops(run, line, curves[row].n, K, own)
        means = line[:, own].mean(axis=1)
        if means.min() <= run[own].mean() <= means.max():
            apart.append(beyond)
    groups = curves[row].groups
    strata = groups.labels if groups else [""] * len(own)
    return (over_problems(apart, strata) if len(apart) > 1 else None), len(apart)


def _differences(counts: pd.DataFrame) -> dict[tuple[str, str, int], Difference]:
    """By policy, other and k, in both directions; correct working."""
    table = comparisons_table(counts, DRAWS)
    table = table[(table["metric"] == WORKING) & table["k"].isin([1, K])]
    found = {}
    for one in table.to_dict("records"):
        value, low, high = (float(one[name]) for name in ("value", "low", "high"))
        first, second, k = str(one["algorithm"]), str(one["other"]), int(one["k"])
        found[first, second, k] = value, low, high
        found[second, first, k] = -value, -high, -low
    return found


def _rounded(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _rounded(each) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(each) for each in content]
    return round(float(content), 5) if isinstance(content, float | np.floating) else content


def render(content: dict[str, Any]) -> str:
    """Two tables: policies, then how they differ."""
    lines = [
        [
            f"`{one['policy']}`",
            *(percent(one[name]) for name in COLUMNS),
            *(points_of(one.get(name)) for name in ("mixture", "early")),
        ]
        for one in content["policies"]
    ]
    head = (
        f"policy | pass@1 on `{TRAINED}` | pass@1 elsewhere | pass@{K} | pass@{K} elsewhere "
        f"| pass@{K} minus a mixture as accurate | minus an early stop as accurate"
    )
    apart = [
        [
            f"`{one['policy']}` minus `{one['other']}`",
            *(points_of(one[name]) for name in ("own", "pass_1", f"pass_{K}")),
        ]
        for one in content["differences"]
    ]
    columns = f"difference | pass@1 on `{TRAINED}` | pass@1 | pass@{K}"
    return "\n\n".join((markdown(head, lines), markdown(columns, apart)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a kept run")
    given = parser.parse_args(arguments)
    content = judged(counts_of(given.folder, []))
    write_json_atomic(file_of(f"{given.folder.name}_judged"), content)
    print(render(content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
