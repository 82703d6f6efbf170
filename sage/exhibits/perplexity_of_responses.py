"""How likely responses are under the base: their perplexity (Eq. 39) and its upper tails.

It chooses the responses of Figure 7 and reads them with the base; `sage.exhibits.perplexity` shows
what came of it. Torch is imported where a model reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sage.evaluation.curves import Run, run_of
from sage.fields import BASE
from sage.problems.record import Problem, read_problems
from sage.runtime.tables import read_frame

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

COLUMNS = ["model", "algorithm", "train_seed", "benchmark", "problem_id", "eval_seed"]
COLUMNS += ["sample_index", "status", "n_tokens", "perplexity"]


TAIL = 0.95
"""The quantile of the base's perplexities that a panel marks and the table of tails reports."""


def perplexity(log_probs: np.ndarray) -> float:
    """exp(-mean of the tokens' log-probabilities `[T]`) (Eq. 39); ValueError if there are no
    tokens."""
    if not len(log_probs):
        raise ValueError("a completion without tokens has no perplexity")
    return float(np.exp(-np.mean(log_probs, dtype=np.float64)))


def choose_problems(available: Sequence[str], named: Sequence[str] | None = None) -> list[str]:
    """The problems of the figure: those `named`, or the first two available.

    Raises ValueError for a named problem that is not available, or if there are too few.
    """
    if named is None:
        if len(available) < 2:
            raise ValueError(
                f"2 problems are needed, the benchmark has {len(available)}; choose a "
                "larger benchmark"
            )
        return list(available[:2])
    unknown = [name for name in named if name not in available]
    if unknown:
        raise ValueError(
            f"problems {', '.join(unknown)} are not in the benchmark; its ids go from "
            f"{min(available)} to {max(available)}"
        )
    return list(named)


def choose_responses(
    samples: Mapping[Run, pd.DataFrame],
    algorithms: Sequence[str],
    problems: Sequence[str],
    responses: int = 64,
) -> pd.DataFrame:
    """The first `responses` samples of each run of each method on each problem.

    `samples` are those of one model and benchmark. Returns COLUMNS without the perplexity, and
    `token_ids`. Raises ValueError for a missing method or response, and for samples stored
    without their tokens.
    """
    frames = []
    for algorithm in algorithms:
        runs = sorted(run for run in samples if run[1] == algorithm)
        if not runs:
            there = ", ".join(sorted({run[1] for run in samples}))
            raise ValueError(f"no samples of {algorithm!r}; there are {there}")
        for run in runs:
            if "token_ids" not in samples[run]:
                raise ValueError(
                    f"samples of {run} have no column token_ids: perplexity needs the tokens "
                    "that were drawn; sample again with this version"
                )
            model, _, seed, benchmark = run
            frame = samples[run].sort_values(["eval_seed", "sample_index"], kind="stable")
            for problem in problems:
                chosen = frame[frame["problem_id"] == problem].head(responses)
                if len(chosen) < responses:
                    raise ValueError(
                        f"{algorithm}, seed {seed}, has {len(chosen)} samples of problem "
                        f"{problem!r}, {responses} are needed; ask for fewer responses or draw "
                        "more samples"
                    )
                frames.append(
                    chosen.assign(
                        model=model, algorithm=algorithm, train_seed=seed, benchmark=benchmark
                    )
                )
    return pd.concat(frames, ignore_index=True)[[*COLUMNS[:-1], "token_ids"]]


def perplexity_table(
    base: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    responses: pd.DataFrame,
) -> pd.DataFrame:
    """`responses` (see `choose_responses`) with the perplexity of each under `base`; COLUMNS.

    Raises ValueError for a row with another number of tokens than its n_tokens.
    """
    lengths = responses["token_ids"].map(len)
    faulty = responses[lengths != responses["n_tokens"]]
    if len(faulty):
        row = faulty.iloc[0]
        raise ValueError(
            f"sample {row['sample_index']} of {row['problem_id']!r} ({row['algorithm']}) has "
            f"{len(row['token_ids'])} tokens but n_tokens {row['n_tokens']}"
        )
    from sage.evaluation.token_signals import signals_of

    signals = signals_of(base, tokenizer, problems, responses)
    return responses.assign(perplexity=[perplexity(row) for row, _ in signals])[COLUMNS]


def read_perplexities(
    base: Path,
    samples: Sequence[Path],
    problems: Path,
    algorithms: Sequence[str],
    named: Sequence[str] | None,
    more: int,
    responses: int,
    device: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Figure 7's data: responses chosen from the sample files, read with the checkpoint `base`
    (COLUMNS), and the tails of the figure's problems (`tail_table`).

    The problems of the figure come first, then those with which there are at least `more`, in
    the order of the problem set, or all that there are.
    """
    from sage.policies import load_model, load_tokenizer

    asked = read_problems(problems)
    ids = [problem.problem_id for problem in asked]
    first = choose_problems(ids, named)
    chosen_ids = [*first, *(name for name in ids if name not in first)][: max(more, len(first))]
    chosen = choose_responses(
        {run_of(path): read_frame(path) for path in samples}, algorithms, chosen_ids, responses
    )
    network: Any = load_model(base)
    table = perplexity_table(network.to(device), load_tokenizer(base), asked, chosen)
    return table, tail_table(table[table["problem_id"].isin(first)])


def tail_table(perplexities: pd.DataFrame) -> pd.DataFrame:
    """The upper tails: columns problem_id, algorithm, n, median, upper and tail_share.

    `upper` is the quantile TAIL of the method's responses, of all its runs; `tail_share` the
    share of them above that quantile of the base's, so about 1 - TAIL for the base itself and more
    where a policy writes more of what the base finds unlikely. Each row is of one problem: nothing
    here speaks for other problems. Raises ValueError without responses of the base.
    """
    beyond = _beyond(perplexities, TAIL)
    groups = perplexities.groupby(["problem_id", "algorithm"], sort=False)["perplexity"]
    table = groups.agg(n="size", median="median", upper=lambda values: values.quantile(TAIL))
    shares = beyond.groupby([perplexities["problem_id"], perplexities["algorithm"]]).mean()
    return table.join(shares.rename("tail_share")).reset_index()


def tail_shares(perplexities: pd.DataFrame, level: float = TAIL) -> pd.DataFrame:
    """Each run's share of responses to each problem above the base's `level` quantile there.

    Columns algorithm, train_seed, problem_id, share. Raises ValueError as `tail_table`.
    """
    keys = [perplexities[key] for key in ("algorithm", "train_seed", "problem_id")]
    return _beyond(perplexities, level).groupby(keys).mean().rename("share").reset_index()


def _beyond(perplexities: pd.DataFrame, level: float) -> pd.Series:
    """Whether each response lies above the base's quantile on its problem, as 0 or 1."""
    base = perplexities[perplexities["algorithm"] == BASE]
    bounds = base.groupby("problem_id")["perplexity"].quantile(level)
    here = perplexities["problem_id"].map(bounds)
    if here.isna().any():
        problem = perplexities.loc[here.isna(), "problem_id"].iloc[0]
        raise ValueError(f"problem {problem!r}: no responses of {BASE!r} to compare with")
    return (perplexities["perplexity"] > here).astype(float)
