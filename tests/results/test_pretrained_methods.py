"""The paper's methods on one stratum of the pretrained model: pages, and what they say."""

from __future__ import annotations

import json

from conftest import ROOT

from benchmarks import pretrained
from benchmarks.kept_tables import KEPT
from benchmarks.pretrained_plain import PLAIN, judged, render
from benchmarks.pretrained_rivals import counts_of

JUDGED = json.loads(pretrained.file_of("pretrained_methods_judged").read_text(encoding="utf-8"))
SHOWN = json.loads(pretrained.file_of("pretrained_methods").read_text(encoding="utf-8"))
PAIRS = {(one["policy"], one["other"]): one for one in JUDGED["differences"]}


def test_the_pages_hold_the_tables() -> None:
    for name in ("pretrained-study.md", "measurements.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert all(table in page for table in render(JUDGED).split("\n\n"))


def test_what_is_judged_follows_from_the_kept_counts() -> None:
    counts = counts_of(KEPT / "pretrained_methods", [])
    assert json.loads(json.dumps(judged(counts))) == JUDGED


def test_runs_are_those_of_the_study_and_of_the_one_before() -> None:
    before = json.loads(pretrained.file_of("pretrained_plain").read_text(encoding="utf-8"))
    runs = {(run["method"], run["seed"]): run["solved"] for run in SHOWN["runs"]}
    assert len(runs) == 35
    for run in before["runs"]:
        assert runs[run["method"], run["seed"]] == run["solved"]
    assert SHOWN["base"] == before["base"]


def test_grpo_trades_coverage_and_what_is_shown_of_the_others() -> None:
    grpo = PAIRS["grpo", "base"]
    assert SHOWN["base"]["chance_32"] <= 0.01
    assert grpo["pass_1"][1] > 0 > grpo["pass_32"][2]
    for policy, other, side in (
        ("grpo_no_kl", "grpo", 0),
        ("grpo_branch", "grpo", 0),
        ("grpo_branch_k1_reward", PLAIN, 1),
    ):
        _, low, high = PAIRS[policy, other]["pass_32"]
        assert (low > 0) - (high < 0) == side


def test_the_guide_at_the_papers_dose_hardly_acts() -> None:
    doses = {
        method: [run["dose"] for run in SHOWN["runs"] if run["method"] == method]
        for method in ("grpo_branch", "grpo_branch_k1_reward")
    }
    ends = {method: (round(min(own), 3), round(max(own), 3)) for method, own in doses.items()}
    assert ends == {"grpo_branch": (0.010, 0.014), "grpo_branch_k1_reward": (0.023, 0.033)}
    counts = counts_of(KEPT / "pretrained_methods", [])
    worked = counts.pivot_table("worked", ["problem_id", "train_seed"], "algorithm")
    same = (worked["grpo_branch"] == worked["grpo"]) & worked["grpo"].notna()
    assert (int(same.sum()), int(worked["grpo"].notna().sum())) == (293, 300)
    solved = {(run["method"], run["seed"]): run["solved"]["pass_32"] for run in SHOWN["runs"]}
    for policy, other, gains in (
        ("grpo_no_kl", "grpo", [-2.9, -0.8, -2.5, 0.0, -2.9]),
        ("grpo_branch_k1_reward", PLAIN, [0.0, 0.8, 2.9, 2.5, 4.2]),
    ):
        apart = [100 * (solved[policy, seed] - solved[other, seed]) for seed in range(41, 46)]
        assert [round(each, 1) + 0.0 for each in apart] == gains
