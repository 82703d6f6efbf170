"""The upper tails of perplexity: responses that the base finds unlikely (Figure 7).

Works on the frame that `sage.analysis.perplexity` writes; no model is needed.
"""

from __future__ import annotations

import pandas as pd

from sage.fields import BASE


def tail_table(perplexities: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """The upper tails: columns problem_id, algorithm, n, median, upper and tail_share.

    `upper` is the `level` quantile of the method's responses, of all its runs; `tail_share` the
    share of them above that quantile of the base's, so about 1 - level for the base itself and more
    where a policy writes more of what the base finds unlikely. Each row is of one problem: nothing
    here speaks for other problems. Raises ValueError without responses of the base.
    """
    beyond = _beyond(perplexities, level)
    groups = perplexities.groupby(["problem_id", "algorithm"], sort=False)["perplexity"]
    table = groups.agg(n="size", median="median", upper=lambda values: values.quantile(level))
    shares = beyond.groupby([perplexities["problem_id"], perplexities["algorithm"]]).mean()
    return table.join(shares.rename("tail_share")).reset_index()


def tail_shares(perplexities: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
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
