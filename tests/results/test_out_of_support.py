"""Problems outside the base's support: by which draws they are chosen, and by which judged."""

import pandas as pd
import pytest

from benchmarks.out_of_support import coverage, of_each_base, outside, over_bases, table


def _counts() -> pd.DataFrame:
    """Four problems; in the draws that choose, three have at most 4 right ones of 4,096."""
    choosing = {"a": 0, "b": 4, "c": 5, "d": 1}
    judging = {
        ("base", 0): {"a": 0, "b": 1, "c": 9, "d": 0},
        ("grpo", 1): {"a": 1, "b": 1, "c": 0, "d": 0},
        ("grpo", 2): {"a": 2, "b": 0, "c": 0, "d": 2},
    }
    rows = [("drawn_again", "base", 0, name, 4096, worked) for name, worked in choosing.items()]
    for (row, seed), right in judging.items():
        rows += [("sums", row, seed, name, 4, worked) for name, worked in right.items()]
    columns = ["model", "algorithm", "train_seed", "problem_id", "n_samples", "worked"]
    return pd.DataFrame(rows, columns=columns)


def test_other_draws_choose_than_judge() -> None:
    assert outside(_counts()) == ["a", "b", "d"]  # c has 5, and 9 in the draws that judge


def test_each_run_is_held_against_the_second_draw() -> None:
    chosen = outside(_counts())
    # One right of 4 is in a pair with 1 - C(3,2)/C(4,2) = 1/2, two with 1 - 1/6 = 5/6.
    assert coverage(_counts(), "base", chosen, k=2).tolist() == [[0, 0.5, 0]]
    found = coverage(_counts(), "grpo", chosen, k=2)
    assert found.tolist() == [pytest.approx([0.5, 0.5, 0]), pytest.approx([5 / 6, 0, 5 / 6])]
    text = table(_counts(), k=2)
    assert "| base, second draw |  | 833.3 | 16.7 |  |" in text  # one of 12 draws is right
    assert "| the same, pass@4 |  |  | 33.3 |  |" in text
    assert "| `grpo` | 2 | 2500.0 | 44.4 | +27.8 (" in text


def test_each_base_has_problems_of_its_own_and_the_mean_is_over_bases() -> None:
    first = _counts().replace({"model": {"drawn_again": "sums_again"}})
    second = first.replace({"model": {"sums": "other", "sums_again": "other_again"}})
    second = second[second["train_seed"] < 2]
    cooler = second[second["algorithm"] == "base"].replace({"model": {"other": "other_cooler"}})
    cooler = cooler[cooler["model"] == "other_cooler"].assign(worked=1)
    bases = of_each_base(pd.concat([first, second, cooler]))
    assert list(bases) == ["sums", "other"]
    assert set(bases["other"]["algorithm"]) == {"base", "grpo", "cooler"}
    assert outside(bases["other"]) == ["a", "b", "d"]
    assert coverage(bases["other"], "cooler", ["a"], k=2).tolist() == [[0.5]]
    # pass@2 of `grpo` is 4/9 from the first base and 1/3 from the other, of each base 1/6.
    text = over_bases({name: bases[name] for name in ("sums", "other")}, k=2, fewest=3, pairs=())
    assert "| `grpo` | 2083.3 | 38.9 | +22.2 (−48.4 to +92.8) | +16.7 to +27.8 |" in text
    assert over_bases(bases, k=2, fewest=3, pairs=[("grpo", "base")]).count("+22.2") == 2
