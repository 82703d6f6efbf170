"""Coverage at equal accuracy: mixtures by hand and by enumeration, and the table made of them."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from counted import counts_of

from sage.evaluation.mixtures import (
    beside_mixture,
    equal_accuracy,
    mixture_line,
    mixture_pass_at_k,
)


def enumerated(base: list[int], trained: list[int], share: float, k: int) -> float:
    """pass@k over all ways to take j completions of one and k - j of the other."""
    total = 0.0
    for j in range(k + 1):
        weight = comb(k, j) * share**j * (1 - share) ** (k - j)
        ways = list(product(combinations(base, j), combinations(trained, k - j)))
        total += weight * np.mean([any(one + other) for one, other in ways])
    return total


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixture_is_what_enumeration_says(share: float) -> None:
    base, trained, k = [1, 0, 0, 0, 1], [1, 1, 1, 0, 0], 3
    values = mixture_pass_at_k(5, np.array([sum(base)]), np.array([[sum(trained)]]), share, k)
    assert values[0, 0] == pytest.approx(enumerated(base, trained, share, k))


def test_a_mixture_of_its_own_kind_is_neither_above_nor_below() -> None:
    """`half` is right as often as half base, half baseline; on each problem as the mixture."""
    base, grpo = [8, 0, 4, 0, 2, 6], [0, 8, 4, 8, 6, 6]
    half = [round((one + other) / 2) for one, other in zip(base, grpo, strict=True)]
    table = equal_accuracy(
        counts_of(base=[base], grpo=[grpo, grpo], half=[half, half]),
        "grpo",
        ["half", "grpo"],
        1,
        200,
    ).set_index("algorithm")
    assert table.loc["half", "base_share"] == pytest.approx(0.5)
    assert table.loc["half", "value"] == pytest.approx(0, abs=1e-12)
    assert table.loc["grpo", "base_share"] == 0
    assert table.loc["grpo", "mixture"] == pytest.approx(table.loc["grpo", "coverage"])


def test_a_method_that_keeps_more_is_above_and_a_more_accurate_one_has_no_mixture() -> None:
    base, grpo = [2] * 60, [8, 0] * 30
    even, best = [4, 2] * 30, [8, 1] * 30
    table = equal_accuracy(
        counts_of(base=[base], grpo=[grpo] * 3, even=[even] * 3, best=[best] * 3),
        "grpo",
        ["even", "best"],
        4,
        200,
    ).set_index("algorithm")
    assert table.loc["even", "low"] > 0
    assert table.loc["even", "value"] == pytest.approx(
        table.loc["even", "coverage"] - table.loc["even", "mixture"]
    )
    assert table.loc["best", ["mixture", "value", "low", "high"]].isna().all()
    with pytest.raises(ValueError, match="no counts of base"):
        equal_accuracy(counts_of(grpo=[grpo]), "grpo", ["grpo"], 4, 100)


def test_accuracy_is_made_equal_where_rl_trains() -> None:
    """Over all, `turned` is as accurate as `grpo`; on the trained half as the base."""
    base, grpo, turned = [2, 6] * 20, [6, 2] * 20, [2, 6] * 20
    counts = counts_of(base=[base], grpo=[grpo] * 2, turned=[turned] * 2)
    even = counts["problem_id"].str[1:].astype(int) % 2 == 0
    counts["stratum"] = np.where(even, "trained", "other")
    tables = [
        equal_accuracy(counts, "grpo", ["turned", "grpo"], 4, 200, trained).set_index("algorithm")
        for trained in ((), ["trained"], ["absent"])
    ]
    for table in (tables[0], tables[2]):
        assert table["accuracy"].tolist() == table["accuracy_all"].tolist() == [0.5, 0.5]
    assert tables[1]["accuracy"].tolist() == [0.25, 0.75]
    assert tables[1]["accuracy_all"].tolist() == [0.5, 0.5]
    assert tables[1].loc["turned", "base_share"] == 1.0
    line = mixture_line(counts, "grpo", 2, points=3, trained=["trained"])
    assert line["accuracy"].tolist() == pytest.approx([0.75, 0.5, 0.25])


def test_a_method_as_accurate_as_an_end_has_its_mixture() -> None:
    """Rounding puts ties of n = 10 on either side of the ends."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        base, other = rng.integers(0, 4, 12), rng.integers(5, 11, (2, 12))
        for own, share in ((other[:, ::-1], 0.0), (np.stack([base[::-1]] * 2), 1.0)):
            found = beside_mixture(own, other, base, 10, 2, 100)
            assert found["base_share"] == share
            assert np.isfinite(found["value"])


def test_impossible_shares_and_unlike_numbers_of_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="not 0 to 1"):
        mixture_pass_at_k(8, np.array([0]), np.array([[8]]), 1.2, 4)
    with pytest.raises(ValueError, match="beside"):
        beside_mixture(np.ones((1, 4)), np.ones((5, 4)), np.zeros(4), 8, 2, 100)


def test_a_single_run_that_is_a_mixture_is_seldom_found_to_differ() -> None:
    """Its completions are those of the mixture, 60 problems; problems differ widely and evenly."""
    rng, n, k, studies = np.random.default_rng(1), 64, 32, 150
    differ = 0
    for _ in range(studies):
        of_base = rng.beta(0.5, 1.5, 60)
        trained = np.clip(of_base + rng.normal(0.15, 0.3, 60), 0, 1)
        shares = of_base, trained, 0.4 * of_base + 0.6 * trained
        base, other, own = (rng.binomial(n, share) for share in shares)
        found = beside_mixture(own[None], other[None], base, n, k, draws=1_000)
        differ += not found["low"] <= 0 <= found["high"]
    assert differ / studies <= 0.06  # with the bootstrap's arms alone more than a tenth
