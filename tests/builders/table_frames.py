"""What tests of the report's tables share: an accuracy table, and frames of the other measures."""

import math

import pandas as pd
from report_frames import COMPARISONS, METRICS, a_study, pass_at_k, table_of

from sage.rendering.table import TableDocument


def accuracies(
    metrics: pd.DataFrame | None = None,
    compared: pd.DataFrame = COMPARISONS,
    name: str = "table1",
    seeds: tuple[int, ...] = (1,),
) -> TableDocument:
    metrics = pass_at_k(METRICS) if metrics is None else metrics
    return table_of(a_study(seeds=seeds), name, pass_at_k=metrics, comparisons=compared)


class MeasuredFrames:
    """Frames of what tables show beside accuracy; classes of tests have them as their own."""

    READ = pd.DataFrame(
        [
            ("base", 0, "easy", 1, 0.25, 0.10),
            ("base", 0, "easy", 4, 0.70, 0.05),
            ("grpo", 1, "easy", 1, 0.99, 0.00),
            ("grpo", -1, "easy", 1, 0.55, 0.02),
            ("grpo", -1, "hard", 1, 0.15, math.nan),
        ],
        columns=["algorithm", "train_seed", "benchmark", "k", "value", "std"],
    ).assign(model="tiny", metric="pass@k", n_eval_seeds=5, n_problems=40)
    PATTERNS = pd.DataFrame(
        [
            ("branch", "proof", "Proof", 0.25, 0.30, 0.10, 0.40),
            ("branch", "setup", "Set & up", 0.50, 0.55, 0.40, 0.60),
            ("base", "proof", "Proof", 0.00, 0.00, math.nan, math.nan),
            ("base", "setup", "Set & up", 0.10, 0.15, 0.05, 0.20),
            ("other", "setup", "Set & up", 0.9, 0.9, 0.9, 0.9),
        ],
        columns=["algorithm", "pattern", "title", "pooled", "per_problem", "low", "high"],
    ).assign(per_problem_low=0.0, per_problem_high=1.0, n_correct=20, n_problems=5)
    GRADIENTS = pd.DataFrame(
        [
            ("branch", "early", 0.04, 0.03, 0.05),
            ("branch", "mid", 0.03, 0.02, 0.04),
            ("branch", "late", 0.05, 0.04, 0.06),
            ("grpo", "early", 0.0561, math.nan, math.nan),
            ("grpo", "late", 0.0534, math.nan, math.nan),
        ],
        columns=["algorithm", "stage", "value", "low", "high"],
    ).assign(coverage=0.5, n_seeds=2, steps=30)
    PERPLEXITIES = pd.DataFrame(
        [
            (problem, algorithm, value)
            for problem, algorithm, values in (
                ("p2", "base", (1.0, 1.1, 1.2, 1.4)),
                ("p2", "grpo", (1.0, 1.0, 1.0, 3.0)),
                ("p1", "base", (2.0, 2.0, 2.0, 2.0)),
                ("p1", "grpo", (1.0, 3.0, 3.0, 1.0)),
            )
            for value in values
        ],
        columns=["problem_id", "algorithm", "perplexity"],
    )
