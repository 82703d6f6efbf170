"""Different right completions: how many in k samples, and whether two right ones differ."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from sage.claims.evidence import of_distinct
from sage.exhibits.distinct import DistinctTable, by_problem, estimated
from sage.study.exhibit import Surroundings


def samples(texts: str, problem: str = "p") -> pd.DataFrame:
    """A sample for each letter; small letters are wrong."""
    rows = [(problem, f" {t}  to b", "correct" if t.isupper() else "wrong") for t in texts]
    return pd.DataFrame(rows, columns=["problem_id", "completion", "status"])


@pytest.mark.parametrize("texts", ["AABcc", "ABCDE", "aaaaa", "AAAAA", "Abbbb"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_they_are_the_means_over_all_draws_of_k(texts: str, k: int) -> None:
    (row,) = by_problem(samples(texts), k).to_dict("records")
    draws = list(combinations(texts, k))
    right = [{t for t in draw if t.isupper()} for draw in draws]
    assert row["distinct"] == pytest.approx(np.mean([len(kinds) for kinds in right]))
    pairs = list(combinations([t for t in texts if t.isupper()], 2))
    wanted = np.mean([one != two for one, two in pairs]) if pairs else np.nan
    assert row["differ"] == pytest.approx(wanted, nan_ok=True)
    assert (row["n"], row["correct"]) == (5, sum(t.isupper() for t in texts))


def test_white_space_makes_no_other_completion_and_too_few_samples_are_refused() -> None:
    frame = samples("AA").assign(completion=["a  b", "a b\n"])
    assert by_problem(frame, 2)["distinct"].tolist() == [1.0]
    with pytest.raises(ValueError, match="fewer than k = 3"):
        by_problem(frame, 3)
    kind = DistinctTable(kind="distinct", title="D", model="m", benchmark="b", k=3)
    ((_, fault),) = kind.faults(Surroundings({}, drawn=1, eval_seeds=2))
    assert fault.startswith("3, but only 2")


def test_methods_are_compared_by_problem_and_seed() -> None:
    texts = {"one": ("ABC", "AAA"), "base": ("AAb", "aaa")}
    rows = [
        by_problem(samples(text, problem), 3).assign(algorithm=name, train_seed=seed)
        for name, both in texts.items()
        for seed in ((1, 2) if name == "one" else (0,))
        for problem, text in zip("pq", both, strict=True)
    ]
    frame = pd.concat(rows, ignore_index=True)
    (finding,) = of_distinct(frame, "distinct", "one", "base", 100)
    assert finding.effect == pytest.approx(((3 - 1) + (1 - 0)) / 2)
    assert (finding.n, finding.runs) == (2, 2)
    assert (
        estimated(frame, "one", "base", "differ", 100) is None
    )  # the base has two right ones of p
    assert of_distinct(frame, "distinct", "one", "none", 100) == []
