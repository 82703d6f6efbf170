"""What the runs kept of the first world say by answers, as tables of docs/findings.md.

    python -m benchmarks.small_studies

Every number is read from the kept files of `reports/kept`: `comparisons.csv`, or for the mini
study, which was kept without it, `claims.csv`. Guesses count there; `benchmarks.chance` says how
much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import yaml

from sage.rendering.numbers import NONE, interval_of_points, points

ROOT = Path(__file__).parents[1]
REFERENCES = ROOT / "reports/kept"

BASES = {
    ("mini", "tiny"): "`mini`",
    ("mini_again", "tiny"): "`mini_again`, other seeds",
    ("bases", "tiny_second"): "`bases`, second base",
    ("bases", "tiny_third"): "`bases`, third base",
    ("reference", "tiny"): "`reference`",
}
"""Folder and model of each comparison from one base, with its name in the table."""

TRADE = [("grpo", "base", 1), ("grpo", "base", None), ("grpo_no_kl", "grpo", None)]
BRANCH = [("grpo_branch", "grpo", None), ("grpo_branch_k1_reward", "grpo_k1_reward", None)]
"""Method, the one it is compared with, and k; None is the study's primary k."""

GUIDES = [
    *((f"grpo_{guide}", "grpo") for guide in ("random", "token", "branch")),
    *((f"grpo_{guide}_k1_reward", "grpo_k1_reward") for guide in ("random", "token", "branch")),
    ("grpo_branch_k3_corrected", "grpo_k3_corrected"),
    ("grpo_k1_reward", "grpo"),
    ("grpo_k3_corrected", "grpo"),
    ("grpo_forward_kl", "grpo"),
    ("grpo_no_kl", "grpo"),
]
"""Methods of `reference`, each with what it differs from in its guide or KL term alone."""

CLAIMS = {
    TRADE[0]: ("gains_of_grpo", 2),
    TRADE[1]: ("gains_of_grpo", 1),
    BRANCH[0]: ("accuracy_and_coverage", 1),
    BRANCH[1]: ("anchor_in_reward", 1),
}
"""The claim, and the number of its test, that has a contrast in `claims.csv`."""


def contrast(folder: str, model: str, method: str, other: str, k: int | None) -> pd.Series | None:
    """The difference on the harder sums with its 95 % interval; None if it was not kept."""
    path = REFERENCES / folder / "comparisons.csv"
    if path.exists():
        table = pd.read_csv(path)
        found = table[
            (table["model"] == model)
            & (table["benchmark"] == "harder")
            & (table["algorithm"] == method)
            & (table["other"] == other)
            & (table["metric"] == "pass@k")
            & (table["k"] == (k or primary_k(folder)))
        ]
        return None if found.empty else found.iloc[0].rename({"value": "effect"})
    if (method, other, k) not in CLAIMS:
        return None
    claim, test = CLAIMS[method, other, k]
    table = pd.read_csv(REFERENCES / folder / "claims.csv")
    return table[(table["claim"] == claim) & (table["test"] == test)].iloc[0]


def primary_k(folder: str) -> int:
    """Half of the samples of a problem."""
    curves = pd.read_csv(REFERENCES / folder / "pass_at_k.csv", usecols=["n_samples"])
    return int(curves["n_samples"].max()) // 2


def cell(found: pd.Series | None) -> str:
    """A difference in percentage points, its interval in brackets."""
    if found is None:
        return NONE
    return f"{points(found['effect'])} ({interval_of_points(found['low'], found['high'])})"


def tables() -> Iterator[str]:
    """The three tables, as Markdown."""
    yield _by_base("GRPO − base, pass@1 | GRPO − base, pass@k | without KL − GRPO, pass@k", TRADE)
    yield _by_base("branch guide, KL in the loss | branch guide, KL in the reward", BRANCH)
    titles = yaml.safe_load((ROOT / "config/algorithms.yaml").read_text(encoding="utf-8"))
    k = primary_k("reference")
    yield markdown(
        f"method | compared with | pass@1 | pass@{k}",
        (
            [titles[method]["title"], titles[other]["title"]]
            + [cell(contrast("reference", "tiny", method, other, at)) for at in (1, None)]
            for method, other in GUIDES
        ),
    )


def _by_base(columns: str, contrasts: list[tuple[str, str, int | None]]) -> str:
    rows = []
    for (folder, model), name in BASES.items():
        found = [contrast(folder, model, *each) for each in contrasts]
        first = next(each for each in found if each is not None)
        runs = int(first.get("n_seeds", first.get("runs")))
        rows.append([name, str(runs), str(primary_k(folder)), *map(cell, found)])
    return markdown(f"study | runs | k | {columns}", rows)


def markdown(head: str, rows: Iterable[list[str]]) -> str:
    """A table of Markdown; `head` has its columns, parted by bars."""
    rule = "|---" * len(head.split("|")) + "|"
    return "\n".join([f"| {head} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    print("\n\n".join(tables()))
