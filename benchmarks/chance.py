"""What the first world of the small studies measured: `python -m benchmarks.chance`.

The default study's first sums could be guessed, so pass@k there was for the most part luck. The
tables of docs/measurements.md are printed from counts of answers that are kept in
`reports/kept/first_world`; `--keep results/first_world` counts them again, from samples drawn
at the commit that run.json there names.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sage.evaluation.chance import chance_level
from sage.evaluation.curves import run_of
from sage.evaluation.intervals import interval_of_difference
from sage.evaluation.pass_at_k import pass_at_k
from sage.problems.arithmetic import correct_working, running_totals, signed_terms
from sage.problems.record import Problem
from sage.prompting import WORK_CLOSE
from sage.rendering.numbers import interval_of_points, points
from sage.runtime.files import atomic_file, write_text_atomic
from sage.runtime.tables import read_frame

KEPT = Path(__file__).parents[1] / "reports/kept/first_world"
PROBLEMS, COUNTS = KEPT / "problems.csv", KEPT / "counts.parquet"
RUN = ["algorithm", "train_seed", "benchmark", "problem_id"]
BARE, GROUPED = "it is clear", "decompose into"
"""What an answer without working says instead of it, and how grouping begins."""

K, DRAWS = 64, 10_000
METHODS = {
    "base": "base",
    "grpo_no_kl": "GRPO without KL",
    "grpo": "GRPO",
    "pkpo": "PKPO (centred)",
    "grpo_forward_kl": "GRPO + forward KL (sampled value)",
    "grpo_forward_kl_exact": "GRPO + forward KL (exact)",
    "k1_reward_strong": "KL in the reward (k1), β 0.5",
    "k3_strong": "KL in the loss (k3), β 0.5",
}
CONTRASTS = (
    ("grpo", "base"),
    ("grpo_no_kl", "grpo"),
    ("pkpo", "grpo"),
    ("grpo_forward_kl", "grpo"),
    ("grpo_forward_kl_exact", "grpo"),
    ("k3_strong", "grpo"),
)
NOTE = (
    "The default study's first world: study.yaml, with the two methods below it added to "
    "config/algorithms.yaml, at the commit named here; those are its only changes."
)
MIXED = 16
"""A mixture has one sample in so many from the base."""


@dataclass(frozen=True)
class Scores:
    """pass@1 and pass@K of one method on one benchmark, `[S, P]` by run and problem.

    `bare` is the share of completions without working, `chance` pass@K against other problems'
    answers, `worked` pass@K that counts correct working only (NaN for puzzles).
    """

    first: np.ndarray
    answered: np.ndarray
    bare: np.ndarray
    chance: np.ndarray
    worked: np.ndarray


def markdown(head: str, rows: Iterable[list[str]]) -> str:
    """A table of Markdown; `head` has its columns, parted by bars."""
    rule = "|---" * len(head.split("|")) + "|"
    return "\n".join([f"| {head} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


def count_answers(results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Problems with their answers, and how often each run gave each answer to each of them."""
    problems, counts = [], []
    for path in sorted((results / "problems").glob("*.jsonl")):
        frame = pd.read_json(path, lines=True, dtype=False)
        if path.stem in ("arithmetic", "harder", "knights"):
            problems.append(frame.assign(benchmark=path.stem))
    wanted = ["benchmark", "problem_id", "problem", "answer", "level"]
    table = pd.concat(problems)[wanted]
    texts = table.set_index("problem_id")["problem"]
    for path in sorted((results / "samples").glob("*/*/*/*.parquet")):
        _, algorithm, train_seed, benchmark = run_of(path)
        samples = read_frame(path)
        working = samples["completion"].str.split(WORK_CLOSE, n=1).str[0]
        answers = samples["answer"].fillna("")
        asked = samples["problem_id"].map(texts)
        worked = [
            benchmark != "knights" and correct_working(*each)
            for each in zip(asked, working, answers, strict=True)
        ]
        rows = pd.DataFrame(
            {
                "algorithm": algorithm,
                "train_seed": train_seed,
                "benchmark": benchmark,
                "problem_id": samples["problem_id"],
                "answer": answers,
                "correct": samples["status"] == "correct",
                "bare": working.str.contains(BARE, regex=False),
                "grouped": working.str.contains(GROUPED, regex=False),
                "worked": worked,
            }
        )
        counts.append(rows.value_counts(sort=False).reset_index())
    return table, pd.concat(counts, ignore_index=True)


