"""How many different answers a policy gives to a problem, whether right or wrong.

Correct answers are one answer, however they are written; wrong ones differ if their text
does, spaces aside. Completions without an answer do not count.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from sage.evaluation.curves import POOLED, Samples
from sage.evaluation.intervals import interval_of_mean

METRICS = ("distinct_answers", "distinct_wrong", "answer_entropy")


def diversity_table(samples: Samples, draws: int) -> pd.DataFrame:
    """Means over problems, per run and pooled over training seeds, with 95 % intervals.

    Columns: model, algorithm, train_seed (POOLED for all), benchmark, metric, value, low, high,
    n_problems, n_samples. `distinct_answers` counts all, `distinct_wrong` wrong ones;
    `answer_entropy` is that of the observed answers in nats, which falls short of the policy's
    own the fewer samples there are: compare equal numbers of samples only.
    """
    groups: dict[tuple[str, str, str], dict[int, np.ndarray]] = {}
    sizes = {}
    for (model, algorithm, train_seed, benchmark), frame in samples.items():
        key = model, algorithm, benchmark
        groups.setdefault(key, {})[train_seed] = answer_diversity(frame).to_numpy()[None]
        sizes[key] = len(frame) // frame["problem_id"].nunique()
    rows = []
    for key, by_seed in groups.items():
        for train_seed, values in {**by_seed, POOLED: np.concatenate([*by_seed.values()])}.items():
            low, high = interval_of_mean(values, draws)
            means = values.mean(axis=(0, 1))
            head: dict[str, object] = dict(
                zip(("model", "algorithm", "benchmark"), key, strict=True)
            )
            head |= {"train_seed": train_seed, "n_problems": values.shape[1]}
            rows += [
                {**head, "n_samples": sizes[key], "metric": metric, "value": float(means[place])}
                | {"low": max(0.0, float(low[place])), "high": float(high[place])}
                for place, metric in enumerate(METRICS)
            ]
    return pd.DataFrame(rows)


def answer_diversity(samples: pd.DataFrame) -> pd.DataFrame:
    """METRICS of each problem, sorted by problem_id; 0 where no completion has an answer."""
    answered = samples[samples["answer"].notna()]
    texts = answered["answer"].astype(str).str.split().str.join(" ")
    labels = "wrong: " + texts
    labels = labels.mask(answered["status"] == "correct", "correct")
    counts = labels.groupby([answered["problem_id"], labels]).size().rename("count")
    totals = counts.groupby(level=0).transform("sum")
    shares = counts / totals
    wrong = pd.Series(counts.index.get_level_values(1) != "correct", index=counts.index)
    by_problem = pd.DataFrame(
        {
            "distinct_answers": counts.groupby(level=0).size().astype(float),
            "distinct_wrong": wrong.groupby(level=0).sum().astype(float),
            "answer_entropy": (-shares * np.log(shares)).groupby(level=0).sum(),
        }
    )
    return by_problem.reindex(sorted(samples["problem_id"].unique()), fill_value=0.0)
