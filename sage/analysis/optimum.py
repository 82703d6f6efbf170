"""Where Eq. 4 leads, from the base's samples: its optimum by self-normalised importance weights.

The optimum on a prompt is pi* ∝ q pi_ref exp(r / beta) (Eq. 4; Eq. 2 with q = 1). Completions of
the base are drawn from pi_ref, so a completion's weight is q exp(r / beta) over the sum of its
prompt's. Two things follow without training: how likely the optimum is right, and which right
completions it prefers. Where the base never was right the weights know nothing. How far training
has come is the KL divergence from the base that its completions show, beside the optimum's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedTokenizerBase

from sage.analysis.perplexity import TOKEN_IDS, token_signals
from sage.evaluation.curves import run_of
from sage.method.guides import Moment, Noise, Signals, guide_log_factors
from sage.policies import load_policy, load_tokenizer
from sage.problems.record import Problem, read_problems
from sage.prompting import prompt_ids
from sage.runtime.tables import read_frame
from sage.study.algorithms import Algorithm
from sage.study.choices import REGISTRIES

LEAST_EFFECTIVE = 5.0
"""Effective samples of a problem below which nothing is said of its optimum."""

COLUMNS = [
    "algorithm",
    "kl_coefficient",
    "problems",
    "solved",
    "estimable",
    "accuracy",
    "effective",
]
COLUMNS += ["kl_optimum", "kl_reached", "moved", "log_q_gap"]
"""A row for each method. `solved` and `estimable` are shares of `problems`: with a right sample of
the base, and with LEAST_EFFECTIVE effective samples. Means over the estimable ones: the optimum's
`accuracy`, `effective` samples, its KL divergence from the base (`kl_optimum`, nats), that of the
method's own completions (`kl_reached`), and `moved`: the share of the mass of right completions
that lies elsewhere than without a guide. `log_q_gap`: mean log q of right minus wrong ones."""


def optimal_weights(log_q: np.ndarray, right: np.ndarray, beta: float) -> np.ndarray:
    """Weights `[..., n]` of the base's completions under Eq. 4's optimum; each row sums to 1.

    `log_q` and `right` (0 or 1) are `[..., n]`. Raises ValueError unless beta is positive.
    """
    if not beta > 0:
        raise ValueError(f"beta is {beta} but must be above 0")
    logits = log_q + right / beta
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    normalised: np.ndarray = weights / weights.sum(axis=-1, keepdims=True)
    return normalised


def effective_size(weights: np.ndarray) -> np.ndarray:
    """Kish's effective sample size, 1 / Σ w², of weights `[..., n]` that sum to 1; `[...]`."""
    size: np.ndarray = 1.0 / np.square(weights).sum(axis=-1)
    return size


def divergence(weights: np.ndarray) -> np.ndarray:
    """KL divergence of the weighted completions from the drawn ones in nats, Σ w log(n w); `[...]`.

    It is at most log n, so it is a lower bound where few completions carry the weight.
    """
    scaled = weights * weights.shape[-1]
    nats: np.ndarray = (weights * np.log(np.where(scaled > 0, scaled, 1.0))).sum(axis=-1)
    return nats


