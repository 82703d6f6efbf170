"""Power of the claims of `replication`, by simulation from counts that were kept before.

    python reports/replication/power.py

A simulated study draws five bases and, within each stratum, problems with replacement, from the
ten bases of reports/bases/bases. For the paper's guide, of which no study of many bases was kept,
the five paired runs of reports/mini/mini stand for bases. The effect is moved to the one asked
about. A 95 % interval by Student's t over bases decides: "up" needs one above 0, "not up" one below
the margin, equivalence one between both margins. Writes power.csv beside this file.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

from sage.evaluation.pass_at_k import pass_at_k

HERE = Path(__file__).parent
STUDIES = 4000
COLUMNS = ["contrast", "k", "bases", "runs", "effect", "decision", "margin", "sd", "power"]


def differences(
    run: str, method: str, other: str, k: int, unit: str
) -> tuple[np.ndarray, list[str]]:
    """pass@k of `method` minus `other` `[U, P]`, a row a base or run; the problems' strata."""
    counts = pd.read_parquet(HERE.parent / run / "counts.parquet").query("benchmark == 'sheets'")
    if unit == "train_seed":
        counts = counts[counts["model"] == "sums"]
    counts["value"] = pass_at_k(
        counts["n_samples"].to_numpy(), counts["correct"].to_numpy(), np.array([k])
    )[:, 0]
    wide = {
        name: counts[counts["algorithm"] == name].pivot(
            index=unit, columns="problem_id", values="value"
        )
        for name in (method, other)
    }
    labels = counts.drop_duplicates("problem_id").set_index("problem_id")["stratum"]
    if other == "base" and unit == "train_seed":
        wide[other] = pd.concat([wide[other]] * len(wide[method])).set_axis(wide[method].index)
    found = wide[method] - wide[other]
    return found.to_numpy(), list(labels[found.columns])


def power(
    kept: np.ndarray,
    strata: list[str],
    bases: int,
    runs: int,
    effect: float,
    decision: str,
    margin: float,
) -> float:
    """The share of simulated studies that decide."""
    generator = np.random.default_rng(0)
    groups = [np.flatnonzero(np.array(strata) == name) for name in sorted(set(strata))]
    decided, factor = 0, student.ppf(0.975, bases - 1)
    for _ in range(STUDIES):
        columns = np.concatenate([generator.choice(group, len(group)) for group in groups])
        rows = generator.integers(len(kept), size=(bases, runs))
        means = kept[rows][:, :, columns].mean((1, 2)) - kept.mean() + effect
        half = factor * means.std(ddof=1) / np.sqrt(bases)
        low, high = means.mean() - half, means.mean() + half
        decided += {
            "up": low > 0,
            "down": high < 0,
            "not up": high < margin,
            "equivalent": -margin < low and high < margin,
        }[decision]
    return decided / STUDIES


def main() -> None:
    rows = []
    for method, other, k, decision, margin, effects in (
        ("grpo", "base", 16, "not up", 0.02, (-0.188, -0.05, 0.0)),
        ("grpo", "base", 1, "up", 0.01, (0.063, 0.02)),
        ("grpo_branch_strong_k1_reward", "grpo_k1_reward", 16, "up", 0.02, (0.045, 0.03, 0.02)),
        ("grpo_branch_stronger_k1_reward", "grpo_k1_reward", 16, "up", 0.02, (0.148, 0.05)),
        ("grpo_no_kl", "grpo", 1, "down", 0.01, (-0.01, -0.02)),
        ("grpo_forward_kl", "grpo", 16, "up", 0.02, (0.026, 0.05)),
    ):
        kept, strata = differences("bases/bases", method, other, k, "model")
        for effect in effects:
            share = power(kept, strata, 5, 1, effect, decision, margin)
            sd = kept.mean(1).std(ddof=1)
            rows.append([f"{method} - {other}", k, 5, 1, effect, decision, margin, sd, share])
    for k, margin in ((16, 0.02), (1, 0.01)):
        kept, strata = differences("mini/mini", "grpo_branch", "grpo", k, "train_seed")
        for effect in (0.0, 0.4 * margin, 0.75 * margin):
            share = power(kept, strata, 5, 1, effect, "equivalent", margin)
            sd = kept.mean(1).std(ddof=1)
            rows.append(
                [
                    "grpo_branch - grpo",
                    k,
                    5,
                    1,
                    effect,
                    "equivalent",
                    margin,
                    sd,
                    share,
                ]
            )
    table = pd.DataFrame(rows, columns=COLUMNS).round({"sd": 5, "power": 4})
    table.to_csv(HERE / "power.csv", index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
