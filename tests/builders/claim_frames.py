"""What tests of claims share: comparisons of a small study, with numbers made by hand."""

import pandas as pd


def compared(rows: list[tuple[str, str, str, int, float, float, float]]) -> pd.DataFrame:
    """Comparisons of 3 runs from value, standard error and p; all variance is over problems."""
    columns = ["algorithm", "other", "benchmark", "k", "value", "error", "p"]
    frame = pd.DataFrame(rows, columns=columns)
    variance = frame["error"] ** 2
    return frame.assign(
        model="tiny",
        metric="pass@k",
        n_problems=41,
        n_seeds=3,
        n_bases=1,
        train_seeds=[[1, 2, 3]] * len(frame),
        by_run=[[value] * 3 for value in frame["value"]],
        var_problems=variance,
        var_interaction=0.0,
        var_below=variance,
        var_above=variance,
        units=41,
    )


RAISED = compared(
    [
        ("branch", "grpo", "easy", 1, 0.10, 0.02, 0.001),
        ("branch", "grpo", "easy", 2, 0.08, 0.02, 0.002),
        ("branch", "grpo", "hard", 1, 0.04, 0.03, 0.200),
        ("branch", "grpo", "hard", 2, 0.04, 0.02, 0.060),
    ]
)
