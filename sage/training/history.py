"""What a run records: `history.jsonl`, a line per optimizer step under this project's names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sage.runtime.files import write_text_atomic

_OF_THE_GUIDE = (
    "q_mean q_min q_max amplified_share clamped_share log_q guide_dose kl_dose loss_dose"
)

HISTORY_KEYS = {
    "rewards/correct/mean": "reward",
    "loss": "loss",
    "rewards/overlong/mean": "overlong",
    "reward_std": "reward_std",
    "step/kl": "kl",
    "step/entropy": "entropy",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "step/clip_ratio/low_mean": "clip_low_share",
    "step/clip_ratio/high_mean": "clip_high_share",
    "completions/mean_length": "mean_length",
    "completions/clipped_ratio": "truncated_share",
    "num_tokens": "tokens",
    "drawn_tokens": "drawn_tokens",
    "step_time": "seconds",
    "frac_reward_zero_std": "groups_without_gradient",
    "refills": "refills",
    "extra_rollouts": "extra_rollouts",
    "guided_correct": "guided_correct",
    "zero_advantages": "zero_advantages",
    "grader_timeouts": "grader_timeouts",
    **{f"sampler/{name}": f"sampler_{name}" for name in ("gap_mean", "gap_max", "clipped_share")},
    **{f"sage/{name}": name for name in _OF_THE_GUIDE.split()},
}
"""TRL's names and this project's for what a row holds; what a run does not log is left out.

`log_q` is in nats. `guide_dose` and `kl_dose` are in standard deviations of the advantages within a
group: how much beta * log q and beta * log(pi / pi_ref) of its completions differ; `loss_dose` is
the dose of a guide in the loss, in the same units (`sage.training.anchoring.DoseTally`).
"""

OF_ROLLOUTS = {
    *("reward", "overlong", "reward_std", "mean_length", "truncated_share", "tokens", "refills"),
    *("drawn_tokens", "groups_without_gradient", "extra_rollouts", "guided_correct"),
    *("zero_advantages", "grader_timeouts"),
}
"""What is of a generation of rollouts: TRL logs it once, in the first step that learns from it."""


def history_rows(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per optimizer step from TRL's log.

    A generation can serve several steps; what is of its rollouts stands in the row of each. Means
    of a user's own rewards come under their names.
    """
    rows: list[dict[str, Any]] = []
    of_rollouts: dict[str, Any] = {}
    for entry in log:
        if "learning_rate" not in entry:  # of an evaluation, or the summary at the end
            continue
        named = {ours: entry[trl] for trl, ours in HISTORY_KEYS.items() if trl in entry}
        own = {
            reward[1]: value
            for trl, value in entry.items()
            if trl not in HISTORY_KEYS and (reward := re.fullmatch(r"rewards/(\w+)/mean", trl))
        }
        if "reward" in named:
            of_rollouts = {key: named[key] for key in named if key in OF_ROLLOUTS} | own
        rows.append({"step": entry["step"]} | named | of_rollouts)
    return rows


def write_history(log: Sequence[dict[str, Any]], path: Path) -> None:
    """Write `history_rows` of TRL's log as JSON Lines."""
    write_text_atomic(path, "".join(json.dumps(row) + "\n" for row in history_rows(log)))
