"""The page of the study of a pretrained model holds to what its runs have shown so far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import ROOT
from test_use_and_execution import RIGHT
from transformers import get_linear_schedule_with_warmup

from benchmarks import kept_tables, pretrained, pretrained_rivals
from benchmarks.pretrained import BOTH, SHEETS, K, training_of
from sage.evaluation.curves import WORKING
from sage.problems.record import Problem, write_problems
from sage.results import Results

CONTENT = json.loads(pretrained.file_of("pretrained").read_text(encoding="utf-8"))
SHORT = json.loads(pretrained.file_of("pretrained_short").read_text(encoding="utf-8"))
RIVALS = json.loads(pretrained.file_of("pretrained_short_rivals").read_text(encoding="utf-8"))
GUIDED, PLAIN = pretrained_rivals.GUIDED, pretrained_rivals.PLAIN
PAGE = (ROOT / "docs/pretrained-study.md").read_text(encoding="utf-8")


def what_grpo_changes(study: str) -> list[tuple[float, float, float]]:
    """GRPO minus its base in pass@1 and pass@32, with intervals."""
    found = (
        kept_tables.difference(study, "sums", SHEETS, "grpo", "base", k, WORKING) for k in (1, K)
    )
    return [difference for difference in found if difference]


def test_the_pages_hold_the_tables() -> None:
    measurements = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    rivals = pretrained_rivals.render(RIVALS).split("\n\n")
    for content in (CONTENT, SHORT):
        assert all(table in PAGE for table in pretrained.render(content).split("\n\n"))
    assert all(table in PAGE for table in rivals)
    both = pretrained.right_on_both()
    studies = map(pretrained.differences, ("pretrained", "pretrained_short"))
    for table in (*studies, both, *rivals[2:]):
        assert table in PAGE
        assert table in measurements


def test_the_study_is_judged_by_its_rules() -> None:
    """Chance and dose are as the rules want them; GRPO's gain in pass@1 is not significant."""
    runs = CONTENT["runs"]
    assert CONTENT["base"][f"chance_{K}"] <= 0.01
    gain, loss = what_grpo_changes("pretrained")
    assert gain[1] < 0 < gain[0]
    assert loss[2] < 0
    doses = [run["dose"] for run in runs if run["dose"] is not None]
    assert sum(doses) / len(doses) >= 0.05
    assert len(doses) == 3
    assert max(run["sampler_gap"] for run in runs) < 0.0004  # docs/running.md


def test_runs_end_in_the_three_ways_of_the_page() -> None:
    """They do what the sheet needs, add right in any form, or neither."""
    ways: dict[str, list[str]] = {"looks": [], "adds": [], "neither": []}
    looks_a_little = {}
    for run in CONTENT["runs"]:
        strata, forms = run["solved"]["strata"], run["forms"]
        both = min(strata["plain"], strata["turn"]) > BOTH
        looks = forms["plain_on_plain"] - forms["plain_on_turn"]
        ways["neither" if not both else "looks" if looks > 0.9 else "adds"].append(run["method"])
        assert (run["high"] is not None) == both
        assert forms["others"] < 0.02
        if not both and looks > 0.05:
            looks_a_little[run["method"], run["seed"]] = round(100 * looks)
        if run["method"] != "grpo_no_kl":
            assert max(strata[name] for name in strata if name not in kept_tables.SEEN) < 0.01
    guided = "grpo_branch_stronger_k1_reward"
    assert sorted(ways["looks"]) == ["grpo", *[guided] * 3]
    assert ways["adds"] == ["grpo_no_kl"] * 2
    assert sorted(ways["neither"]) == [*["grpo"] * 2, *["grpo_k1_reward"] * 3, "grpo_no_kl"]
    assert looks_a_little == {("grpo", 2): 25, ("grpo_k1_reward", 1): 14}


def test_the_short_study_misses_its_rules_by_one_training_seed() -> None:
    """Chance and dose are as wanted; GRPO's gain and loss are not significant; two runs look."""
    assert SHORT["base"][f"chance_{K}"] <= 0.01
    guided = [run for run in SHORT["runs"] if run["method"] == GUIDED]
    assert [run["dose"] > 0.05 for run in guided] == [True] * 5
    gain, loss = what_grpo_changes("pretrained_short")
    assert gain[1] < 0 < gain[0]
    assert loss[0] < 0 < loss[2]
    looking = [(run["method"], run["seed"]) for run in SHORT["runs"] if pretrained.looks(run)]
    assert looking == [("grpo", 13), (PLAIN, 13)]
    more = [
        round(100 * (run["forms"]["plain_on_plain"] - run["forms"]["plain_on_turn"]), 1)
        for run in SHORT["runs"]
        if pretrained.looks(run)
    ]
    assert more == [54.5, 95.4]


def test_the_guide_is_above_none_with_each_seed_and_not_above_a_mixture() -> None:
    solved = {(run["method"], run["seed"]): run["solved"] for run in SHORT["runs"]}
    key = f"pass_{K}"
    gains = [100 * (solved[GUIDED, s][key] - solved[PLAIN, s][key]) for s in range(11, 16)]
    assert [round(min(gains), 1), round(max(gains), 1)] == [7.0, 15.5]  # as the page says
    forms = {run["method"]: [] for run in SHORT["runs"]}
    for run in SHORT["runs"]:
        forms[run["method"]].append(100 * run["forms"]["others"])
    assert [round(min(forms[GUIDED]), 1), round(max(forms[GUIDED]), 1)] == [1.7, 6.4]
    assert round(max(forms[PLAIN]), 1) == 0.6
    for found in RIVALS.values():
        differences = {(one["policy"], one["other"]): one for one in found["differences"]}
        assert min(differences[GUIDED, of]["pass_32"][1] for of in (PLAIN, "step-8")) > 0.03
        (beside,) = (one for one in found["policies"] if one["policy"] == GUIDED)
        assert beside["low"] < 0 < beside["high"]
    without = RIVALS["without"]
    assert without["left_out"] == [13]
    of_base = {one["policy"]: one for one in without["differences"] if one["other"] == "base"}
    assert of_base["grpo"]["pass_1"][1] > 0 > of_base["grpo"]["pass_32"][2]  # rule 2 without it


