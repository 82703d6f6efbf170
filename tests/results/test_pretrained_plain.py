"""How the study of RL on one stratum is judged, on counts whose answers can be worked out."""

from __future__ import annotations

import json
from math import comb

import pandas as pd
import pytest
from conftest import ROOT

from benchmarks import pretrained
from benchmarks.kept_tables import KEPT
from benchmarks.pretrained_plain import GUIDED, LARGER, PLAIN, judged, render
from benchmarks.pretrained_rivals import counts_of

N, K = 64, 32
Worked = dict[tuple[str, int], tuple[int, int]]
WORKED: Worked = {
    ("base", 0): (16, 8),
    (PLAIN, 1): (64, 0),
    (PLAIN, 2): (64, 0),
    ("step-2", 1): (40, 2),
    ("step-2", 2): (40, 4),
    (GUIDED, 1): (52, 6),
    (GUIDED, 2): (52, 6),
    (LARGER, 1): (8, 6),
    (LARGER, 2): (8, 6),
}
"""Right of N on each `plain` sheet and on each other, by policy and training seed."""


def counts(worked: Worked) -> pd.DataFrame:
    rows = []
    for (policy, seed), (own, elsewhere) in worked.items():
        for problem, stratum, right in (
            ("a", "plain", own), ("b", "plain", own), ("c", "raise", elsewhere),
            ("d", "turn", elsewhere),
        ):  # fmt: skip
            rows.append(
                {"model": "sums", "algorithm": policy, "train_seed": seed, "benchmark": "sheets"}
                | {"problem_id": problem, "cluster": "", "stratum": stratum, "n_samples": N}
                | {"correct": right, "worked": float(right), "chance": [0.0] * 7}
            )
    return pd.DataFrame(rows)


def covered(right: int) -> float:
    """pass@32 of a problem with `right` of 64."""
    return 1 - comb(N - right, K) / comb(N, K)


