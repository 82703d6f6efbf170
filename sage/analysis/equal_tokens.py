"""Policies of a study at an equal number of drawn training tokens, sampled on one benchmark.

Methods draw unequally many tokens in equally many optimizer steps: completions differ in length,
and dynamic sampling draws groups that it drops. The budget is the largest number of completion
tokens that every run has drawn. Each run is looked at in the snapshot nearest to it, the end of
training included, so no run is favoured; how far it is from the budget is part of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sage.analysis.dynamics import Histories, read_histories
from sage.evaluation.metrics import write_metrics
from sage.evaluation.snapshots import SnapshotSampler, snapshots_of
from sage.results import run_at
from sage.runtime.tables import read_frame

COLUMNS = ["algorithm", "train_seed", "steps", "tokens", "budget", "step", "step_tokens"]

DRAWN = "drawn_tokens"


def moments(histories: Histories, kept: Mapping[tuple[str, int], Sequence[int]]) -> pd.DataFrame:
    """Which of its `kept` steps represents each run at the budget, with COLUMNS.

    `tokens` are those drawn in all `steps`, `step_tokens` those up to `step`. Of two steps equally
    near, the earlier is taken. The last step must be among those kept. Raises ValueError for a
    history without the number of drawn tokens, and if there is none.
    """
    if not histories:
        raise ValueError("no trained run to compare; name methods besides base")
    drawn = {run: _drawn(run, history) for run, history in histories.items()}
    budget = min(tokens[max(tokens)] for tokens in drawn.values())
    rows = []
    for (algorithm, seed), tokens in drawn.items():
        step = min(sorted(kept[algorithm, seed]), key=lambda at: abs(tokens[at] - budget))
        last = max(tokens)
        rows.append((algorithm, seed, last, tokens[last], budget, step, tokens[step]))
    return pd.DataFrame(rows, columns=COLUMNS)


def write_equal_tokens(
    sampler: SnapshotSampler,
    samples: Sequence[Path],
    policies: Sequence[Path],
    count: int,
    bootstrap: int,
    folder: Path,
) -> int:
    """Sample every run at the budget and write the frames into `folder`; the tokens drawn for it.

    `samples` are the files of the final policies, .../{algorithm}/seed{seed}/{benchmark}.parquet,
    `policies` their folders, with `count` snapshots. Runs whose snapshot is the last one are not
    sampled again. Frames: `moments`, and at the budget `tokens/pass_at_k` and `tokens/comparisons`,
    with intervals from `bootstrap` resamples.
    """
    histories = read_histories(policies)
    kept = {run_at(policy)[1:]: dict(snapshots_of(policy, count)) for policy in policies}
    chosen = moments(histories, {run: list(steps) for run, steps in kept.items()})
    at_budget, drawn = {run_at(path.parent)[1:]: path for path in samples}, 0
    for row in chosen.to_dict("records"):
        run = row["algorithm"], row["train_seed"]
        if row["step"] != row["steps"]:
            at_budget[run] = sampler.samples(kept[run][row["step"]], *run, row["step"])
            drawn += int(read_frame(at_budget[run], ["n_tokens"])["n_tokens"].sum())
    tables = ("pass_at_k", "comparisons")
    write_metrics([*at_budget.values()], bootstrap, folder / "tokens", tables)
    chosen.to_parquet(folder / "moments.parquet", index=False)
    return drawn


def _drawn(run: tuple[str, int], history: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Tokens drawn up to each step; 0 before the first."""
    if not history or any(DRAWN not in row for row in history):
        raise ValueError(
            f"{run[0]}, seed {run[1]}: the history lacks {DRAWN}; it was written by an earlier "
            "version, so train the run again"
        )
    return {int(row["step"]): float(row[DRAWN]) for row in history}
