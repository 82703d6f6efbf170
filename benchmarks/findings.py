"""The numbers of docs/measurements.md that no study measures: `python -m benchmarks.findings`.

Prints them and writes `benchmarks/findings.json`. The paper's tables are those of reports/paper.
The part about the released grader needs the benchmarks' files, in the folder that the environment
variable SAGE_MIRROR names or from the hub.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from math_verify import parse, verify
from scipy.stats import t as student
from scipy.stats import ttest_ind_from_stats

from sage.evaluation.intervals import holm
from sage.exhibits import load_study
from sage.grading import Grader
from sage.problems.sets import draw_problems
from sage.prompting import completion
from sage.runtime.files import write_text_atomic
from sage.runtime.manifest import versions

ROOT = Path(__file__).parents[1]
EVALUATION_SEEDS = 5
"""Of the paper's means and standard deviations: `paper_seeds` shows it."""

PROBLEMS = {"aime": 60, "amc23": 40, "math500_level5": 134, "minerva": 272}
"""Of the paper's benchmarks."""

MEANS = {
    "table1": (
        ("grpo_branch", "grpo"),
        ("grpo_branch", "grpo_no_kl"),
        ("grpo_random", "grpo"),
        ("grpo_token", "grpo"),
        ("grpo_forward_kl", "grpo"),
        ("grpo_no_kl", "grpo"),
        ("grpo", "base"),
    ),
    "table3": (("bnpo_branch", "bnpo_no_kl"), ("dapo_branch", "dapo_no_kl")),
    "table4": (("grpo_branch", "grpo"), ("grpo", "base")),
    "table9": (("grpo", "base"), ("grpo_branch", "grpo")),
}
"""Pairs of methods compared by the mean over a table's benchmarks."""

RANK, WIDTH, STANDARD_DEVIATION = 8, 1024, 0.02
"""Of the adapter and of the weights that it is merged into."""


def paper_seeds() -> list[dict[str, Any]]:
    """In how many cells the mean and deviation can be those of so many seeds.

    A seed's pass@k, by the paper's estimator, is a whole number of problems solved. The deviation
    has n - 1 or n below the sum of squares (`ddof` 1 or 0).
    """
    names = ("table1", "table3", "table4", "table9")
    cells = pd.concat([pd.read_csv(ROOT / f"reports/paper/{name}.csv") for name in names])
    found = []
    for seeds, ddof in ((3, 1), (4, 1), (5, 1), (6, 1), (5, 0)):
        fits = [
            _can_be(row["value"], row["std"], PROBLEMS[row["benchmark"]], seeds, ddof)
            for row in cells.to_dict("records")
        ]
        found.append({"seeds": seeds, "ddof": ddof, "fit": sum(fits), "cells": len(fits)})
    return found


def _can_be(mean: float, std: float, problems: int, seeds: int, ddof: int) -> bool:
    """Whether `seeds` shares of `problems` have this mean and deviation, rounded to 3 digits."""
    half, whole = 0.0005 + 1e-9, problems * seeds
    low, high = ((seeds - ddof) * (max(std + sign * half, 0.0) * problems) ** 2 for sign in (-1, 1))
    totals = range(math.ceil((mean - half) * whole), math.floor((mean + half) * whole) + 1)
    rests = {total % seeds for total in totals}
    return any(low <= q - r**2 / seeds <= high for r in rests for q in _squares(seeds, r))


@cache
def _squares(count: int, total: int) -> frozenset[int]:
    """All sums of squares, up to a limit, of `count` whole numbers that add up to `total`."""
    reach, limit = range(-14, 15), 200
    sums = {(0, 0)}
    for _ in range(count):
        sums = {(s + n, q + n * n) for s, q in sums for n in reach if q + n * n <= limit}
    return frozenset(q for s, q in sums if s == total)


def paper_differences() -> list[dict[str, Any]]:
    """For each table of the paper with deviations: how many differences exceed evaluation noise.

    Every row is compared with `grpo`, or in Table 3 with the same loss without a KL term, by
    Welch's t-test over five evaluation seeds, which does not see the noise of training runs or
    problems; p is adjusted after Holm within a table.
    """
    found = []
    for name in ("table1", "table3", "table4", "table9"):
        table = pd.read_csv(ROOT / f"reports/paper/{name}.csv")
        rows = []
        for (benchmark, quantity), of in table.groupby(["benchmark", "quantity"], sort=False):
            cells = of.set_index("algorithm")
            for row in cells.index.difference(["base", "grpo", "bnpo_no_kl", "dapo_no_kl"]):
                other = "grpo" if "grpo" in cells.index else f"{row.split('_')[0]}_no_kl"
                ours, theirs = (cells.loc[key, ["value", "std"]] for key in (row, other))
                sizes = (*ours, EVALUATION_SEEDS), (*theirs, EVALUATION_SEEDS)
                p = ttest_ind_from_stats(*sizes[0], *sizes[1], equal_var=False).pvalue
                rows.append((row, f"{benchmark} {quantity}", ours["value"] - theirs["value"], p))
        adjusted = holm(np.array([row[-1] for row in rows]))
        clear = [
            f"{row}, {place}: {100 * difference:+.1f} points"
            for (row, place, difference, _), p in zip(rows, adjusted, strict=True)
            if p < 0.05
        ]
        unadjusted = sum(bool(row[-1] < 0.05) for row in rows)
        found.append(
            {"table": name, "tests": len(rows), "below_0.05": unadjusted, "after_holm": clear}
        )
    return found


