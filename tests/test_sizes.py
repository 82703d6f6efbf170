"""Levels of methods at each size, and the guide's effects, by hand."""

import pandas as pd

from benchmarks.sizes import GUIDED, PLAIN, SIZES, levels, tables


def counts() -> pd.DataFrame:
    """Two sheets each: one that RL trains on and one of another stratum, 16 samples of each."""
    rows = []
    for place, bases in enumerate(SIZES.values()):
        for base, model in enumerate(bases):
            for row, worked in (("base", 4), (PLAIN, base), (GUIDED, base + place)):
                for stratum, right in (("plain", worked), ("upturn", 0)):
                    rows.append((model, row, 0, f"p{stratum}", stratum, 16, right + 1, right))
    columns = ["model", "algorithm", "train_seed", "problem_id", "stratum", "n_samples"]
    return pd.DataFrame(rows, columns=[*columns, "correct", "worked"])


def test_levels_are_of_each_base() -> None:
    found = levels(counts(), SIZES["0.6 M"], GUIDED)
    assert found["working"].tolist() == [1 / 16, 2 / 16, 3 / 16]
    assert found["answers"].tolist() == [2 / 16, 3 / 16, 4 / 16]
    assert found["coverage"].tolist() == [0.5, 0.5, 0.5]  # of 16 samples one is enough


def test_the_tables_have_every_size_and_method() -> None:
    of_methods, of_effects = tables(counts())
    assert of_methods.count("| `base` | 31.2 | 25.0 |") == 3  # 5 and 4 of 16
    # Of the bases with 0, 1 and 2 right only the first gains by one more: half of its two sheets.
    assert "| 0.6 M | +16.7 (" in of_effects
    assert of_effects.count("| +16.7 (") == 4  # at two sizes, and minus the first
    assert "| 0.17 M | +0.0 (+0.0 to +0.0) |  |" in of_effects
