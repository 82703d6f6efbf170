"""Where Eq. 4 leads, from the base's samples: its optimum by self-normalised importance weights.

The optimum on a prompt is pi* ∝ q pi_ref exp(r / beta) (Eq. 4; Eq. 2 with q = 1). Completions of
the base are drawn from pi_ref, so a completion's weight is q exp(r / beta) over the sum of its
prompt's. Two things follow without training: how likely the optimum is right, and which right
completions it prefers. Where the base never was right the weights know nothing. How far training
has come is the KL divergence from the base that its completions show, beside the optimum's.
Torch is imported where a model reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from sage.evaluation.curves import run_of, samples_each
from sage.exhibits.kind import Display, Kind, Measuring
from sage.fields import Name, Positive
from sage.problems.record import read_problems
from sage.rendering.numbers import number_text, percent
from sage.rendering.table import Column, TableDocument
from sage.results import run_at
from sage.runtime.tables import read_frame
from sage.study import BASE, ResolvedStudy, StudyError
from sage.study.algorithms import Algorithm
from sage.study.exhibit import ExhibitOfRows, Surroundings

if TYPE_CHECKING:
    from sage.evaluation.token_signals import Signal

LEAST_EFFECTIVE = 5.0
"""Effective samples of a problem below which nothing is said of its optimum."""

COLUMNS = ["algorithm", "kl_coefficient", "problems", "solved", "estimable", "accuracy"]
COLUMNS += ["effective", "kl_optimum", "kl_reached", "moved", "log_q_gap"]
"""A row for each method. `solved` and `estimable` are shares of `problems`: with a right sample of
the base, and with LEAST_EFFECTIVE effective samples. Means over the estimable ones: the optimum's
`accuracy`, `effective` samples, its KL divergence from the base (`kl_optimum`, nats), that of the
method's own completions (`kl_reached`), and `moved`: the share of the mass of right completions
that lies elsewhere than without a guide. `log_q_gap`: mean log q of right minus wrong ones."""


class OptimumTable(ExhibitOfRows, Kind):
    """The optimum of each method's KL-regularised objective (Eq. 2, Eq. 4), from base samples.

    Shown are methods with a reverse KL term to the base that reward right answers alone. The
    optimum of Eq. 4 (Eq. 2 without a guide) by importance weights of the base's samples: on which
    problems it can be told, how accurate it is there, its KL divergence from the base beside the
    one that training reached, and which share of the mass of right completions a guide moves.
    """

    benchmark: Name
    """the problem set"""
    responses: Positive = 8
    """of each problem, in which the KL divergence that training reached is measured [responses]"""

    with_model: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("base", "samples", "policies", "problems")
    measured_by: ClassVar[tuple[str, ...]] = ("reports.early_stopping.optimum",)

    def faults(self, around: Surroundings) -> Any:
        yield from around.too_many("responses", self.responses, around.eval_seeds)

    def settings(self, study: ResolvedStudy, name: str) -> dict[str, Any]:
        """The methods whose objective is Eq. 4's, as data, and their KL coefficients.

        They have a reverse KL term to the base, and right answers alone are rewarded. Not those
        whose guide learns: what it has learned is in no file of a study's settings.
        """
        rows = [row for row in self.methods_of(study) if row != BASE]
        kept = {row: m for row in rows if _told(m := study.algorithms[row])}
        if not kept:
            raise StudyError(
                f"exhibits: {name}: no method of the model {self.model} has a reverse KL term to "
                "the base and is rewarded for right answers alone; name others in `algorithms` or "
                "leave the exhibit out"
            )
        return {
            "algorithms": {row: {**m.model_dump(), "title": ""} for row, m in kept.items()},
            "betas": {row: study.kl_coefficient(self.model, row) for row in kept},
        }

    def measure(self, job: Measuring) -> None:
        """Write `optimum`, with COLUMNS; `kl_reached` is that of each method's first run.

        Raises ValueError if problems have different numbers of the base's samples.
        """
        from torch import float32

        from sage.evaluation.token_signals import signals_of
        from sage.policies import load_policy, load_tokenizer

        base, betas, tokens = job.file("base"), job.settings["betas"], 0
        asked, tokenizer = read_problems(job.file("problems")), load_tokenizer(base)

        def read(samples: pd.DataFrame, policy: Path | None = None) -> list[Signal]:
            nonlocal tokens
            tokens += int(samples["token_ids"].map(len).sum())
            model: Any = load_policy(base, policy, float32, job.device)
            return signals_of(model, tokenizer, asked, samples)

        columns = ["problem_id", "status", "token_ids"]
        drawn = {run_of(path)[1:3]: path for path in job.files["samples"]}
        policies = {run_at(path)[1:]: path for path in job.files["policies"]}
        own = read_frame(drawn[BASE, 0], columns).sort_values("problem_id", kind="stable")
        sizes = own.groupby("problem_id").size()
        samples_each(sizes, (self.model, BASE, self.benchmark))
        right = (own["status"] == "correct").to_numpy(float).reshape(len(sizes), -1)
        signals = read(own)
        log_qs = {
            name: log_q_of(Algorithm.model_validate(each), signals).reshape(right.shape)
            for name, each in job.settings["algorithms"].items()
        }
        known = np.logical_and.reduce(  # by all methods, so that they share their problems
            [estimable(optimal_weights(q, right, betas[name]), right) for name, q in log_qs.items()]
        )
        rows = []
        for name, log_q in log_qs.items():
            run, reached = min(run for run in policies if run[0] == name), math.nan
            first = read_frame(drawn[run], columns)
            first = first[first["problem_id"].isin(sizes.index[known])]
            first = first.groupby("problem_id").head(self.responses)
            if len(first):  # log π − log π_base of its own completions
                ours, theirs = (
                    np.array([log_probs.sum() for log_probs, _ in read(first, place)])
                    for place in (policies[run], None)
                )
                reached = float((ours - theirs).mean())
            own_columns = {"algorithm": name, "kl_coefficient": betas[name], "kl_reached": reached}
            rows.append(own_columns | optimum_row(log_q, right, betas[name], known))
        job.write(optimum=pd.DataFrame(rows)[COLUMNS])
        job.write_manifest(tokens)

    def table(self, display: Display) -> TableDocument:
        frame = display.ordered(display.frame("optimum"))
        first = frame.iloc[0]
        columns: list[Column] = [
            ("", "Accuracy", lambda row: percent(row["accuracy"])),
            ("", "KL, optimum", lambda row: number_text(row["kl_optimum"], ".2f")),
            ("", "KL, reached", lambda row: number_text(row["kl_reached"], ".2f")),
            ("", "Moved", lambda row: percent(row["moved"])),
            ("", "log q gap", lambda row: number_text(row["log_q_gap"], ".3f")),
            ("", "Samples", lambda row: number_text(row["effective"], ".1f")),
        ]
        caption = (
            f"{display.heading} on {display.titles[self.benchmark]}: what the objective with the "
            "KL term would lead to, from the base's samples with weights q exp(r/β). The base was "
            f"right at least once on {percent(first['solved'])} % of the problems; on the others "
            "the weights know nothing. Means are over the "
            f"{percent(first['estimable'])} % with enough effective samples. Accuracy: that of "
            "the optimum, in percent. KL: its divergence from the base in nats, beside the one "
            "that the completions of its first training run show. Moved: percentage of the mass of "
            "right completions that a guide moves to other right completions. log q gap: right "
            "minus wrong completions of a problem, over all problems with both. Samples: effective "
            "sample size. A guide is taken with the base's entropies, which training changes, and "
            "at the end of its schedule, where the random guide is 1."
        )
        return display.document(frame, columns, caption)


def _told(method: Algorithm) -> bool:
    """Whether the KL term is a reverse one to the base, right answers alone are rewarded, and no
    guide learns."""
    rewards = [reward.kind for reward in method.rewards]
    learns = method.guide is not None and hasattr(method.guide.made, "observe")
    objective = method.kl == "reverse" and method.fidelity == "paper" and rewards == ["correct"]
    return objective and not learns


def optimal_weights(log_q: np.ndarray, right: np.ndarray, beta: float) -> np.ndarray:
    """Weights `[..., n]` of the base's completions under Eq. 4's optimum; each row sums to 1.

    `log_q` and `right` (0 or 1) are `[..., n]`. Raises ValueError unless beta is positive.
    """
    if not beta > 0:
        raise ValueError(f"beta is {beta} but must be above 0")
    logits = log_q + right / beta
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def effective_size(weights: np.ndarray) -> np.ndarray:
    """Kish's effective sample size, 1 / Σ w², of weights `[..., n]` that sum to 1; `[...]`."""
    return np.asarray(1.0 / np.square(weights).sum(axis=-1))


