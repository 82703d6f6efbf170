"""The manipulation check of a claim about a guide: how strongly the guide acted in training.

A guide whose factors stay at 1 cannot change anything, and no verdict on it says something about
guides. What it can change is bounded by beta * log q(x, y), which Eq. 3 adds to the reward of a
completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sage.analysis.dynamics import STAGES, History, stage_means
from sage.rendering.labels import row_title
from sage.study import ResolvedStudy


def strength_text(
    study: ResolvedStudy,
    model: str,
    rows: Iterable[str],
    histories: Mapping[tuple[str, str, int], History],
) -> str:
    """A sentence for each of `rows` with a guide: means over its runs, first and last third.

    Empty if no row has a guide, or none was trained for at least three steps.
    """
    sentences = []
    for row in dict.fromkeys(rows):
        if row not in study.algorithms or not study.algorithms[row].guide:
            continue
        runs = [found for (of, name, _), found in histories.items() if (of, name) == (model, row)]
        shares, logs = (_first_and_last_third(runs, key) for key in ("amplified_share", "log_q"))
        if shares is None or logs is None:
            continue
        beta = study.algorithms[row].kl_coefficient or study.model(model).rl.kl_coefficient
        count = f"{len(runs)} run" + ("" if len(runs) == 1 else "s")
        sentences.append(
            f"{row_title(study, row)} ({count}; first and last third of training): q > 1 on "
            f"{100 * shares[0]:.1f} and {100 * shares[1]:.1f} % of tokens; mean log q of a "
            f"completion {_signed(logs[0])} and {_signed(logs[1])} nats, times β "
            f"{_signed(beta * logs[0])} and {_signed(beta * logs[1])}. Rewards are divided by "
            "their standard deviation within a group, and of log q only what differs between "
            "completions of a prompt acts."
        )
    return " ".join(sentences)


def _first_and_last_third(runs: Sequence[History], key: str) -> tuple[float, float] | None:
    """Means over runs; None if a run lacks the key or has fewer than three steps."""
    columns = [np.array([row[key] for row in history if key in row]) for history in runs]
    if not columns or min(map(len, columns)) < len(STAGES):
        return None
    means = np.mean([stage_means(column) for column in columns], axis=0)
    return float(means[0]), float(means[-1])


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "\u2212")
