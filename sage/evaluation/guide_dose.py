"""What guides would do to a checkpoint, measured on its completions: `sage.method.alignment`.

Completions are drawn as RL draws them and read once: signals go to disk, some problems at a time,
so that a killed job goes on, and another guide costs seconds. A guide is taken at the start of its
schedules, where training starts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sage.evaluation.intervals import interval_of_mean
from sage.evaluation.pass_at_k import pass_at_k, powers_of_two
from sage.evaluation.token_signals import Ids, Signal, guide_signals, padded, signals_of
from sage.evaluation.transfer import Completions
from sage.method.advantages import Centred
from sage.method.alignment import (
    alignment,
    at_equal_length,
    dose_in_loss,
    dose_in_reward,
    length_correlation,
    spread,
    spread_without_noise,
)
from sage.method.guides import Moment, Noise, Signals, guide_log_factors
from sage.policies import load_policy, load_tokenizer
from sage.problems.record import Problem
from sage.prompting import prompt_ids
from sage.runtime.files import atomic_file
from sage.runtime.identity import checkpoint_digest, digest
from sage.runtime.tables import read_frame
from sage.study.choices import Guide
from sage.tasks import stratum_of

BRANCH = 1.2
"""Entropy in nats above which a token is a branch, for a guide without a `threshold`."""

_DRAWS = 4  # of a guide's noise
_STRIDE = 8  # of eight tokens one is replaced at a time, so that those around it stay
_CHUNK = 8  # problems that are read before what was read is written
_PARTS = ["log_probs", "entropies", "others"]


@dataclass(frozen=True)
class Read:
    """G completions of each of P problems and what the model says of their tokens.

    `right` and `lengths` are `[P, G]`, `signals` and `others` (log-probs of a second token drawn at
    each place) `[P G, T]`, problem by problem. `cut` is the share that the length limit cut off.
    `pairs` are the token ids of prompts and completions, `strata` those of the problems.
    """

    right: torch.Tensor
    lengths: torch.Tensor
    cut: float
    signals: Signals
    others: torch.Tensor
    pairs: Sequence[tuple[Ids, Ids]] = ()
    strata: Sequence[str] = ()


def spaced(problems: Sequence[Problem], count: int) -> list[Problem]:
    """`count` of the problems at even distances, or all: a file may be sorted by difficulty."""
    places = np.linspace(0, len(problems) - 1, min(count, len(problems))).round().astype(int)
    return [problems[place] for place in places]


def read_completions(
    base: Path,
    problems: Sequence[Problem],
    samples: pd.DataFrame,
    temperature: float,
    device: str,
    folder: Path,
) -> Read:
    """Read graded samples (`sage.evaluation.samples`), equally many of each problem, with `base`.

    Signals that `folder` has of the same completions are not read again.
    """
    model: Any = None
    tokenizer, known = load_tokenizer(base), checkpoint_digest(base)
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Signal] = []
    ids = [problem.problem_id for problem in problems]
    samples = samples.sort_values("problem_id", key=lambda c: c.map(ids.index), kind="stable")
    for start in range(0, len(ids), _CHUNK):
        here = samples[samples["problem_id"].isin(ids[start : start + _CHUNK])]
        written = [[*map(int, tokens)] for tokens in here["token_ids"]]
        prompts = [problem.problem for problem in problems[start : start + _CHUNK]]
        file = folder / f"{digest([known, temperature, prompts, written])[:16]}.parquet"
        if not file.is_file():
            if model is None:
                model = load_policy(base, None, torch.float32, device)
            print(f"problems {start + 1} to {start + len(prompts)} of {len(ids)}", flush=True)
            more = {"temperature": temperature, "others": start}
            read = signals_of(model, tokenizer, problems, here, **more)
            with atomic_file(file) as temporary:
                pd.DataFrame(read, columns=_PARTS).to_parquet(temporary)
        frame = read_frame(file)
        rows += [tuple(row) for row in frame[_PARTS].itertuples(index=False)]
    right = torch.tensor((samples["status"] == "correct").to_numpy(float))
    lengths = torch.tensor(samples["n_tokens"].to_numpy(float))
    cut = float((samples["finish_reason"] == "length").mean())
    shape, others = (len(ids), -1), padded([row[2] for row in rows])
    asked = {problem.problem_id: prompt_ids(tokenizer, problem.problem) for problem in problems}
    named = zip(samples["problem_id"], samples["token_ids"], strict=True)
    pairs = [(asked[name], [*map(int, tokens)]) for name, tokens in named]
    strata = [*map(stratum_of, problems)]
    parts = (right.view(shape), lengths.view(shape), cut, guide_signals(rows), others)
    return Read(*parts, pairs, strata)


def completions(read: Read, guide: Guide) -> Completions:
    """What `sage.evaluation.transfer` asks of what was read, with one draw of a guide's noise."""
    made = guide.made
    factors = guide_log_factors(made, read.signals, Moment(0, 1, Noise("dose|0")), *guide.clamp)
    causal = bool(getattr(made, "causal", False))
    mask = read.signals.mask
    return Completions(read.pairs, read.right, read.strata, factors.double(), mask, causal)