def test_what_the_length_of_the_brief_study_rests_on() -> None:
    """The sum of its rates is that of 8 of 24 steps, after which no run without a guide looks."""
    kept = kept_tables.KEPT / "pretrained_short"
    steps = pd.read_csv(kept / "histories.csv.gz").set_index(["algorithm", "seed", "step"])
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-3)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, 12)  # a tenth of 12 steps
    rates = [schedule.lr_lambdas[0](step) * 1e-3 for step in range(12)]
    assert steps["learning_rate"].loc[PLAIN, 11].head(8).sum() == pytest.approx(0.0058, abs=5e-5)
    assert sum(rates) == pytest.approx(0.0060, abs=5e-5)
    assert round(steps["reward"].loc["grpo", 13, 8], 2) == 0.81
    counts = pd.read_parquet(kept / "free_rivals_counts.parquet")
    early = counts[(counts["algorithm"] == "step-8") & counts["stratum"].isin(kept_tables.SEEN)]
    rates_right = early["worked"].groupby([early["train_seed"], early["stratum"]]).mean() / 64
    assert round(100 * rates_right.groupby("train_seed").sum().max()) == 97


def test_runs_that_look_are_as_many_as_the_page_says() -> None:
    """Of both studies, methods with a KL term."""
    runs = [run for run in CONTENT["runs"] + SHORT["runs"] if run["method"] != "grpo_no_kl"]
    for guided, found in ((True, [3, 8]), (False, [3, 16])):
        own = [run for run in runs if (run["method"] == GUIDED) == guided]
        assert [sum(map(pretrained.looks, own)), len(own)] == found


@pytest.mark.parametrize("choice", ["all", "without"])
def test_rivals_follow_from_the_kept_counts(choice: str) -> None:
    kept, found = kept_tables.KEPT / "pretrained_short", RIVALS[choice]
    counts = pretrained_rivals.counts_of(kept, found["left_out"])
    policies = pretrained_rivals.policies(counts)
    for one, kept_one in zip(policies, found["policies"], strict=True):
        assert one.pop("policy") == kept_one["policy"]
        assert one == pytest.approx({name: kept_one[name] for name in one}, abs=2e-5)
    assert pretrained_rivals.differences(counts) == found["differences"]


@pytest.mark.parametrize(
    ("study", "content"), [("pretrained", CONTENT), ("pretrained_short", SHORT)]
)
def test_the_file_follows_from_the_kept_counts(study: str, content: dict[str, Any]) -> None:
    counts = pd.read_parquet(kept_tables.KEPT / study / "counts.parquet")
    for run in content["runs"]:
        own = counts[(counts["algorithm"] == run["method"]) & (counts["train_seed"] == run["seed"])]
        rates = own.groupby("stratum")["worked"].mean() / own["n_samples"].iloc[0]
        assert rates.to_dict() == pytest.approx(run["solved"]["strata"], abs=5e-5)


def test_a_run_is_known_by_both_ends(tmp_path: Path) -> None:
    """Rewards 0 to 19 hundredths: the first eight have the mean 3.5, the last eight 15.5."""
    folder = tmp_path / "grpo/seed7"
    folder.mkdir(parents=True)
    rows = pd.DataFrame(
        {
            "reward": [step / 100 for step in range(20)],
            "kl": [None] * 12 + [0.5] * 8,
            "sampler_gap_mean": [0.0] * 19 + [0.25],
            "seconds": 2.0,
        }
    )
    rows.to_json(folder / "history.jsonl", orient="records", lines=True)
    assert training_of(folder) == {
        "method": "grpo",
        "seed": 7,
        "steps": 20,
        "reward_first": 0.035,
        "reward_last": 0.155,
        "high": None,
        "kl_last": 0.5,
        "dose": None,
        "sampler_gap": 0.25,
        "seconds_a_step": 2.0,
    }


def test_a_cooled_base_is_counted_like_a_run(tmp_path: Path) -> None:
    """Of 64 draws of one sheet 16 are right; 8 right answers have a wrong step."""
    results = Results(tmp_path)
    results.problems(SHEETS).parent.mkdir()
    sheet = Problem("p", "Add a4+4 b2+6 c3+3", "886", "number", "plain", "sage/sums", "seed 1")
    write_problems([sheet], results.problems(SHEETS))
    slipped = RIGHT.replace("b2+6=1+7=8", "b2+6=1+6=8")
    rows = [(RIGHT, "correct")] * 16 + [(slipped, "correct")] * 8 + [("what?", "unparsed")] * 40
    frame = pd.DataFrame(rows, columns=["completion", "status"])
    frame = frame.assign(problem_id="p", answer="886")
    file = tmp_path / f"cooled/temperature-0.5/step0/sums/base/seed0/{SHEETS}.parquet"
    file.parent.mkdir(parents=True)
    frame.to_parquet(file)
    (found,) = pretrained.cooled_of(results)
    assert (found["temperature"], found["pass_1"]) == (0.5, 0.25)
    assert "| base at 0.5 | 25.0 |" in pretrained.render(
        {"base": found | {"forms": CONTENT["base"]["forms"]}, "cooled": [found], "runs": []}
    )