def of(policy: str, content: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    (one,) = (each for each in content["policies"] if each["policy"] == policy)
    return one


def test_coverage_is_held_against_the_stop_that_is_as_accurate() -> None:
    """Right in 52 of 64, the guide is half way between step 2 (40) and the end (64)."""
    content = judged(counts(WORKED))
    guided = of(GUIDED, content)
    assert [guided["own"], guided["elsewhere"]] == [0.8125, 0.09375]
    stopped = [(1 + covered(right)) / 2 for right in (2, 4)]  # pass@32 is 1 on the plain sheets
    early = [(each + 0.5) / 2 for each in stopped]
    wanted = (1 + covered(6)) / 2 - sum(early) / 2
    value, low, high = guided["early"]  # type: ignore[misc]
    assert value == pytest.approx(wanted, abs=2e-5)
    half = 12.706 * (early[1] - early[0]) / 2  # Student's t with one degree of freedom
    assert [low, high] == pytest.approx([wanted - half, wanted + half], abs=2e-4)
    assert guided["seeds"] == 2


def test_a_seed_without_all_its_stops_is_left_out() -> None:
    content = judged(counts({key: right for key, right in WORKED.items() if key != ("step-2", 2)}))
    assert (of(GUIDED, content)["early"], of(GUIDED, content)["seeds"]) == (None, 1)


def test_the_mixture_is_as_accurate_where_rl_trains() -> None:
    """A quarter of the base: 16/4 + 64·3/4 is 52 of 64, whatever is right elsewhere."""
    found = of(GUIDED, judged(counts(WORKED)))["mixture"]
    drawn = [comb(K, j) * 0.25**j * 0.75 ** (K - j) for j in range(K + 1)]
    fails = sum(p * comb(N - 8, j) / comb(N, j) for j, p in enumerate(drawn))
    mixture = (1 + 1 - fails) / 2
    value, low, high = found  # type: ignore[misc]
    assert value == pytest.approx((1 + covered(6)) / 2 - mixture, abs=2e-5)
    assert low <= value <= high


def test_less_accurate_than_the_base_has_no_rival_as_accurate() -> None:
    larger = of(LARGER, judged(counts(WORKED)))
    assert larger["mixture"] is None
    assert (larger["early"], larger["seeds"]) == (None, 0)


def test_differences_count_the_stratum_of_rl_and_all() -> None:
    content = judged(counts(WORKED))
    pairs = {(one["policy"], one["other"]): one for one in content["differences"]}
    assert pairs[GUIDED, PLAIN]["own"][0] == pytest.approx(-12 / 64, abs=1e-5)
    assert pairs[GUIDED, PLAIN]["pass_1"][0] == pytest.approx((-12 + 6) / 128, abs=1e-5)
    assert pairs[GUIDED, LARGER]["pass_32"][0] == pytest.approx((1 - covered(8)) / 2, abs=1e-5)
    assert [*pairs] == [
        (PLAIN, "base"), (GUIDED, "base"), (GUIDED, PLAIN), (LARGER, PLAIN), (GUIDED, LARGER)
    ]  # fmt: skip


def test_what_was_not_sampled_is_left_out() -> None:
    content = judged(counts({key: right for key, right in WORKED.items() if key[0] != "step-2"}))
    assert "early" not in of(GUIDED, content)
    assert "– |" in render(content)


JUDGED = json.loads(pretrained.file_of("pretrained_plain_judged").read_text(encoding="utf-8"))
SHOWN = json.loads(pretrained.file_of("pretrained_plain").read_text(encoding="utf-8"))


def test_the_pages_hold_the_tables() -> None:
    page, measurements = (
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("pretrained-study.md", "measurements.md")
    )
    assert all(table in page for table in pretrained.render(SHOWN).split("\n\n"))
    for table in render(JUDGED).split("\n\n"):
        assert table in page
        assert table in measurements


def test_what_is_judged_follows_from_the_kept_counts() -> None:
    counts = counts_of(KEPT / "pretrained_plain", [])
    assert json.loads(json.dumps(judged(counts))) == JUDGED
    for run in SHOWN["runs"]:
        own = counts[(counts["algorithm"] == run["method"]) & (counts["train_seed"] == run["seed"])]
        rates = own.groupby("stratum")["worked"].mean() / own["n_samples"].iloc[0]
        assert rates.to_dict() == pytest.approx(run["solved"]["strata"], abs=5e-5)


def test_the_study_meets_its_rules_and_does_not_show_that_the_guide_keeps_more() -> None:
    assert SHOWN["base"]["chance_32"] <= 0.01
    doses = [run["dose"] for run in SHOWN["runs"] if run["method"] == GUIDED]
    assert [round(min(doses), 2), round(max(doses), 2), len(doses)] == [0.16, 0.22, 5]
    pairs = {(one["policy"], one["other"]): one for one in JUDGED["differences"]}
    assert pairs[PLAIN, "base"]["pass_1"][1] > 0 > pairs[PLAIN, "base"]["pass_32"][2]
    value, low, high = pairs[GUIDED, PLAIN]["pass_32"]
    assert low < 0 < 0.03 < value < high
    assert of(GUIDED, JUDGED)["mixture"][1] > 0  # type: ignore[index]
    solved = {(run["method"], run["seed"]): run["solved"]["pass_32"] for run in SHOWN["runs"]}
    gains = [100 * (solved[GUIDED, seed] - solved[PLAIN, seed]) for seed in range(41, 46)]
    assert [round(gain, 1) for gain in gains] == [8.8, 10.0, 18.0, 2.5, -1.2]
    assert max(solved[PLAIN, seed] for seed in range(41, 46)) < 0.33
    for run in SHOWN["runs"]:
        least = 0.96 if run["method"] == LARGER else 0.98
        assert min(run["forms"]["plain_on_plain"], run["forms"]["plain_on_turn"]) >= least


def test_neither_the_guide_nor_a_larger_beta_is_shown_to_be_above_an_early_stop() -> None:
    for policy, seeds in ((GUIDED, 4), (LARGER, 5)):
        value, low, high = of(policy, JUDGED)["early"]  # type: ignore[misc]
        assert low < 0 < value < high
        assert of(policy, JUDGED)["seeds"] == seeds
    pairs = {(one["policy"], one["other"]): one for one in JUDGED["differences"]}
    assert pairs[LARGER, PLAIN]["pass_32"][1] > 0 > pairs[LARGER, PLAIN]["own"][2]
    assert pairs[GUIDED, LARGER]["own"][1] < 0 > pairs[GUIDED, LARGER]["pass_32"][2]  # few sheets
