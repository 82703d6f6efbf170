"""The manipulation check of a claim about a guide: how strongly the guide acted in training.

A guide whose factors stay at 1 cannot change anything, and no verdict on it says something about
guides. Eq. 3 adds beta * log q(x, y) to the reward of a completion; what acts is how much that
differs within a group, next to the advantages there: the guide's dose
(`sage.training.anchoring.DoseTally`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sage.analysis.dose import LEAST_DOSE
from sage.analysis.dynamics import STAGES, History, stage_means
from sage.rendering.labels import row_title
from sage.study import ResolvedStudy

Histories = Mapping[tuple[str, str, int], History]
"""By model, method and training seed."""


def strength_text(
    study: ResolvedStudy, model: str, rows: Iterable[str], histories: Histories
) -> str:
    """A sentence for each of `rows` with a guide: means over its runs, first and last third.

    Empty if no row has a guide, or none was trained for at least three steps.
    """
    sentences = []
    for row in dict.fromkeys(rows):
        if row not in study.algorithms or not study.algorithms[row].guide:
            continue
        runs = [history for (*run, _), history in histories.items() if run == [model, row]]
        shares, logs = (_first_and_last_third(runs, key) for key in ("amplified_share", "log_q"))
        if shares is None or logs is None:
            continue
        beta = _kl_coefficient(study, model, row)
        dose = dose_of(model, row, histories)
        count = f"{len(runs)} run" + ("" if len(runs) == 1 else "s")
        sentences.append(
            f"{row_title(study, row)} ({count}; first and last third of training): q > 1 on "
            f"{100 * shares[0]:.1f} and {100 * shares[1]:.1f} % of tokens; mean log q of a "
            f"completion {_signed(logs[0])} and {_signed(logs[1])} nats, times β "
            f"{_signed(beta * logs[0])} and {_signed(beta * logs[1])}; dose "
            f"{'not recorded' if dose is None else f'{dose:.2g}'}."
        )
    if not sentences:
        return ""
    sentences.append(
        "The dose is the standard deviation of β log q among completions of a prompt, in units of "
        f"that of their advantages; below {LEAST_DOSE:g} a guide is not tested."
    )
    return " ".join(sentences)


def too_weak(study: ResolvedStudy, model: str, row: str, other: str, histories: Histories) -> str:
    """Why two methods do not test the guides in which they differ; empty if they do.

    Both have a KL term: without one, more than the guide is compared. A dose that no run has
    recorded says nothing.
    """
    pair = [name for name in (row, other) if name in study.algorithms]
    guides = [study.algorithms[name].guide for name in pair]
    if len(pair) < 2 or guides[0] == guides[1]:
        return ""
    if not all(_kl_coefficient(study, model, name) for name in pair):
        return ""
    guided = [name for name, guide in zip(pair, guides, strict=True) if guide]
    doses = {name: dose for name in guided if (dose := dose_of(model, name, histories)) is not None}
    if not doses or max(doses.values()) >= LEAST_DOSE:
        return ""
    strongest = max(doses, key=lambda name: doses[name])
    dose = doses[strongest]
    short = f", {LEAST_DOSE / dose:.2g} times too small" if dose else ""
    return (
        f"the dose of {row_title(study, strongest)} is {dose:.2g} standard deviations of the "
        f"advantages, below {LEAST_DOSE:g}{short}"
    )


def dose_of(model: str, row: str, histories: Histories) -> float | None:
    """The dose of a method's guide, the mean over steps and runs; None if no run recorded one."""
    doses = [
        float(np.mean([step["guide_dose"] for step in history if "guide_dose" in step]))
        for (*run, _), history in histories.items()
        if run == [model, row] and any("guide_dose" in step for step in history)
    ]
    return float(np.mean(doses)) if doses else None


def _kl_coefficient(study: ResolvedStudy, model: str, row: str) -> float:
    own = study.algorithms[row].kl_coefficient
    return study.rl(model).kl_coefficient if own is None else own


def _first_and_last_third(runs: Sequence[History], key: str) -> tuple[float, float] | None:
    """Means over runs; None if a run lacks the key or has fewer than three steps."""
    columns = [np.array([row[key] for row in history if key in row]) for history in runs]
    if not columns or min(map(len, columns)) < len(STAGES):
        return None
    means = np.mean([stage_means(column) for column in columns], axis=0)
    return float(means[0]), float(means[-1])


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "\u2212")
