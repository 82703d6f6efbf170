"""docs/measurements.md has the numbers of the committed files, computed as it says."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_frames import ROOT

from benchmarks import (
    findings,
    kept_tables,
    out_of_support,
    path_tables,
    pretrained,
    sizes,
    study_tables,
)
from benchmarks.findings import merged_adapters, paper_differences, paper_means, paper_seeds
from sage.claims.tests import load_claims
from sage.evaluation.curves import ANSWERS, WORKING, curves_of, right_counts
from sage.evaluation.intervals import holm, interval_of_difference
from sage.evaluation.pass_at_k import pass_at_k

TEXT = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
ARTICLE = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
FOUND = json.loads((ROOT / "benchmarks/findings.json").read_text(encoding="utf-8"))


def test_the_article_has_no_number_that_was_not_measured() -> None:
    said = re.sub(r"\]\([^)]*\)", "", ARTICLE)
    numbers = re.findall(r"\d+\.\d+|\d+ of \d+(?! steps)", said)
    assert len(numbers) > 20
    assert [number for number in numbers if number not in TEXT] == []


def test_the_numbers_of_the_text_are_those_of_the_file() -> None:
    for table in FOUND["paper_differences"]:
        number, clear = table["table"].removeprefix("table"), len(table["after_holm"])
        row = f"| {number} | {table['tests']} | {table['below_0.05']} | {clear} |"
        assert row in TEXT
    for row in FOUND["merged_adapters"]:
        assert f"{row['cosine']:.2f} | {100 * row['share_changed']:.0f} % |" in TEXT
    for row in FOUND["released_grader"]:
        assert row["ours"] == row["answers"]
        assert f"{row['released']}" in TEXT


def test_the_papers_differences_are_computed_from_its_tables() -> None:
    assert paper_differences() == FOUND["paper_differences"]
    assert sum(table["tests"] for table in FOUND["paper_differences"]) == 50


def test_the_papers_deviations_are_those_of_five_seeds() -> None:
    """Nothing else fits: a mean of 26 of 60 problems with deviation 0.012, such as 25, 25, 26, 27,
    27, is that of five seeds, and with n in the place of n - 1 it is none."""
    assert paper_seeds() == FOUND["paper_seeds"]
    fits = {(row["seeds"], row["ddof"]): row["fit"] for row in FOUND["paper_seeds"]}
    assert fits[5, 1] == FOUND["paper_seeds"][0]["cells"] == 90
    assert f"seeds {fits[3, 1]}, {fits[4, 1]} and {fits[6, 1]} can" in TEXT
    assert f"with n in it {fits[5, 0]}." in TEXT
    assert findings._can_be(0.433, 0.012, 60, 5, 1)
    assert not findings._can_be(0.433, 0.012, 60, 5, 0)


def test_the_papers_deviations_at_pass_at_1_are_held_against_the_binomial() -> None:
    tables = {n: pd.read_csv(ROOT / f"reports/paper/table{n}.csv") for n in (1, 9)}
    ones = {n: table[table["quantity"] == "pass@1"] for n, table in tables.items()}
    of_base = ones[1]["algorithm"] == "base"
    trained, base = (100 * (ones[1]["std"][at] ** 2).mean() ** 0.5 for at in (~of_base, of_base))
    assert f"by {trained:.1f} points (root mean square), the base by {base:.1f}" in TEXT
    shares = {
        n: one["std"] ** 2
        / (one["value"] * (1 - one["value"]) / one["benchmark"].map(findings.PROBLEMS))
        for n, one in ones.items()
    }
    assert f"at most {shares[9].max() ** 0.5:.2f} of\n" in TEXT
    assert f"those of Table 1 are {shares[1].mean() ** 0.5:.2f} of it" in TEXT


def test_the_papers_means_are_computed_from_its_tables() -> None:
    assert paper_means() == FOUND["paper_means"]
    shown = [row for row in FOUND["paper_means"] if row["quantity"] != "pass@1"]
    assert f"for all {len(shown)} contrasts" in TEXT
    assert f"one of {len(shown)} contrasts" in ARTICLE
    assert sum(row["holm"] < 0.05 for row in shown) == 1
    assert sum(row["p"] < 0.05 for row in shown) == 5
    for row in shown:
        number, points = (
            row["table"].removeprefix("table"),
            f"{row['points']:+.1f}".replace("-", "−"),
        )
        p, holm = (
            "below .001" if row[key] < 0.001 else f"{row[key]:.3f}".removeprefix("0")
            for key in ("p", "holm")
        )
        end = f"| {points} | {p} | {holm.removesuffix('.000')} |"
        lines = [line for line in TEXT.splitlines() if line.startswith(f"| {number} |")]
        assert any(line.endswith(end) for line in lines), row


def test_a_mean_of_two_benchmarks_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Differences 0.02 and 0.04, all deviations 0.01: SE sqrt(4 x 0.01^2 / 5) / 2, 16 df."""
    rows = [
        f"{benchmark},{row},pass@256,{value},0.01"
        for benchmark, ours in (("aime", 0.52), ("amc23", 0.54))
        for row, value in (("grpo", 0.5), ("base", ours))
    ]
    (tmp_path / "reports/paper").mkdir(parents=True)
    text = "\n".join(["benchmark,algorithm,quantity,value,std", *rows])
    (tmp_path / "reports/paper/table9.csv").write_text(text)
    monkeypatch.setattr(findings, "ROOT", tmp_path)
    monkeypatch.setattr(findings, "MEANS", {"table9": (("base", "grpo"),)})
    (row,) = paper_means()
    assert (row["points"], row["benchmarks"]) == (3.0, 2)
    assert row["t"] == pytest.approx(0.03 / ((4 * 0.0001 / 5) ** 0.5 / 2), abs=0.01)  # 6.71
    assert row["p"] == pytest.approx(5.03e-6, rel=0.01)