@cache
def kept() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The kept problems and counts."""
    return pd.read_csv(PROBLEMS, dtype=str), pd.read_parquet(COUNTS)


@cache
def scores(method: str, benchmark: str) -> Scores:
    """The scores of a method on a benchmark; problems in sorted order."""
    problems, counts = kept()
    golds = problems[problems["benchmark"] == benchmark].set_index("problem_id").sort_index()
    rows = counts[(counts["algorithm"] == method) & (counts["benchmark"] == benchmark)]
    found = [_of_run(run, golds) for _, run in rows.groupby("train_seed")]
    return Scores(*(np.stack(part) for part in zip(*found, strict=True)))


def _of_run(rows: pd.DataFrame, golds: pd.DataFrame) -> tuple[np.ndarray, ...]:
    def counted(chosen: pd.DataFrame) -> np.ndarray:
        sums = chosen.groupby("problem_id")["count"].sum()
        return sums.reindex(golds.index, fill_value=0).to_numpy()

    samples = counted(rows)
    n = int(samples[0])
    if (samples != n).any():
        raise ValueError(f"problems with {sorted(set(samples))} samples; all need the same number")
    answers: dict[str, dict[str, int]] = {name: {} for name in golds.index}
    for problem, answer, count in rows[["problem_id", "answer", "count"]].itertuples(index=False):
        answers[problem][answer] = answers[problem].get(answer, 0) + count
    ks = np.array([1, K])
    correct = pass_at_k(n, counted(rows[rows["correct"]]), ks)
    puzzles = bool(golds["problem"].str.contains("knight").any())
    problems = [
        Problem(name, text, answer, "knights" if puzzles else "number", level, "kept", "kept")
        for name, text, answer, level in golds[["problem", "answer", "level"]].itertuples()
    ]
    chance = chance_level(list(answers.values()), problems, n, ks)
    worked = pass_at_k(n, counted(rows[rows["worked"]]), ks)[:, 1]
    return (
        correct[:, 0],
        correct[:, 1],
        counted(rows[rows["bare"]]) / n,
        chance[:, 1],
        np.full(len(golds), math.nan) if puzzles else worked,
    )


def difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """Mean of paired differences `[S, P]` and the ends of its 95 % interval."""
    values = (one - other)[..., None]
    low, high = interval_of_difference(values, DRAWS)
    return float(values.mean()), float(low[0]), float(high[0])


def below_zero() -> np.ndarray:
    """Which of the harder sums have a running total below zero, `[P]`, in sorted order."""
    problems, _ = kept()
    harder = problems[problems["benchmark"] == "harder"].sort_values("problem_id")
    return np.array([min(running_totals(signed_terms(text))) < 0 for text in harder["problem"]])


def tables() -> Iterator[str]:
    """The tables of docs/measurements.md, as Markdown."""
    harder = {name: scores(name, "harder") for name in METHODS}
    yield markdown(
        f"method | pass@1 | pass@{K} | without working | pass@{K} against other problems’ answers "
        f"| pass@{K} with correct working",
        (
            [title] + [_percent(part) for part in (s.first, s.answered, s.bare, s.chance, s.worked)]
            for title, s in zip(METHODS.values(), harder.values(), strict=True)
        ),
    )
    yield markdown(
        f"difference in pass@{K} | by answers | against other problems’ answers "
        "| with correct working",
        (
            [f"{METHODS[name]} − {METHODS[other]}"]
            + [
                _cell(*difference(getattr(harder[name], part), getattr(harder[other], part)))
                for part in ("answered", "chance", "worked")
            ]
            for name, other in CONTRASTS
        ),
    )
    negative = below_zero()
    strata = {
        "running total falls below zero": negative,
        "running total stays at zero or above": ~negative,
    }
    yield markdown(
        f"harder sums | problems | GRPO − base, pass@{K} by answers | with correct working",
        (
            [title, str(int(chosen.sum()))]
            + [
                _cell(
                    *difference(
                        getattr(harder["grpo"], part)[:, chosen],
                        getattr(harder["base"], part)[:, chosen],
                    )
                )
                for part in ("answered", "worked")
            ]
            for title, chosen in strata.items()
        ),
    )
    yield markdown(
        f"benchmark | base, pass@1 | base, pass@{K} | against other problems’ answers "
        f"| GRPO − base, pass@1 | GRPO − base, pass@{K}",
        (
            [title]
            + [_percent(part) for part in (base.first, base.answered, base.chance)]
            + [
                _cell(*difference(getattr(grpo, part), getattr(base, part)))
                for part in ("first", "answered")
            ]
            for title, base, grpo in (
                (title, scores("base", name), scores("grpo", name))
                for name, title in (
                    ("arithmetic", "sums like those of training"),
                    ("knights", "Knights and Knaves"),
                )
            )
        ),
    )


def summary() -> dict[str, float]:
    """Rank correlations over METHODS and a mixture of base and trained samples, in percent."""
    harder = [scores(name, "harder") for name in METHODS]
    bare = [float(s.bare.mean()) for s in harder]
    correlations = {
        f"guesses_and_{part}": _rank_correlation(
            bare, [float(getattr(s, part).mean()) for s in harder]
        )
        for part in ("answered", "worked")
    }
    first, answered = mixture("grpo_no_kl")
    return {
        **correlations,
        "mixture_pass_at_1": first,
        f"mixture_pass_at_{K}": answered,
        **{f"{style}_right_below_zero": right_below_zero(style) for style in ("grouped", "bare")},
    }


def mixture(method: str) -> tuple[float, float]:
    """pass@1 and pass@K on the harder sums if one sample in MIXED is the base's.

    Of K samples the base gives K / MIXED, the method the others; all are drawn without
    replacement from those that there are.
    """
    _, counts = kept()
    rows = counts[(counts["benchmark"] == "harder") & counts["correct"]]
    n = 128
    correct = rows.groupby(["algorithm", "train_seed", "problem_id"])["count"].sum()
    index = sorted(_names("harder"))
    seeds = sorted(set(counts.loc[counts["algorithm"] == method, "train_seed"]))
    base = correct["base"].droplevel(0).reindex(index, fill_value=0).to_numpy()
    share = K // MIXED
    of_base = pass_at_k(n, base, np.array([1, share]))
    found = []
    for seed in seeds:
        own = correct[method][seed].reindex(index, fill_value=0).to_numpy()
        trained = pass_at_k(n, own, np.array([1, K - share]))
        first = (trained[:, 0] * (MIXED - 1) + of_base[:, 0]) / MIXED
        found.append((first.mean(), (1 - (1 - trained[:, 1]) * (1 - of_base[:, 1])).mean()))
    first, answered = np.mean(found, axis=0)
    return float(first), float(answered)


def right_below_zero(style: str) -> float:
    """The base's share of right answers by grouping or without working, below zero."""
    _, counts = kept()
    chosen = dict(zip(sorted(_names("harder")), below_zero(), strict=True))
    rows = counts[(counts["algorithm"] == "base") & counts[style]]
    rows = rows[rows["problem_id"].map(chosen).eq(True)]
    return float((rows["count"] * rows["correct"]).sum() / rows["count"].sum())


