"""Graded samples, by how many of each problem are right."""

import numpy as np
import pandas as pd


def samples(counts: dict[str, int], n: int = 4) -> pd.DataFrame:
    """n samples of each problem, the first ones correct; the very first is cut off."""
    rows = [
        (
            problem,
            0,
            i,
            "7" if i < c else f"{i}",
            "correct" if i < c else "wrong",
            "stop" if i else "length",
        )
        for problem, c in counts.items()
        for i in range(n)
    ]
    columns = ["problem_id", "eval_seed", "sample_index", "answer", "status", "finish_reason"]
    return pd.DataFrame(rows, columns=columns)


def study(problems: int = 30) -> dict[tuple[str, str, int, str], pd.DataFrame]:
    """Base, an algorithm one sample better on every problem, and one that is like the base."""
    base = {f"p{i:02}": i % 4 for i in range(problems)}
    better = {name: count + 1 for name, count in base.items()}
    same = {name: base[f"p{(i + 4) % problems:02}"] for i, name in enumerate(base)}
    runs = {("m", "base", 0, "b"): samples(base)}
    runs |= {("m", "better", seed, "b"): samples(better) for seed in (1, 2, 3)}
    return runs | {("m", "same", seed, "b"): samples(same) for seed in (1, 2, 3)}


def counts_of(**methods: list[list[int]]) -> pd.DataFrame:
    """Counts out of 8 of problems, by method and run; the base has seed 0."""
    return pd.DataFrame(
        [
            {
                "model": "m",
                "algorithm": name,
                "train_seed": 0 if name == "base" else seed,
                "benchmark": "b",
                "problem_id": f"p{place}",
                "cluster": "",
                "stratum": "",
                "n_samples": 8,
                "correct": count,
                "worked": float(count),
                "chance": [np.nan] * 4,
            }
            for name, runs in methods.items()
            for seed, run in enumerate(runs, start=1)
            for place, count in enumerate(run)
        ]
    )