def test_the_rules_of_the_worlds_are_those_of_the_files() -> None:
    files = (ROOT / f"benchmarks/{name}_rules.json" for name in ("sums", "route"))
    of_sums, of_routes = (json.loads(file.read_text())["models"] for file in files)
    columns = [_column_of_sums(of_sums[name]) for name in ("sums", "placebo")]
    (routes,) = of_routes.values()
    walks, runs = routes["base"], routes["grpo"]
    after = min(run["entropy_at_forks"] for run in runs)
    rules = routes["rules"]
    columns.append(
        (
            f"{walks['chance_at_k_%']} %",
            "–",
            f"{walks['entropy_at_forks']} → {after}",
            "–",
            f"{walks['pass@k']['all']} %",
            "–",
            f"{walks['moves_that_follow_an_edge_%']} % (98 asked)",
            f"{sum(rules.values())} of {len(rules)}",
        )
    )
    for cells in zip(*columns, strict=True):
        assert f"| {' | '.join(cells)} |" in TEXT


def _column_of_sums(model: dict[str, Any]) -> tuple[str, ...]:
    base, strategies, rules = model["base"], model["strategies"], model["rules"]
    lowest = (
        min(base["entropy_by_choices"].values()),
        min(min(run["entropy_by_choices"].values()) for run in model["grpo"]),
    )
    gap = min(gap["gap"] for gap in strategies["strategies_by_stratum"].values())
    return (
        f"{base['chance_at_k']} %",
        f"by {gap} points or more",
        f"{lowest[0]} → {lowest[1]} and more",
        f"{strategies['alignment']:.3f}",
        f"{base['pass@k']['all']} %",
        f"{strategies['problems_of_rate_about_1e-3']} of 120",
        "–",
        f"{sum(rules.values())} of {len(rules)}",
    )


def test_the_tables_of_kept_studies_are_those_of_their_files() -> None:
    printed = list(study_tables.tables())
    assert len(printed) == 20
    for table in printed:
        assert table in TEXT
        assert len(table.splitlines()) > 2 or table == path_tables.guided_at_the_end()


def test_what_is_said_of_stopping_early_is_in_the_kept_files() -> None:
    kept = ROOT / "reports/kept/equal_accuracy"
    rivals = pd.read_csv(kept / "free_rivals.csv").set_index("algorithm")
    value, low, high = 100 * rivals.loc["temperature-1.5", ["value", "low", "high"]]
    assert f"{value:.1f} points more than a mixture" in TEXT
    assert f"({low:+.1f} to {high:+.1f})".replace("-", "−") in TEXT
    hot = rivals.loc["temperature-2"]
    base = pd.read_csv(kept / "pass_at_k.csv").query("algorithm == 'base' and model == 'sums'")
    ends = base.drop_duplicates("k").set_index("k")["value"]
    assert hot["accuracy"] < ends[1]
    assert hot["coverage"] < ends[16]
    claims = (
        pd.read_csv(kept / "claims.csv").query("claim == 'gains_of_grpo' and test == 1").iloc[0]
    )
    lost, least, most = (-100 * claims[key] for key in ("effect", "high", "low"))
    assert f"is {lost:.1f} points (−{most:.1f} to −{least:.1f})" in TEXT
    optimum = pd.read_csv(kept / "optimum.csv").set_index("algorithm")
    guided, plain = optimum.loc["grpo_branch_strong_k1_reward"], optimum.loc["grpo_k1_reward"]
    assert f"the {100 * guided['estimable']:.0f} to {100 * plain['estimable']:.0f} %" in TEXT
    assert f"about {guided['kl_optimum']:.1f} nats" in TEXT
    assert f"has gone {plain['kl_reached']:.1f} nats" in TEXT
    assert f"{100 * guided['moved']:.2f} % of the mass" in TEXT
    assert min(plain["accuracy"], guided["accuracy"]) > 0.999


