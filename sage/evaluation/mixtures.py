"""Coverage at equal accuracy: a method against a mixture of the base and a baseline.

Drawing some completions from the base and the others from a trained policy costs nothing, and
lies between both in pass@1 and in pass@k. A method keeps coverage only if its pass@k is above that
of the mixture that is as accurate as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from scipy.stats import binom

from sage.evaluation.curves import curves_of, paired_runs, right_counts
from sage.evaluation.intervals import ANY_DIFFERENCES, Groups, mean_of, parts_of
from sage.evaluation.pass_at_k import pass_at_k
from sage.fields import BASE

COLUMNS = ["algorithm", "k", "worked", "accuracy", "accuracy_all", "coverage", "base_share"]
COLUMNS += ["mixture", "value", "low", "high", "n_seeds", "n_problems"]
"""`accuracy` is a method's pass@1 where RL trains, `accuracy_all` on all problems, `coverage` its
pass@k on all; `mixture` is pass@k of the mixture of that accuracy where RL trains, in which
`base_share` of the completions are the base's; `value` is coverage minus mixture with its 95 %
interval `low` to `high`. All are shares; NaN where the method is more accurate than the baseline or
less than the base, so that no mixture is as accurate."""


def mixture_pass_at_k(
    n: int, base: np.ndarray, trained: np.ndarray, share: float, k: int
) -> np.ndarray:
    """pass@k `[S, P]` where each of k completions is the base's with probability `share`.

    `base` `[P]` and `trained` `[S, P]` are correct counts out of `n`. Unbiased: with j of the k
    completions from the base, the probability that none is correct is the product of the unbiased
    estimates for j and for k - j. Raises ValueError for a share outside 0 to 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share {share:g} of a mixture, not 0 to 1")
    ks = np.arange(1, k + 1)
    of_base, of_trained = (
        np.concatenate([np.ones((*counts.shape, 1)), 1 - pass_at_k(n, counts, ks)], axis=-1)
        for counts in (base, trained)
    )
    weights = binom.pmf(np.arange(k + 1), k, share)
    covered: np.ndarray = 1 - (weights * of_base * of_trained[..., ::-1]).sum(axis=-1)
    return covered


def equal_accuracy(
    counts: pd.DataFrame,
    baseline: str,
    rows: Sequence[str],
    k: int,
    draws: int,
    trained: Collection[str] = (),
) -> pd.DataFrame:
    """COLUMNS for each of `rows`, methods of one model on one benchmark; runs are paired by seed.

    Accuracy is pass@1 on the `trained` strata: over all it mixes what is learned with what is
    forgotten, and stays put while both move. Where none of the problems is of them, it is over all.

    Counts are of correct working where that is known for all, else of answers. The share of the
    base is estimated from the same samples; the interval is that of coverage minus mixture after
    taking away what their difference in accuracy explains, at the mixture's slope (delta method).
    Raises ValueError unless the base and `baseline` are among the counts.
    """
    curves = {algorithm: each for (_, algorithm, _), each in curves_of(counts).items()}
    if lacking := {BASE, baseline} - set(curves):
        raise ValueError(f"equal accuracy: no counts of {', '.join(sorted(lacking))}")
    correct, worked = right_counts(curves)
    base, table = correct[BASE][0], []
    weights = where_trained(counts, curves[BASE].problems, trained)
    for row in rows:
        of_row = curves[row]
        seeds, *places = paired_runs((row, of_row.seeds), (baseline, curves[baseline].seeds))
        own, other = correct[row][places[0]], correct[baseline][places[1]]
        found = beside_mixture(own, other, base, of_row.n, k, draws, of_row.groups, weights)
        sizes = {"n_seeds": len(seeds), "n_problems": len(base)}
        table.append({"algorithm": row, "k": k, "worked": worked} | found | sizes)
    return pd.DataFrame(table, columns=COLUMNS)


def where_trained(
    counts: pd.DataFrame, problems: Sequence[str], trained: Collection[str]
) -> np.ndarray:
    """Weights `[P]` that make a mean over `problems` one over the `trained` strata; ones where no
    problem is of these."""
    strata = counts.drop_duplicates("problem_id").set_index("problem_id")["stratum"]
    seen = strata.loc[list(problems)].isin(trained).to_numpy(dtype=float)
    return seen / seen.mean() if seen.any() else np.ones(len(seen))


def mixture_line(
    counts: pd.DataFrame, baseline: str, k: int, points: int = 21, trained: Collection[str] = ()
) -> pd.DataFrame:
    """`accuracy` and `coverage` (pass@1 and pass@k) of mixtures from the baseline to the base."""
    curves = {algorithm: each for (_, algorithm, _), each in curves_of(counts).items()}
    correct, _ = right_counts(curves)
    n, base, of_baseline = curves[BASE].n, correct[BASE][0], correct[baseline]
    shares = np.linspace(0, 1, points)
    weights = where_trained(counts, curves[BASE].problems, trained) / n
    return pd.DataFrame(
        {
            "accuracy": shares * (base * weights).mean()
            + (1 - shares) * (of_baseline * weights).mean(),
            "coverage": [mixture_pass_at_k(n, base, of_baseline, s, k).mean() for s in shares],
        }
    )


def beside_mixture(
    own: np.ndarray,
    other: np.ndarray,
    base: np.ndarray,
    n: int,
    k: int,
    draws: int,
    groups: Groups | None = None,
    weights: np.ndarray | float = 1.0,
) -> dict[str, float]:
    """A method's runs `[S, P]` beside the mixture of `base` `[P]` and `other` `[S, P]` that is as
    accurate; all are counts of right samples of `n`, accuracy counts problems with `weights` `[P]`.

    The interval is of the difference to first order, as the share of the mixture is estimated too.
    Raises ValueError for other numbers of runs or problems.
    """
    if own.shape != other.shape or own.shape[1:] != base.shape:
        raise ValueError(f"runs of {own.shape} beside {other.shape} and a base of {base.shape}")
    names = "mixture", "value", "low", "high"
    accuracy, other_accuracy, base_accuracy = (weights * each / n for each in (own, other, base))
    coverage = pass_at_k(n, own, np.array([k]))[..., 0]
    gap = float(other_accuracy.mean() - base_accuracy.mean())
    share = float(other_accuracy.mean() - accuracy.mean()) / gap if gap else np.nan
    end = float(np.clip(np.round(share), 0.0, 1.0))
    if abs(share - end) < 1e-12:  # a tie with the base or the baseline, but for its last digits
        share = end
    said = {"accuracy": float(accuracy.mean()), "accuracy_all": float((own / n).mean())}
    said |= {"coverage": float(coverage.mean()), "base_share": share}
    if not 0 <= share <= 1:
        return said | dict.fromkeys(names, np.nan)
    mixture = mixture_pass_at_k(n, base, other, share, k)
    step = 1e-3 if share < 0.5 else -1e-3
    beside = mixture_pass_at_k(n, base, other, share + step, k)
    slope = float((beside - mixture).mean()) / (-step * gap)
    mixed_accuracy = share * base_accuracy + (1 - share) * other_accuracy
    change = coverage - mixture - slope * (accuracy - mixed_accuracy)
    parts = parts_of(change[..., None], draws, ANY_DIFFERENCES, groups)
    low, high = mean_of([parts]).interval()
    found = mixture.mean(), coverage.mean() - mixture.mean(), low[0], high[0]
    return said | dict(zip(names, map(float, found), strict=True))
