"""Levels of methods at each size, and the guide's effects, by hand."""

import json
from math import comb

import pandas as pd
import pytest
from conftest import ROOT

from benchmarks.sizes import (
    FILE,
    GUIDED,
    PLAIN,
    SIZES,
    counts_of,
    forms_table,
    joined,
    levels,
    made_again,
    mixtures,
    tables,
)
from sage.study import BASE

COLUMNS = ["model", "algorithm", "train_seed", "problem_id", "stratum", "n_samples"]
COLUMNS += ["correct", "worked"]


def counts() -> pd.DataFrame:
    """Two sheets each: one that RL trains on and one of another stratum, 16 samples of each."""
    rows = []
    for place, bases in enumerate(SIZES.values()):
        for base, model in enumerate(bases):
            for row, worked in (("base", 4), ("grpo", 0), (PLAIN, base), (GUIDED, base + place)):
                for stratum, right in (("plain", worked), ("upturn", 0)):
                    rows.append((model, row, 0, f"p{stratum}", stratum, 16, right + 1, right))
    return pd.DataFrame(rows, columns=COLUMNS)


def test_levels_are_of_each_base() -> None:
    found = levels(counts(), SIZES["0.6 M"], GUIDED)
    assert found["working"].tolist() == [1 / 16, 2 / 16, 3 / 16]
    assert found["answers"].tolist() == [2 / 16, 3 / 16, 4 / 16]
    assert found["coverage"].tolist() == [0.5, 0.5, 0.5]  # of 16 samples one is enough


def test_the_tables_have_every_size_and_method() -> None:
    of_methods, of_effects, of_bases = tables(counts())
    assert of_methods.count("| `base` | 31.2 | 25.0 |") == 3  # 5 and 4 of 16
    # Of the bases with 0, 1 and 2 right only the first gains by one more: half of its two sheets.
    assert "| 0.6 M | +16.7 (−55.0 to +88.4) | +16.7 (" in of_effects
    assert "| 0.17 M | +0.0 (+0.0 to +0.0) |  |" in of_effects
    assert "| 2.3 M | +16.7 (−55.0 to +88.4) |" in of_effects
    assert "| 0.6 M | 1 | 0.0 | −50.0 | +50.0 |" in of_bases
    assert "| 0.6 M | 2 | 6.2 | −50.0 | +0.0 |" in of_bases


def test_the_first_large_base_is_taken_from_the_second_study() -> None:
    sizes = counts()
    large = sizes[sizes["model"] == "large_first"].assign(model="sums", worked=3)
    both = joined(sizes, large)
    assert both.loc[both["model"] == "large_first", "worked"].tolist() == [3] * len(large)
    assert len(both) == len(sizes)
    assert made_again(sizes, large).endswith("0 of 8 counts are the same\n")
    again = large.assign(worked=[4, *[3] * (len(large) - 1)])
    assert "1 of 8" in made_again(sizes, again)


def test_the_pages_hold_the_tables() -> None:
    kept = ROOT / "reports/kept"
    both = joined(*(counts_of(kept / name) for name in ("sizes", "sizes_large")))
    page = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    forms = json.loads(FILE.read_text(encoding="utf-8"))
    shown = [*tables(both), *map(forms_table, forms.values())]
    assert all(table.strip() in page for table in shown)
    looking = {base: rows["`grpo`, run 1"] for base, rows in forms["sizes_large"].items()}
    assert looking["large_third"]["plain_on_plain"] > 0.99
    assert looking["large_third"]["plain_on_turn"] < 0.02
    for base in ("large_first", "large_second"):
        assert abs(looking[base]["plain_on_plain"] - looking[base]["plain_on_turn"]) < 0.03


def test_the_base_decides_whether_a_run_looks() -> None:
    forms = json.loads(FILE.read_text(encoding="utf-8"))["sizes_runs"]
    for base, rows in forms.items():
        looks = [
            row["plain_on_plain"] - row["plain_on_turn"] > 0.5
            for label, row in rows.items()
            if "run" in label
        ]
        assert looks == [base == "large_third"] * 4
        assert abs(rows["`base`"]["plain_on_plain"] - rows["`base`"]["plain_on_turn"]) < 0.05


def test_a_mixture_is_as_accurate_as_the_guided_method() -> None:
    """As accurate as no guide it is that, as accurate as the base it is the base."""
    right = {BASE: (2, 8), PLAIN: (16, 0)}  # of 32, where RL trains and elsewhere
    for row, expected in ((PLAIN, (1 + 0) / 2), (BASE, 0.5 * sum(of_sixteen(n) for n in (2, 8)))):
        rows = [
            ("m", name, 0, stratum, stratum, 32, n, n)
            for name, both in (right | {GUIDED: right[row]}).items()
            for stratum, n in zip(("plain", "upturn"), both, strict=True)
        ]
        table = pd.DataFrame(rows, columns=COLUMNS)
        found = {name: levels(table, ["m"], name) for name in (BASE, PLAIN, GUIDED)}
        assert mixtures(table, ["m"], found)[0] == pytest.approx(expected, abs=1e-3)


def of_sixteen(right: int) -> float:
    """pass@16 of so many right ones among 32."""
    return 1 - comb(32 - right, 16) / comb(32, 16)
