"""What else gives as much coverage as the guide of a kept study of the pretrained model.

    python -m benchmarks.pretrained_rivals reports/kept/pretrained_short --without 13

Prints pass@1 and pass@32 of each policy with correct working, the base's share of a mixture with
the method without a guide that is as accurate, pass@32 minus that of this mixture, and differences:
over all training seeds, and without those that are named. Writes that to
`benchmarks/{study}_rivals.json`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.chance import markdown
from benchmarks.kept_tables import points_of
from benchmarks.pretrained import K, file_of
from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import WORKING
from sage.evaluation.mixtures import equal_accuracy, mixture_line
from sage.rendering.numbers import percent
from sage.runtime.files import write_json_atomic
from sage.runtime.tables import read_frame
from sage.study import BASE

GUIDED, PLAIN = "grpo_branch_stronger_k1_reward", "grpo_k1_reward"
COLUMNS = ["accuracy", "coverage", "base_share", "mixture", "value", "low", "high"]
DRAWS = 10_000
"""Bootstrap resamples."""


def counts_of(folder: Path, without: Sequence[int]) -> pd.DataFrame:
    """Counts of a kept run and of what its exhibits drew, but for training seeds `without`."""
    files = [folder / "counts.parquet", *sorted(folder.glob("*_counts.parquet"))]
    counts = pd.concat([read_frame(file) for file in files], ignore_index=True)
    return counts[~counts["train_seed"].isin(without)]


def policies(counts: pd.DataFrame) -> list[dict[str, Any]]:
    """COLUMNS of each policy: pass@1, pass@32, that of the mixture, and the difference."""
    rows = [row for row in dict.fromkeys(counts["algorithm"]) if row != BASE]
    table = equal_accuracy(counts, PLAIN, rows, K, DRAWS).set_index("algorithm")
    base = mixture_line(counts, PLAIN, K).iloc[-1].reindex(COLUMNS)
    found = {BASE: base} | {str(row): one[COLUMNS] for row, one in table.iterrows()}
    return [{"policy": row} | _rounded(one.to_dict()) for row, one in found.items()]


def differences(counts: pd.DataFrame) -> list[dict[str, Any]]:
    """The guide minus each other policy, and the others minus the base, in pass@1 and pass@32.

    Each with its 95 % interval over problems and runs, shares.
    """
    table = comparisons_table(counts, DRAWS)
    table = table[(table["metric"] == WORKING) & table["k"].isin([1, K])]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in table.to_dict("records"):
        policy, other, sign = str(one["algorithm"]), str(one["other"]), 1
        if other == GUIDED or policy == BASE:
            policy, other, sign = other, policy, -1
        if policy != GUIDED and other != BASE:
            continue
        entry = found.setdefault((policy, other), {"policy": policy, "other": other})
        ends = sorted((sign * one["low"], sign * one["high"]))
        entry[f"pass_{one['k']}"] = [round(v, 5) for v in (sign * one["value"], *ends)]
    return sorted(found.values(), key=lambda one: one["policy"] != GUIDED)


def _rounded(row: dict[Any, float]) -> dict[str, Any]:
    return {str(name): None if pd.isna(value) else round(value, 5) for name, value in row.items()}


def render(content: dict[str, Any]) -> str:
    """Two tables for each choice of seeds: all policies, then how they differ."""
    texts = []
    for found in content.values():
        lines = [
            [
                f"`{one['policy']}`",
                *(percent(one[name]) for name in ("accuracy", "coverage")),
                *_mixed(one),
            ]
            for one in found["policies"]
        ]
        head = f"policy | pass@1 | pass@{K} | base in a mixture as accurate | minus mixture"
        texts.append(markdown(head, lines))
        lines = [
            [
                f"`{one['policy']}` minus `{one['other']}`",
                *(points_of(one[f"pass_{k}"]) for k in (1, K)),
            ]
            for one in found["differences"]
        ]
        texts.append(markdown(f"difference | pass@1 | pass@{K}", lines))
    return "\n\n".join(texts)


def _mixed(one: dict[str, Any]) -> list[str]:
    """The base's share of the mixture, in percent, and coverage minus the mixture's."""
    if one["value"] is None or one["policy"] == PLAIN:
        return ["–", "–"]
    return [percent(one["base_share"]), points_of([one[name] for name in ("value", "low", "high")])]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a kept run")
    parser.add_argument("--without", type=int, nargs="*", default=[], metavar="SEED")
    given = parser.parse_args(arguments)
    content = {}
    for name, seeds in {"all": [], "without": given.without}.items():
        if name == "all" or seeds:
            counts = counts_of(given.folder, seeds)
            found = {"policies": policies(counts), "differences": differences(counts)}
            content[name] = {"left_out": seeds} | found
    write_json_atomic(file_of(f"{given.folder.name}_rivals"), content)
    print(render(content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
