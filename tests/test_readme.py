"""README's numbers and figure are those of the kept studies, and it is short."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from benchmarks import strata_figure
from benchmarks.kept_tables import KEPT, SEEN, difference, points_of
from benchmarks.path_tables import GUIDED, PLAIN, beyond_early_stopping, over_problems
from sage.claims.registration import read_entries, registration
from sage.evaluation.comparisons import comparisons_table
from sage.evaluation.curves import ANSWERS
from sage.evaluation.pass_at_k import pass_at_k
from sage.rendering.numbers import percent

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = {line.split("]")[0][1:]: line for line in TEXT.splitlines() if line.startswith("[")}
"""The table of findings, by question."""

Effect = tuple[float, float, float]


def of_claim(study: str, claim: str) -> Effect:
    """The effect that decides a kept claim."""
    rows = pd.read_csv(KEPT / study / "claims.csv")
    row = rows[(rows["claim"] == claim) & (rows["role"] == "primary")].iloc[0]
    return row["effect"], row["low"], row["high"]


def of_cell(study: str, exhibit: str) -> Effect:
    """The guide of ratio 3 at the paper's β, in pass@16."""
    cells = pd.read_csv(KEPT / study / f"{exhibit}.csv")
    cells = cells[(cells["k"] == 16) & (cells["kl_coefficient"] == 0.05) & (cells["setting"] == 3)]
    (row,) = cells.to_dict("records")
    return row["value"], row["low"], row["high"]


def over_early(equal: bool) -> Effect:
    """The guide over stopping early, from all bases or those where accuracy could be matched."""
    table = beyond_early_stopping("bases", PLAIN, GUIDED[:1])
    table = table[table["reached"] | (not equal)]
    return over_problems([*table["beyond"]], table["strata"].iloc[0])


FALL, HELP, NOT = "Does pass@16 fall?", "Does a guide ten times as strong help?", "Where not?"
PAPER, PRETRAINED = "As in the paper?", "A pretrained model?"


@pytest.mark.parametrize(
    ("question", "values"),
    [
        (FALL, lambda: difference("mini", "sums", "sheets", "grpo", "base", 16)),
        (FALL, lambda: difference("mini", "sums", "sheets", "grpo", "base", 1)),
        (FALL, lambda: of_claim("bases", "gains_of_grpo")),
        (HELP, lambda: of_claim("bases", "guide_that_acts")),
        (HELP, lambda: over_early(equal=False)),
        (HELP, lambda: over_early(equal=True)),
        (NOT, lambda: of_claim("long_bases", "guide_that_acts")),
        (NOT, lambda: of_cell("dose", "dose_minus")),
        (PAPER, lambda: of_claim("mini", "accuracy_and_coverage")),
        (PAPER, lambda: of_cell("dose_more", "dose_loss")),
        (PRETRAINED, lambda: of_claim("pretrained_plain", "accuracy_without_guide")),
        (PRETRAINED, lambda: of_claim("pretrained_plain", "coverage_without_guide")),
        (PRETRAINED, lambda: of_claim("pretrained_plain", "guide_that_acts")),
    ],
)
def test_effects_are_those_of_kept_tables(
    question: str, values: Callable[[], Effect | None]
) -> None:
    (row,) = (line for start, line in ROWS.items() if start.startswith(question))
    assert points_of(values()) in re.sub(r" points( of pass@16)?", "", row)


def test_what_is_lost_is_where_rl_does_not_train() -> None:
    counts = pd.read_parquet(KEPT / "mini/counts.parquet")
    counts = counts[(counts["model"] == "sums") & (counts["benchmark"] == "sheets")]
    values = []
    for seen in (False, True):
        for method in ("base", "grpo"):
            own = counts[(counts["algorithm"] == method) & (counts["stratum"].isin(SEEN) == seen)]
            values.append(
                percent(pass_at_k(64, own["correct"].to_numpy(int), np.array([16])).mean())
            )
    assert values == ["48.6", "18.2", "95.7", "100.0"]
    row = ROWS["What is lost?"]
    others = counts[~counts["stratum"].isin(SEEN) & counts["algorithm"].isin(["base", "grpo"])]
    table = comparisons_table(others.reset_index(drop=True), draws=10_000)
    (found,) = table[(table["k"] == 16) & (table["metric"] == ANSWERS)].to_dict("records")
    assert found["algorithm"] == "grpo"
    loss = points_of([found[end] for end in ("value", "low", "high")])
    assert loss.replace(" (", " points (") in row
    assert f"from {values[0]} to {values[1]} %" in row
    assert f"from {values[2]} to 100 %" in row


def test_the_other_numbers_have_a_file() -> None:
    assert points_of(difference("mini", "routes", "routes", "grpo", "base", 16)) in TEXT
    found = json.loads((ROOT / "benchmarks/findings.json").read_text(encoding="utf-8"))
    (ours,) = (
        row
        for row in found["paper_means"]
        if (row["table"], row["quantity"]) == ("table1", "pass@256")
        and (row["method"], row["other"]) == ("grpo_branch", "grpo")
    )
    assert f"+{ours['points']:.1f} points, p = {ours['p']:.2f}" in TEXT
    mini, smoke = (
        json.loads((ROOT / f"benchmarks/{name}_time.json").read_text(encoding="utf-8"))
        for name in ("mini", "smoke")
    )
    assert "{} min {} s on two cores".format(*divmod(mini["seconds"], 60)) in TEXT
    assert f"{sum(map(sum, smoke['job_seconds'].values()))} s of training and sampling" in TEXT


def test_claims_called_registered_were_so_before_training() -> None:
    for study, claim in (
        ("mini", "gains_of_grpo"),
        ("mini", "accuracy_and_coverage"),
        ("bases", "gains_of_grpo"),
        ("bases", "guide_that_acts"),
        ("long_bases", "guide_that_acts"),
        ("pretrained_plain", "coverage_without_guide"),
    ):
        with gzip.open(KEPT / study / "manifests.jsonl.gz", "rt", encoding="utf-8") as lines:
            jobs = [json.loads(line) for line in lines]
        entries = read_entries(KEPT / study / "registered.json")
        known = registration(entries, (job["started"] for job in jobs if job["stage"] == "rl"))
        rows = pd.read_csv(KEPT / study / "claims.csv").set_index("claim")
        early, words = known.of_claim(claim, rows.loc[[claim], "claim_sha256"].iloc[0])
        assert early, words


def test_the_figure_and_its_words_are_those_of_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(strata_figure, "FILE", tmp_path / "strata.svg")
    strata_figure.main()
    assert (tmp_path / "strata.svg").read_bytes() == (ROOT / "reports/strata.svg").read_bytes()
    printed = re.findall(r"^(The \w+).*pass@16 ([\d.]+)$", capsys.readouterr().out, re.M)
    alt = TEXT.split("![")[1].split("]")[0]
    trained, others = (
        [value for place, value in printed if place == name] for name in ("The two", "The four")
    )
    assert f"Two trained strategies: {trained[0]} before RL, 100 after" in alt
    assert trained[1:] == ["100.0"] * 3
    before, guided, early, grpo = others
    words = f"{before} before, {grpo} after GRPO, {guided} with the guide, {early} stopped early"
    assert words in alt


def test_it_can_be_read_in_three_minutes() -> None:
    assert len(TEXT.split()) <= 800
