"""Which training problems occur in the benchmarks, in the same or nearly the same words.

Two problems overlap if their normalised texts are equal, or if the training problem repeats a
given share of the benchmark problem's n-grams of words; a problem shorter than n words has no
n-grams and is compared whole. One shared n-gram is not enough, unlike in some published
checks: competition problems end in the same stock phrases, often longer than 13 words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sage.fields import Positive, Strict
from sage.problems.record import Problem
from sage.runtime.files import atomic_directory

if TYPE_CHECKING:
    import pandas as pd

TABLE = [
    *("training", "benchmark", "training_problems", "problems", "exact", "ngram"),
    *("overlapping", "training_overlapping", "share"),
]
"""Columns of the table: a row per pair of sets. `exact` and `ngram` count the benchmark's
problems by their closest match, `overlapping` is their sum and `share` its share of the set;
`training_overlapping` counts training problems."""

PAIRS = ["training", "training_id", "benchmark", "problem_id", "match", "shared"]
"""Columns of the list of overlapping pairs: `shared` is the share of the benchmark problem's
n-grams that the training problem repeats, 1 for equal texts."""


class Contamination(Strict):
    """When a training problem counts as a copy of a benchmark's problem.

    Every set that RL trains on is compared with every benchmark of the study;
    `metrics/contamination/pairs.csv` lists the overlaps. Texts are compared without layout and
    punctuation. A problem shorter than `ngram` words overlaps only with an equal one.
    """

    ngram: Positive = 13
    """length of the word sequences that are compared [words]"""
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """two problems overlap if the training problem contains at least this share of the benchmark
    problem's word sequences [share, 0 to 1]"""
    drop: bool = False
    """whether RL leaves out training problems that overlap; the paper keeps them"""


_COMMAND = re.compile(r"\\(?:left|right|text|mathrm|displaystyle|dfrac|tfrac|[,;:! ])")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[-+*/=<>^|!%]")


def words(text: str) -> list[str]:
    """The text as words, numbers and operators: lower case, without layout and punctuation."""
    plain = unicodedata.normalize("NFKC", text).lower()
    return _TOKEN.findall(_COMMAND.sub(_fraction, plain))


def overlaps(
    training: Sequence[Problem], benchmark: Sequence[Problem], ngram: int, share: float
) -> list[tuple[Problem, Problem, str, float]]:
    """Pairs of a training and a benchmark problem that overlap, with the match and its share.

    The match is ``exact`` or ``ngram``; `share` is the least share of the benchmark problem's
    different n-grams of `ngram` words that counts. Linear in the length of the texts.
    """
    whole: dict[tuple[str, ...], list[int]] = defaultdict(list)
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    sizes: list[int] = []
    for index, problem in enumerate(benchmark):
        tokens = words(problem.problem)
        whole[tuple(tokens)].append(index)
        grams = _grams(tokens, ngram)
        sizes.append(len(grams))
        for gram in grams:
            holders[gram].append(index)
    pairs = []
    for problem in training:
        tokens = words(problem.problem)
        equal = whole.get(tuple(tokens), [])
        pairs += [(problem, benchmark[index], "exact", 1.0) for index in equal]
        hits: Counter[int] = Counter()
        for gram in _grams(tokens, ngram):
            if gram in holders:
                hits.update(holders[gram])
        for index, count in sorted(hits.items()):
            if index not in equal and count >= share * sizes[index]:
                pairs.append((problem, benchmark[index], "ngram", count / sizes[index]))
    return pairs


def contamination(
    training: Mapping[str, Sequence[Problem]],
    benchmarks: Mapping[str, Sequence[Problem]],
    ngram: int,
    share: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table (columns TABLE) and the overlapping pairs (columns PAIRS).

    A set that is used for training and as a benchmark is not compared with itself.
    """
    import pandas as pd  # not above: reading a study imports this module for its settings

    table, pairs = [], []
    for name, of_training in training.items():
        for benchmark, problems in benchmarks.items():
            if benchmark == name:
                continue
            overlapping = overlaps(of_training, problems, ngram, share)
            pairs += [
                (name, one.problem_id, benchmark, other.problem_id, match, shared)
                for one, other, match, shared in overlapping
            ]
            equal, near = (
                {other.problem_id for _, other, match, _ in overlapping if match == kind}
                for kind in ("exact", "ngram")
            )
            copied, copying = len(equal | near), len({one.problem_id for one, *_ in overlapping})
            sizes = len(of_training), len(problems), len(equal), len(near - equal)
            share_copied = copied / max(len(problems), 1)
            table.append((name, benchmark, *sizes, copied, copying, share_copied))
    return pd.DataFrame(table, columns=TABLE), pd.DataFrame(pairs, columns=PAIRS)


def write_contamination(
    training: Mapping[str, Sequence[Problem]],
    benchmarks: Mapping[str, Sequence[Problem]],
    ngram: int,
    share: float,
    folder: Path,
) -> None:
    """Write the table as Parquet into `folder`, and the overlapping pairs as `pairs.csv`."""
    counts, pairs = contamination(training, benchmarks, ngram, share)
    with atomic_directory(folder) as temporary:
        counts.to_parquet(temporary / "contamination.parquet", index=False)
        pairs.to_csv(temporary / "pairs.csv", index=False)


def without_overlap(
    training: Sequence[Problem],
    benchmarks: Mapping[str, Sequence[Problem]],
    ngram: int,
    share: float,
) -> list[Problem]:
    """The training problems that overlap with no benchmark; raises ValueError if none is left."""
    overlapping = {
        problem.problem_id
        for problems in benchmarks.values()
        for problem, *_ in overlaps(training, problems, ngram, share)
    }
    left = [problem for problem in training if problem.problem_id not in overlapping]
    if not left:
        raise ValueError(
            f"all {len(training)} training problems occur in the benchmarks "
            f"{', '.join(benchmarks)}; train on another set, or set contamination.drop: false"
        )
    return left


def _fraction(command: re.Match[str]) -> str:
    return "frac" if command[0].endswith("frac") else " "


def _grams(tokens: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return set(zip(*(tokens[start:] for start in range(size)), strict=False))