def estimable(weights: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Problems with a right sample and LEAST_EFFECTIVE effective ones, bool `[P]`."""
    known: np.ndarray = (right.max(axis=-1) > 0) & (effective_size(weights) >= LEAST_EFFECTIVE)
    return known


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


def log_q_of(algorithm: Algorithm, read: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """log q of each completion `[N]`, the sum over its tokens, at the end of training.

    `read` is from `token_signals`; 0 for a method without a guide.
    """
    guide = algorithm.guide
    if guide is None:
        return np.zeros(len(read))
    made = REGISTRIES["guide"].find(guide.kind)(**guide.settings)
    log_probs, entropies = (
        torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(np.asarray(pair[part], np.float32)) for pair in read],
            batch_first=True,
        )
        for part in (0, 1)
    )
    lengths = torch.tensor([len(pair[0]) for pair in read])
    mask = (torch.arange(log_probs.shape[1])[None] < lengths[:, None]).float()
    signals = Signals(log_probs, entropies, mask, reference_entropies=entropies)
    factors = guide_log_factors(made, signals, Moment(1, 1, Noise("optimum")), *guide.clamp)
    total: np.ndarray = (factors * mask).sum(1).numpy()
    return total


def optimum_table(
    base: Path,
    policies: Sequence[Path],
    samples: Sequence[Path],
    problems: Path,
    algorithms: Mapping[str, Algorithm],
    betas: Mapping[str, float],
    responses: int,
    device: str,
) -> tuple[pd.DataFrame, int]:
    """COLUMNS of `algorithms`, each with its KL coefficient in `betas`, and the tokens read.

    `policies` and `samples` are those of all runs; `responses` of each problem are read for
    `kl_reached`, of the run with the lowest seed. Raises ValueError if problems have different
    numbers of the base's samples.
    """
    asked, tokenizer = read_problems(problems), load_tokenizer(base)
    drawn = {run_of(path)[1:3]: path for path in samples}
    (base_file,) = [path for (algorithm, _), path in drawn.items() if algorithm == "base"]
    reader = _Reader(base, tokenizer, asked, device)
    own, read = reader.read(base_file)
    sizes = own.groupby("problem_id").size()
    if sizes.nunique() != 1:
        raise ValueError(f"{base_file}: problems have {sizes.min()} to {sizes.max()} samples")
    right = (own["status"] == "correct").to_numpy(float).reshape(len(sizes), -1)
    log_qs = {name: log_q_of(each, read).reshape(right.shape) for name, each in algorithms.items()}
    known = np.logical_and.reduce(  # by all methods, so that they are compared on the same problems
        [estimable(optimal_weights(q, right, betas[name]), right) for name, q in log_qs.items()]
    )
    rows = []
    for name, log_q in log_qs.items():
        seed = min(seed for method, seed in drawn if method == name)
        (policy,) = [path for path in policies if path.parts[-2:] == (name, f"seed{seed}")]
        there = list(sizes.index[known])
        reached = reader.divergence(drawn[name, seed], policy, there, responses)
        row = optimum_row(log_q, right, betas[name], known)
        rows.append(row | {"algorithm": name, "kl_coefficient": betas[name], "kl_reached": reached})
    return pd.DataFrame(rows)[COLUMNS], reader.tokens


class _Reader:
    """Reads completions with the base and with policies that were trained from it."""

    def __init__(
        self,
        base: Path,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
        device: str,
    ) -> None:
        self._base, self._device, self.tokens = base, device, 0
        self._prompts = {p.problem_id: prompt_ids(tokenizer, p.problem) for p in problems}

    def read(self, samples: Path) -> tuple[pd.DataFrame, list[tuple[np.ndarray, np.ndarray]]]:
        """The base's samples by problem, and what `token_signals` reads of them."""
        frame = read_frame(samples, columns=["problem_id", "status", TOKEN_IDS])
        frame = frame.sort_values("problem_id", kind="stable", ignore_index=True)
        return frame, self._signals(frame, None)

    def divergence(self, samples: Path, policy: Path, problems: Sequence[str], most: int) -> float:
        """Mean of log π − log π_base over the policy's own completions of `problems`, in nats."""
        frame = read_frame(samples, columns=["problem_id", "status", TOKEN_IDS])
        frame = frame[frame["problem_id"].isin(list(problems))].groupby("problem_id").head(most)
        if frame.empty:
            return float("nan")
        ours, theirs = (self._signals(frame, place) for place in (policy, None))
        gaps = [one[0].sum() - other[0].sum() for one, other in zip(ours, theirs, strict=True)]
        return float(np.mean(gaps))

    def _signals(
        self, frame: pd.DataFrame, policy: Path | None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        model: Any = load_policy(self._base, policy, torch.float32, self._device)
        completions = [list(ids) for ids in frame[TOKEN_IDS]]
        self.tokens += sum(map(len, completions))
        return token_signals(
            model, [self._prompts[name] for name in frame["problem_id"]], completions
        )