def test_the_stronger_guide_beside_grpo_at_step_60_is_computed_from_counts() -> None:
    kept = ROOT / "reports/kept/equal_accuracy"
    files = [pd.read_parquet(kept / f"{name}counts.parquet") for name in ("", "free_rivals_")]
    counts = pd.concat([one[one["model"] == "sums"] for one in files])
    curves = {name: one for (_, name, _), one in curves_of(counts).items()}
    right, _ = right_counts(curves)
    guided, early = (
        np.stack([pass_at_k(128, run, np.array([16])) for run in right[name]])
        for name in ("grpo_branch_strong_k1_reward", "step-60")
    )
    low, high = interval_of_difference(guided - early, 1000, curves["grpo"].groups)
    value, *ends = (100 * np.array([(guided - early).mean(), low[0], high[0]])).round(1)
    said = f"{value:+.1f} points, but from {ends[0]:+.1f} to {ends[1]:+.1f} with three runs"
    assert said.replace("-", "−") in TEXT


def test_right_answers_with_wrong_working_are_counted_by_the_kl_term() -> None:
    counts = pd.read_parquet(ROOT / "reports/kept/rivals/counts.parquet")
    study, seen = kept_tables.study_of("rivals"), counts["stratum"].isin(kept_tables.SEEN)
    here, elsewhere = (study_tables.wrong_working(counts[at], study) for at in (seen, ~seen))
    for said in (
        f"In {here['none']} runs without one (guided retry left out), less than 90 %",
        f"in {here['all']} runs with one on all tokens",
        f"lost it in {here['some']}",
        f"in {elsewhere['none']} runs without one and in {elsewhere['all']} with one",
    ):
        assert said in TEXT.replace("\n", " ").replace("   ", " ").replace("  ", " "), said


def test_two_contrasts_of_rivals_are_clear_with_correct_working() -> None:
    table = kept_tables.frame("rivals", "comparisons")
    here = table[(table["metric"] == WORKING) & (table["k"] == kept_tables.K)]
    p_values = {}
    for name, claim in load_claims(ROOT / "config/claims_rivals.yaml").items():
        pair = {claim.primary.row, claim.primary.other}
        match = here[here["algorithm"].isin(pair) & here["other"].isin(pair)]
        p_values[name] = float(match["p"].iloc[0])
    adjusted = dict(zip(p_values, holm(np.array([*p_values.values()])), strict=True))
    assert {name for name, p in adjusted.items() if p < 0.05} == {"gains_of_grpo", "w_reinforce"}
    assert len(p_values) == 16
    assert f"GRPO's loss (p = {adjusted['gains_of_grpo']:.3f})" in TEXT
    assert f"points, p = {adjusted['w_reinforce']:.2f})" in TEXT


def test_what_grpo_loses_where_all_strategies_choose() -> None:
    found = {
        (model, metric): kept_tables.points_of(
            kept_tables.difference("dose_more", model, "sheets", "grpo", "base", 16, metric)
        )
        for model in ("zero", "plus")
        for metric in (ANSWERS, WORKING)
    }
    text = TEXT.replace(" points", "")
    assert (
        f"{found['zero', ANSWERS]}, with correct working {found['zero', WORKING]}, though" in text
    )
    assert f"it loses {found['plus', WORKING].removeprefix('−')}. The rules" in text
    counts = pd.read_parquet(ROOT / "reports/kept/dose_more/counts.parquet")
    base = counts[(counts["model"] == "zero") & (counts["algorithm"] == "base")]
    wrong = 1 - base["worked"].sum() / base["correct"].sum()
    assert f"and {100 * wrong:.0f} % of its right answers have a wrong step" in TEXT