def divergence(weights: np.ndarray) -> np.ndarray:
    """KL divergence of the weighted completions from the drawn ones in nats, Σ w log(n w); `[...]`.

    It is at most log n, so it is a lower bound where few completions carry the weight.
    """
    scaled = weights * weights.shape[-1]
    return np.asarray((weights * np.log(np.where(scaled > 0, scaled, 1.0))).sum(axis=-1))


def estimable(weights: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Problems with a right sample and LEAST_EFFECTIVE effective ones, bool `[P]`."""
    return np.asarray((right.max(axis=-1) > 0) & (effective_size(weights) >= LEAST_EFFECTIVE))


def optimum_row(
    log_q: np.ndarray, right: np.ndarray, beta: float, known: np.ndarray | None = None
) -> dict[str, float]:
    """COLUMNS from `problems` to `accuracy`, `effective`, `kl_optimum`, `moved` and `log_q_gap`.

    `log_q` and `right` are `[P, n]`. Means are over the problems `known`, bool `[P]`; by default
    those that are estimable. They are NaN if there are none.
    """
    weights, alike = (optimal_weights(q, right, beta) for q in (log_q, np.zeros_like(log_q)))
    size = effective_size(weights)
    solved = right.max(axis=-1) > 0
    known = estimable(weights, right) if known is None else known
    both = solved & (right.min(axis=-1) == 0)
    gap = [q[r].mean() - q[~r].mean() for q, r in zip(log_q[both], right[both] > 0, strict=True)]
    mass, before = ((w * right)[known] for w in (weights, alike))
    shares = [each / each.sum(axis=-1, keepdims=True) for each in (mass, before)]

    def mean(values: np.ndarray | list[float]) -> float:
        return float(np.mean(values)) if len(values) else float("nan")

    return {
        "problems": len(right),
        "solved": mean(solved),
        "estimable": mean(known),
        "accuracy": mean(mass.sum(axis=-1)),
        "effective": mean(size[known]),
        "kl_optimum": mean(divergence(weights)[known]),
        "moved": mean(0.5 * np.abs(shares[0] - shares[1]).sum(axis=-1)),
        "log_q_gap": mean(gap),
    }


def log_q_of(algorithm: Algorithm, read: Sequence[Signal]) -> np.ndarray:
    """log q of each completion `[N]`, the sum over its tokens, at the end of training.

    `read` is from `token_signals`; 0 for a method without a guide.
    """
    guide = algorithm.guide
    if guide is None:
        return np.zeros(len(read))
    from sage.evaluation.token_signals import guide_signals
    from sage.method.guides import Moment, Noise, guide_log_factors

    signals, made = guide_signals(read), guide.fresh()
    factors = guide_log_factors(made, signals, Moment(1, 1, Noise("optimum")), *guide.clamp)
    return np.asarray(factors.sum(1).numpy())