def _names(benchmark: str) -> list[str]:
    problems, _ = kept()
    return problems.loc[problems["benchmark"] == benchmark, "problem_id"].tolist()


def _rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


def _percent(values: np.ndarray) -> str:
    return f"{100 * values.mean():.1f}"


def _cell(value: float, low: float, high: float) -> str:
    return f"{points(value)} ({interval_of_points(low, high)})"


def keep(results: Path) -> None:
    """Count the answers of a finished run and keep them with what made it."""
    problems, counts = count_answers(results)
    KEPT.mkdir(parents=True, exist_ok=True)
    write_text_atomic(PROBLEMS, problems.to_csv(index=False, lineterminator="\n"))
    with atomic_file(COUNTS) as temporary:
        counts.to_parquet(temporary, index=False, compression="zstd")
    manifest = json.loads((results / "models/tiny/base/manifest.json").read_text())
    run = {name: manifest[name] for name in ("git_commit", "hardware", "versions")}
    run = {"command": "snakemake --cores 2 --config study=first_world", "note": NOTE, **run}
    write_text_atomic(KEPT / "run.json", json.dumps(run, indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; the exit status is 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="count the samples of this folder anew")
    chosen = parser.parse_args(arguments)
    if chosen.keep:
        keep(chosen.keep)
    print("\n\n".join(tables()))
    print("\n" + json.dumps(summary(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