def test_the_problems_outside_are_those_of_the_kept_counts() -> None:
    counts = pd.read_parquet(ROOT / "reports/kept/support/counts.parquet")
    assert out_of_support.table(counts) in TEXT
    chosen = out_of_support.outside(counts)
    assert f"{len(chosen)} of {counts['problem_id'].nunique()} are. Judged" in TEXT
    here = counts[(counts["model"] == "sums") & counts["problem_id"].isin(chosen)]
    luck = here["chance"].map(lambda levels: levels[9]).groupby(here["algorithm"]).mean()
    assert out_of_support.K == 2**9
    assert 0 < luck.max() < 0.002
    used = json.loads(out_of_support.FILE.read_text(encoding="utf-8"))["support"]
    for one, other in (("grpo", "base"), ("grpo_branch_stronger_k1_reward", "grpo_k1_reward")):
        assert f"in {used[one]['used']} of 10,000 draws" in TEXT
        assert f"in {used[other]['used']}," in TEXT or f"instead of {used[other]['used']};" in TEXT
        assert f"{100 * used[one]['right']:.0f} % of" in TEXT
    claims = pd.read_csv(ROOT / "reports/kept/support/claims.csv")
    for row in claims[claims["verdict"] == "supported"].to_dict("records"):
        said = kept_tables.points_of((row["effect"], row["low"], row["high"]))
        assert said.split("(")[1].removesuffix(")") in TEXT
        assert f"{100 * row['effect']:.1f}" in TEXT


def test_tables_of_forms_have_the_columns_that_their_heads_say() -> None:
    kept = json.loads(sizes.FILE.read_text(encoding="utf-8"))
    for study in ("sizes_large", "sizes_runs"):
        assert sizes.forms_table(kept[study]) in TEXT
    third = kept["sizes_large"]["large_third"]["`grpo`, run 1"]
    looks = f"| {100 * third['plain_on_plain']:.1f} | {100 * third['plain_on_turn']:.1f} |"
    assert "`grpo`, run 1 | 99.4 | 1.8 |" in TEXT
    assert looks == "| 99.4 | 1.8 |"
    page = (ROOT / "docs/pretrained-study.md").read_text(encoding="utf-8")
    runs = json.loads(pretrained.file_of("pretrained").read_text(encoding="utf-8"))
    for table in pretrained.render(runs).split("\n\n"):
        assert table.strip() in page


def test_young_adapters_are_rounded_away() -> None:
    for now, then in zip(merged_adapters(), FOUND["merged_adapters"], strict=True):
        assert now == pytest.approx(then, rel=1e-3)


def test_a_policy_stopped_early_lies_between_its_moments() -> None:
    accuracies, coverages = [0.2, 0.4, 0.3], [0.6, 0.4, 0.7]  # the third came before the second
    assert path_tables.early_line(accuracies, coverages, 0.35) == pytest.approx(0.55)
    assert path_tables.early_line(accuracies, coverages, 0.25) == pytest.approx(0.65)
    assert path_tables.early_line(accuracies, coverages, 0.9) == pytest.approx(0.4)


def test_what_long_runs_know_elsewhere_is_in_the_kept_counts() -> None:
    counts = pd.read_parquet(ROOT / "reports/kept/long/counts.parquet")
    elsewhere = counts[~counts["stratum"].isin(kept_tables.SEEN)]
    runs = elsewhere.groupby(["algorithm", "train_seed"])[["correct", "worked", "n_samples"]].sum()
    shares = 100 * runs.div(runs["n_samples"], axis=0)
    right, worked = shares.loc[("grpo_no_kl", 1), ["correct", "worked"]]
    assert f"right answers to {right:.0f} % and right working to {worked:.0f} %" in TEXT
    trained = shares.drop("base")
    wrong = trained["worked"] < trained["correct"] / 3
    assert f"in {wrong.sum()} of {len(wrong)} runs less than a third" in TEXT


def test_coverage_has_a_half_life_where_it_falls_to_half() -> None:
    assert path_tables.half_life([0, 50, 100], [0.8, 0.5, 0.3]) == pytest.approx(75)
    assert path_tables.half_life([0, 50, 100], [0.8, 0.5, 0.41]) is None
    assert path_tables.half_life([0, 50, 100], [0.8, 0.2, 0.9]) == pytest.approx(50 * 2 / 3)