def paper_means() -> list[dict[str, Any]]:
    """The pairs in MEANS by the mean over their table's benchmarks: Welch's t-test.

    For pass@1 and for the table's larger k, each of them adjusted after Holm over all pairs.
    Benchmarks are independent, each with its mean and deviation over five evaluation seeds; the
    noise of training runs and problems is not in it.
    """
    rows = []
    for name, pairs in MEANS.items():
        table = pd.read_csv(ROOT / f"reports/paper/{name}.csv")
        for method, other in pairs:
            for quantity, cells in table.groupby("quantity"):
                wide = cells.pivot(index="benchmark", columns="algorithm", values=["value", "std"])
                ours, theirs = (wide.xs(key, axis=1, level="algorithm") for key in (method, other))
                difference = float((ours["value"] - theirs["value"]).mean())
                variances = (
                    np.concatenate(
                        [one["std"].to_numpy() ** 2 / EVALUATION_SEEDS for one in (ours, theirs)]
                    )
                    / len(wide) ** 2
                )
                error = float(np.sqrt(variances.sum()))
                df = variances.sum() ** 2 / (variances**2 / (EVALUATION_SEEDS - 1)).sum()
                rows.append(
                    {
                        "table": name,
                        "method": method,
                        "other": other,
                        "quantity": quantity,
                        "benchmarks": len(wide),
                        "points": round(100 * difference, 2),
                        "t": round(difference / error, 2),
                        "p": float(f"{2 * student.sf(abs(difference / error), df):.3g}"),
                    }
                )
    for of_accuracy in (True, False):
        family = [row for row in rows if (row["quantity"] == "pass@1") == of_accuracy]
        for row, p in zip(family, holm(np.array([row["p"] for row in family])), strict=True):
            row["holm"] = float(f"{p:.3g}")
    return rows


def merged_adapters() -> list[dict[str, float]]:
    """What is left of a LoRA update after it was merged into bfloat16 weights and rounded.

    For a typical size (root mean square) of B's entries: the cosine of the rounded change with the
    adapter's, and the share of weights that change at all. A is drawn as PEFT draws it.
    """
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(WIDTH, WIDTH, generator=generator) * STANDARD_DEVIATION
    weights = weights.bfloat16()
    down = (torch.rand(RANK, WIDTH, generator=generator) * 2 - 1) / WIDTH**0.5
    directions = torch.randn(WIDTH, RANK, generator=generator)
    found = []
    for size in (1e-4, 3e-4, 1e-3):
        update = 2.0 * size * directions @ down
        change = (weights.float() + update).bfloat16().float() - weights.float()
        cosine = torch.nn.functional.cosine_similarity(change.flatten(), update.flatten(), dim=0)
        changed = float((change != 0).float().mean())
        found.append({"rms_of_b": size, "cosine": float(cosine), "share_changed": changed})
    return found


def released_grader() -> Iterator[dict[str, Any]]:
    """Right answers in a solution block: how many does parsing the whole text find, and ours?"""
    study = load_study("paper", ROOT / "config")
    grader = Grader()
    for name in ("dapo", "aime", "amc23", "math500_level5"):
        problems = draw_problems(name, study.problem_set(name))
        texts = [completion("it is so", problem.answer) for problem in problems]
        pairs = zip(texts, problems, strict=True)
        right = sum(verify(parse(one.answer), parse(text)) for text, one in pairs)
        ours = grader.grade_many(
            [(text, one.answer, one.kind) for text, one in zip(texts, problems, strict=True)]
        )
        correct = sum(verdict.status == "correct" for verdict in ours)
        yield {"set": name, "answers": len(problems), "released": right, "ours": correct}


def main() -> int:
    """Print and write everything; the exit status is 0."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    logging.disable(logging.ERROR)  # Math-Verify's, a line for each text it cannot read
    content: dict[str, Any] = {
        "versions": versions(),
        "paper_seeds": paper_seeds(),
        "paper_differences": paper_differences(),
        "paper_means": paper_means(),
        "merged_adapters": merged_adapters(),
        "released_grader": list(released_grader()),
    }
    text = json.dumps(content, indent=2)
    print(text)
    write_text_atomic(ROOT / "benchmarks/findings.json", text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