@dataclass(frozen=True)
class Measured:
    """One guide: its `row` (see `measured`), `by_k` (k, value, low, high of a_k) and `log_q`, the
    mean over draws of its noise, `[P, G]`."""

    row: dict[str, Any]
    by_k: pd.DataFrame
    log_q: torch.Tensor


def measured(read: Read, guide: Guide, beta: float, k: int, bootstrap: int = 10_000) -> Measured:
    """The dose of `guide` at the KL coefficient `beta`, and its alignment with pass@k.

    In the row: `problems`, of which `mixed` have right and wrong completions; `samples` of each,
    `cut` off by the length limit; `pass_1`, `pass_k`; `entropy` (nats), shares of tokens on a
    branch (`branches`), with q above 1 (`amplified`) and at the clamps (`clamped`); SD(L) within a
    prompt as it is (`spread`), at equal length and without noise; `dose_reward` with GRPO's
    advantages and `dose_centred` with centred ones, `dose_loss`; correlation of L with length;
    `gap`, mean L of right minus wrong completions; `a_1`, `a_k` and `a_k_equal_length` with the
    ends of 95 % intervals over problems, NaN without a mixed one. Raises ValueError unless k is
    below `samples`.
    """
    made = guide.fresh()
    problems, size = read.right.shape
    mask, right = read.signals.mask, read.right

    def factors(draw: int, log_probs: torch.Tensor | None = None) -> torch.Tensor:
        at = read.signals if log_probs is None else replace(read.signals, log_probs=log_probs)
        return guide_log_factors(made, at, Moment(0, 1, Noise(f"dose|{draw}")), *guide.clamp)

    first = factors(0)
    draws = _DRAWS if not torch.equal(first, factors(1)) else 1
    sums = torch.stack([factors(draw).sum(dim=1) for draw in range(draws)])
    sums = sums.view(draws, problems, size)
    log_q, q, inside = sums.double().mean(dim=0), first.exp(), mask.bool()
    other = torch.zeros_like(q)
    for place in range(_STRIDE):
        taken = (torch.arange(mask.shape[1]) % _STRIDE == place).expand_as(mask)
        swapped = factors(0, torch.where(taken, read.others, read.signals.log_probs)).exp()
        other = torch.where(taken, swapped, other)
    alike = at_equal_length(log_q, read.lengths)
    mixed = (right.amax(dim=1) > 0) & (right.amin(dim=1) < 1)
    ks = np.unique([*(each for each in powers_of_two(size) if each < size), k])
    by_k = torch.stack([alignment(right, log_q, int(each)) for each in ks], dim=1)
    columns = torch.cat([by_k, alignment(right, alike, k)[:, None]], dim=1).numpy()
    if not mixed.any():  # 0 everywhere, which says nothing
        columns = np.full_like(columns, np.nan)
    low, high = interval_of_mean(columns[None], bootstrap)
    table = pd.DataFrame(
        {"k": ks, "value": columns.mean(axis=0)[:-1], "low": low[:-1], "high": high[:-1]}
    )
    both = zip(log_q[mixed], right[mixed], strict=True)
    gaps = [float(x[r > 0].mean() - x[r == 0].mean()) for x, r in both]
    at_clamp = (q <= guide.clamp[0] + 1e-6) | (q >= guide.clamp[1] - 1e-6)
    threshold = float(guide.settings.get("threshold", BRANCH))
    shares = pass_at_k(size, right.sum(dim=1).numpy().astype(int), np.array([1, k])).mean(axis=0)
    own = spread(sums[0])

    def of_tokens(values: torch.Tensor) -> float:
        return float(values[inside].double().mean())

    row: dict[str, Any] = {
        "guide": guide.kind,
        "kl_coefficient": beta,
        "k": k,
        "problems": problems,
        "mixed": int(mixed.sum()),
        "samples": size,
        "tokens": int(mask.sum()),
        "cut": read.cut,
        "pass_1": float(shares[0]),
        "pass_k": float(shares[1]),
        "entropy": of_tokens(read.signals.entropies),
        "branches": of_tokens(read.signals.entropies > threshold),
        "amplified": of_tokens(q > 1.0),
        "clamped": of_tokens(at_clamp),
        "spread": float(own),
        "spread_equal_length": float(spread(alike)),
        "spread_without_noise": float(spread_without_noise(sums)),
        "dose_reward": float(beta * own),
        "dose_centred": dose_in_reward(sums[0], Centred().advantages(right), beta),
        "dose_loss": dose_in_loss(q, other, mask, beta),
        "length_correlation": length_correlation(log_q, read.lengths),
        "gap": float(np.mean(gaps)) if gaps else float("nan"),
    }
    for name, place in (("a_1", 0), ("a_k", int((ks == k).argmax())), ("a_k_equal_length", -1)):
        ends = (columns.mean(axis=0), low, high)
        names = (name, f"{name}_low", f"{name}_high")
        row |= {each: float(values[place]) for each, values in zip(names, ends, strict=True)}
    return Measured(row, table, log_q)
